"""Keys told by the data: found where names and values agree, left alone where only one of them does."""

from __future__ import annotations

from collections.abc import Callable

import etude
from etude.catalog.measure.profile import profile_source
from etude.catalog.model import SourceProfile, TableProfile

Make = Callable[..., etude.Connection]

SHOP = (
    "CREATE TABLE customers AS SELECT range + 1 AS id, 'c' || range AS name FROM range(40)",
    "CREATE TABLE orders AS SELECT range + 100 AS order_id, range % 35 + 1 AS customer_id FROM range(200)",
    """CREATE TABLE order_lines AS SELECT 100 + range // 3 AS order_id, range % 3 + 1 AS line_number,
       range % 9 AS quantity FROM range(300)""",
    """CREATE TABLE staff AS SELECT range + 1 AS id, CASE WHEN range > 0 THEN range // 3 + 1 END AS manager_id
       FROM range(30)""",
)


def _table(profile: SourceProfile, name: str) -> TableProfile:
    found = profile.table(name)
    assert found is not None
    return found


def _references(profile: SourceProfile) -> set[tuple[str, str, str, str]]:
    return {
        (t.name, ",".join(k.columns), k.to_table, ",".join(k.to_columns))
        for t in profile.tables
        for k in t.foreign_keys
    }


def test_keys_and_references_with_their_evidence(make: Make) -> None:
    profile = profile_source(make(*SHOP))
    keys = {t.name: t.primary_key.columns for t in profile.tables if t.primary_key}
    assert keys == {
        "customers": ("id",),
        "orders": ("order_id",),
        "order_lines": ("order_id", "line_number"),
        "staff": ("id",),
    }
    assert _references(profile) == {
        ("orders", "customer_id", "customers", "id"),
        ("order_lines", "order_id", "orders", "order_id"),
        ("staff", "manager_id", "staff", "id"),
    }
    (found,) = _table(profile, "orders").foreign_keys
    assert (found.containment, found.coverage, found.values, found.missing) == (1.0, 0.875, 35, 0)
    assert found.cardinality == "many-to-one" and "all 35 distinct values match" in found.reasons


def test_roles_within_a_table_are_few(make: Make) -> None:
    profile = profile_source(
        make(
            """CREATE TABLE posts AS SELECT range + 1 AS id, CASE WHEN range > 5 THEN range // 2 + 1 END AS reply_to,
               range % 20 + 1 AS assigned_to, range % 30 + 1 AS sent_to FROM range(100)""",
        )
    )
    assert _references(profile) == {("posts", "reply_to", "posts", "id")}


def test_the_same_by_columns(make: Make) -> None:
    db = make(*SHOP)
    assert _references(profile_source(db, small_rows=-1)) == _references(profile_source(db))


def test_values_without_names_and_names_without_values_are_no_reference(make: Make) -> None:
    profile = profile_source(
        make(
            "CREATE TABLE countries AS SELECT range AS id, 'x' || range AS name FROM range(50)",
            "CREATE TABLE visits AS SELECT range % 40 AS minutes, range + 1000 AS country_id FROM range(80)",
            "CREATE TABLE counts AS SELECT range % 5 AS num_countries FROM range(80)",
        )
    )
    assert _references(profile) == set()


def test_a_few_strays_are_told(make: Make) -> None:
    profile = profile_source(
        make(
            "CREATE TABLE items AS SELECT range AS item_id FROM range(100)",
            "CREATE TABLE sales AS SELECT CASE WHEN range = 7 THEN 999 ELSE range % 60 END AS item_id FROM range(300)",
        )
    )
    (found,) = _table(profile, "sales").foreign_keys
    assert found.missing == 1 and found.containment is not None and 0.98 < found.containment < 1


def test_declared_keys_come_with_what_the_data_says(make: Make) -> None:
    profile = profile_source(
        make(
            "CREATE TABLE parents (code VARCHAR PRIMARY KEY, label VARCHAR UNIQUE)",
            "INSERT INTO parents VALUES ('a', 'A'), ('b', 'B'), ('c', 'C')",
            "CREATE TABLE children (k INTEGER, parent VARCHAR REFERENCES parents (code))",
            "INSERT INTO children VALUES (1, 'a'), (2, 'a'), (3, NULL)",
        )
    )
    first, second = _table(profile, "parents").keys
    assert (first.columns, first.origin, first.primary, first.unique) == (("code",), "declared", True, True)
    assert (second.columns, second.primary) == (("label",), False)
    (found,) = _table(profile, "children").foreign_keys
    assert (found.origin, found.containment, found.coverage) == ("declared", 1.0, 0.333333)


def test_no_key_from_an_approximate_count(make: Make) -> None:
    db = make("CREATE TABLE big AS SELECT range AS id FROM range(3000)")
    assert profile_source(db).tables[0].keys != ()
    assert profile_source(db, small_rows=-1, exact_rows=100).tables[0].keys == ()


def test_dependencies_seen_too_often_for_chance(make: Make) -> None:
    rows = """SELECT range AS id, 'city' || range % 30 AS city, 'state' || (range % 30) % 6 AS state,
        (range % 30) % 6 + 10 AS state_no, 'city' || range % 30 AS town, hash(range) % 5 AS noise FROM range(600)"""
    db = make(f"CREATE TABLE places AS {rows}", f"CREATE TABLE few AS SELECT * FROM ({rows}) LIMIT 10")
    for plan in ({}, {"small_rows": -1}):
        profile = profile_source(db, **plan)
        told = {(d.columns, d.determines, d.kind) for d in _table(profile, "places").dependencies}
        assert told == {
            (("state",), "state_no", "one-to-one"),
            (("city",), "state", "determines"),
            (("city",), "town", "equal"),
        }
        assert _table(profile, "few").dependencies == ()
