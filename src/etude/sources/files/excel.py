"""Convert workbooks (.xlsx, .xls, .xlsb, .ods) to Parquet: each sheet with a value is a table."""

from __future__ import annotations

import contextlib
import html
import re
import zipfile
import zlib
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any

from etude.errors import Invalid, Unavailable
from etude.sources.files.column_types import NULL_MARKERS
from etude.sources.files.load_report import LoadReport, LoadRowFaults, Rename, TypeNote
from etude.sources.files.table_names import clean_table_name, unique_table_names

Row = list[Any]


def load_excel_workbook(table: str, path: str, scratch: Path) -> list[tuple[str, Path, int, LoadReport]]:
    """Write one Parquet file for each sheet; return table name, file, number of rows and report of each."""
    import pyarrow.parquet as pq

    sheets = _sheets(path)
    if not sheets:
        raise Invalid(f"`{path}` has no cell with a value.", hint="Remove the file, or fill a sheet.")
    names = (
        [table]
        if len(sheets) == 1
        else unique_table_names(clean_table_name(f"{table} {sheet}") for sheet, *_ in sheets)
    )
    errors = _error_cells(path)
    staged = []
    for at, (name, (sheet, rows, first_line, hidden)) in enumerate(zip(names, sheets)):
        columns, count, report = _table(rows, first_line)
        if hidden:
            report = replace(report, notes=(*report.notes, "The sheet is hidden in the workbook."))
        if failed := errors.get(sheet):
            report = replace(report, notes=(*report.notes, _error_note(failed)))
        target = scratch / f"{at}.table.parquet"
        pq.write_table(columns, target, compression="zstd")
        staged.append((name, target, count, report))
    return staged


def _sheets(path: str) -> list[tuple[str, list[Row], int, bool]]:
    """Return name, rows, number of the first row, and whether it is hidden, of each sheet with a value."""
    try:
        import python_calamine as calamine
    except ImportError as error:
        raise Unavailable(
            f"`{path}` cannot be read without python-calamine.", hint="pip install 'etude[excel]'"
        ) from error
    try:
        with calamine.CalamineWorkbook.from_path(path) as book:
            found = []
            visible = {m.name for m in book.sheets_metadata if m.visible == calamine.SheetVisibleEnum.Visible}
            for name in book.sheet_names:
                sheet = book.get_sheet_by_name(name)
                rows = sheet.to_python(skip_empty_area=True)
                if any(cell != "" for row in rows for cell in row):
                    found.append((name, rows, (sheet.start or (0, 0))[0] + 1, name not in visible))
            return found
    except calamine.PasswordError as error:
        raise Invalid(f"`{path}` is protected by a password.", hint="Save it without a password.") from error
    except (calamine.CalamineError, OSError) as error:
        raise Invalid(f"`{path}` is not a readable workbook: {error}.", hint="Open and save it again.") from error


_CELL = re.compile(rb"<c\b([^>]*\bt=[\"']e[\"'][^>]*)>(?:(?!</c>).)*?<v>([^<]*)</v>", re.DOTALL)
_REFERENCE = re.compile(rb"\br=[\"']([A-Z]+[0-9]+)[\"']")
_SHEET = re.compile(r"<sheet\b[^>]*>")
_TARGET = re.compile(r"<Relationship\b[^>]*>")
_PART = 1 << 20
_UNREADABLE = (KeyError, UnicodeDecodeError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, OSError)
"""Errors of parts that calamine did not need; the notes are then without them."""


def _error_cells(path: str) -> dict[str, list[str]]:
    """Return the cells that hold an error such as #DIV/0!, by sheet: calamine reads them as empty.

    Only the XML formats tell them; a workbook of another format has none here.
    """
    found: dict[str, list[str]] = {}
    if not zipfile.is_zipfile(path):
        return found
    with zipfile.ZipFile(path) as book, contextlib.suppress(*_UNREADABLE):
        parts = {
            _attribute(tag, "Id"): _attribute(tag, "Target") for tag in _tags(book, "_rels/workbook.xml.rels", _TARGET)
        }
        for tag in _tags(book, "workbook.xml", _SHEET):
            target = parts.get(_attribute(tag, "r:id"), "")
            cells = _errors_of(book, target.lstrip("/") if target.startswith("/") else f"xl/{target}")
            if cells:
                found[_attribute(tag, "name")] = cells
    return found


def _tags(book: zipfile.ZipFile, part: str, pattern: re.Pattern[str]) -> list[str]:
    return pattern.findall(book.read(f"xl/{part}").decode())


def _attribute(tag: str, name: str) -> str:
    value = re.search(rf"\s{name}=(?:\"([^\"]*)\"|'([^']*)')", tag)
    return html.unescape(value[1] or value[2] or "") if value else ""


def _errors_of(book: zipfile.ZipFile, part: str) -> list[str]:
    found: list[str] = []
    with book.open(part) as file:
        rest = b""
        while piece := file.read(_PART):
            text = rest + piece
            done = 0
            for cell in _CELL.finditer(text):
                reference = _REFERENCE.search(cell[1])
                found.append(f"{reference[1].decode() if reference else '?'} ({html.unescape(cell[2].decode())})")
                done = cell.end()
            # A cell may continue in the next piece.
            rest = text[max(done, len(text) - 4096) :]
    return found


def _error_note(cells: list[str]) -> str:
    listed = ", ".join(cells[:5]) + (", ..." if len(cells) > 5 else "")
    return (
        f"{len(cells):,} cell{' holds' if len(cells) == 1 else 's hold'} an error of Excel and became null: {listed}."
    )


