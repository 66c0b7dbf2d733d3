"""The tables of a question among many: by words, by values and along keys."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from etude.app import App
from etude.entities import Catalog, Column, ForeignKey, Table
from etude.search.table_choice import TableChooser, frequent_values


def table(name: str, *columns: str, refers_to: str = "") -> Table:
    keys = (ForeignKey(columns=(f"{refers_to}_id",), to_table=refers_to, to_columns=("id",)),) if refers_to else ()
    return Table(name=name, columns=tuple(Column(name=c, type="VARCHAR") for c in columns), foreign_keys=keys)


class NoMeaning:
    """Embeddings that find everything equally near."""

    def embed(self, texts: list[str]) -> object:
        import numpy as np

        return np.ones((len(texts), 2), dtype=np.float32)


def choose(question: str, values: dict[str, list[str]]) -> list[str]:
    tables = [table(f"shop_{n}", "id", "name") for n in range(20)]
    tables += [table("vendors", "id", "name"), table("wares", "id", "vendors_id", refers_to="vendors")]
    catalog = Catalog(source="s", kind="duckdb", dialect="duckdb", tables=tuple(tables), fingerprint="")
    return [t.name for t in TableChooser(catalog, NoMeaning(), values).choose(question)]  # type: ignore[arg-type]


def test_a_value_leads_to_its_table_and_along_keys() -> None:
    pytest.importorskip("numpy")
    values = {"vendors": ["Sony", "Hal Labs"], **{f"shop_{n}": ["Main Street"] for n in range(20)}}
    assert choose("Which names belong to Sony?", {})[0] != "vendors"
    assert choose("Which names belong to Sony?", values)[:2] == ["vendors", "wares"]
    assert choose("Which names belong to hal labs?", values)[0] == "vendors"


def test_a_word_that_names_a_column_is_no_value() -> None:
    pytest.importorskip("numpy")
    assert choose("Which name?", {"vendors": ["name", "which"]}) == choose("Which name?", {})


def test_a_value_within_a_longer_one_does_not_count() -> None:
    pytest.importorskip("numpy")
    values = {"vendors": ["New York"], "shop_7": ["York"]}
    ranked = choose("Which names are in New York?", values)
    assert ranked[0] == "vendors" and ranked.index("shop_7") > 5


def test_frequent_values_leave_out_personal_data(app: App, agency: str) -> None:
    found = frequent_values(app.profile(agency))
    assert "forklift" in found["workers"]
    assert not {"ann@example.com", "bob@example.com"} & {*found["workers"]}


def test_values_count_as_soon_as_the_source_has_a_profile(app: App, tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    path = tmp_path / "many.duckdb"
    with duckdb.connect(str(path)) as db:
        for n in range(30):
            place = "Zanzibar" if n == 17 else "Oslo"
            db.execute(f"CREATE TABLE part_{n:02} AS SELECT i AS id, '{place}' AS town FROM range(5) AS r(i)")
    source = app.source(str(path))
    catalog = app.catalog(source)
    ranked = app.indexes.choose_tables(source, catalog, "How many towns are called Zanzibar?")
    assert ranked[0].name != "part_17"
    app.profile(source)
    ranked = app.indexes.choose_tables(source, catalog, "How many towns are called Zanzibar?")
    assert ranked[0].name == "part_17"
