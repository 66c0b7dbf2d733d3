"""Real questions with reference SQL: every query passes the guard and returns what plain DuckDB returns."""

from __future__ import annotations

import json
import os
from pathlib import Path

import duckdb
import pytest
import sqlglot

from etude.app import App

DATA = Path(os.environ.get("REFERENCE_DATA", Path(__file__).parents[3] / "shared" / "data")) / "defog"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the reference databases are not on this machine")


def by_database() -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = {}
    if DATA.is_dir():
        for line in (DATA / "questions.jsonl").read_text().splitlines():
            record = json.loads(line)
            found.setdefault(record["db"], []).append(record)
    return found


def ordered_columns(sql: str, names: list[str]) -> list[int]:
    """The places of the columns that the outermost ORDER BY sorts by: rows that tie may come in any order."""
    order = sqlglot.parse_one(sql, dialect="duckdb").args.get("order")
    keys = [o.this for o in order.expressions] if order else []
    found = []
    for key in keys:
        if isinstance(key, sqlglot.exp.Literal) and not key.is_string:
            found.append(int(key.this) - 1)
        elif isinstance(key, sqlglot.exp.Column) and key.name in names:
            found.append(names.index(key.name))
    return found


@pytest.mark.parametrize("database", sorted(by_database()))
def test_every_reference_query_returns_what_duckdb_returns(database: str, tmp_path: Path) -> None:
    plain = duckdb.connect(str(DATA / database), read_only=True)
    with App(home=tmp_path) as app:
        for record in by_database()[database]:
            relation = plain.sql(record["sql"])
            types = [str(t) for t in relation.types]
            names = relation.columns
            expected = relation.fetchall()
            result = app.sql(str(DATA / database), record["sql"], record=False)
            assert [c.name for c in result.columns] == names, record["id"]
            assert [c.type for c in result.columns] == types, record["id"]
            seen = result.rows()
            assert sorted(seen, key=repr) == sorted(expected, key=repr), record["id"]
            for column in ordered_columns(record["sql"], names):
                assert [r[column] for r in seen] == [r[column] for r in expected], record["id"]
