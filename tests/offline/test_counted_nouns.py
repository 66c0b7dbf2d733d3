"""What `how many` counts in a file: never amounts as rows, nor rows as the things whose names they repeat."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from tests.offline.conftest import open_vocabulary

from etude.offline.understand import Refusal, Understanding, understand
from etude.offline.vocabulary import Vocabulary

TODAY = date(2026, 11, 18)
COUNTERS = "day,counter name,district,kg,organic\n" + "".join(
    f"2024-01-{1 + n // 3:02},counter {n % 3},{'north' if n % 2 else 'south'},{n},{'yes' if n % 4 else 'no'}\n"
    for n in range(60)
)


@pytest.fixture(scope="module")
def counters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vocabulary]:
    path: Path = tmp_path_factory.mktemp("counters") / "bike_counters.csv"
    path.write_text(COUNTERS)
    with open_vocabulary(str(path), path.parent / "home") as (vocabulary, _):
        yield vocabulary


@pytest.mark.parametrize(
    ("question", "why"),
    [
        ("how many counters are there", "repeat each `counter name`"),
        ("number of counters per district", "repeat each `counter name`"),
        ("how many kilos were collected in the north", "kilos"),
        ("how many counters are organic", "organic|repeat each"),
    ],
)
def test_a_count_that_may_be_of_something_else_is_refused(counters: Vocabulary, question: str, why: str) -> None:
    found = understand(question, counters, today=TODAY)
    assert isinstance(found, Refusal) and re.search(why, found.reason), found


@pytest.mark.parametrize("question", ["how many rows are there", "how many different counter names are there"])
def test_a_count_that_is_clear_is_answered(counters: Vocabulary, question: str) -> None:
    assert isinstance(understand(question, counters, today=TODAY), Understanding)


def test_the_plural_of_a_short_value_is_that_value(tmp_path: Path) -> None:
    path = tmp_path / "pets.csv"
    path.write_text("name,species,weight\n" + "".join(f"p{n},{('dog', 'cat')[n % 2]},{n}\n" for n in range(12)))
    with open_vocabulary(str(path), tmp_path / "home") as (vocabulary, _):
        for question in ("how many dogs", "average weight of dogs"):
            found = understand(question, vocabulary, today=TODAY)
            assert isinstance(found, Understanding) and "`pets.species` is `dog`" in found.reading, found


@pytest.mark.parametrize(
    "question", ["how many visits were done", "done visits", "how many visits were done in 2024", "visits that are on"]
)
def test_a_word_that_is_a_value_is_not_dropped(tmp_path: Path, question: str) -> None:
    path = tmp_path / "visits.csv"
    rows = "".join(
        f"{n},2024-01-{n + 1:02},{('done', 'missed')[n % 2]},{('on', 'off')[n % 3 == 0]}\n" for n in range(20)
    )
    path.write_text(f"id,day,status,light\n{rows}")
    with open_vocabulary(str(path), tmp_path / "home") as (vocabulary, _):
        found = understand(question, vocabulary, today=TODAY)
        assert isinstance(found, Refusal) or " is `" in found.reading, found
        assert isinstance(understand("how many visits were there in 2024", vocabulary, today=TODAY), Understanding)
