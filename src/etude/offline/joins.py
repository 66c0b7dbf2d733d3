"""How tables connect: the shortest ways along keys, and whether a way multiplies rows."""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache

from etude.offline.vocabulary import Vocabulary

FAR = 99


@dataclass(frozen=True)
class Hop:
    """One step from a table to another along a key."""

    table: str
    columns: tuple[str, ...]
    to_table: str
    to_columns: tuple[str, ...]
    to_one: bool
    """Each row on this side meets at most one on the other."""
    back: bool = False
    """It leads to the table that refers, not to the one referred to."""


Path = tuple[Hop, ...]


@lru_cache(maxsize=8)
def hops_of(vocabulary: Vocabulary) -> dict[str, tuple[Hop, ...]]:
    """All steps that leave each table."""
    hops: dict[str, list[Hop]] = defaultdict(list)
    for link in vocabulary.links:
        hops[link.table].append(Hop(link.table, link.columns, link.to_table, link.to_columns, to_one=True))
        back = Hop(link.to_table, link.to_columns, link.table, link.columns, link.one_to_one, back=True)
        hops[link.to_table].append(back)
    return {table: tuple(found) for table, found in hops.items()}


@lru_cache(maxsize=4096)
def find_paths(vocabulary: Vocabulary, start: str, end: str) -> tuple[int, tuple[Path, ...]]:
    """The cost of the cheapest ways and the ways themselves, at most eight.

    To a shared third table and down again costs more than two steps: things that merely share a city or a year are
    seldom what a question connects.
    """
    if start == end:
        return 0, ((),)
    graph = hops_of(vocabulary)
    queue: list[tuple[int, int, str, Path]] = [(0, 0, start, ())]
    best: dict[tuple[str, bool], int] = {}
    found: list[Path] = []
    lowest, count = FAR, 0
    while queue:
        cost, _, table, path = heapq.heappop(queue)
        if cost > lowest or len(path) > 6:
            continue
        if table == end:
            lowest = cost
            found.append(path)
            if len(found) == 8:
                break
            continue
        up = bool(path) and not path[-1].back
        if best.get((table, up), FAR) < cost:
            continue
        best[table, up] = cost
        for hop in graph.get(table, ()):
            if any(hop.to_table in (step.table, step.to_table) for step in path) or hop.to_table == start:
                continue
            count += 1
            step_cost = 4 if up and hop.back else 1
            heapq.heappush(queue, (cost + step_cost, count, hop.to_table, (*path, hop)))
    return lowest, tuple(found)


def distance(vocabulary: Vocabulary, start: str, end: str) -> int:
    """What it costs to get from one table to another."""
    return find_paths(vocabulary, start, end)[0]


def to_one(path: Path) -> bool:
    """Whether every row meets at most one at the end of the path."""
    return all(hop.to_one for hop in path)
