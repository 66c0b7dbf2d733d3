"""Scripts of catalogs: they are cells, they run alone, and they can be pointed at other tables."""

from __future__ import annotations

import ast

import pytest

from etude.catalog.catalog_scripts import (
    CATALOG_SCRIPT,
    SUMMARY_SCRIPT,
    find_catalog_script_patterns,
    generalize_catalog_script,
    make_catalog_script,
    normalize_catalog_script,
    set_catalog_script_tables,
    split_catalog_script_cells,
)
from etude.catalog.model import ColumnProfile, SourceProfile, TableProfile
from etude.runtime.standalone_script import PREAMBLE


@pytest.mark.parametrize("name", [CATALOG_SCRIPT, SUMMARY_SCRIPT])
@pytest.mark.parametrize("dialect", ["duckdb", "postgres", "mysql", "sqlite", "other"])
def test_a_script_is_cells_that_make_it_up(name: str, dialect: str) -> None:
    script = make_catalog_script(name, dialect)
    cells = split_catalog_script_cells(script)
    assert len(cells) > 2
    assert ast.dump(ast.parse("\n".join(cells))) == ast.dump(ast.parse(script))
    assert "etude.connect()" in cells[0]


def test_a_script_looks_closer_at_what_its_engine_does_fast() -> None:
    assert "EXACT_ROWS = 50_000_000" in make_catalog_script(CATALOG_SCRIPT, "duckdb")
    assert "EXACT_ROWS = 5_000_000" in make_catalog_script(CATALOG_SCRIPT, "postgres")


@pytest.mark.parametrize("tables", [None, ["a"], ["it's", 'a "b"', "x\n# %% y"]])
def test_the_tables_of_a_script_can_be_set(tables: list[str] | None) -> None:
    script = set_catalog_script_tables(
        set_catalog_script_tables(make_catalog_script(CATALOG_SCRIPT, "duckdb"), ["before"]), tables
    )
    assigned = [
        n for n in ast.parse(script).body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "TABLES"
    ]
    assert [ast.literal_eval(n.value) for n in assigned] == [tables]
    assert len(split_catalog_script_cells(script)) == len(
        split_catalog_script_cells(make_catalog_script(CATALOG_SCRIPT, "duckdb"))
    )


def test_a_script_without_tables_stays_as_it_is() -> None:
    assert set_catalog_script_tables("x = 1\n", ["a"]) == "x = 1\n"
    assert set_catalog_script_tables("x = (", ["a"]) == "x = ("


def test_a_script_from_a_session_begins_once() -> None:
    script = make_catalog_script(CATALOG_SCRIPT, "duckdb")
    taken = "\n".join([PREAMBLE, *(f"{cell}\n" for cell in split_catalog_script_cells(script))])
    assert normalize_catalog_script(taken) == script
    assert normalize_catalog_script(normalize_catalog_script(taken)) == script
    assert normalize_catalog_script(f"{PREAMBLE}\nx = 1\n") == "import etude\n\ndb = etude.connect()\n\nx = 1\n"


def table(name: str, *columns: str) -> TableProfile:
    made = tuple(ColumnProfile(name=c, type="INTEGER", family="integer") for c in columns)
    return TableProfile(name=name, columns=made)


def test_what_worked_for_a_table_is_offered_for_its_like() -> None:
    script = "import etude\n\n# %% log\nfix('log_2024')\n\n# %% other\nfix('prices')\n"
    known = SourceProfile(
        source="s",
        kind="duckdb",
        dialect="duckdb",
        fingerprint="f",
        tables=(table("log_2024", "id", "at", "what"), table("prices", "id", "price")),
    )
    found = find_catalog_script_patterns(
        script, known, [table("log_2025", "id", "at", "what", "who"), table("new", "x", "y")]
    )
    assert [(p.table, p.like) for p in found] == [("log_2025", "log_2024")]
    assert "fix('log_2024')" in found[0].code and "prices" not in found[0].code


def test_what_is_kept_for_others_names_no_table() -> None:
    script = make_catalog_script(CATALOG_SCRIPT, "duckdb")
    special = set_catalog_script_tables(script, ["orders"]) + "\n# %% orders\nfix('orders')\n"
    assert generalize_catalog_script(special, ["orders", "customers"]) == script
