"""Drift: what is planted is found and named; what is only another sample of the same data is not."""

from __future__ import annotations

import copy
import hashlib
import math
import os
import re
import sqlite3
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import etude
from etude.app import App
from etude.catalog.drift.compare import Change, compare
from etude.catalog.drift.significance import kolmogorov_distance
from etude.catalog.measure.profile import profile_source
from etude.catalog.model import (
    ColumnProfile,
    ColumnProvenance,
    ForeignKeyEvidence,
    Freshness,
    KeyEvidence,
    Lengths,
    Outliers,
    Pattern,
    Provenance,
    SourceProfile,
    TableProfile,
    TopValue,
)
from etude.sample import write_shop

RUNS = int(os.environ.get("DRIFT_RUNS", "4"))
"""Re-runs per kind of repetition. The figures in the docs are from 100."""
NOW = datetime(2026, 3, 1, 6, tzinfo=UTC)

World = dict[str, dict[str, list[Any]]]


# A world: four tables drawn at random from fixed distributions, with skew, heavy tails, rare values and nulls.


def draw(seed: int, size: float = 1.0) -> World:
    return {t: {c: list(v) for c, v in columns.items()} for t, columns in _draw(seed, size).items()}


@lru_cache(maxsize=8)
def _draw(seed: int, size: float) -> World:
    chance = np.random.default_rng(seed)
    return {
        "customers": _customers(chance, int(800 * size)),
        "orders": _orders(chance, int(4000 * size), int(800 * size)),
        "events": _events(chance, int(6000 * size)),
        "branches": _branches(chance, 40),
    }


def _pick(chance: np.random.Generator, values: list[Any], weights: list[float], n: int) -> list[Any]:
    p = np.array(weights) / sum(weights)
    return [values[i] for i in chance.choice(len(values), n, p=p)]


def _holes(chance: np.random.Generator, values: list[Any], share: float) -> list[Any]:
    return [None if hole else v for v, hole in zip(values, chance.random(len(values)) < share)]


def _moments(chance: np.random.Generator, n: int, days: int = 730) -> list[datetime]:
    seconds = np.sort(chance.random(n) ** 0.8 * days * 86400)
    start = NOW.replace(tzinfo=None) - timedelta(days=days)
    return [start + timedelta(seconds=int(s)) for s in seconds]


def _words(chance: np.random.Generator, n: int) -> str:
    return " ".join("".join(chr(97 + x) for x in chance.integers(26, size=5)) for _ in range(n))


def _customers(chance: np.random.Generator, n: int) -> dict[str, list[Any]]:
    first, last = ["Anna", "Björn", "Chloé", "Eva", "Wei", "Yuki"], ["Müller", "Nowak", "García", "Smith", "Ito"]
    names = [f"{first[a]} {last[b]}" for a, b in zip(chance.integers(6, size=n), chance.integers(5, size=n))]
    return {
        "id": list(range(1, n + 1)),
        "name": names,
        "email": [f"{x.split()[0].lower()}.{i}@example.org" for i, x in enumerate(names)],
        "country": _pick(chance, ["DE", "FR", "ES", "PL", "SE", "US"], [30, 20, 15, 12, 8, 15], n),
        "city": _pick(chance, [f"City {i}" for i in range(25)], [1 / (i + 1) for i in range(25)], n),
        "segment": _pick(chance, ["consumer", "small business", "enterprise"], [70, 22, 8], n),
        "born": [date(1950, 1, 1) + timedelta(days=int(d)) for d in chance.normal(12000, 3000, n)],
        "code": [
            f"{chr(65 + a)}{chr(65 + b)}-{c:04d}"
            for a, b, c in zip(
                *(chance.integers(26, size=n), chance.integers(26, size=n), chance.integers(9999, size=n))
            )
        ],
        "newsletter": [bool(x) for x in chance.random(n) < 0.4],
        "notes": _holes(chance, [_words(chance, int(k)) for k in chance.geometric(0.1, n)], 0.3),
        "joined": [d.strftime("%Y-%m-%d") for d in _moments(chance, n)],
    }


def _orders(chance: np.random.Generator, n: int, customers: int) -> dict[str, list[Any]]:
    return {
        "id": list(range(1, n + 1)),
        "customer_id": [int(x) for x in chance.integers(1, customers + 1, n)],
        "placed_at": _moments(chance, n),
        "status": _pick(chance, ["paid", "shipped", "open", "returned", "disputed"], [55, 30, 10, 4.8, 0.2], n),
        "amount": [round(float(x), 2) for x in chance.lognormal(3.5, 0.8, n)],
        "tax": [round(float(x), 2) for x in chance.gamma(2.0, 3.0, n)],
        "quantity": [int(x) for x in 1 + chance.poisson(2.0, n)],
        "discount": [0.0 if z < 0.7 else round(float(x), 3) for z, x in zip(chance.random(n), chance.random(n) / 2)],
        "weight_kg": [float(x) for x in chance.gamma(2.0, 1.5, n)],
        "height_cm": [float(x) for x in chance.normal(40, 5, n)],
        "width_cm": [float(x) for x in chance.normal(90, 12, n)],
        "rating": _holes(chance, _pick(chance, [1, 2, 3, 4, 5], [4, 6, 20, 40, 30], n), 0.2),
        "channel": _pick(chance, ["web", "app", "store"], [50, 35, 15], n),
        "phone": [f"+49 {x}" for x in chance.integers(10**9, 10**10, n)],
    }


