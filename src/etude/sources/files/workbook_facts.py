"""What the XML of a workbook (.xlsx) tells beyond values: errors, formulas without values, hidden and merged cells."""

from __future__ import annotations

import contextlib
import html
import re
import zipfile
import zlib
from dataclasses import dataclass, field

_FACT = re.compile(
    rb"<c\b(?P<error>[^>]*\bt=[\"']e[\"'][^>]*)>(?:(?!</c>).)*?<v>(?P<code>[^<]*)</v>"
    rb"|<c\b(?P<cell>[^>]*)>\s*<f\b(?:[^>]*/>|[^>]*>[^<]*</f>)\s*(?:<v\s*/>|<v[^>]*>(?P<value>[^<]*)</v>)?\s*</c>"
    rb"|<row\b(?P<row>[^>]*\bhidden=[\"'](?:1|true)[\"'][^>]*)>"
    rb"|<col\b(?P<column>[^>]*\bhidden=[\"'](?:1|true)[\"'][^>]*)>"
    rb"|<mergeCell\b[^>]*\bref=[\"'](?P<merged>[A-Z0-9:]+)[\"']",
    re.DOTALL,
)
_REFERENCE = re.compile(rb"\br=[\"']([A-Z]*[0-9]+)[\"']")
_SPAN = re.compile(rb"\b(?:min|max)=[\"']([0-9]+)[\"']")
_AREA = re.compile(r"([A-Z]+)([0-9]+):([A-Z]+)([0-9]+)")
_SHEET = re.compile(r"<sheet\b[^>]*>")
_TARGET = re.compile(r"<Relationship\b[^>]*>")
_RECALCULATED = re.compile(r"<calcPr\b[^>]*\bfullCalcOnLoad=[\"'](?:1|true)[\"']")
_FORMAT = re.compile(r"<numFmt\b[^>]*>")
_STYLE = re.compile(r"<xf\b[^>]*>")
_NUMBER_CELL = re.compile(rb"<c\b[^>]*(?<!/)>")
_STYLE_OF_CELL = re.compile(rb"\bs=[\"']([0-9]+)[\"']")
_COLUMN_OF_CELL = re.compile(rb"\br=[\"']([A-Z]+)[0-9]+[\"']")
_TYPE_OF_CELL = re.compile(rb"\bt=[\"'](?!n[\"'])")
_PART = 1 << 20
_UNREADABLE = (KeyError, UnicodeDecodeError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, OSError)
"""Errors of parts that calamine did not need; the notes are then without them."""
SHOWN = 5
SHEET_END = 1_000


@dataclass
class SheetFacts:
    """What was found in the XML of one sheet; cells are named as in `B7`."""

    errors: list[str] = field(default_factory=list)
    """Cells with an error such as #DIV/0!, which are read as empty, and the error."""
    missing: list[str] = field(default_factory=list)
    """Formulas without a stored value, which are read as empty."""
    formulas: int = 0
    zeros: list[str] = field(default_factory=list)
    """Formulas whose stored value is 0."""
    hidden_rows: list[str] = field(default_factory=list)
    hidden_columns: int = 0
    merged: list[str] = field(default_factory=list)
    zero_widths: dict[str, dict[int, int]] = field(default_factory=dict)
    """By column, such as `B`: how many numbers have a format such as 00000, by its number of zeros."""
    recalculated: bool = False
    """The program that wrote the workbook left it to the next one to compute all formulas."""


def read_workbook_facts(path: str) -> dict[str, SheetFacts]:
    """Return what the XML tells, by sheet; a workbook of another format has none here."""
    found: dict[str, SheetFacts] = {}
    if not zipfile.is_zipfile(path):
        return found
    with zipfile.ZipFile(path) as book, contextlib.suppress(*_UNREADABLE):
        links = _TARGET.findall(book.read("xl/_rels/workbook.xml.rels").decode())
        parts = {_attribute(tag, "Id"): _attribute(tag, "Target") for tag in links}
        workbook = book.read("xl/workbook.xml").decode()
        zeros = _find_zero_formats(book)
        for tag in _SHEET.findall(workbook):
            target = parts.get(_attribute(tag, "r:id"), "")
            facts = SheetFacts(recalculated=_RECALCULATED.search(workbook) is not None)
            _read_sheet(book, target.lstrip("/") if target.startswith("/") else f"xl/{target}", facts, zeros)
            found[_attribute(tag, "name")] = facts
    return found


