"""Which nouns mean the rows of a source with one table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from tests.offline.conftest import open_vocabulary

from etude.app import App
from etude.offline.understand import Clarification, Refusal, Understanding, take_choice, understand
from etude.offline.vocabulary import Vocabulary
from etude.offline.vocabulary_build import build_vocabulary
from etude.sources.plan.compile import compile_plan

TODAY = date(2026, 1, 15)
Rows = list[tuple[Any, ...]]
Opened = tuple[Vocabulary, Callable[[str], Rows]]
FILES = {
    "bestellungen": ("Nr,Datum,Kunde,Artikel,Land,Betrag", "{n},2025-{m:02d}-11,{name},{thing},{land},{amount}"),
    "eng": ("Nr,Date,Place,Amount", "{n},2025-{m:02d}-11,{land},{amount}"),
    "titanic": ("Survived,Sex,Age,Fare,Deck", "{bit},{sex},{age},{amount},{deck}"),
    "metro": ("Name,Opened,Depth", "Stop {word},{year},{amount}"),
}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Opened]]:
    folder = tmp_path_factory.mktemp("rows")
    made: dict[str, Opened] = {}
    with App(home=folder / "home", record=False) as app:
        for file, (head, line) in FILES.items():
            path = folder / f"{file}.csv"
            lines = [
                line.format(
                    n=n + 1,
                    m=1 + n % 12,
                    name=("Meier", "Huber", "Kranz", "Voss")[n % 4],
                    thing=("Lampe", "Tisch", "Stuhl")[n % 3],
                    land=("DE", "AT")[n % 2],
                    amount=10 + n * 7 % 90,
                    bit=n % 2,
                    sex=("male", "female")[n % 2],
                    age=20 + n % 50,
                    deck="ABC"[n % 3],
                    word=chr(97 + n // 26) + chr(97 + n % 26),
                    year=1950 + n % 60,
                )
                for n in range(120)
            ]
            path.write_text("\n".join([head, *lines]) + "\n")

            def run(sql: str, path: Path = path) -> Rows:
                return app.sql(str(path), sql).rows()

            made[file] = build_vocabulary(app.catalog(str(path)), run), run
        yield made


@pytest.mark.parametrize(
    ("file", "question", "word"),
    [
        ("bestellungen", "how many customers are there?", "customers"),
        ("bestellungen", "how many different products are there?", "products"),
        ("bestellungen", "how many clients bought a Lampe", "clients"),
        ("bestellungen", "how many countries are there", "countries"),
        ("bestellungen", "how many suppliers are there", "suppliers"),
        ("bestellungen", "how many unique orders are there", "orders"),
        ("bestellungen", "number of distinct invoices", "invoices"),
        ("bestellungen", "customers per month", "customers"),
        ("bestellungen", "list all products", "products"),
        ("eng", "how many customers are there?", "customers"),
        ("eng", "how many shops are there", "shops"),
        ("eng", "average amount of employees", "employees"),
        ("titanic", "how many different passengers are there", "passengers"),
        ("titanic", "how many children are there", "children"),
        ("titanic", "how many adults are there", "adults"),
        ("titanic", "how many products are there", "products"),
    ],
)
def test_a_noun_that_a_column_may_hold_is_refused(
    file: str, question: str, word: str, sources: dict[str, Opened]
) -> None:
    found = understand(question, sources[file][0], today=TODAY)
    assert isinstance(found, Refusal), found
    assert f"`{word}`" in found.reason


@pytest.mark.parametrize(
    ("file", "question", "where"),
    [
        ("bestellungen", "how many rows are there", "true"),
        ("bestellungen", "how many records are there", "true"),
        ("bestellungen", "how many orders are there", "true"),
        ("bestellungen", "how many orders in DE", "Land = 'DE'"),
        ("titanic", "how many passengers are there", "true"),
        ("titanic", "how many passengers older than 30", "Age > 30"),
        ("titanic", "how many people are there", "true"),
        ("metro", "how many stations are there", "true"),
    ],
)
def test_a_noun_that_can_only_be_the_rows_counts_them(
    file: str, question: str, where: str, sources: dict[str, Opened]
) -> None:
    vocabulary, run = sources[file]
    found = understand(question, vocabulary, today=TODAY)
    assert isinstance(found, Understanding), found
    assert vocabulary.catalog is not None
    rows = [tuple(row) for row in run(compile_plan(found.plan, vocabulary.catalog))]
    assert rows == run(f"SELECT count(*) FROM {file} WHERE {where}")


@pytest.mark.parametrize(
    ("question", "column"),
    [
        ("how many passengers over 30", "Age"),
        ("number of passengers under 18", "Age"),
        ("how many people over 65 are there", "Age"),
        ("how many passengers over 300", "Fare"),
        ("how many tickets over 30", "Fare"),
        ("how many passengers over 30 dollars", "Fare"),
    ],
)
def test_a_bare_number_after_people_is_their_age(question: str, column: str, sources: dict[str, Opened]) -> None:
    found = understand(question, sources["titanic"][0], today=TODAY)
    assert isinstance(found, Understanding), found
    assert f"`titanic.{column}` " in found.reading


def test_people_without_an_age_are_asked_back(tmp_path: Path) -> None:
    path = tmp_path / "guests.csv"
    path.write_text("name,price,nights,distance\n" + "".join(f"G{n},{n * 7 % 90},{n % 9},{n * 3}\n" for n in range(40)))
    with App(home=tmp_path / "home", record=False) as app:
        vocabulary = build_vocabulary(app.catalog(str(path)), lambda sql: app.sql(str(path), sql).rows())
    found = understand("how many guests over 30", vocabulary, today=TODAY)
    assert isinstance(found, Clarification), found
    assert [c.label for c in found.choices] == ["guests.price", "guests.nights", "guests.distance"]
    chosen = take_choice(found, "nights")
    assert isinstance(chosen, Understanding) and "`guests.nights` > 30" in chosen.reading


@pytest.fixture(scope="module")
def shifts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vocabulary]:
    """Shifts of a hospital, with a column that says early or late, and one that numbers them."""
    folder = tmp_path_factory.mktemp("shifts")
    lines = [f"{n},N{n % 5},{('Early', 'Late', 'Night')[n % 3]},{n % 7 + 4}" for n in range(1, 61)]
    (folder / "hospital_shifts.csv").write_text("\n".join(["ShiftNo,Nurse,Shift,BreakMinutes", *lines, ""]))
    with open_vocabulary(str(folder / "hospital_shifts.csv"), folder / "home") as (vocabulary, _):
        yield vocabulary


@pytest.mark.parametrize(
    ("question", "reading"),
    [
        ("how many shifts are recorded?", "Number of `hospital_shifts`."),
        ("how many late shifts?", "Number of `hospital_shifts`, where `hospital_shifts.Shift` is `Late`."),
        ("nurses with at least 12 shifts", "with number of `hospital_shifts` >= 12."),
        ("how many different shifts are there?", "Number of different `hospital_shifts.Shift`."),
    ],
)
def test_the_last_word_of_a_table_names_its_rows(question: str, reading: str, shifts: Vocabulary) -> None:
    found = understand(question, shifts, today=TODAY)
    assert isinstance(found, Understanding) and reading in found.reading


@pytest.mark.parametrize("question", ["slowest break", "what do the nurses earn?"])
def test_a_word_whose_meaning_the_data_do_not_tell_is_refused(question: str, shifts: Vocabulary) -> None:
    assert isinstance(understand(question, shifts, today=TODAY), Refusal)
