"""Which tables a question is about."""

from __future__ import annotations

from etude.entities import Catalog, Column, ForeignKey, Table
from etude.tools.table_ranking import rank_tables, ranking_words


def table(name: str, *columns: str, to: str = "") -> Table:
    keys = (ForeignKey(columns=(columns[0],), to_table=to, to_columns=("id",)),) if to else ()
    return Table(name=name, columns=tuple(Column(name=c, type="INTEGER") for c in columns), foreign_keys=keys)


def names(question: str, *tables: Table) -> list[str]:
    catalog = Catalog(source="s", kind="duckdb", dialect="duckdb", tables=tables, fingerprint="x")
    return [t.name for t in rank_tables(catalog, question)]


def test_words_are_split_and_cut_to_what_singular_and_plural_share():
    assert ranking_words("customerID of order_lines, categories, classes and Größen") == [
        "customer", "id", "order", "line", "category", "class", "größen",
    ]  # fmt: skip


def test_the_table_that_is_named_comes_first():
    found = names("How many invoices were paid?", table("people", "id"), table("invoice", "id", "paid"))
    assert found[0] == "invoice"


def test_a_column_that_only_one_table_has_counts_more_than_one_that_all_have():
    tables = [table(f"t{n}", "id", "name") for n in range(9)]
    assert names("name and vintage", *tables, table("wine", "id", "name", "vintage"))[0] == "wine"


def test_a_neighbour_by_key_comes_before_a_stranger():
    line, stranger = table("line", "order_id", "sku", to="orders"), table("aaa", "x")
    assert names("orders last month", stranger, line, table("orders", "id")) == ["orders", "line", "aaa"]


def test_nothing_in_common_leaves_the_order_of_names():
    assert names("weather?", table("b", "x"), table("a", "y")) == ["a", "b"]