def _table(rows: list[Row], first_line: int) -> tuple[Any, int, LoadReport]:
    import pyarrow as pa

    faults = LoadRowFaults()
    width = max(len(r) for r in rows)
    numbered = [(first_line + i, r + [""] * (width - len(r))) for i, r in enumerate(rows)]
    filled = [(line, row) for line, row in numbered if any(cell != "" for cell in row)]
    body = _without_titles(filled, width, faults)
    has_header = _is_header(body)
    header = [str(c).strip() for c in body[0][1]] if has_header else [""] * width
    cells = [row for _, row in body[has_header:]]
    # A column with neither a name nor a value is only formatting.
    kept = [at for at in range(width) if header[at] or any(row[at] != "" for row in cells)]
    names, renamed = _names([header[at] for at in kept], has_header)
    arrays, notes = [], []
    for name, at in zip(names, kept):
        array, note = _column(name, [row[at] for row in cells])
        arrays.append(array)
        notes += [note] if note else []
    report = LoadReport(
        header="present" if has_header else "invented",
        renamed=renamed,
        types=tuple(notes),
        bad_rows=faults.rows(),
        blank_lines=len(numbered) - len(filled),
    )
    return pa.table(arrays, names=names), len(cells), report


def _without_titles(rows: list[tuple[int, Row]], width: int, faults: LoadRowFaults) -> list[tuple[int, Row]]:
    """Leave out rows of one cell above a table of several columns."""
    if width < 2:
        return rows
    for at, (_, row) in enumerate(rows):
        if sum(cell != "" for cell in row) > 1:
            for line, _ in rows[:at]:
                faults.add("one cell above the header", "skipped as a title", line)
            return rows[at:]
    return rows


def _is_header(rows: list[tuple[int, Row]]) -> bool:
    """Return whether the first row is a header: all its cells are text."""
    cells = [cell for cell in rows[0][1] if cell != ""]
    return all(isinstance(cell, str) and cell.strip() for cell in cells)


def _names(header: list[str], has_header: bool) -> tuple[list[str], tuple[Rename, ...]]:
    names: list[str] = []
    renamed: list[Rename] = []
    for at, cell in enumerate(header):
        wanted = cell or f"column{at}"
        free, number = wanted, 1
        while free.lower() in {n.lower() for n in names}:
            free, number = f"{wanted}_{number}", number + 1
        names.append(free)
        if has_header and free != cell:
            why = "another column has that name" if cell else f"column {at + 1} has no name in the header"
            renamed.append(Rename(cell, free, why))
    return names, tuple(renamed)


def _column(name: str, cells: Row) -> tuple[Any, TypeNote | None]:
    """Return the cells as one typed array: of their common type, else text."""
    import pyarrow as pa

    values = [None if cell == "" else cell for cell in cells]
    kind = _kind([v for v in values if v is not None])
    if kind is not None:
        return pa.array([_as(kind, v) for v in values], type=kind), None
    shown, rest = _markers(values)
    kind = _kind(rest) if shown else None
    if kind is not None and kind != pa.string():
        typed = [None if _is_marker(v) else _as(kind, v) for v in values]
        count = sum(v is not None and _is_marker(v) for v in values)
        note = f"{count:,} of {len(rest) + count:,} values are null markers ({', '.join(map(repr, shown[:3]))})"
        return pa.array(typed, type=kind), TypeNote(name, str(kind), note)
    return pa.array([None if v is None else _text(v) for v in values], type=pa.string()), _mixed(name, values)


def _kind(values: Row) -> Any:
    """Return the Arrow type that holds every value unchanged, or None."""
    import pyarrow as pa

    types = {type(v) for v in values}
    if not types:
        return pa.string()
    if types <= {int, float}:
        whole = all(isinstance(v, int) or v.is_integer() for v in values) and all(abs(v) < 2**53 for v in values)
        return pa.int64() if whole else pa.float64()
    if types <= {date, datetime}:
        return pa.date32() if types == {date} else pa.timestamp("us")
    single = {str: pa.string(), bool: pa.bool_(), time: pa.time64("us"), timedelta: pa.duration("us")}
    return single.get(types.pop()) if len(types) == 1 else None


def _as(kind: Any, value: Any) -> Any:
    import pyarrow as pa

    if value is None:
        return None
    if kind == pa.int64():
        return int(value)
    if kind == pa.float64():
        return float(value)
    if pa.types.is_timestamp(kind) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)
    return value


def _is_marker(value: Any) -> bool:
    return isinstance(value, str) and value.strip().lower() in NULL_MARKERS


def _markers(values: Row) -> tuple[list[str], Row]:
    """Return the null markers among the values, and the other values."""
    shown = list(dict.fromkeys(v for v in values if v is not None and _is_marker(v)))
    return shown, [v for v in values if v is not None and not _is_marker(v)]


def _text(value: Any) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return value if isinstance(value, str) else str(value)


def _mixed(name: str, values: Row) -> TypeNote:
    kinds: dict[str, int] = {}
    for value in values:
        if value is not None:
            noun = "numbers" if type(value) in (int, float) else "text" if isinstance(value, str) else "dates or others"
            kinds[noun] = kinds.get(noun, 0) + 1
    parts = ", ".join(f"{count:,} {noun}" for noun, count in kinds.items())
    return TypeNote(name, "text", f"mixed: {parts}, all kept as text")