def describe_sheet_facts(facts: SheetFacts, first_value: int) -> list[str]:
    """Return the facts as sentences; `first_value` is the first row below the header."""
    said = []
    if facts.errors:
        verb = "cell holds" if len(facts.errors) == 1 else "cells hold"
        said.append(f"{len(facts.errors):,} {verb} an error of Excel and became null: {_listed(facts.errors)}.")
    if facts.missing:
        verb = "formula has no stored value" if len(facts.missing) == 1 else "formulas have no stored value"
        said.append(
            f"{len(facts.missing):,} {verb} and became null: {_listed(facts.missing)}. "
            "Open the workbook in Excel or LibreOffice and save it, so that the values are computed."
        )
    if facts.recalculated and facts.formulas == len(facts.zeros) > 0:
        said.append(
            f"The stored value of each formula is 0 ({_listed(facts.zeros)}), and the workbook asks to be computed "
            "when it is opened: it may never have been. Open it in Excel or LibreOffice and save it."
        )
    if facts.hidden_rows:
        verb = "row is hidden" if len(facts.hidden_rows) == 1 else "rows are hidden"
        said.append(f"{len(facts.hidden_rows):,} {verb} in the workbook and loaded: {_listed(facts.hidden_rows)}.")
    if facts.hidden_columns:
        verb = "column is hidden" if facts.hidden_columns == 1 else "columns are hidden"
        said.append(f"{facts.hidden_columns:,} {verb} in the workbook and loaded.")
    below = [area for area in facts.merged if _spans_rows(area, first_value)]
    if below:
        said.append(f"Cells are merged over several rows ({_listed(below)}): only the first row has the value.")
    return said


def _spans_rows(area: str, first_value: int) -> bool:
    """Return whether a merged area is among the values, and higher than one row."""
    found = _AREA.fullmatch(area)
    return found is not None and int(found[2]) >= first_value and int(found[4]) > int(found[2])


def _listed(cells: list[str]) -> str:
    return ", ".join(cells[:SHOWN]) + (", ..." if len(cells) > SHOWN else "")


def _attribute(tag: str, name: str) -> str:
    value = re.search(rf"\s{name}=(?:\"([^\"]*)\"|'([^']*)')", tag)
    return html.unescape(value[1] or value[2] or "") if value else ""


def _find_zero_formats(book: zipfile.ZipFile) -> dict[int, int]:
    """Return the styles of cells that show numbers with leading zeros, such as 00000, and how many digits they show."""
    with contextlib.suppress(*_UNREADABLE):
        styles = book.read("xl/styles.xml").decode()
        formats = {_attribute(tag, "numFmtId"): _attribute(tag, "formatCode") for tag in _FORMAT.findall(styles)}
        cells = styles.partition("<cellXfs")[2].partition("</cellXfs>")[0]
        codes = [formats.get(_attribute(tag, "numFmtId"), "").removesuffix(";@") for tag in _STYLE.findall(cells)]
        return {at: len(code) for at, code in enumerate(codes) if re.fullmatch("0{2,}", code)}
    return {}


def _read_sheet(book: zipfile.ZipFile, part: str, facts: SheetFacts, zeros: dict[int, int]) -> None:
    with book.open(part) as file:
        rest = b""
        while piece := file.read(_PART):
            text = rest + piece
            done = 0
            if zeros:
                # A cell whose tag continues in the next piece is found there.
                _count_zero_formats(rest, piece, facts, zeros)
            for found in _FACT.finditer(text):
                _add(found, facts)
                done = found.end()
            # A cell may continue in the next piece.
            rest = text[max(done, len(text) - 4096) :]


def _count_zero_formats(before: bytes, piece: bytes, facts: SheetFacts, zeros: dict[int, int]) -> None:
    """Count the numbers of a piece that are shown with leading zeros; a tag may have started before it."""
    start = before.rfind(b"<")
    text = (before[start:] if start >= 0 and b">" not in before[start:] else b"") + piece
    for tag in _NUMBER_CELL.findall(text):
        style, place = _STYLE_OF_CELL.search(tag), _COLUMN_OF_CELL.search(tag)
        width = zeros.get(int(style[1]), 0) if style else 0
        if width and place and not _TYPE_OF_CELL.search(tag):
            counts = facts.zero_widths.setdefault(place[1].decode(), {})
            counts[width] = counts.get(width, 0) + 1


def _add(found: re.Match[bytes], facts: SheetFacts) -> None:
    if found["error"] is not None:
        facts.errors.append(f"{_place(found['error'])} ({html.unescape(found['code'].decode())})")
    elif found["cell"] is not None:
        facts.formulas += 1
        # Excel stores the result of `=""` as an empty text.
        is_text = re.search(rb"\bt=[\"']str[\"']", found["cell"]) is not None
        if not found["value"] and (facts.recalculated or not is_text):
            facts.missing.append(_place(found["cell"]))
        elif found["value"] == b"0":
            facts.zeros.append(_place(found["cell"]))
    elif found["row"] is not None:
        facts.hidden_rows.append(_place(found["row"]))
    elif found["column"] is not None:
        first, *last = map(int, _SPAN.findall(found["column"]))
        # A range that reaches the end of the sheet hides what is not used.
        width = (last[0] if last else first) - first + 1
        facts.hidden_columns += width if width < SHEET_END else 0
    else:
        facts.merged.append(found["merged"].decode())


def _place(attributes: bytes) -> str:
    found = _REFERENCE.search(attributes)
    return found[1].decode() if found else "?"
