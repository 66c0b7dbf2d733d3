"""Numbers that are stored as text are compared, sorted and added up as numbers, and shown as they are stored."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.offline.conftest import Ask, open_vocabulary
from tests.offline.questions import TODAY

from etude.offline.understand import Understanding, understand
from etude.offline.vocabulary import Vocabulary
from etude.sources.plan.compile import compile_plan


@pytest.fixture(scope="module")
def shops(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Vocabulary, Ask]]:
    """Shops with a text for the number of their staff, and with codes, levels and grades that are not amounts."""
    folder: Path = tmp_path_factory.mktemp("shops")
    path = str(folder / "shops.sqlite")
    writer = sqlite3.connect(path)
    writer.executescript(
        "CREATE TABLE shop (shop_id INTEGER PRIMARY KEY, name TEXT, num_of_staff TEXT, phone_number TEXT, "
        "level TEXT, ward TEXT, grade TEXT, aisle TEXT);"
        "INSERT INTO shop VALUES (1, 'Ash', '9', '5551', '1', '007', 'A', '1'),"
        "(2, 'Bay', '10', '5552', '2', '008', '2', '2'),"
        "(3, 'Cob', '110', '5553', '1', '009', '3', '4');"
    )
    writer.close()
    with open_vocabulary(path, folder / "home") as opened:
        yield opened


@pytest.mark.parametrize(
    ("question", "rows"),
    [
        ("What is the total number of staff of all shops?", [(129,)]),
        ("What are the names of shops with more than 9 staff?", [("Bay",), ("Cob",)]),
        ("What are the names of shops sorted by number of staff?", [("Ash",), ("Bay",), ("Cob",)]),
        ("What is the name of the shop with the highest number of staff?", [("Cob",)]),
        ("What are the names of shops whose number of staff is above the average?", [("Cob",)]),
        ("How many aisles are there?", [(3,)]),
        ("What is the highest aisle?", [("4",)]),
        ("Show the name and the num of staff of the shop Bay", [("Bay", "10")]),
    ],
)
def test_text_is_taken_as_numbers(question: str, rows: list[tuple[Any, ...]], shops: tuple[Vocabulary, Ask]) -> None:
    vocabulary, ask = shops
    found = understand(question, vocabulary, today=TODAY)
    assert isinstance(found, Understanding), found
    assert vocabulary.catalog is not None
    assert [row[: len(rows[0])] for row in ask(compile_plan(found.plan, vocabulary.catalog))] == rows, found.reading
    said = "`num_of_staff` is stored as text and is taken as numbers."
    assert (said in found.told) == ("staff" in question and "Bay" not in question)


def test_codes_and_texts_that_are_not_all_numbers_stay_text(shops: tuple[Vocabulary, Ask]) -> None:
    table = shops[0].table("shop")
    kinds = {column.name: (column.kind, column.as_text) for column in table.columns}
    assert kinds["num_of_staff"] == ("number", True)
    for name in ("phone_number", "level", "ward", "grade"):
        assert kinds[name] == ("text", False), name
