"""Convert workbooks (.xlsx, .xls, .xlsb, .ods) to Parquet: each sheet with a value is a table."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, time, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from etude.errors import Invalid, Unavailable
from etude.sources.files.column_types import NULL_MARKERS
from etude.sources.files.header_rows import (
    describe_joined_header,
    describe_units_row,
    has_spanning_header,
    is_units_row,
    join_header_rows,
)
from etude.sources.files.load_report import LoadReport, LoadRowFaults, Rename, TypeNote
from etude.sources.files.table_names import clean_column_names, clean_table_name, show_invisible, unique_table_names
from etude.sources.files.workbook_facts import describe_sheet_facts, read_workbook_facts

Row = list[Any]
FIRST_YEAR, LAST_YEAR = 1900, 2100
"""Numbers in this range may be names of columns."""
CODE_DIGITS = 4
"""Numbers that a format fills up with zeros to this many digits are codes."""
HOUR = timedelta(hours=1)
KEPT_AS_TEXT = ", all kept as text"
TYPES = {"int64": "BIGINT", "double": "DOUBLE", "date32[day]": "DATE", "timestamp[us]": "TIMESTAMP", "bool": "BOOLEAN"}
"""Types of Arrow as queries show them."""


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
    facts = read_workbook_facts(path)
    staged = []
    for at, (name, (sheet, rows, (first_line, first_column), hidden)) in enumerate(zip(names, sheets)):
        zeros = facts[sheet].zero_widths if sheet in facts else {}
        widths = {_column_number(letters) - first_column: found for letters, found in zeros.items()}
        columns, count, first_value, report = _table(rows, first_line, widths)
        notes = ["The sheet is hidden in the workbook."] if hidden else []
        if sheet in facts:
            notes += describe_sheet_facts(facts[sheet], first_value)
        report = replace(report, notes=(*report.notes, *notes))
        target = scratch / f"{at}.table.parquet"
        pq.write_table(columns, target, compression="zstd")
        staged.append((name, target, count, report))
    return staged


def _column_number(letters: str) -> int:
    """Return the number of a column from its letters: `A` is 1, `AA` is 27."""
    number = 0
    for letter in letters:
        number = 26 * number + ord(letter) - ord("A") + 1
    return number


def _sheets(path: str) -> list[tuple[str, list[Row], tuple[int, int], bool]]:
    """Return name, rows, numbers of the first row and column, and whether it is hidden, of each sheet with a value."""
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
                    row, column = sheet.start or (0, 0)
                    found.append((name, rows, (row + 1, column + 1), name not in visible))
            return found
    except calamine.PasswordError as error:
        raise Invalid(f"`{path}` is protected by a password.", hint="Save it without a password.") from error
    except (calamine.CalamineError, OSError) as error:
        raise Invalid(f"`{path}` is not a readable workbook: {error}.", hint="Open and save it again.") from error


def _table(rows: list[Row], first_line: int, zeros: dict[int, dict[int, int]]) -> tuple[Any, int, int, LoadReport]:
    """Return the values, how many rows they have, the first of these rows on the sheet, and the report.

    `zeros` tells by column how many numbers have a format that shows leading zeros, by its number of digits.
    """
    import pyarrow as pa

    faults = LoadRowFaults()
    width = max(len(r) for r in rows)
    numbered = [(first_line + i, r + [""] * (width - len(r))) for i, r in enumerate(rows)]
    filled = [(line, row) for line, row in numbered if any(cell != "" for cell in row)]
    body = _without_titles(filled, width, faults)
    header_rows = 2 if _has_two_header_rows(body) else int(_is_header(body))
    header = [""] * width
    if header_rows == 1:
        header = [str(c).strip() for c in body[0][1]]
    elif header_rows:
        header = join_header_rows(*([_text(c) for c in row] for _, row in body[:2]))
    has_header = header_rows > 0
    units: Row = []
    if has_header and is_units_row(
        [row for _, row in body[header_rows : header_rows + 1]], _rows(body[header_rows + 1 :]), _is_value
    ):
        units = body.pop(header_rows)[1]
    cells = [row for _, row in body[header_rows:]]
    # A column with neither a name nor a value is only formatting.
    kept = [at for at in range(width) if header[at] or any(row[at] != "" for row in cells)]
    names, renamed = _names([header[at] for at in kept], has_header)
    arrays, notes = [], []
    for name, at in zip(names, kept):
        column = [row[at] for row in cells]
        array, note = _with_zeros(name, column, zeros[at]) if at in zeros else _column(name, column)
        arrays.append(array)
        notes += [note] if note else []
    said = _describe_second_table(body[header_rows:], header, kept)
    if units:
        said.insert(0, describe_units_row([(name, units[at]) for name, at in zip(names, kept)]))
    if header_rows > 1:
        both = [name for name, at in zip(names, kept) if body[1][1][at] != ""]
        both.sort(key=lambda name: name in {_text(cell) for cell in body[1][1]})
        said.insert(0, describe_joined_header(both))
    report = LoadReport(
        header="present" if has_header else "invented",
        renamed=renamed,
        types=tuple(notes),
        bad_rows=faults.rows(),
        blank_lines=len(numbered) - len(filled),
        notes=tuple(said),
    )
    first_value = body[header_rows][0] if cells else 0
    return pa.table(arrays, names=names), len(cells), first_value, report


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


def _has_two_header_rows(rows: list[tuple[int, Row]]) -> bool:
    if len(rows) < 3:
        return False
    (first_line, top), (second_line, names) = rows[:2]
    if second_line != first_line + 1 or not all(isinstance(cell, str) or _is_year(cell) for cell in top):
        return False
    below = _rows(rows[2:])
    if is_units_row(below[:1], below[1:], _is_value):
        del below[0]
    return has_spanning_header(top, names, below, _is_value)


def _rows(numbered: list[tuple[int, Row]]) -> list[Row]:
    return [row for _, row in numbered]


def _is_value(cell: Any) -> bool:
    return not isinstance(cell, str)


def _is_year(cell: Any) -> bool:
    return isinstance(cell, int | float) and float(cell).is_integer() and FIRST_YEAR <= cell <= LAST_YEAR


def _describe_second_table(rows: list[tuple[int, Row]], header: list[str], kept: list[int]) -> list[str]:
    """Return notes on what looks like a further table on the sheet: beside the first one, or below it."""
    said = []
    ends = {at: max((i for i, (_, row) in enumerate(rows) if row[at] != ""), default=-1) for at in kept}
    for left, right in pairwise(kept):
        height = {max(ends[at] for at in kept if (at < right) is side) for side in (True, False)}
        if right > left + 1 and header[left] and header[right] and len(height) > 1:
            said.append(
                f"An empty column separates `{header[left]}` from `{header[right]}`, and one side has more rows: two "
                "tables may have been read as one. Put each on a sheet of its own."
            )
            break
    for at, ((before, _), (line, row)) in enumerate(pairwise(rows), 1):
        names = [i for i in kept if row[i] != ""]
        typed = any(rows[0][1][i] != "" and not isinstance(rows[0][1][i], str) for i in names)
        texts = len(names) > 1 and all(isinstance(row[i], str) for i in names)
        if line > before + 1 and texts and typed and at + 1 < len(rows):
            said.append(
                f"Row {line} comes after a blank row and looks like the header of another table, which was read as "
                "rows of this one. Put it on a sheet of its own."
            )
            break
    return said


def _names(header: list[str], has_header: bool) -> tuple[list[str], tuple[Rename, ...]]:
    names: list[str] = []
    renamed: list[Rename] = []
    for at, cell in enumerate(header):
        wanted = clean_column_names([cell])[0] if cell else f"column{at}"
        free, number = wanted, 1
        while free.lower() in {n.lower() for n in names}:
            free, number = f"{wanted}_{number}", number + 1
        names.append(free)
        if has_header and free != cell:
            why = "another column has that name" if cell else f"column {at + 1} has no name in the header"
            if cell and free == wanted:
                why = "invisible characters, or special spaces, in the name"
            renamed.append(Rename(show_invisible(cell), free, why))
    return names, tuple(renamed)


def _column(name: str, cells: Row) -> tuple[Any, TypeNote | None]:
    """Return the cells as one typed array: of their common type, else text."""
    import pyarrow as pa

    values = [None if cell == "" else cell for cell in cells]
    kind = _kind([v for v in values if v is not None])
    if kind is not None:
        return pa.array([_as(kind, v) for v in values], type=kind), None
    shown, rest = _markers(values)
    if rest and all(isinstance(v, timedelta) for v in rest):
        return _durations(name, values, shown)
    kind = _kind(rest) if shown else None
    if kind is not None and kind != pa.string():
        typed = [None if _is_marker(v) else _as(kind, v) for v in values]
        count = sum(v is not None and _is_marker(v) for v in values)
        verb = "is a null marker" if count == 1 else "are null markers"
        note = f"{count:,} of {len(rest) + count:,} values {verb} ({', '.join(map(repr, shown[:3]))})"
        return pa.array(typed, type=kind), TypeNote(name, TYPES.get(str(kind), str(kind)), note)
    return pa.array([None if v is None else _text(v) for v in values], type=pa.string()), _mixed(name, values)


def _with_zeros(name: str, cells: Row, zeros: dict[int, int]) -> tuple[Any, TypeNote | None]:
    """Return the cells of a column whose numbers the workbook shows with leading zeros, as it does with post codes."""
    import pyarrow as pa

    array, note = _column(name, cells)
    values = [int(cell) for cell in cells if isinstance(cell, int | float) and float(cell).is_integer()]
    width = min(zeros)
    short = next((v for v in values if v >= 0 and len(str(v)) < width), None)
    if note or array.type != pa.int64() or short is None:
        return array, note
    shown = f"{short:0{width}}"
    if len(zeros) > 1 or zeros[width] < len(values) or width < CODE_DIGITS or min(values) < 0:
        said = f"the format of some cells shows leading zeros, {short} as {shown}, which its numbers do not have"
        return array, TypeNote(name, "BIGINT", said)
    texts = [None if v is None else f"{v:0{width}}" for v in array.to_pylist()]
    said = f"the workbook shows its numbers with leading zeros ({shown!r}), so they are kept as written there"
    return pa.array(texts, type=pa.string()), TypeNote(name, "text", said)


def _durations(name: str, values: Row, markers: list[str]) -> tuple[Any, TypeNote]:
    """Return durations as hours: a number can be summed, and Parquet has no type for them that other tools read."""
    import pyarrow as pa

    hours = [v / HOUR if isinstance(v, timedelta) else None for v in values]
    first = next(v for v in values if isinstance(v, timedelta))
    note = f"its durations were read as hours, so {_text(first)} is {first / HOUR:.6g}"
    if markers:
        count = sum(v is not None and _is_marker(v) for v in values)
        verb = "value is a null marker" if count == 1 else "values are null markers"
        note += f", and {count:,} {verb} ({', '.join(map(repr, markers[:3]))})"
    return pa.array(hours, type=pa.float64()), TypeNote(name, "DOUBLE", note)


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
    single = {str: pa.string(), bool: pa.bool_(), time: pa.time64("us")}
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
    if isinstance(value, timedelta):
        seconds = round(abs(value) / timedelta(seconds=1))
        sign = "-" if value < timedelta(0) else ""
        return f"{sign}{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return value if isinstance(value, str) else str(value)


def _mixed(name: str, values: Row) -> TypeNote:
    kinds: dict[str, int] = {}
    first = next((v for v in values if isinstance(v, str)), "")
    for value in values:
        if value is not None:
            noun = "number" if type(value) in (int, float) else "text" if isinstance(value, str) else "date or other"
            kinds[noun] = kinds.get(noun, 0) + 1
    plurals = {"number": "numbers", "text": "texts", "date or other": "dates or others"}
    parts = ", ".join(f"{count:,} {noun if count == 1 else plurals[noun]}" for noun, count in kinds.items())
    shown = f" ({first[:40]!r})" if first else ""
    return TypeNote(name, "text", f"mixed: {parts}{shown}{KEPT_AS_TEXT}")
