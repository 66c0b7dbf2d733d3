"""Changes over several runs: repeated while they stand, gone once they recover."""

from __future__ import annotations

import copy
from datetime import timedelta

import numpy as np

from catalog.drift.test_compare import (
    NOW,
    World,
    a_column_is_added,
    a_column_is_removed,
    a_table_is_renamed,
    draw,
    kilograms_become_grams,
    nulls_appear,
    profile,
)
from etude.catalog.drift.change import Acknowledgement
from etude.catalog.drift.compare import compare
from etude.catalog.drift.open_changes import FollowedChanges, follow_open_changes
from etude.catalog.model import SourceProfile


class Runs:
    """One catalog after the other, as the workflow makes them."""

    def __init__(self) -> None:
        self.history: list[SourceProfile] = []
        self.followed: FollowedChanges | None = None
        self.acknowledged: dict[str, Acknowledgement] = {}

    def make(self, world: World) -> list[tuple[str, str]]:
        """Make a catalog; return the names and statuses of its changes."""
        made = profile(copy.deepcopy(world), NOW + timedelta(hours=len(self.history)))
        found = compare(self.history[-1], made, self.history) if self.history else ()
        self.followed = follow_open_changes(self.followed, found, made, self.history, self.acknowledged)
        self.history.append(made)
        return [(c.name, c.status) for c in self.followed.changes]

    def acknowledge(self, name: str) -> None:
        assert self.followed is not None
        change = next(c for c in self.followed.changes if c.name == name)
        self.acknowledged[name] = Acknowledgement(by="ann", why="It is so.", at=NOW, since=change.since)


def broken(*plants: object) -> World:
    world = draw(3)
    for function in plants:
        function(world, np.random.default_rng(1))  # type: ignore[operator]
    return world


def test_a_state_is_open_then_known_then_recovered() -> None:
    runs, grams = Runs(), broken(kilograms_become_grams)
    name = "orders.weight_kg:scale"
    assert runs.make(draw(3)) == []
    assert runs.make(grams) == [(name, "new")]
    assert runs.make(grams) == [(name, "open")]
    runs.acknowledge(name)
    assert runs.make(grams) == [(name, "known")]
    assert runs.followed is not None and runs.followed.changes[0].acknowledged is not None
    assert runs.make(draw(3)) == [(name, "recovered")]
    assert runs.make(draw(3)) == []
    assert runs.make(grams) == [(name, "new")]
    assert runs.make(grams) == [(name, "open")], "the acknowledgement was for the first time"


def test_another_change_is_new_beside_an_open_one() -> None:
    runs = Runs()
    runs.make(draw(3))
    runs.make(broken(kilograms_become_grams))
    assert runs.make(broken(kilograms_become_grams, nulls_appear)) == [
        ("orders.weight_kg:scale", "open"),
        ("orders.channel:nulls", "new"),
    ]


def test_a_state_that_becomes_worse_is_new_again() -> None:
    runs = Runs()
    runs.make(draw(3))
    once = broken(nulls_appear)
    runs.make(once)
    runs.acknowledge("orders.channel:nulls")
    once["orders"]["channel"] = [None if i % 2 else v for i, v in enumerate(once["orders"]["channel"])]
    assert runs.make(once) == [("orders.channel:nulls", "new")]
    assert runs.make(draw(3)) == [("orders.channel:nulls", "recovered")]


def test_tables_and_columns_that_are_gone_stay_on_the_list_and_additions_do_not() -> None:
    runs = Runs()
    runs.make(draw(3))
    world = broken(a_column_is_removed, a_table_is_renamed, a_column_is_added)
    first = runs.make(world)
    assert ("customers.vat_id:column-added", "new") in first
    assert runs.make(world) == [("customers.city:column-removed", "open"), ("orders_v2:table-renamed", "open")]
    assert runs.make(draw(3)) == [
        ("customers.vat_id:column-removed", "new"),
        ("customers.city:column-removed", "recovered"),
        ("orders_v2:table-renamed", "recovered"),
    ]


def test_the_file_of_changes_is_read_back() -> None:
    runs = Runs()
    runs.make(draw(3))
    runs.make(broken(nulls_appear))
    assert runs.followed is not None
    stored = runs.followed.model_dump_json(exclude_defaults=True)
    assert FollowedChanges.model_validate_json(stored) == runs.followed
