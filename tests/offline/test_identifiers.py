"""Columns that identify rows, under many names: they are counted, never added up, averaged or compared."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from tests.offline.conftest import Ask

from etude.app import App
from etude.offline.understand import Clarification, Outcome, Refusal, Understanding, take_choice, understand
from etude.offline.vocabulary import Vocabulary
from etude.offline.vocabulary_build import build_vocabulary
from etude.offline.vocabulary_suggestions import suggest_from_vocabulary
from etude.sources.plan.compile import compile_plan
from etude.sources.plan.query_plan import Aggregate, ColumnRef, QueryPlan

TODAY = date(2026, 1, 15)
ROWS = 120
NAMES = [
    "Booking No", "booking_nr", "BookingNumber", "Booking #", "booking_id", "Booking Code", "bookingRef",
    "BOOKING_KEY", "Booking", "booking num", "Booking reference",
]  # fmt: skip
"""Names of a column that numbers the bookings of a file called `export`."""
STYLES = ["from one", "from thousand", "scattered", "by year", "two repeated"]


def numbers(style: str) -> list[int]:
    chance = random.Random(5)
    if style == "scattered":
        return chance.sample(range(10_000, 99_999), ROWS)
    start = {"from thousand": 1000, "by year": 20240001}.get(style, 1)
    made = list(range(start, start + ROWS))
    if style == "two repeated":
        made[40], made[90] = made[39], made[89]
    return made


def write_bookings(path: Path, name: str, style: str) -> None:
    lines = [f"{name},Guest,Status,Price,Nights"]
    for at, number in enumerate(numbers(style)):
        status = ("open", "paid", "cancelled")[at % 3]
        lines.append(f"{number},G{'abcdefghij'[at % 10]},{status},{20 + at % 17}.5,{1 + at % 4}")
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    with App(home=tmp_path_factory.mktemp("home"), record=False) as found:
        yield found


def look_at(app: App, path: Path) -> tuple[Vocabulary, Ask]:
    def run(sql: str) -> list[tuple[Any, ...]]:
        return app.sql(str(path), sql).rows()

    return build_vocabulary(app.catalog(str(path)), run), run


def plans_of(found: Outcome) -> Iterator[QueryPlan]:
    """Yield the plan of an answer, or those after each choice of a question back."""
    if isinstance(found, Understanding):
        yield found.plan
    elif isinstance(found, Clarification):
        for choice in found.choices:
            yield from plans_of(take_choice(found, choice.label))


def computed(value: Any) -> Iterator[Aggregate]:
    """Yield each measure of a plan, those of inner plans too."""
    if isinstance(value, Aggregate):
        yield value
    if isinstance(value, list | tuple):
        for each in value:
            yield from computed(each)
    elif hasattr(type(value), "model_fields"):
        for field in type(value).model_fields:
            yield from computed(getattr(value, field))


def rows_of(found: Outcome, vocabulary: Vocabulary, ask: Ask) -> list[tuple[Any, ...]]:
    assert isinstance(found, Understanding), found
    assert vocabulary.catalog is not None
    return [tuple(row) for row in ask(compile_plan(found.plan, vocabulary.catalog))]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", NAMES)
def test_a_column_that_identifies_rows_is_counted_and_never_computed_with(
    name: str, style: str, app: App, tmp_path: Path
) -> None:
    path = tmp_path / "export.csv"
    write_bookings(path, name, style)
    vocabulary, ask = look_at(app, path)
    spoken = "booking number" if "No" in name or "n" in name.lower()[8:9] else name.lower()
    asked = [f"{fold} {spoken}" for fold in ("average", "total", "highest", "lowest", "median", "sum of the")]
    asked += [f"{fold} {spoken} per status" for fold in ("average", "total", "maximum")]
    asked += ["bookings by guest", "top 3 guests by bookings", "which guest has the most bookings?", "average bookings"]
    asked += ["total bookings by status", "top 5 bookings by price", "bookings per status as a share"]
    asked += [meant.text for meant in suggest_from_vocabulary(vocabulary, TODAY)]
    counts = {
        "how many bookings do I have?": [(ROWS,)],
        "number of bookings by status": [("cancelled", ROWS // 3), ("open", ROWS // 3), ("paid", ROWS // 3)],
        "how many bookings were cancelled?": [(ROWS // 3,)],
    }
    for question in (*asked, *counts):
        for plan in plans_of(understand(question, vocabulary, today=TODAY)):
            for measure in computed(plan):
                held = isinstance(measure.of, ColumnRef) and measure.of.column == name
                assert not held or measure.fn == "count", (question, plan)
    for question, rows in counts.items():
        assert sorted(rows_of(understand(question, vocabulary, today=TODAY), vocabulary, ask)) == rows
    shared = understand("what share of bookings were cancelled?", vocabulary, today=TODAY)
    assert rows_of(shared, vocabulary, ask) == [(pytest.approx(1 / 3),)]
    for meant in suggest_from_vocabulary(vocabulary, TODAY):
        assert spoken not in meant.text.lower() or spoken == "booking"


def test_the_answer_says_that_some_numbers_occur_twice(app: App, tmp_path: Path) -> None:
    path = tmp_path / "export.csv"
    write_bookings(path, "Booking No", "two repeated")
    vocabulary, _ = look_at(app, path)
    found = understand("how many bookings are there?", vocabulary, today=TODAY)
    assert isinstance(found, Understanding)
    assert found.told == ("Rows are counted: `Booking No` has 118 different values in the 120 rows of `export`.",)


def test_a_number_that_many_rows_share_is_counted_by_its_different_values(app: App, tmp_path: Path) -> None:
    path = tmp_path / "lines.csv"
    lines = ["Order No,Article,Amount"]
    lines += [f"{5000 + at // 3},A{at % 7},{at % 11}" for at in range(90)]
    path.write_text("\n".join(lines) + "\n")
    vocabulary, ask = look_at(app, path)
    found = understand("how many orders are there?", vocabulary, today=TODAY)
    assert rows_of(found, vocabulary, ask) == [(30,)]
    assert isinstance(understand("average order no", vocabulary, today=TODAY), Refusal)
    # The average of the lines of each order, or the total divided by the number of orders?
    assert isinstance(understand("average amount per order", vocabulary, today=TODAY), Refusal)


@pytest.mark.parametrize("name", ["No of guests", "Number of guests", "guest_count", "Guests", "num_guests"])
def test_a_count_is_still_added_up(name: str, app: App, tmp_path: Path) -> None:
    path = tmp_path / "nights.csv"
    path.write_text(f"Day,{name}\n" + "".join(f"D{at},{at * 3}\n" for at in range(1, 41)))
    vocabulary, ask = look_at(app, path)
    found = understand("how many guests are there in total?", vocabulary, today=TODAY)
    assert rows_of(found, vocabulary, ask) == [(3 * 820,)]
