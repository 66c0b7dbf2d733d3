"""A query returns the same from a copy of the columns that it names as from the whole tables, or all are copied."""

from __future__ import annotations

import json
from collections.abc import Iterator

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.sources.named_columns import choose_named_columns, find_named_columns

TABLES = {
    "mine": (("id", "v", "mine"), [(1, "a", 1), (2, "b", 2), (2, "x", 3)]),
    "lite.items": (("price", "id", "v", "i"), [(10, 1, "a", 5), (20, 2, "x", 5), (30, 2, "x", 6)]),
    "lite.tags": (("tag", "v", "Über", "id"), [("t", "a", 1, 2), ("u", "x", 2, 2), ("u", "a", 2, 1)]),
}


def _database(columns: dict[str, list[str]]) -> duckdb.DuckDBPyConnection:
    made = duckdb.connect()
    made.execute("CREATE SCHEMA lite; CREATE MACRO whole(t) AS to_json(t); SET threads = 1")
    for table, (names, rows) in TABLES.items():
        listed = ", ".join(f'"{name}"' for name in names)
        kept = ", ".join(f'"{name}"' for name in columns[table])
        made.execute(f"CREATE TABLE {table} AS SELECT {kept} FROM (VALUES {', '.join(map(repr, rows))}) t({listed})")
    return made


def _names(connection: duckdb.DuckDBPyConnection, sql: str) -> frozenset[str] | None:
    options = "skip_null := true, skip_empty := true, skip_default := true"
    rows = connection.execute(f"SELECT json_serialize_sql($1, {options})", [sql]).fetchall()
    tree = json.loads(rows[0][0])
    return None if tree["error"] else find_named_columns(tree["statements"][0]["node"])


def _run(connection: duckdb.DuckDBPyConnection, sql: str) -> object:
    try:
        found = connection.execute(sql)
        return [c[0] for c in found.description or ()], sorted(map(repr, found.fetchall()))
    except duckdb.Error as error:
        return type(error)


@pytest.fixture(scope="module")
def whole() -> Iterator[duckdb.DuckDBPyConnection]:
    with _database({table: list(names) for table, (names, _) in TABLES.items()}) as made:
        yield made


_columns = st.sampled_from(["id", "v", "price", "tag", "mine", "i", "ID", '"Über"', "a.id", "b.v", "a.price", "b.id"])
_rows = st.sampled_from(
    ["a", "b", "items", "tags", "mine", "s", "lite.items", "(a).id", "a['v']", "#1", "#2", "*", "a.*"]
)
_values = st.one_of(
    _columns,
    _columns,
    _columns,
    _rows,
    st.sampled_from(["1", "'id'", "count(*)", "COLUMNS('i|v')", "whole(a)", "* EXCLUDE (id)", "{'v': v}.v", "[id, 2]"]),
    st.builds(
        "{}({})".format, st.sampled_from(["max", "hash", "to_json", "count", "upper"]), st.one_of(_columns, _rows)
    ),
    st.builds("({} = {})".format, _columns, _columns),
    st.builds("list_transform([{}], x -> x)".format, _columns),
    st.builds("sum({}) OVER (ORDER BY {})".format, _columns, _columns),
    st.builds("(SELECT max({}) FROM {} s)".format, _columns, st.sampled_from(list(TABLES))),
)
_named = st.sampled_from(list(TABLES))
_alias = st.sampled_from(["", " a", " b", " AS a", " AS a(id, v)", " AS b(x, y, z, w)", " s"])


def _table(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("{}{}".format, _named, _alias),
        st.builds("{}{}".format, _named, _alias),
        st.builds("a: {}".format, _named),
        st.builds("({}){}".format, inner, _alias),
        st.builds("(PIVOT {} ON v IN ('a', 'x') USING count(*))".format, _named),
        st.builds("(UNPIVOT {} ON {} INTO NAME n VALUE w)".format, _named, _columns),
        st.builds("(DESCRIBE {})".format, _named),
        st.builds("(VALUES (1, 'a')) v(id, v)".format),
        st.builds("{} a, unnest([a.id]) u(id)".format, _named),
    )


