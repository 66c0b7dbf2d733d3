from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

from etude.ids import new_id


def test_an_id_names_its_noun() -> None:
    assert re.fullmatch(r"run_[0-9a-hjkmnp-tv-z]{26}", new_id("run"))


def test_ids_sort_by_the_time_they_were_made() -> None:
    made = [new_id("run") for _ in range(5000)]
    assert made == sorted(made)


def test_ids_are_unique_across_threads() -> None:
    with ThreadPoolExecutor(8) as pool:
        batches = list(pool.map(lambda _: [new_id("x") for _ in range(2000)], range(8)))
    assert len({made for batch in batches for made in batch}) == 16_000
    assert all(batch == sorted(batch) for batch in batches)
