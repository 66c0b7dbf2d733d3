"""Definitions of playbooks, and the rules that answer questions by them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.app import App
from etude.entities import SourceSpec
from etude.errors import Invalid, NotUnderstood
from etude.playbook import Definition, Playbook, apply_playbook_definitions, find_playbook_definitions


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    rows = [f"{n},{'north' if n % 2 else 'south'},{10 * n},{n}" for n in range(1, 7)]
    (tmp_path / "orders.csv").write_text("order_id,region,amount,refund\n" + "\n".join(rows) + "\n")
    with App(home=tmp_path / "home") as opened:
        opened.add_source("shop", SourceSpec(url=str(tmp_path / "orders.csv")))
        yield opened


def add(app: App, means: str) -> None:
    app.playbooks.add_text(f"---\nname: words\ndescription: What words mean\nmetadata:\n  means: {means}\n---\n")


def test_a_synonym_of_a_playbook_is_understood_without_a_model(app: App) -> None:
    question = "What is the total haul for each region?"
    assert isinstance(app.ask("shop", question, model="offline").error, NotUnderstood)
    add(app, "{haul: amount}")
    answer = app.ask("shop", question, model="offline")
    assert answer.result is not None
    assert sorted(answer.result.rows()) == [("north", 90), ("south", 120)]
    assert "`haul` means “amount” (playbook `words`)" in answer.reading


def test_a_longer_definition_replaces_the_word(app: App) -> None:
    add(app, '{big orders: "orders with an amount over 30"}')
    answer = app.ask("shop", "How many big orders are there?", model="offline")
    assert answer.result is not None
    assert answer.result.rows() == [(3,)]


@pytest.mark.parametrize(
    ("meaning", "question", "rows"),
    [
        ("amount minus refund", "total revenue", [(189,)]),
        ("`amount` minus `refund`", "revenue by region", [("north", 81), ("south", 108)]),
        ("amount plus refund", "average revenue", [(38.5,)]),
        ("amount times refund", "highest revenue", [(360,)]),
        ("total amount", "total revenue", [(210,)]),
    ],
)
def test_a_definition_may_calculate_with_two_columns(
    app: App, meaning: str, question: str, rows: list[tuple[object, ...]]
) -> None:
    app.ask("shop", question, model="offline")  # an answer of another meaning must not be replayed
    add(app, f'{{revenue: "{meaning}"}}')
    answer = app.ask("shop", question, model="offline")
    assert answer.result is not None, answer.error
    assert sorted(answer.result.rows()) == rows
    assert f"`revenue` means “{meaning}” (playbook `words`)" in answer.reading


def test_what_is_missing_is_not_taken_off(app: App, tmp_path: Path) -> None:
    (tmp_path / "sales.csv").write_text("sale_id,amount,refund\n1,10,4\n2,20,\n")
    app.add_source("sales", SourceSpec(url=str(tmp_path / "sales.csv")))
    add(app, '{revenue: "amount minus refund"}')
    answer = app.ask("sales", "total revenue", model="offline")
    assert answer.result is not None
    assert answer.result.rows() == [(26,)]
    assert "(none if it is missing)" in answer.reading


def test_a_calculation_with_unknown_columns_is_refused(app: App) -> None:
    assert app.ask("shop", "total revenue", model="offline").error is None
    add(app, '{revenue: "amount minus tax"}')
    answer = app.ask("shop", "total revenue", model="offline")
    assert isinstance(answer.error, NotUnderstood)


def test_a_definition_that_the_rules_cannot_compute_is_not_ignored(app: App) -> None:
    question = "What is the total amount?"
    assert app.ask("shop", question, model="offline").error is None
    add(app, '{amount: "whatever the auditors like"}')
    error = app.ask("shop", question, model="offline", fresh=True).error
    assert isinstance(error, NotUnderstood)
    assert "`amount` means “whatever the auditors like” (playbook `words`)" in error.message


def test_definitions_are_pairs_or_sentences_about_a_trigger() -> None:
    text = "Revenue means net of refunds.\n- **Turnover** means revenue\nThat means trouble.\nIt means what it means."
    playbook = Playbook(name="revenue", description="x", text=text)
    found = {d.phrase: d.meaning for d in find_playbook_definitions(playbook, {"Sales": "amount"}, ["turnover"])}
    assert found == {"sales": "amount", "revenue": "net of refunds", "turnover": "revenue"}
    with pytest.raises(Invalid, match="Write pairs below it"):
        list(find_playbook_definitions(playbook, "revenue", []))


WORDS = st.text("abc ", min_size=1, max_size=6).map(str.strip).filter(bool)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(WORDS, WORDS, max_size=4), st.lists(WORDS, max_size=6).map(" ".join))
def test_only_whole_phrases_are_replaced_and_definitions_never_loop(means: dict[str, str], question: str) -> None:
    definitions = [Definition(phrase=p, meaning=m, playbook="x") for p, m in means.items()]
    asked, used = apply_playbook_definitions(question, definitions)
    assert {d.phrase for d in used} <= means.keys()
    if not used:
        assert asked == question
    assert apply_playbook_definitions(question, []) == (question, [])
