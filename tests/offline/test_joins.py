"""The ways between tables: the cheapest, all that are as cheap, in a fixed order, and in time that does not explode."""

from __future__ import annotations

import heapq
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.cancellation import Cancellation
from etude.errors import Cancelled
from etude.offline.deadline import OutOfTime, within_deadline
from etude.offline.joins import FAR, Hop, Path, find_join_paths, join_distance, join_hops
from etude.offline.vocabulary import Link, Vocabulary, VocabularyTable


def make(links: list[tuple[int, int]]) -> Vocabulary:
    tables = sorted({end for link in links for end in link} | {0, 1})
    known = tuple(VocabularyTable(f"t{n}", 1, ()) for n in tables)
    joined = tuple(Link(f"t{a}", (f"to{b}_{n}",), f"t{b}", ("id",)) for n, (a, b) in enumerate(links))
    return Vocabulary("x", "sqlite", known, joined)


def enumerate_paths(vocabulary: Vocabulary, start: str, end: str) -> tuple[int, tuple[Path, ...]]:
    """Every path by its cost: what `find_join_paths` must give, at a price that grows beyond all bounds."""
    graph, queue = join_hops(vocabulary), [(0, 0, start, ())]
    best: dict[tuple[str, bool], int] = {}
    found: list[Path] = []
    lowest = FAR
    count = 0
    while queue and len(found) < 8:
        cost, _, table, path = heapq.heappop(queue)
        if cost > lowest or len(path) > 6:
            continue
        if table == end:
            lowest = cost
            found.append(path)
            continue
        up = bool(path) and not path[-1].back
        if best.get((table, up), FAR) < cost:
            continue
        best[table, up] = cost
        for hop in graph.get(table, ()):
            if hop.to_table != start and not any(hop.to_table in (s.table, s.to_table) for s in path):
                count += 1
                heapq.heappush(queue, (cost + (4 if up and hop.back else 1), count, hop.to_table, (*path, hop)))
    return lowest, tuple(found)


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=12))
@settings(max_examples=300, deadline=None)
def test_the_paths_are_those_of_a_full_search(links: list[tuple[int, int]]) -> None:
    vocabulary = make(links)
    for start in vocabulary.tables:
        for end in vocabulary.tables:
            if start is not end:
                expected = enumerate_paths(vocabulary, start.name, end.name)
                assert find_join_paths(vocabulary, start.name, end.name) == expected
                assert join_distance(vocabulary, start.name, end.name) == expected[0]


def test_to_a_shared_table_and_down_again_costs_more() -> None:
    vocabulary = make([(0, 2), (1, 2)])
    assert join_distance(vocabulary, "t0", "t1") == 5
    (path,) = find_join_paths(vocabulary, "t0", "t1")[1]
    assert [hop.to_table for hop in path] == ["t2", "t1"]
    assert path[0] == Hop("t0", ("to2_0",), "t2", ("id",), to_one=True)


def test_tables_that_all_refer_to_each_other_are_no_maze() -> None:
    everything = make([(a, b) for a in range(60) for b in range(60) if a != b])
    cost, paths = find_join_paths(everything, "t0", "t1")
    assert (cost, len(paths)) == (1, 2)


def test_a_search_ends_when_it_is_cancelled_or_out_of_time() -> None:
    cancel = Cancellation()
    cancel.cancel()
    with within_deadline(math.inf, cancel), pytest.raises(Cancelled):
        join_distance(make([(0, 1)]), "t0", "t1")
    with within_deadline(-1, Cancellation()), pytest.raises(OutOfTime):
        join_distance(make([(0, 1)]), "t0", "t1")
    assert join_distance(make([(0, 1)]), "t0", "t1") == 1
