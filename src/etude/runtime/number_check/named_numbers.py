"""Numbers that name something: bounds of a band, hours, numbers of a row, digits of a label or of a column's name."""

from __future__ import annotations

import re

from etude.runtime.number_check.evidence import EvidenceTable
from etude.runtime.number_check.mentions import Mention
from etude.runtime.number_check.passage import HOURS, Passage

_CLOCK = re.compile(r"\s?(?:(?P<half>[ap])\.?\s?m\b|h\b|Uhr\b|o['\u2019]clock\b|Std\b|:00)", re.I)
_RANGE = r"(?:\d{1,4}\s*(?:[-\u2013,/&]|to|and|or|bis|und|et|a|y|e|à)\s*)*"
_RANGE_AFTER = re.compile(r"\s*(?:[-\u2013]|to|and|bis|und|à)\s*\d{1,2}(?=(.{0,12}))")


def find_named_number(passage: Passage, mention: Mention) -> str:
    """Explain a number that names a row, a band or a column; else empty."""
    if mention.kind not in ("number", "percent", "ordinal", "time") or not mention.readings or mention.word:
        return ""
    value = abs(mention.readings[0].value)
    if mention.kind != "time" and (value != int(value) or value > 1e6):
        return ""
    for table in passage.tables:
        if table.kind != "result" or table.printed:
            continue
        if mention.kind != "time" and len(digits := str(int(value))) > 1 and digits in table.name_digits:
            return f"part of a name in {table.name}"
        if mention.kind != "percent" and (name := _key(passage, mention, table, int(value))):
            return f"a value of {name}"
    return ""


def _key(passage: Passage, mention: Mention, table: EvidenceTable, value: int) -> str:
    """Return the key column that a number is from: an hour by its form, another by the name of the column before it."""
    before, after = passage.around(mention, 40, 24)
    for c, column in enumerate(table.columns):
        if not (column.is_key or c == 0) or not column.numbers or column.periods or not column.whole:
            continue
        held = set(column.numbers.values())
        hour = clock_hour(mention, after) if column.words & HOURS else None
        if hour is not None and held & {float(hour), float(hour - 1)}:
            return column.name
        things = "|".join(re.escape(word) for word in column.words if len(word) > 2)
        follows = rf"\b(?:{things})s?\s+(?:from\s+|between\s+)?{_RANGE}[*_#(]*$"
        if things and float(value) in held and re.search(follows, before, re.I):
            return column.name
    return ""


def clock_hour(mention: Mention, after: str) -> int | None:
    """Return the hour of the day that a number is, if it is written as one: `17:00`, `5 p.m.`, `7 to 9 a.m.`."""
    if mention.kind == "time":
        written = re.match(r"(\d{1,2}):00(?::00)?\s?(?P<half>[ap])?", mention.text)
    else:
        written = re.match(r"(\d{1,2})(?:\s?h)?$", mention.text)
        follows = _RANGE_AFTER.match(after)
        form = _CLOCK.match(follows[1]) if follows else _CLOCK.match(after)
        if written and not form and not mention.text.endswith("h"):
            return None
        if written and form and form["half"]:
            return int(written[1]) % 12 + (12 if form["half"].lower() == "p" else 0)
    if written is None or int(written[1]) > 24:
        return None
    half = (written.groupdict().get("half") or "").lower()
    return int(written[1]) % 12 + (12 if half == "p" else 0) if half else int(written[1])
