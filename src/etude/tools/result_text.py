"""How results look to a model: compact, marked as data, and with a note on everything left out."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import deque
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from etude.cell_text import cell_to_json

if TYPE_CHECKING:
    from etude.entities import Table
    from etude.result import Result
    from etude.sessions.base import Cell
    from etude.tools.base import ToolContext

ROWS = 50
"""Rows of a result that a model sees; the record keeps all of them."""
LAST_ROWS = 10
"""How many of them are the last rows of a longer result."""
READ_ROWS = 200_000
"""The last rows of a longer result are not shown, because all rows before them would be read."""
CHARS = 6_000
"""Characters of one tool result that a model sees."""
VALUE_CHARS = 200
DIGITS = 10
"""Digits of a number with a fraction that a model sees; figures are computed with all of them."""
_TEXT = re.compile(r"(n?(var)?char(acter)?( varying)?|n?text|(large_)?string|(large_)?utf8)(\(\w+\))?", re.IGNORECASE)
_SPECIAL = re.compile(r"[\",\n\r]")


def cut_result_text(text: str, chars: int = CHARS) -> str:
    """Return the text, or its beginning and end with a note on how much is missing in between."""
    if len(text) <= chars:
        return text
    head, tail = text[: chars * 3 // 4], text[-chars // 4 :]
    return f"{head}\n[... {len(text) - len(head) - len(tail):,} characters left out ...]\n{tail}"


def result_text_for_model(result: Result, context: ToolContext) -> str:
    """Return the shape of a result and its first and last rows as CSV, which takes the fewest tokens."""
    rows, count = result.iter_rows(shown=True), result.row_count
    ends = ROWS < count <= READ_ROWS
    first, left, rounded = _take_lines(itertools.islice(rows, ROWS - LAST_ROWS if ends else ROWS), CHARS)
    last: list[str] = []
    if ends and left > 0:
        backward, _, too = _take_lines(reversed(deque(rows, maxlen=LAST_ROWS)), left)
        last, rounded = backward[::-1], rounded or too
    counted = f"{count:,} row{'' if count == 1 else 's'}"
    if len(first) + len(last) < count:
        counted += f", the first {len(first)}" + (f" and the last {len(last)}" if last else "")
        counted += " shown; use a tool to compute on the rest, do not guess"
    if rounded:
        counted += f"; shown rounded to {DIGITS} digits"
    body = [", ".join(_typed(c.name, c.type) for c in result.columns), *first, *(["..."] if last else []), *last]
    notes = ["note: " + note for note in result.notes]
    return f"{counted}\n{context.quote(chr(10).join([*body, *notes]))}"


def earlier_result_text(name: str, result: Result, room: int = 300) -> str:
    """Return the id of a result of an earlier run, its columns and as many of its first rows as fit."""
    lines, _, _ = _take_lines(itertools.islice(result.iter_rows(), 20), room)
    head = ",".join(_quoted(c.name) for c in result.columns)
    return "\n".join([f"{name}: {result.row_count:,} rows, the first {len(lines)}:", head, *lines])


def _take_lines(rows: Iterable[Sequence[Any]], room: int) -> tuple[list[str], int, bool]:
    """Return as many rows as fit, as lines of CSV; the characters that are left; and whether a number was rounded."""
    lines: list[str] = []
    rounded = False
    for row in rows:
        short = [_round(v) for v in row]
        line = ",".join(map(_show_value, short))
        if len(line) > room:
            return lines, 0, rounded
        lines.append(line)
        rounded = rounded or any(s is not v for s, v in zip(short, row))
        room -= len(line)
    return lines, room, rounded


def cell_result_text_for_model(cell: Cell, context: ToolContext) -> str:
    """Return what a cell printed, its value and its notes."""
    parts = []
    if cell.stdout:
        parts.append(f"printed:\n{context.quote(cut_result_text(cell.stdout))}")
    if cell.stderr:
        parts.append(f"printed to stderr:\n{context.quote(cut_result_text(cell.stderr, CHARS // 4))}")
    if cell.ok and cell.text:
        parts.append(f"value:\n{context.quote(cut_result_text(cell.text))}")
    charts = [d.media for d in cell.display if d.media.startswith(("image/", "application/vnd.vega"))]
    if charts:
        parts.append(f"displayed:\n{context.quote(', '.join(charts))}")
    if cell.notes:
        parts.append(context.quote("\n".join(cell.notes)))
    return "\n".join(parts) or "done; nothing was printed"


_ABOUT_COLUMN = re.compile(r"Column (`[^`]+`) is [^:`]{1,40}: ")
_ONLY_NULLS = re.compile(r"values? (?:was|were) (?:a )?null markers?\b|: the missing ones are null\.$")


def _notes_for_model(notes: Sequence[str]) -> list[str]:
    """Return the notes on a file in short: the types of columns and the share of nulls stand beside the columns."""
    told = (_ABOUT_COLUMN.sub(r"\1: ", note, count=1) for note in notes if not _ONLY_NULLS.search(note))
    return [f" note: {note}" for note in told]


def table_result_text_for_model(table: Table, tables: Sequence[Table] = ()) -> str:
    """Return a table of a catalog as text: name, columns with types and keys, comments, notes on its file.

    A reference names its column if that has another name, or is not the key of its table among `tables`.
    """
    primary = {t.name: t.primary_key for t in tables}
    keys = {c for c in table.primary_key}
    to = {fk.columns[0]: (fk.to_table, fk.to_columns[0]) for fk in table.foreign_keys if len(fk.columns) == 1}
    columns = []
    for column in table.columns:
        marks = " key" if column.name in keys else ""
        if column.name in to:
            other, key = to[column.name]
            plain = key == column.name and primary.get(other, (key,)) in ((key,), ())
            marks += f" -> {other}" if plain else f" -> {other}.{key}"
        # Whether a key is a whole number or a text does not matter for a query.
        shown = column.name if marks and "int" in column.type.lower() else _typed(column.name, column.type)
        columns.append(f" {shown}{marks}" + (f" -- {column.comment}" if column.comment else ""))
    for fk in (fk for fk in table.foreign_keys if len(fk.columns) > 1):
        there = "" if fk.columns == fk.to_columns else f" ({', '.join(fk.to_columns)})"
        columns.append(f" ({', '.join(fk.columns)}) -> {fk.to_table}{there}")
    rows = f" ({table.row_count:,} rows)" if table.row_count is not None else ""
    comment = f" -- {table.comment}" if table.comment else ""
    return "\n".join([f"{table.name}{rows}{comment}", *columns, *_notes_for_model(table.notes)])


def _typed(name: str, kind: str) -> str:
    """Return a column with its type; text, the most frequent one, is left out."""
    return name if _TEXT.fullmatch(kind) else f"{name} {kind}"


def _field(value: Any) -> str:
    """Return a value as a field of CSV; a nested value is JSON, and text that could be something else is quoted."""
    if value is None or isinstance(value, (bool, list, dict)):
        text = json.dumps(value, ensure_ascii=False)
        return text if value is None or isinstance(value, bool) else _quoted(text)
    if isinstance(value, str) and (_SPECIAL.search(value) or value in ("", "null") or value != value.strip()):
        return _quoted(value)
    return str(value)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _round(value: Any) -> Any:
    """Return a number with a long fraction rounded, and any other value as it is. Whole digits are never rounded."""
    if not isinstance(value, float | Decimal) or not math.isfinite(value) or len(str(value)) <= DIGITS + 2:
        return value
    before = Decimal(value).adjusted() + 1
    short = round(value, max(DIGITS - before, 2))
    return value if short == value else short


def _show_value(value: Any) -> str:
    """Return a value as a field of CSV. A sign outside the quotes says that a long text is cut."""
    plain = cell_to_json(value)
    if isinstance(plain, str) and len(plain) > VALUE_CHARS:
        return f"{_quoted(plain[:VALUE_CHARS])}…[{len(plain):,} characters]"
    return _field(plain)