def _events(chance: np.random.Generator, n: int) -> dict[str, list[Any]]:
    return {
        "key": [hashlib.sha256(str(x).encode()).hexdigest()[:32] for x in chance.integers(2**60, size=n)],
        "at": _moments(chance, n, 365),
        "kind": _pick(chance, [f"kind-{i}" for i in range(60)], [1 / (i + 1) ** 1.5 for i in range(60)], n),
        "duration_ms": [float(x) for x in (chance.pareto(1.2, n) + 1) * 10],
        "heavy": [float(x) for x in chance.standard_cauchy(n)],
        "temperature": [round(float(x), 1) for x in chance.normal(19, 6, n)],
        "path": [f"/item/{x}" for x in np.minimum(chance.zipf(1.6, n), 5000)],
        "user": [int(x) for x in chance.integers(1, 3000, n)],
        "level": _pick(chance, ["info", "warn", "error", "fatal"], [95, 4, 0.97, 0.03], n),
    }


def _branches(chance: np.random.Generator, n: int) -> dict[str, list[Any]]:
    return {
        "name": [f"Branch {i}" for i in range(n)],
        "region": _pick(chance, ["north", "south", "west"], [1, 1, 1], n),
        "staff": [int(x) for x in chance.poisson(12, n)],
        "area": [round(float(x), 1) for x in chance.normal(200, 60, n)],
    }


# Its profile, by plain counting.

KEYS = {"customers": ["id", "email"], "orders": ["id"], "events": ["key"]}
REFERENCES = {"orders": [("customer_id", "customers", "id")]}
FRESH = {"orders": "placed_at", "events": "at"}
FAMILIES = {bool: "boolean", int: "integer", float: "float", str: "text", datetime: "timestamp", date: "date"}
FORMS = (
    ("email", None, re.compile(r"[\w.+-]+@[\w-]+\.\w+")),
    ("date", "%Y-%m-%d", re.compile(r"\d{4}-\d\d-\d\d")),
    ("date", "%d/%m/%Y", re.compile(r"\d\d/\d\d/\d{4}")),
    ("phone", None, re.compile(r"\+\d\d \d{10}")),
    ("code", "AA-9999", re.compile(r"[A-Z]{2}-\d{4}")),
)


def profile(world: World, made_at: datetime = NOW) -> SourceProfile:
    """The profile that a profiler would make of the world, were it exact and simple."""
    tables = tuple(_table(name, columns, world) for name, columns in world.items())
    return SourceProfile(
        source="world", kind="duckdb", dialect="duckdb", fingerprint="x", tables=tables, made_at=made_at
    )


def _table(name: str, columns: dict[str, list[Any]], world: World) -> TableProfile:
    profiles = {c: _column(c, tuple(values)) for c, values in columns.items()}
    keys = tuple(
        KeyEvidence(columns=(c,), origin="declared", primary=i == 0, unique=profiles[c].unique)
        for i, c in enumerate(k for k in KEYS.get(name.removesuffix("_v2"), ()) if k in profiles)
    )
    references = []
    for column, to_table, to_column in REFERENCES.get(name.removesuffix("_v2"), ()):
        have = {v for v in columns.get(column, ()) if v is not None}
        there = set(world.get(to_table, {}).get(to_column, ()))
        if have and there:
            references.append(
                ForeignKeyEvidence(
                    columns=(column,),
                    to_table=to_table,
                    to_columns=(to_column,),
                    origin="inferred",
                    containment=len(have & there) / len(have),
                    values=len(have),
                    missing=len(have - there),
                )
            )
    when = FRESH.get(name)
    fresh = None
    if when in profiles and profiles[when].max is not None:
        fresh = Freshness(column=when, newest=str(profiles[when].max), oldest=str(profiles[when].min))
    rows = len(next(iter(columns.values())))
    return TableProfile(
        name=name,
        rows=rows,
        columns=tuple(profiles.values()),
        keys=keys,
        foreign_keys=tuple(references),
        freshness=fresh,
    )


