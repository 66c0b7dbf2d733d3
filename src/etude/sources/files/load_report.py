"""What loading a file found and did: every change and omission is listed here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

LINES_KEPT = 10


@dataclass(frozen=True)
class Rename:
    """A column whose name in the table differs from that in the file."""

    old: str
    new: str
    why: str


@dataclass(frozen=True)
class TypeNote:
    """Why a column has its type, if that is not obvious."""

    column: str
    type: str
    note: str


@dataclass(frozen=True)
class BadRows:
    """Rows with one kind of fault: how many, the first line numbers, and what was done with them."""

    fault: str
    count: int
    lines: tuple[int, ...]
    done: str
    file: str = ""


@dataclass(frozen=True)
class TotalRows:
    """Rows that add up others, by a column and its value there; None if only there the column is empty."""

    column: str
    value: str | None


@dataclass(frozen=True)
class LoadReport:
    """All that a reader of the table should know about the file behind it; `dataclasses.asdict` makes it JSON."""

    encoding: str = ""
    bom: bool = False
    delimiter: str = ""
    quote: str = ""
    header: str = ""
    """`present`, `invented`, or empty if the format has none."""
    renamed: tuple[Rename, ...] = ()
    types: tuple[TypeNote, ...] = ()
    bad_rows: tuple[BadRows, ...] = ()
    blank_lines: int = 0
    nul_bytes: int = 0
    huge_fields: int = 0
    notes: tuple[str, ...] = ()
    totals: tuple[TotalRows, ...] = ()
    """Rows that the notes call totals."""

    def summary(self) -> list[str]:
        """Return the report as sentences; empty for a clean file."""
        said: list[str] = []
        others = [name for name in self.encoding.split(", ") if name not in ("", "utf-8")]
        if others and len(others) < self.encoding.count(",") + 1:
            said.append(f"Some files are not UTF-8; they were read as {', '.join(others)}.")
        elif others:
            said.append(f"The text is not UTF-8; it was read as {', '.join(others)}.")
        if self.header == "invented":
            said.append("The file has no header; the columns are named column0, column1, ...")
        said += [f"Column `{r.old}` is named `{r.new}`: {r.why}." for r in self.renamed]
        said += [f"Column `{t.column}` is {t.type}: {t.note}." for t in self.types]
        said += [_sentence(bad) for bad in self.bad_rows]
        if self.blank_lines:
            said.append(f"{_count(self.blank_lines, 'blank line')} skipped.")
        if self.nul_bytes:
            said.append(f"{_count(self.nul_bytes, 'NUL byte')} removed.")
        if self.huge_fields:
            said.append(f"{_count(self.huge_fields, 'field')} kept whole although longer than a million characters.")
        return said + list(self.notes)


def merge_load_reports(reports: list[LoadReport]) -> LoadReport:
    """Merge the reports of a table's files into one."""
    if len(reports) == 1:
        return reports[0]

    def joined(field: str) -> str:
        return ", ".join(dict.fromkeys(getattr(r, field) for r in reports))

    return LoadReport(
        encoding=joined("encoding"),
        bom=any(r.bom for r in reports),
        delimiter=joined("delimiter"),
        quote=joined("quote"),
        header=joined("header"),
        renamed=tuple(dict.fromkeys(x for r in reports for x in r.renamed)),
        types=tuple(dict.fromkeys(x for r in reports for x in r.types)),
        bad_rows=tuple(x for r in reports for x in r.bad_rows),
        blank_lines=sum(r.blank_lines for r in reports),
        nul_bytes=sum(r.nul_bytes for r in reports),
        huge_fields=sum(r.huge_fields for r in reports),
        notes=tuple(dict.fromkeys(x for r in reports for x in r.notes)),
        totals=tuple(dict.fromkeys(x for r in reports for x in r.totals)),
    )


_COLUMN = re.compile(r"Column `(?P<name>.+?)` (?:is named `(?P<new>.+?)`)?")


def load_notes_of_query(notes: Sequence[str], sql: str) -> list[str]:
    """Return the sentences of a report that concern a query: on the table, and on columns that the query names."""
    text = sql.lower()
    # `count(*)` reads no column; any other star, or a query without SELECT, may read all of them.
    every = "select" not in text or "*" in re.sub(r"\(\s*\*\s*\)", "", text)

    def concerns(note: str) -> bool:
        found = _COLUMN.match(note)
        return every or found is None or (found["new"] or found["name"]).lower() in text

    return [note for note in notes if concerns(note)]


class LoadRowFaults:
    """Counts bad rows by fault while a file is read."""

    def __init__(self, file: str = "") -> None:
        self._file = file
        self._found: dict[tuple[str, str], tuple[int, list[int]]] = {}

    def add(self, fault: str, done: str, line: int) -> None:
        """Count one row; only the first line numbers are kept."""
        count, lines = self._found.get((fault, done), (0, []))
        if count < LINES_KEPT:
            lines.append(line)
        self._found[fault, done] = (count + 1, lines)

    def rows(self) -> tuple[BadRows, ...]:
        """Return the counted faults, in the order in which they first appeared."""
        return tuple(
            BadRows(fault, count, tuple(lines), done, self._file)
            for (fault, done), (count, lines) in self._found.items()
        )


def _sentence(bad: BadRows) -> str:
    lines = ", ".join(map(str, bad.lines)) + (", ..." if bad.count > len(bad.lines) else "")
    where = f" of `{bad.file}`" if bad.file else ""
    noun = "line" if bad.count == 1 else "lines"
    return f"{_count(bad.count, 'row')} with {bad.fault} ({noun} {lines}{where}): {bad.done}."


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
