"""Facts about a catalog are computed once for each catalog object, and kept for the last few."""

from __future__ import annotations

from etude.entities import Catalog, Column, Table
from etude.sources.catalog_facts import KEPT, once_per_catalog, text_date_columns


def catalog(*columns: Column, dialect: str = "sqlite") -> Catalog:
    table = Table(name="orders", kind="table", columns=columns)
    return Catalog(source="shop", kind="sqlite", dialect=dialect, tables=(table,), fingerprint="f")


def test_a_fact_is_computed_once_for_each_object() -> None:
    seen: list[Catalog] = []

    @once_per_catalog
    def count(known: Catalog) -> int:
        seen.append(known)
        return len(known.tables)

    first, equal = catalog(), catalog()
    assert [count(first), count(first), count(equal)] == [1, 1, 1]
    assert len(seen) == 2
    for _ in range(KEPT):
        count(catalog())
    count(first)
    assert len(seen) == KEPT + 3


def test_only_sqlite_keeps_dates_as_text() -> None:
    columns = (Column(name="ordered", type="DATE"), Column(name="at", type="timestamp"), Column(name="n", type="INT"))
    assert text_date_columns(catalog(*columns)) == {"ordered", "at"}
    assert text_date_columns(catalog(*columns, dialect="duckdb")) == frozenset()
