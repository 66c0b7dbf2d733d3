"""Results as Excel files."""

from __future__ import annotations

import datetime as dt
import math
import shutil
import tempfile
from decimal import Decimal
from typing import IO, TYPE_CHECKING, Any

from etude.errors import Invalid, LimitExceeded, Unavailable

if TYPE_CHECKING:
    from etude.result import Result

MOST_ROWS = 1_048_575
"""The rows of a sheet, without the line of names."""
MOST_COLUMNS = 16_384
MOST_TEXT = 32_767
_EXACT = 10**15
"""Excel keeps 15 digits of a number."""


def write_xlsx(result: Result, file: IO[bytes]) -> None:
    """Write a result as one sheet. Numbers that Excel cannot hold exactly, and nested values, become text."""
    try:
        import xlsxwriter
    except ImportError:
        raise Unavailable("Excel files need the package `xlsxwriter`.", hint="pip install 'etude[excel]'") from None
    if result.row_count > MOST_ROWS or len(result.columns) > MOST_COLUMNS:
        raise LimitExceeded(
            f"The result has {result.row_count:,} rows and {len(result.columns):,} columns; an Excel sheet holds "
            f"{MOST_ROWS:,} and {MOST_COLUMNS:,}.",
            hint="Aggregate or filter, or write --format csv or parquet.",
            limit="rows",
        )
    # To a file first: if `file` is a pipe whose reader has gone, the library would raise an error of its own.
    with tempfile.TemporaryFile() as whole:
        _write_book(xlsxwriter, result, whole)
        whole.seek(0)
        shutil.copyfileobj(whole, file)


def _write_book(xlsxwriter: Any, result: Result, file: IO[bytes]) -> None:
    # In constant memory: each row goes to a temporary file. Text is never read as a formula, a link or a number.
    book = xlsxwriter.Workbook(file, {"constant_memory": True, "strings_to_formulas": False, "strings_to_urls": False})
    sheet = book.add_worksheet("result", _exact_sheet())
    bold = book.add_format({"bold": True})
    formats = {
        dt.datetime: book.add_format({"num_format": "yyyy-mm-dd hh:mm:ss"}),
        dt.date: book.add_format({"num_format": "yyyy-mm-dd"}),
        dt.time: book.add_format({"num_format": "hh:mm:ss"}),
    }
    sheet.freeze_panes(1, 0)
    for at, column in enumerate(result.columns):
        sheet.write_string(0, at, column.name, bold)
    for number, row in enumerate(result.iter_rows(shown=True), 1):
        for at, value in enumerate(row):
            _write_cell(sheet, number, at, value, formats)
    book.close()


def _exact_sheet() -> type[Any]:
    """Return a worksheet that writes floats with all their digits; the library writes sixteen."""
    from xlsxwriter.worksheet import Worksheet

    class ExactSheet(Worksheet):  # type: ignore[misc, unused-ignore]
        def _xml_number_element(self, number: Any, attributes: Any = ()) -> None:
            written = "".join(f' {name}="{value}"' for name, value in attributes or ())
            self.fh.write(f"<c{written}><v>{number!r}</v></c>")

    return ExactSheet


def _write_cell(sheet: Any, row: int, column: int, value: Any, formats: dict[type, Any]) -> None:
    from etude.cell_text import cell_to_json

    match value:
        case None:
            return
        case bool():
            sheet.write_boolean(row, column, value)
        case int() if abs(value) < _EXACT:
            sheet.write_number(row, column, value)
        case float() if math.isfinite(value):
            sheet.write_number(row, column, value)
        case Decimal() if isinstance(number := cell_to_json(value), int | float) and len(value.as_tuple().digits) <= 15:
            sheet.write_number(row, column, number)
        case dt.datetime() if value.tzinfo is None and value.year >= 1900 and value.microsecond % 1000 == 0:
            sheet.write_datetime(row, column, value, formats[dt.datetime])
        case dt.date() if not isinstance(value, dt.datetime) and value.year >= 1900:
            sheet.write_datetime(row, column, value, formats[dt.date])
        case dt.time() if value.tzinfo is None and value.microsecond % 1000 == 0:
            sheet.write_datetime(row, column, value, formats[dt.time])
        case _:
            _write_text(sheet, row, column, value)


def _write_text(sheet: Any, row: int, column: int, value: Any) -> None:
    import json

    from etude.cell_text import cell_to_json

    plain = cell_to_json(value)
    text = json.dumps(plain, ensure_ascii=False) if isinstance(plain, dict | list) else str(plain)
    if len(text) > MOST_TEXT:
        raise Invalid(
            f"A value in row {row:,} has {len(text):,} characters; a cell of Excel holds {MOST_TEXT:,}.",
            hint="Cut it in the query, or write --format csv or parquet.",
        )
    sheet.write_string(row, column, text)