def _query(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    tables = st.one_of(
        _table(inner),
        st.builds("{} NATURAL JOIN {}".format, _table(inner), _table(inner)),
        st.builds("{} JOIN {} USING ({})".format, _table(inner), _table(inner), st.sampled_from(["id", "v", "id, v"])),
        st.builds("{} JOIN {} ON {} = {}".format, _table(inner), _table(inner), _columns, _columns),
        st.builds("{} POSITIONAL JOIN {}".format, _table(inner), _table(inner)),
        st.builds("{} SEMI JOIN {} ON {}".format, _table(inner), _table(inner), _values),
        st.builds("{}, {}".format, _table(inner), _table(inner)),
    )
    listed = st.lists(_values, min_size=1, max_size=3).map(", ".join)
    ends = st.sampled_from(
        [
            *("", "", "", " WHERE id > 1", " GROUP BY ALL", " GROUP BY v", " ORDER BY ALL", " ORDER BY 1"),
            *(" WHERE v IN (FROM lite.tags)", " WHERE EXISTS (FROM lite.items)"),
            " QUALIFY row_number() OVER (PARTITION BY v) = 1",
        ]
    )
    plain = st.builds("SELECT {}{} FROM {}{}".format, st.sampled_from(["", "DISTINCT "]), listed, tables, ends)
    return st.one_of(
        plain,
        plain,
        st.builds("FROM {}{}".format, tables, ends),
        st.builds("TABLE {}".format, _named),
        st.builds("({}) {} ({})".format, plain, st.sampled_from(["UNION BY NAME", "EXCEPT", "UNION ALL"]), plain),
        st.builds("WITH a AS ({}) SELECT {} FROM a, {} b".format, inner, listed, _named),
        st.builds("WITH a(id, v) AS ({}) SELECT {} FROM a".format, inner, listed),
    )


QUERIES = st.recursive(st.sampled_from(["SELECT id FROM mine", "SELECT id, v FROM lite.items"]), _query, max_leaves=4)


@settings(max_examples=500, deadline=None)
@given(sql=QUERIES)
def test_named_columns_are_enough(whole: duckdb.DuckDBPyConnection, sql: str) -> None:
    names = _names(whole, sql)
    if names is None:
        return
    columns = {table: choose_named_columns(listed, names) for table, (listed, _) in TABLES.items()}
    with _database(columns) as part:
        assert _run(part, sql) == _run(whole, sql)


@pytest.mark.parametrize(
    ("sql", "copied"),
    [
        ("SELECT price FROM lite.items", ["price"]),
        ("SELECT count(*) FROM lite.items", ["price"]),
        ("SELECT x.v, count(*) FROM lite.items x JOIN mine USING (id) GROUP BY ALL ORDER BY ALL", ["id", "v"]),
        ("SELECT price * 2 FROM lite.items WHERE V IN (VALUES ('a'), ('b'))", ["price", "v"]),
        ("WITH c AS (SELECT price AS p FROM lite.items) SELECT max(p) FROM c UNION BY NAME SELECT 1 AS p", ["price"]),
        ("SELECT price FROM lite.items ORDER BY price LIMIT 1", ["price"]),
        (
            "SELECT list(price ORDER BY id)[1], sum(price) OVER w FROM lite.items WINDOW w AS (ORDER BY id)",
            ["price", "id"],
        ),
        ("SELECT * FROM (SELECT price FROM lite.items)", ["price", "id", "v", "i"]),
        ("SELECT i FROM lite.items i", ["price", "id", "v", "i"]),
        ("SELECT price FROM lite.items, mine WHERE unknown(1)", ["price", "id", "v", "i"]),
    ],
)
def test_which_columns_are_copied(whole: duckdb.DuckDBPyConnection, sql: str, copied: list[str]) -> None:
    assert choose_named_columns(TABLES["lite.items"][0], _names(whole, sql)) == copied


def test_columns_whose_names_differ_in_case_only_are_copied_together() -> None:
    assert choose_named_columns(["a", "A", "b"], frozenset({"b"})) == ["a", "A", "b"]
