"""How tables connect: the cheapest paths along keys, and whether a path multiplies rows."""

from __future__ import annotations

import heapq
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from etude.offline.deadline import check_deadline, without_giving_way
from etude.offline.vocabulary import Vocabulary, once_per_vocabulary

FAR = 99


@dataclass(frozen=True)
class Hop:
    """One step from a table to another along a key."""

    table: str
    columns: tuple[str, ...]
    to_table: str
    to_columns: tuple[str, ...]
    to_one: bool
    """Each row on this side matches at most one on the other."""
    back: bool = False
    """The hop follows the key backwards, to the table that refers."""


Path = tuple[Hop, ...]


MOST_HOPS = 6
MOST_PATHS = 8
_MOST_KEPT = 1_000
"""How many tables' distances, and how many pairs' paths, stay in memory."""
_State = tuple[str, bool]
"""A table, and whether the last hop led up, to a table that is referred to."""


@once_per_vocabulary
def join_hops(vocabulary: Vocabulary) -> dict[str, tuple[Hop, ...]]:
    """Return the hops that leave each table."""
    hops: dict[str, list[Hop]] = defaultdict(list)
    for link in vocabulary.links:
        hops[link.table].append(Hop(link.table, link.columns, link.to_table, link.to_columns, to_one=True))
        back = Hop(link.to_table, link.to_columns, link.table, link.columns, link.one_to_one, back=True)
        hops[link.to_table].append(back)
    return {table: tuple(found) for table, found in hops.items()}


class _Reach:
    """The costs from one table to the others, computed only as far as needed.

    Going up to a shared third table and down again costs more than two hops, because questions seldom connect things
    that merely share a city or a year. So the cost depends on the previous hop, and is kept per state.
    """

    def __init__(self, graph: dict[str, tuple[Hop, ...]], start: str) -> None:
        self._graph = graph
        self._start = start
        self._queue: list[tuple[int, int, str, bool]] = [(0, 0, start, False)]
        self._costs: dict[str, int] = {}
        self._complete = False
        self.states: dict[_State, int] = {}

    def known_cost(self, end: str) -> int | None:
        """Return the cost if it was computed. It never changes again, so this needs no lock."""
        return self._costs.get(end, FAR if self._complete else None)

    def costs_to(self, ends: Sequence[str]) -> list[int]:
        for end in ends:
            if self._complete:
                break
            self.cost_to(end)
        return [self._costs.get(end, FAR) for end in ends]

    def cost_to(self, end: str) -> int:
        while end not in self._costs and self._queue:
            check_deadline()
            self._settle()
        self._complete = not self._queue
        return self._costs.get(end, FAR)

    def _settle(self) -> None:
        cost, length, table, up = heapq.heappop(self._queue)
        if (table, up) in self.states:
            return
        self.states[table, up] = cost
        self._costs.setdefault(table, cost)
        if length == MOST_HOPS:
            return
        for hop in self._graph.get(table, ()):
            if hop.to_table not in (table, self._start) and (hop.to_table, not hop.back) not in self.states:
                item = (cost + join_step_cost(up, hop), length + 1, hop.to_table, not hop.back)
                heapq.heappush(self._queue, item)


def join_step_cost(up: bool, hop: Hop) -> int:
    """Return the cost of a hop, given whether the previous one led up."""
    return 4 if up and hop.back else 1


@dataclass
class _Routes:
    """The paths between the tables of a vocabulary that were computed so far."""

    hops: dict[str, tuple[Hop, ...]]
    into: dict[str, list[Hop]]
    lock: threading.RLock = field(default_factory=threading.RLock)
    """Guards the reaches: each grows while it is read, and several runs may read the same one."""
    reaches: dict[str, _Reach] = field(default_factory=dict)
    paths: dict[tuple[str, str], tuple[int, tuple[Path, ...]]] = field(default_factory=dict)

    def reach(self, start: str) -> _Reach:
        found = self.reaches.get(start)
        if found is None:
            if len(self.reaches) >= _MOST_KEPT:
                self.reaches.clear()
            found = self.reaches[start] = _Reach(self.hops, start)
        return found


@once_per_vocabulary
def _routes_of(vocabulary: Vocabulary) -> _Routes:
    hops, into = join_hops(vocabulary), defaultdict(list)
    for leaving in hops.values():
        for hop in leaving:
            into[hop.to_table].append(hop)
    return _Routes(hops, into)


def join_distance(vocabulary: Vocabulary, start: str, end: str) -> int:
    """Return the cost of the cheapest path between two tables."""
    routes = _routes_of(vocabulary)
    reach = routes.reaches.get(start)
    known = reach.known_cost(end) if reach is not None else None
    if known is not None:
        return known
    with without_giving_way(), routes.lock:
        return routes.reach(start).cost_to(end)


def join_distances(vocabulary: Vocabulary, start: str, ends: Sequence[str]) -> list[int]:
    """Return the costs of the cheapest paths from one table to each of the others."""
    routes = _routes_of(vocabulary)
    with without_giving_way(), routes.lock:
        return routes.reach(start).costs_to(ends)


def find_join_paths(vocabulary: Vocabulary, start: str, end: str) -> tuple[int, tuple[Path, ...]]:
    """Return the lowest cost and at most eight paths of that cost; those with cheap first hops come first."""
    if start == end:
        return 0, ((),)
    routes = _routes_of(vocabulary)
    with without_giving_way(), routes.lock:
        found = routes.paths.get((start, end))
        if found is None:
            if len(routes.paths) >= _MOST_KEPT:
                routes.paths.clear()
            reach = routes.reach(start)
            cost = reach.cost_to(end)
            found = routes.paths[start, end] = cost, tuple(_cheapest(routes, reach, start, end)) if cost < FAR else ()
        return found


def _cheapest(routes: _Routes, reach: _Reach, start: str, end: str) -> Iterator[Path]:
    """Yield the paths of the lowest cost, visiting only states on such a path: far more may lead elsewhere."""
    lowest, costs = reach.cost_to(end), reach.states
    leading = _leading(routes, reach, end)
    queue: list[tuple[int, int, str, bool, Path]] = [(0, 0, start, False, ())]
    count = found = 0
    while queue and found < MOST_PATHS:
        check_deadline()
        cost, _, table, up, path = heapq.heappop(queue)
        if table == end:
            found += 1
            yield path
            continue
        if len(path) == MOST_HOPS:
            continue
        for hop in routes.hops.get(table, ()):
            total, state = cost + join_step_cost(up, hop), (hop.to_table, not hop.back)
            leads = total == lowest if hop.to_table == end else state in leading and costs[state] == total
            if leads and not any(hop.to_table in (step.table, step.to_table) for step in path):
                count += 1
                heapq.heappush(queue, (total, count, *state, (*path, hop)))


def _leading(routes: _Routes, reach: _Reach, end: str) -> set[_State]:
    """Return the states from which a cheapest path continues to the end."""
    lowest, costs = reach.cost_to(end), reach.states
    found: set[_State] = set()
    waiting = [(end, up, lowest) for up in (True, False)]
    while waiting:
        check_deadline()
        table, up, cost = waiting.pop()
        for hop in routes.into.get(table, ()):
            for before in (True, False):
                state = (hop.table, before)
                if hop.back == up or state in found or hop.table == end:
                    continue
                if state in costs and costs[state] + join_step_cost(before, hop) == cost:
                    found.add(state)
                    waiting.append((*state, costs[state]))
    return found


def join_path_leads_to_one(path: Path) -> bool:
    """Return whether every row matches at most one row at the end of the path."""
    return all(hop.to_one for hop in path)
