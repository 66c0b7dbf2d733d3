"""Tables that are named like their own number: `sales.csv` with a column `sales`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.offline.conftest import Ask, Rows, open_vocabulary
from tests.offline.questions import TODAY

from etude.offline.understand import Clarification, Refusal, Understanding, take_choice, understand
from etude.offline.vocabulary import Vocabulary
from etude.sources.plan.compile import compile_plan

FILES = {
    "sales": "region,month,sales\nNorth,2026-01-01,100\nNorth,2026-02-01,150\n"
    "South,2026-01-01,80\nSouth,2026-02-01,70\n",
    "expenses": "date,category,expense\n2026-01-03,food,12.5\n2026-01-09,rent,800\n2026-02-01,food,20\n",
    "scores": "student,subject,score\nAnn,math,80\nAnn,art,90\nBob,math,60\n",
    "visitors": "month,visitors,signups\n2026-01-01,1000,50\n2026-02-01,2000,60\n",
    "daily_donations": "day,donations\n2026-01-01,10\n2026-01-02,30\n2026-01-03,30\n",
    "balances": "as_of,account,balance\n2026-01-31,A,10.5\n2026-01-31,B,20\n2026-02-28,A,30\n2026-02-28,B,40.5\n",
}
Known = dict[str, tuple[Vocabulary, Ask]]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Known]:
    folder = tmp_path_factory.mktemp("own")
    found: Known = {}
    opened = []
    for name, text in FILES.items():
        path = folder / f"{name}.csv"
        path.write_text(text)
        source = open_vocabulary(str(path), folder / "home" / name)
        found[name] = source.__enter__()
        opened.append(source)
    yield found
    for source in opened:
        source.__exit__(None, None, None)


def answer(question: str, name: str, known: Known) -> Rows:
    vocabulary, ask = known[name]
    found = understand(question, vocabulary, today=TODAY)
    assert isinstance(found, Understanding), found
    assert vocabulary.catalog is not None
    return sorted(ask(compile_plan(found.plan, vocabulary.catalog)), key=str)


@pytest.mark.parametrize(
    ("name", "question", "rows"),
    [
        ("sales", "total sales", [(400,)]),
        ("sales", "sum of sales", [(400,)]),
        ("sales", "what were our total sales?", [(400,)]),
        ("sales", "sales by region", [("North", 250), ("South", 150)]),
        ("sales", "sum of sales per region", [("North", 250), ("South", 150)]),
        ("sales", "average sales", [(100,)]),
        ("sales", "max sales", [(150,)]),
        ("sales", "sales in january 2026", [(180,)]),
        ("sales", "total sales in North", [(250,)]),
        ("expenses", "total expenses", [(832.5,)]),
        ("expenses", "expenses per category", [("food", 32.5), ("rent", 800)]),
        ("expenses", "total expense in january 2026", [(812.5,)]),
        ("expenses", "how many expenses are there", [(3,)]),
        ("scores", "total score", [(230,)]),
        ("scores", "average score per student", [("Ann", 85), ("Bob", 60)]),
        ("scores", "sum of scores by subject", [("art", 90), ("math", 140)]),
        ("scores", "highest score", [(90,)]),
        ("scores", "how many scores are there", [(3,)]),
        ("visitors", "total visitors", [(3000,)]),
        ("daily_donations", "total donations", [(70,)]),
        ("daily_donations", "average donations", [(70 / 3,)]),
        ("balances", "average balance", [(25.25,)]),
        ("balances", "total balance in february 2026", [(70.5,)]),
        ("balances", "number of balances", [(4,)]),
    ],
)
def test_the_noun_of_such_a_table_means_its_number_where_a_number_is_asked_for(
    name: str, question: str, rows: Rows, known: Known
) -> None:
    assert answer(question, name, known) == [
        tuple(pytest.approx(v) if isinstance(v, float) else v for v in r) for r in rows
    ]


def test_months_have_the_sum_of_the_number(known: Known) -> None:
    assert [row[-1] for row in answer("monthly sales", "sales", known)] == [180, 220]


@pytest.mark.parametrize(("choice", "rows"), [("1", [(1,)]), ("2", [(1000,)])])
def test_how_many_is_asked_back_if_the_column_holds_whole_numbers(choice: str, rows: Rows, known: Known) -> None:
    vocabulary, ask = known["visitors"]
    found = understand("how many visitors in january 2026", vocabulary, today=TODAY)
    assert isinstance(found, Clarification), found
    chosen = take_choice(found, choice)
    assert isinstance(chosen, Understanding) and vocabulary.catalog is not None
    assert ask(compile_plan(chosen.plan, vocabulary.catalog)) == rows


@pytest.mark.parametrize(
    ("name", "question", "word"),
    [
        ("visitors", "signups per visitor", "per visitor"),
        ("balances", "total balance", "balance"),
        ("balances", "sum of balance", "balance"),
        ("balances", "total balance by account", "as_of"),
    ],
)
def test_it_refuses_what_may_be_divided_or_counts_the_same_again(
    name: str, question: str, word: str, known: Known
) -> None:
    found = understand(question, known[name][0], today=TODAY)
    assert isinstance(found, Refusal), found
    assert word in found.reason


def test_a_list_of_such_a_table_has_its_rows(known: Known) -> None:
    assert len(answer("list all sales", "sales", known)) == 4


def test_different_numbers_of_that_name_are_no_key(known: Known, tmp_path: Path) -> None:
    assert known["sales"][0].table("sales").key == ()
    path = tmp_path / "rooms.csv"
    path.write_text("room,floor\n101,1\n205,2\n307,3\n")
    with open_vocabulary(str(path), tmp_path / "home") as (vocabulary, _):
        assert vocabulary.tables[0].key == ("room",)
