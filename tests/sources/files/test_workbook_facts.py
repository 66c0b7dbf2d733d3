"""What a workbook holds beside plain values is reported: formulas without values, hidden rows, merged cells, tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import xlsxwriter

from etude.sources.files.load import LoadedTable, discover, load


@pytest.fixture
def sheet(tmp_path: Path) -> Callable[..., LoadedTable]:
    def run(rows: list[list[Any]], change: Callable[[Any], None] = lambda _: None, stored: Any = 0) -> LoadedTable:
        book = xlsxwriter.Workbook(str(tmp_path / "data.xlsx"))
        page = book.add_worksheet()
        for at, row in enumerate(rows):
            for column, value in enumerate(row):
                if isinstance(value, str) and value.startswith("="):
                    page.write_formula(at, column, value, None, stored)
                elif value is not None:
                    page.write(at, column, value)
        change(page)
        book.close()
        (found,) = discover(str(tmp_path / "data.xlsx"))
        (loaded,) = load(found, tmp_path / "out")
        return loaded

    return run


def names(table: LoadedTable) -> list[str]:
    import pyarrow.parquet as pq

    return list(pq.read_schema(table.path).names)


FORMULAS = [["a", "b"], [1, "=A2*2"], [2, "=A3*2"]]


def test_formulas_without_stored_values_are_named(sheet: Callable[..., LoadedTable]) -> None:
    (note,) = sheet(FORMULAS, stored="").report.summary()
    assert note.startswith("2 formulas have no stored value and became null: B2, B3. Open the workbook in Excel")


def test_formulas_that_were_never_computed_are_named(sheet: Callable[..., LoadedTable]) -> None:
    (note,) = sheet(FORMULAS).report.summary()
    assert note.startswith("The stored value of each formula is 0 (B2, B3)")
    assert sheet(FORMULAS, stored=7).report.summary() == []


def test_hidden_rows_and_columns_are_told(sheet: Callable[..., LoadedTable]) -> None:
    def hide(page: Any) -> None:
        page.set_row(2, None, None, {"hidden": True})
        page.set_column(1, 1, None, None, {"hidden": True})

    loaded = sheet([["a", "b"], ["x", 1], ["y", 2], ["z", 4]], hide)
    assert loaded.row_count == 3
    assert loaded.report.summary() == [
        "1 row is hidden in the workbook and loaded: 3.",
        "1 column is hidden in the workbook and loaded.",
    ]


@pytest.mark.parametrize("years", [("2023", "2024"), (2023, 2024)])
def test_two_rows_of_names_are_joined(sheet: Callable[..., LoadedTable], years: tuple[Any, Any]) -> None:
    rows = [["Region", years[0], None, years[1], None], [None, "units", "amount", "units", "amount"]]
    loaded = sheet([*rows, ["N", 1, 1.5, 2, 2.5], ["S", 3, 3.5, 4, 5.5]])
    assert names(loaded) == ["Region", "2023 units", "2023 amount", "2024 units", "2024 amount"]
    assert loaded.row_count == 2
    assert loaded.report.summary() == ["The header has two rows; they were joined to names such as `2023 units`."]


def test_a_row_of_texts_below_the_header_stays_a_row(sheet: Callable[..., LoadedTable]) -> None:
    assert names(sheet([["a", "b"], ["x", "y"], ["z", "w"]])) == ["a", "b"]
    assert sheet([["a", "b", None], ["x", "y", "z"], ["z", "w", "v"]]).row_count == 2


def test_cells_merged_over_rows_are_named(sheet: Callable[..., LoadedTable]) -> None:
    rows = [["region", "n"], [None, 1], [None, 2], ["S", 4]]
    loaded = sheet(rows, lambda page: page.merge_range("A2:A3", "N"))
    assert loaded.report.summary() == ["Cells are merged over several rows (A2:A3): only the first row has the value."]


def test_further_tables_on_a_sheet_are_told(sheet: Callable[..., LoadedTable]) -> None:
    beside = [["item", "n", None, "area", "who"], ["x", 1, None, "N", "Jo"], ["y", 2, None, None, None]]
    assert "An empty column separates `n` from `area`" in " ".join(sheet(beside).report.summary())
    below = [["item", "n"], ["x", 1], ["y", 3], [], ["area", "who"], ["N", "Jo"]]
    assert "Row 5 comes after a blank row" in " ".join(sheet(below).report.summary())