def _scalar(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else value


def _quantile(values: list[Any], share: float) -> Any:
    return values[max(0, math.ceil(len(values) * share) - 1)]


def _outliers(values: list[Any]) -> Outliers | None:
    lower, upper = _quantile(values, 0.25), _quantile(values, 0.75)
    low, high = lower - 3 * (upper - lower), upper + 3 * (upper - lower)
    below, above = sum(v < low for v in values), sum(v > high for v in values)
    return Outliers(low=low, high=high, below=below, above=above) if upper > lower else None


@lru_cache(maxsize=300)
def _column(name: str, values: tuple[Any, ...]) -> ColumnProfile:
    there = [v for v in values if v is not None]
    nans = sum(isinstance(v, float) and math.isnan(v) for v in there)
    counts = Counter("NaN" if isinstance(v, float) and math.isnan(v) else v for v in there)
    family = FAMILIES[type(there[0])] if there else "text"
    top = sorted(counts.items(), key=lambda x: (-x[1], str(x[0])))[:10]
    finite = sorted(v for v in there if not (isinstance(v, float) and math.isnan(v)))
    ordered = family not in ("text", "boolean") and bool(finite)
    numeric = family in ("integer", "float") and bool(finite)
    lengths = [len(v) for v in there] if family == "text" else []
    forms = [(k, f, sum(bool(r.fullmatch(v)) for v in there)) for k, f, r in FORMS] if lengths else []
    return ColumnProfile(
        name=name,
        type=family.upper(),
        family=family,  # type: ignore[arg-type]
        rows=len(values),
        nulls=len(values) - len(there),
        distinct=len(counts),
        unique=bool(there) and len(counts) == len(there),
        constant=len(counts) == 1 and len(there) == len(values),
        empty=bool(values) and not [v for v in there if v != ""],
        min=_scalar(finite[0]) if finite else None,
        max=_scalar(finite[-1]) if finite else None,
        mean=float(np.mean(finite)) if numeric else None,
        stddev=float(np.std(finite, ddof=1)) if numeric and len(finite) > 1 else None,
        zeros=sum(v == 0 for v in finite) if numeric else None,
        negatives=sum(v < 0 for v in finite) if numeric else None,
        nans=nans if family == "float" else None,
        quantiles=tuple(_scalar(_quantile(finite, i / 20)) for i in range(21)) if ordered else (),
        outliers=_outliers(finite) if numeric else None,
        top=tuple(TopValue(value=_scalar(v), count=c, share=c / len(there)) for v, c in top),
        lengths=Lengths(min=min(lengths), max=max(lengths), mean=sum(lengths) / len(lengths), empty=lengths.count(0))
        if lengths
        else None,
        patterns=tuple(Pattern(kind=k, form=f, share=n / len(there)) for k, f, n in forms if n / len(there) > 0.02),
        provenance=ColumnProvenance(patterns=Provenance(method="sampled", rows=min(len(there), 1000))),
    )


# What can happen to it. Each plants one thing and says what it must be called and where.

Plant = Callable[[World, np.random.Generator], None]
PLANTS: dict[str, tuple[Plant, set[str], str, str | None]] = {}


def plant(kinds: str, table: str, column: str | None = None) -> Callable[[Plant], Plant]:
    def keep(function: Plant) -> Plant:
        PLANTS[function.__name__] = (function, set(kinds.split("|")), table, column)
        return function

    return keep


def _some(chance: np.random.Generator, values: list[Any], share: float, change: Callable[[Any], Any]) -> list[Any]:
    return [change(v) if hit and v is not None else v for v, hit in zip(values, chance.random(len(values)) < share)]


def _keep(table: dict[str, list[Any]], kept: Callable[[int], bool]) -> None:
    rows = [i for i in range(len(next(iter(table.values())))) if kept(i)]
    for name in table:
        table[name] = [table[name][i] for i in rows]


@plant("table-added", "invoices")
def a_table_is_added(world: World, chance: np.random.Generator) -> None:
    world["invoices"] = {"id": list(range(100)), "total": [float(x) for x in chance.random(100)]}


@plant("table-removed", "branches")
def a_table_is_removed(world: World, chance: np.random.Generator) -> None:
    del world["branches"]


@plant("table-renamed", "orders_v2")
def a_table_is_renamed(world: World, chance: np.random.Generator) -> None:
    world["orders_v2"] = world.pop("orders")


@plant("table-emptied", "events")
def a_table_is_emptied(world: World, chance: np.random.Generator) -> None:
    world["events"] = {name: [] for name in world["events"]}


@plant("volume", "orders")
def a_third_of_the_rows_is_lost(world: World, chance: np.random.Generator) -> None:
    lost = chance.random(len(world["orders"]["id"])) < 0.35
    _keep(world["orders"], lambda i: not lost[i])


@plant("volume", "orders")
def one_row_in_twenty_is_lost(world: World, chance: np.random.Generator) -> None:
    lost = chance.random(len(world["orders"]["id"])) < 0.05
    _keep(world["orders"], lambda i: not lost[i])


@plant("volume|key-broken", "orders")
def all_rows_are_loaded_twice(world: World, chance: np.random.Generator) -> None:
    world["orders"] = {name: values * 2 for name, values in world["orders"].items()}


@plant("rewound", "orders", "placed_at")
def the_last_weeks_are_lost(world: World, chance: np.random.Generator) -> None:
    last = NOW.replace(tzinfo=None) - timedelta(days=40)
    when = world["orders"]["placed_at"]
    _keep(world["orders"], lambda i: when[i] < last)


@plant("column-added", "customers", "vat_id")
def a_column_is_added(world: World, chance: np.random.Generator) -> None:
    world["customers"]["vat_id"] = [f"DE{x}" for x in chance.integers(10**8, 10**9, len(world["customers"]["id"]))]


@plant("column-removed", "customers", "city")
def a_column_is_removed(world: World, chance: np.random.Generator) -> None:
    del world["customers"]["city"]


@plant("column-renamed", "orders", "gross_total")
def a_column_is_renamed(world: World, chance: np.random.Generator) -> None:
    names = ["gross_total" if n == "amount" else n for n in world["orders"]]
    world["orders"] = dict(zip(names, world["orders"].values()))


@plant("column-renamed", "customers", "client_type")
def an_enumeration_is_renamed_and_moved(world: World, chance: np.random.Generator) -> None:
    world["customers"]["client_type"] = world["customers"].pop("segment")


@plant("type", "orders", "quantity")
def numbers_become_text(world: World, chance: np.random.Generator) -> None:
    world["orders"]["quantity"] = [str(v) for v in world["orders"]["quantity"]]


@plant("nulls", "orders", "channel")
def nulls_appear(world: World, chance: np.random.Generator) -> None:
    world["orders"]["channel"] = _some(chance, world["orders"]["channel"], 0.08, lambda v: None)


@plant("nulls", "customers", "notes")
def nulls_double(world: World, chance: np.random.Generator) -> None:
    world["customers"]["notes"] = _some(chance, world["customers"]["notes"], 0.45, lambda v: None)


@plant("emptied", "orders", "weight_kg")
def a_column_is_no_longer_filled(world: World, chance: np.random.Generator) -> None:
    world["orders"]["weight_kg"] = [None] * len(world["orders"]["id"])


@plant("shift", "events", "temperature")
def values_move_up(world: World, chance: np.random.Generator) -> None:
    world["events"]["temperature"] = [round(v + 3, 1) for v in world["events"]["temperature"]]


@plant("spread", "orders", "height_cm")
def values_spread_wider(world: World, chance: np.random.Generator) -> None:
    world["orders"]["height_cm"] = [40 + (v - 40) * 2 for v in world["orders"]["height_cm"]]


@plant("outliers", "orders", "amount")
def a_part_is_in_another_unit(world: World, chance: np.random.Generator) -> None:
    world["orders"]["amount"] = _some(chance, world["orders"]["amount"], 0.04, lambda v: v * 100)


@plant("mix", "orders", "channel")
def the_mix_of_categories_changes(world: World, chance: np.random.Generator) -> None:
    world["orders"]["channel"] = _some(chance, world["orders"]["channel"], 0.25, lambda v: "app")


@plant("new-value", "orders", "status")
def an_enumeration_gets_a_value(world: World, chance: np.random.Generator) -> None:
    world["orders"]["status"] = _some(chance, world["orders"]["status"], 0.02, lambda v: "refunded")


@plant("vanished-value", "orders", "status")
def an_enumeration_loses_a_value(world: World, chance: np.random.Generator) -> None:
    world["orders"]["status"] = ["shipped" if v == "returned" else v for v in world["orders"]["status"]]


@plant("key-broken", "orders", "id")
def a_key_repeats(world: World, chance: np.random.Generator) -> None:
    world["orders"]["id"][-3:] = world["orders"]["id"][:3]


@plant("orphans", "orders", "customer_id")
def references_lead_nowhere(world: World, chance: np.random.Generator) -> None:
    world["orders"]["customer_id"] = _some(chance, world["orders"]["customer_id"], 0.01, lambda v: v + 100_000)


@plant("constant", "customers", "segment")
def a_column_becomes_constant(world: World, chance: np.random.Generator) -> None:
    world["customers"]["segment"] = ["consumer"] * len(world["customers"]["id"])


@plant("scale", "orders", "weight_kg")
def kilograms_become_grams(world: World, chance: np.random.Generator) -> None:
    world["orders"]["weight_kg"] = [v * 1000 for v in world["orders"]["weight_kg"]]


@plant("scale", "orders", "amount")
def euros_become_cents(world: World, chance: np.random.Generator) -> None:
    world["orders"]["amount"] = [v * 100 for v in world["orders"]["amount"]]


@plant("sign", "orders", "tax")
def a_sign_is_flipped(world: World, chance: np.random.Generator) -> None:
    world["orders"]["tax"] = [-v for v in world["orders"]["tax"]]


@plant("negative", "orders", "amount")
def negative_amounts_appear(world: World, chance: np.random.Generator) -> None:
    world["orders"]["amount"] = _some(chance, world["orders"]["amount"], 0.02, lambda v: -v)


@plant("range", "orders", "width_cm")
def a_sentinel_appears(world: World, chance: np.random.Generator) -> None:
    world["orders"]["width_cm"][7] = 999999.0


@plant("range", "customers", "born")
def a_birthday_is_at_the_beginning_of_time(world: World, chance: np.random.Generator) -> None:
    world["customers"]["born"][3] = date(1, 1, 1)


@plant("empty-text", "customers", "name")
def names_become_empty(world: World, chance: np.random.Generator) -> None:
    world["customers"]["name"] = _some(chance, world["customers"]["name"], 0.06, lambda v: "")


@plant("spike", "events", "temperature")
def a_default_value_takes_over(world: World, chance: np.random.Generator) -> None:
    world["events"]["temperature"] = _some(chance, world["events"]["temperature"], 0.1, lambda v: -1.0)


@plant("length", "customers", "notes")
def texts_are_cut_off(world: World, chance: np.random.Generator) -> None:
    world["customers"]["notes"] = [v[:20] if v else v for v in world["customers"]["notes"]]


@plant("format", "customers", "joined")
def dates_are_written_differently(world: World, chance: np.random.Generator) -> None:
    there = world["customers"]["joined"]
    world["customers"]["joined"] = [f"{v[8:10]}/{v[5:7]}/{v[:4]}" for v in there]


@plant("format", "customers", "email")
def addresses_are_broken(world: World, chance: np.random.Generator) -> None:
    world["customers"]["email"] = _some(chance, world["customers"]["email"], 0.3, lambda v: v.replace("@", " at "))


@plant("spelling", "orders", "channel")
def case_changes(world: World, chance: np.random.Generator) -> None:
    world["orders"]["channel"] = [v.upper() for v in world["orders"]["channel"]]


@plant("future", "events", "at")
def moments_lie_in_the_future(world: World, chance: np.random.Generator) -> None:
    world["events"]["at"][-1] = datetime(2031, 1, 1)


@plant("precision", "orders", "amount")
def decimals_are_lost(world: World, chance: np.random.Generator) -> None:
    world["orders"]["amount"] = [float(int(v)) for v in world["orders"]["amount"]]


@plant("nan", "orders", "height_cm")
def numbers_become_nan(world: World, chance: np.random.Generator) -> None:
    world["orders"]["height_cm"] = _some(chance, world["orders"]["height_cm"], 0.05, lambda v: math.nan)


@plant("cardinality", "events", "user")
def users_collapse(world: World, chance: np.random.Generator) -> None:
    world["events"]["user"] = [1 + v // 100 * 100 for v in world["events"]["user"]]


@plant("columns-swapped", "orders", "height_cm")
def two_columns_are_swapped(world: World, chance: np.random.Generator) -> None:
    orders = world["orders"]
    orders["height_cm"], orders["width_cm"] = orders["width_cm"], orders["height_cm"]


@plant("time-shift", "events", "at")
def a_time_zone_is_lost(world: World, chance: np.random.Generator) -> None:
    world["events"]["at"] = [v - timedelta(hours=2) for v in world["events"]["at"]]


ON_THE_SAME_ROWS = {"a_time_zone_is_lost"}
"""Two hours can be seen on the same rows only: in a fresh sample every row moves by days."""


def is_found(name: str, seed: int, fresh: bool) -> bool:
    """Whether the planted change is named, at its place, among the first three."""
    function, kinds, table, column = PLANTS[name]
    before = draw(seed)
    after = draw(seed + 1_000_000, 1.02) if fresh and name not in ON_THE_SAME_ROWS else copy.deepcopy(before)
    function(after, np.random.default_rng(seed))
    first = compare(profile(before), profile(after, NOW + timedelta(hours=1)))[:3]
    return any(c.kind in kinds and c.table == table and column in (None, c.column) for c in first)


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_change_is_found_and_named(name: str) -> None:
    assert is_found(name, 1, fresh=False)


def test_planted_changes_are_found_in_fresh_samples() -> None:
    seeds = range(2, 2 + max(1, RUNS // 6))
    missed = [(name, seed) for seed in seeds for name in PLANTS if not is_found(name, seed, True)]
    total = len(PLANTS) * len(seeds)
    assert len(missed) <= total * 2 / 30, missed


def test_the_same_data_has_not_changed() -> None:
    world = draw(5)
    assert compare(profile(world), profile(world, NOW + timedelta(days=1))) == ()


def test_fresh_samples_raise_no_alarm() -> None:
    """Of another sample of the same data, a little smaller or larger, at most 2% report more than fewer rows."""
    alarms: list[tuple[int, tuple[Change, ...]]] = []
    for seed in range(RUNS):
        size = 0.95 + 0.1 * (seed % 11) / 10
        found = compare(profile(draw(10_000 + seed)), profile(draw(20_000 + seed, size), NOW + timedelta(hours=6)))
        alarm = tuple(c for c in found if (c.kind, c.severity) != ("volume", "low"))
        if alarm:
            alarms.append((seed, alarm))
    assert len(alarms) <= RUNS * 0.02, alarms


def test_a_profiled_shop_is_compared_as_any(app: App, tmp_path: Path) -> None:
    """With the profiler itself: another sample of the shop is no news, cents for euros are."""

    def look(folder: Path) -> SourceProfile:
        with etude.connect(folder, app=app) as db:
            return profile_source(db).model_copy(update={"made_at": NOW})

    for seed in (7, 8):
        write_shop(tmp_path / str(seed), seed)
    before, after = look(tmp_path / "7"), look(tmp_path / "8")
    assert compare(before, after) == ()
    orders = tmp_path / "8" / "orders.csv"
    head, *lines = [line.split(",") for line in orders.read_text(encoding="utf-8").splitlines()]
    at = head.index("amount")
    for line in lines:
        if len(line) > at and line[at] != "n/a":
            line[at] = f"{float(line[at]) * 100:.0f}"
    orders.write_text("\n".join(",".join(line) for line in [head, *lines]) + "\n", encoding="utf-8")
    found = compare(before, look(tmp_path / "8"))
    assert ("scale", "orders", "amount") in [(c.kind, c.table, c.column) for c in found]


def _sales(path: Path, seed: int, change: Callable[[dict[str, Any]], None] = lambda row: None) -> Path:
    """A SQLite file of sales: dates as text, codes of another table, free text."""
    chance = np.random.default_rng(seed)
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE tariffs (code TEXT PRIMARY KEY, rate REAL)")
        db.execute(
            "CREATE TABLE sales (id INTEGER PRIMARY KEY, sold TEXT, tariff TEXT REFERENCES tariffs (code), "
            "rep INTEGER, customer TEXT)"
        )
        db.executemany("INSERT INTO tariffs VALUES (?, ?)", [(c, 0.1) for c in ("A1", "B2", "C3", "D4", "X9")])
        for i in range(3000):
            row = {
                "id": i,
                "sold": (date(2019, 1, 1) + timedelta(days=int(chance.integers(1400)))).isoformat(),
                "tariff": ("A1", "B2", "C3", "D4")[chance.integers(4)],
                "rep": int(chance.integers(1, 60)),
                "customer": f"{_words(chance, 2)} {i}",
            }
            change(row)
            db.execute("INSERT INTO sales VALUES (:id, :sold, :tariff, :rep, :customer)", row)
    return path


def _a_year_later(row: dict[str, Any]) -> None:
    row["sold"] = f"{int(row['sold'][:4]) + 1}{row['sold'][4:]}".replace("-02-29", "-02-28")


def _another_tariff(row: dict[str, Any]) -> None:
    row["tariff"] = "X9" if row["id"] % 12 == 0 else row["tariff"]


def _a_space_at_the_end(row: dict[str, Any]) -> None:
    row["customer"] += " " if row["id"] % 10 == 0 else ""


def _one_representative(row: dict[str, Any]) -> None:
    row["rep"] = 900 if row["id"] % 12 == 0 else row["rep"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_a_year_later, ("time-shift", "sold", "`sold` moved by +1 year in nearly all rows.")),
        (_another_tariff, ("new-value", "tariff", "`tariff` has a new value “X9” (8.3% of the rows).")),
        (_a_space_at_the_end, ("spaces", "customer", "10.0% of `customer` now start or end with a space; none did "
                               "before.")),
        (_one_representative, ("spike", "rep", "900 now makes up 8.3% of `rep`; it did not occur before.")),
    ],
)  # fmt: skip
def test_changes_in_a_sqlite_file_are_named(
    app: App, tmp_path: Path, change: Callable[[dict[str, Any]], None], expected: tuple[str, str, str]
) -> None:
    def look(path: Path) -> SourceProfile:
        with etude.connect(path, app=app) as db:
            return profile_source(db).model_copy(update={"made_at": NOW})

    before = look(_sales(tmp_path / "before.sqlite", 1))
    assert compare(before, look(_sales(tmp_path / "again.sqlite", 2))) == ()
    found = compare(before, look(_sales(tmp_path / "after.sqlite", 1, change)))
    assert [(c.kind, c.column, c.text) for c in found] == [expected]


def test_tables_that_grow_as_they_always_did_are_no_news() -> None:
    """Rows are appended day by day: moments, numbers and references move on, and none of it is drift."""
    world = draw(7)
    orders = world["orders"]
    runs = []
    for day in range(6):
        last = NOW.replace(tzinfo=None) - timedelta(days=10 - day)
        part = copy.deepcopy(world)
        _keep(part["orders"], lambda i, last=last: orders["placed_at"][i] < last)  # type: ignore[misc]
        runs.append(profile(part, NOW - timedelta(days=10 - day)))
    for i in range(1, 6):
        assert compare(runs[i - 1], runs[i], runs[: i - 1]) == ()


def test_data_that_stops_coming_is_late() -> None:
    world = draw(8)
    before, after = profile(world), profile(world, NOW + timedelta(days=4))
    found = compare(before, after)
    assert {(c.kind, c.table) for c in found} == {("late", "orders"), ("late", "events")}
    assert any("No new data in `orders`" in c.text for c in found)


def test_earlier_runs_tell_how_soon_data_is_late() -> None:
    world = draw(8)
    when = world["orders"]["placed_at"]
    runs = []
    for hour in range(8):
        part = copy.deepcopy(world)
        last = NOW.replace(tzinfo=None) - timedelta(hours=(8 - hour) * 6)
        _keep(part["orders"], lambda i, last=last: when[i] < last)  # type: ignore[misc]
        runs.append(profile({"orders": part["orders"]}, NOW - timedelta(hours=(8 - hour) * 6)))
    still = runs[-1].model_copy(update={"made_at": NOW + timedelta(hours=30)})
    assert compare(runs[-1], still) == ()
    assert [c.kind for c in compare(runs[-1], still, runs)] == ["late"]


def test_data_at_rest_is_not_late() -> None:
    world = draw(8)
    a_year_later = NOW + timedelta(days=365)
    assert compare(profile(world, a_year_later), profile(world, a_year_later + timedelta(days=30))) == ()


def test_history_tells_what_growth_is_usual() -> None:
    def of(rows: int) -> SourceProfile:
        return profile({"t": {"x": [float(x) for x in np.random.default_rng(rows).random(rows)]}})

    doubling = [of(n).model_copy(update={"made_at": None}) for n in (100, 200, 400, 800, 1600)]
    assert [c.kind for c in compare(of(1600), of(3200))] == ["volume"]
    assert compare(doubling[-1], of(3200), doubling) == ()
    steady = [of(n).model_copy(update={"made_at": None}) for n in (1000, 1001, 1002, 1003, 1004)]
    assert compare(of(1004), of(1200)) == ()
    assert [c.kind for c in compare(steady[-1], of(1200), steady)] == ["volume"]


def test_changes_are_ranked_by_what_matters() -> None:
    before, after = draw(9), draw(9)
    a_column_is_added(after, np.random.default_rng(1))
    kilograms_become_grams(after, np.random.default_rng(1))
    nulls_appear(after, np.random.default_rng(1))
    a_table_is_removed(after, np.random.default_rng(1))
    found = compare(profile(before), profile(after))
    assert [c.kind for c in found] == ["table-removed", "scale", "nulls", "column-added"]
    assert [c.severity for c in found] == ["high", "high", "medium", "low"]
    assert "1,000 times larger" in found[1].text
    assert found[2].before == 0 and 0.05 < float(str(found[2].after)) < 0.11


def test_masked_values_are_never_quoted() -> None:
    world = draw(11)
    before = profile(world)
    case_changes(world, np.random.default_rng(1))
    an_enumeration_gets_a_value(world, np.random.default_rng(1))

    def masked(of: SourceProfile) -> SourceProfile:
        tables = tuple(
            t.model_copy(update={"columns": tuple(c.model_copy(update={"masked": True}) for c in t.columns)})
            for t in of.tables
        )
        return of.model_copy(update={"tables": tables})

    assert not any("refunded" in c.text or "WEB" in c.text for c in compare(masked(before), masked(profile(world))))


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.datetimes().map(datetime.isoformat)
)
COUNTS = st.none() | st.integers(0, 10**6)


@st.composite
def odd_columns(draw: st.DrawFn) -> ColumnProfile:
    rows = draw(COUNTS)
    top = draw(
        st.lists(st.tuples(SCALARS, st.integers(1, 1000), st.floats(0, 1)), max_size=10, unique_by=lambda t: str(t[0]))
    )
    return ColumnProfile(
        name=draw(st.sampled_from("abc")),
        type=draw(st.sampled_from(["INTEGER", "TEXT"])),
        family=draw(st.sampled_from(["integer", "float", "decimal", "text", "timestamp", "date", "boolean"])),
        rows=rows,
        nulls=None if rows is None else draw(st.integers(0, rows)),
        distinct=draw(COUNTS),
        unique=draw(st.none() | st.booleans()),
        constant=draw(st.booleans()),
        empty=draw(st.booleans()),
        min=draw(SCALARS),
        max=draw(SCALARS),
        stddev=draw(st.none() | st.floats(0, 1e300)),
        negatives=draw(COUNTS),
        nans=draw(COUNTS),
        quantiles=tuple(draw(st.sampled_from([[], [1, 2]]) | st.lists(SCALARS, min_size=21, max_size=21))),
        top=tuple(TopValue(value=v, count=n, share=s) for v, n, s in top),
        lengths=draw(
            st.none() | st.builds(Lengths, min=st.integers(0, 3), max=st.integers(3, 9), mean=st.floats(0, 9))
        ),
        patterns=tuple(Pattern(kind="email", share=s) for s in draw(st.lists(st.floats(0, 1), max_size=1))),
        masked=draw(st.booleans()),
    )


@settings(max_examples=150)
@given(
    st.lists(odd_columns(), max_size=3, unique_by=lambda c: c.name),
    st.lists(odd_columns(), max_size=3, unique_by=lambda c: c.name),
)
def test_no_profile_is_too_odd_to_compare(before: list[ColumnProfile], after: list[ColumnProfile]) -> None:
    def of(columns: list[ColumnProfile]) -> SourceProfile:
        table = TableProfile(name="t", rows=max((c.rows or 0 for c in columns), default=0), columns=tuple(columns))
        return SourceProfile(source="s", kind="k", dialect="duckdb", fingerprint="f", tables=(table,), made_at=NOW)

    found = compare(of(before), of(after))
    assert [c.score for c in found] == sorted((c.score for c in found), reverse=True)
    assert compare(of(before), of(before)) == ()


def test_a_table_that_fails_is_told_and_its_columns_are_not() -> None:
    before = profile(draw(12))
    failed = TableProfile(name="orders", plan="failed", error="no permission", columns=before.tables[1].columns)
    after = before.model_copy(update={"tables": (before.tables[0], failed, *before.tables[2:])})
    found = compare(before, after)
    assert [(c.kind, c.text) for c in found] == [("table-failed", "`orders` could not be profiled: no permission.")]


def test_the_proven_distance_never_exceeds_the_true_one() -> None:
    chance = np.random.default_rng(3)
    for n, m, levels in ((50, 80, 4), (500, 400, 1000), (2000, 2000, 12), (300, 300, 2)):
        one = np.sort(chance.integers(levels, size=n))
        other = np.sort(chance.integers(levels, size=m) + chance.integers(3))
        points = np.unique(np.concatenate([one, other]))
        true = max(abs(np.mean(one <= x) - np.mean(other <= x)) for x in points)
        quantiles = [[float(s[max(0, math.ceil(len(s) * i / 20) - 1)]) for i in range(21)] for s in (one, other)]
        proven = kolmogorov_distance(*quantiles)
        assert proven <= true + 1e-9
        assert proven >= true - 0.11


def _keyed(rows: int, kept: float = 1.0) -> SourceProfile:
    """A table whose only key is a text, of which a random share of the rows is kept."""
    chance = np.random.default_rng(rows)
    numbers = [i for i, x in enumerate(chance.random(rows)) if x < kept]
    table: dict[str, list[Any]] = {
        "code": [f"K-{i:05d}" for i in numbers],
        "x": [float((i * 7919) % 1000) for i in numbers],
    }
    return profile({"t": table}).model_copy(update={"made_at": None})


@pytest.mark.parametrize("rows", [200, 1000, 5000])
def test_rows_lost_at_random_from_a_table_with_a_text_key_are_reported(rows: int) -> None:
    (change,) = compare(_keyed(rows), _keyed(rows, 0.95))
    assert (change.kind, change.table, change.severity, change.before) == ("volume", "t", "medium", rows)
    assert change.text.startswith(f"The row count of `t` fell from {rows:,} to ")


def test_history_tells_which_loss_of_rows_is_usual() -> None:
    growing = [_keyed(n) for n in (1000, 1010, 1015, 1030, 1040)]
    (change,) = compare(growing[-1], _keyed(1037), growing)
    assert (change.severity, change.text) == (
        "low",
        "The row count of `t` fell from 1,040 to 1,037 (-0.3%): it had never lost rows.",
    )
    assert compare(_keyed(1040), _keyed(1037)) == ()
    fluctuating = [_keyed(n) for n in (1000, 930, 1050, 960, 1020, 940, 1000)]
    assert compare(fluctuating[-1], _keyed(930), fluctuating) == ()
    assert compare(_keyed(960), _keyed(930), [_keyed(1000), _keyed(960)]) == ()
    assert [c.kind for c in compare(fluctuating[-1], _keyed(500), fluctuating)] == ["volume"]
