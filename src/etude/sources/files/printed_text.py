"""Text that programs print for people: tables drawn with bars, and the log of a web server, as rows of fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

SEEN_LINES = 1000
TITLES = 5
"""A drawn table may stand below this many lines of text."""
RULE = re.compile(r"\s*[|+]?[-=+|: ]*[-=]{3}[-=+|: ]*")
LOG_FIELDS = ("host", "identity", "user", "time", "request", "status", "bytes", "referrer", "agent", "rest")
_QUOTED = r'"((?:[^"\\]|\\.)*)"'
LOG_LINE = re.compile(
    rf"(\S+) (\S+) (\S+) \[(\d\d/[A-Z][a-z]{{2}}/\d{{4}}:\d\d:\d\d:\d\d [+-]\d{{4}})\] {_QUOTED} (\d{{3}}|-) (\d+|-)"
    rf"(?: {_QUOTED} {_QUOTED})?(.*)"
)
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


@dataclass(frozen=True)
class PrintedText:
    """How such a text is read: what the report says, and a function from its lines to rows."""

    note: str
    rows: Callable[[Iterable[str]], Iterator[list[str]]]


def find_printed_text(sample: str, whole: bool) -> PrintedText | None:
    """Return how to read the text if it is printed in one of the known ways; `whole` means that all of it is there."""
    lines = [line.rstrip() for line in sample.splitlines()]
    lines = [line for line in (lines if whole else lines[:-1])[:SEEN_LINES] if line.strip()]
    if _is_drawn(lines):
        return PrintedText("The table is drawn with bars and lines; they were left out.", _read_drawn)
    if lines and all(map(LOG_LINE.fullmatch, lines)):
        return PrintedText("Each line is an entry in the log of a web server; its parts are columns.", _read_log)
    return None


def _is_drawn(lines: list[str]) -> bool:
    """Return whether all lines, except a few above, are rules or have a bar at both ends and as many inside."""
    first = next((at for at, line in enumerate(lines) if RULE.fullmatch(line) or _is_row(line)), len(lines))
    table = lines[first:]
    rows = [line.count("|") for line in table if _is_row(line) and not RULE.fullmatch(line)]
    rules = sum(RULE.fullmatch(line) is not None for line in table)
    return first <= TITLES and rules > 0 and len(rows) > 1 and len(rows) + rules == len(table) and len({*rows}) == 1


def _is_row(line: str) -> bool:
    text = line.strip()
    return len(text) > 2 and text[0] == text[-1] == "|"


def _read_drawn(lines: Iterable[str]) -> Iterator[list[str]]:
    for line in lines:
        if not line.strip() or RULE.fullmatch(line.rstrip()):
            continue
        yield [cell.strip() for cell in line.strip()[1:-1].split("|")] if _is_row(line) else [line.strip()]


def _read_log(lines: Iterable[str]) -> Iterator[list[str]]:
    yield [*LOG_FIELDS]
    for line in filter(None, map(str.strip, lines)):
        found = LOG_LINE.fullmatch(line)
        if not found:
            yield [""] * (len(LOG_FIELDS) - 1) + [line]
            continue
        fields = ["" if part in (None, "-") else part.strip() for part in found.groups()]
        day, month, year, clock = re.split("[/:]", fields[3], maxsplit=3)
        fields[3] = f"{year}-{MONTHS.index(month) + 1:02}-{day}T{clock[:8]}{clock[9:12]}:{clock[12:]}"
        yield fields
