"""The text of a replayed answer: never an old number beside new data.

If nothing changed, the recorded text holds. If the result changed, the rules say it again. A text that a model wrote is
used only if it contains nothing but the figures of the result and words of the question; otherwise a plain sentence
states the result.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any

from etude.offline.answer_sentence import write_row_answer_sentence
from etude.replays.script import Parameter, Piece, Script
from etude.runtime.number_check.mentions import mention_word_set

MOST_ROWS = 50
"""A text about a larger result is not used again."""
_NUMBER = re.compile(
    r"(?<![\w.,-])-?\d+(?:,\d{3})*(?:\.\d+)?(?![\d%]|[.,]\d|\s*(?:%|percent|thousand|million|billion))"
)
_WORD = re.compile(r"[^\W\d_]+")
_PLAIN = mention_word_set(
    "a an the is are was were be been there it its this these of in on at for by per to from and with has have had "
    "total number count value i found result"
)
"""Words that say nothing which other data could make false."""


@dataclass(frozen=True)
class Shown:
    """What a step returned: a table, or what a cell printed."""

    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()
    row_count: int = 0
    output: str = ""
    ordered: bool = False


def find_text_pieces(
    text: str, question: str, shown: Sequence[Shown], parameters: Sequence[Parameter]
) -> tuple[Piece, ...]:
    """Return the text with its figures as references; nothing if any part of it might be wrong with other data."""
    tables = [(n, s) for n, s in enumerate(shown) if s.columns]
    if len(tables) != 1 or len(shown) != 1 or "[unverified]" in text:
        return ()
    step, table = tables[0]
    if not 0 < table.row_count <= MOST_ROWS or (table.row_count > 1 and not table.ordered):
        return ()
    spans = _spans(text, step, table, parameters, question)
    if spans is None:
        return ()
    # A sentence about some of the rows says which: the largest, the last. With other data, other rows would be.
    named = {piece.row for _, _, piece in spans if piece.row is not None}
    if named and named != set(range(table.row_count)):
        return ()
    pieces, at = [], 0
    for start, end, piece in spans:
        pieces += [Piece(text=text[at:start]), piece]
        at = end
    pieces.append(Piece(text=text[at:]))
    known = {w.lower() for w in _WORD.findall(question)} | _PLAIN
    known |= {w.lower() for name in table.columns for w in _WORD.findall(name.replace("_", " "))}
    left = {w.lower() for piece in pieces for w in _WORD.findall(piece.text)}
    return tuple(pieces) if left <= known else ()


def _spans(
    text: str, step: int, table: Shown, parameters: Sequence[Parameter], question: str
) -> list[tuple[int, int, Piece]] | None:
    """Return where each figure of the text is and what it stands for; None if one stands for several things."""
    found: list[tuple[int, int, Piece]] = []
    for value, row, column in _names(table):
        if value not in text:
            continue
        for match in re.finditer(rf"(?<!\w){re.escape(value)}(?!\w)", text):
            found.append((match.start(), match.end(), Piece(step=step, row=row, column=column)))
    for match in _NUMBER.finditer(text):
        if any(start <= match.start() < end for start, end, _ in found):
            continue
        piece = _figure(match.group(), step, table, parameters, question)
        if piece is None:
            return None
        found.append((match.start(), match.end(), piece))
    covered = [(start, end) for start, end, _ in found]
    if any(c.isdigit() and not any(s <= n < e for s, e in covered) for n, c in enumerate(text)):
        return None
    found.sort(key=lambda span: span[0])
    if any(one[1] > other[0] for one, other in pairwise(found)):
        return None
    return found


def _names(table: Shown) -> list[tuple[str, int, int]]:
    """Return the text values of a table that occur in one cell only, with their places."""
    places: dict[str, list[tuple[int, int]]] = {}
    for r, row in enumerate(table.rows):
        for c, value in enumerate(row):
            if isinstance(value, str) and len(value) > 1:
                places.setdefault(value, []).append((r, c))
    return [(value, *cells[0]) for value, cells in places.items() if len(cells) == 1]


def _figure(written: str, step: int, table: Shown, parameters: Sequence[Parameter], question: str) -> Piece | None:
    number = Decimal(written.replace(",", ""))
    digits = len(written.partition(".")[2])
    cells = [
        (r, c)
        for r, row in enumerate(table.rows)
        for c, value in enumerate(row)
        if isinstance(value, int | float | Decimal)
        and not isinstance(value, bool)
        and _rounded(value, digits) == number
    ]
    asked = [p for p in parameters if p.default == written]
    is_count = number == table.row_count and table.row_count > 1
    if len(cells) + len(asked) + is_count != 1:
        in_question = re.search(rf"(?<![\w.,]){re.escape(written)}(?![\w]|[.,]\d)", question)
        return Piece(text=written) if in_question and not (cells or asked or is_count) else None
    if asked:
        return Piece(parameter=asked[0].name)
    grouped = "," in written or number < 1000
    if is_count:
        return Piece(step=step, rows=True, digits=0, grouped=grouped)
    return Piece(step=step, row=cells[0][0], column=cells[0][1], digits=digits, grouped=grouped)


def _rounded(value: Any, digits: int) -> Decimal | None:
    try:
        return Decimal(f"{value:.{digits}f}")
    except (ArithmeticError, ValueError):
        return None


def write_replayed_text(script: Script, shown: Sequence[Shown], unchanged: bool, values: Mapping[str, str]) -> str:
    """Return the text of the answer for these results; `unchanged` if they equal the recorded ones."""
    renamed = {p.name: values[p.name] for p in script.parameters if values.get(p.name, p.default) != p.default}
    if unchanged and not renamed:
        return script.answer
    last = shown[-1] if shown else Shown()
    if script.by_rules and last.columns:
        return write_row_answer_sentence(
            write_replayed_text_reading(script, values), last.columns, last.rows, last.row_count
        )
    if script.pieces and (text := _fill(script.pieces, shown, script, values)) is not None:
        return text
    if not last.columns:
        return last.output.strip() or "The code ran and printed nothing."
    return write_row_answer_sentence("", last.columns, last.rows, last.row_count)


def _fill(pieces: Sequence[Piece], shown: Sequence[Shown], script: Script, values: Mapping[str, str]) -> str | None:
    defaults = {p.name: p.default for p in script.parameters}
    texts = []
    for piece in pieces:
        if piece.parameter:
            texts.append(values.get(piece.parameter, defaults[piece.parameter]))
        elif piece.step is None:
            texts.append(piece.text)
        else:
            table, recorded = shown[piece.step], script.steps[piece.step].result
            if recorded is None or (piece.row is not None and table.row_count != recorded.row_count):
                return None
            value = table.row_count if piece.rows else table.rows[piece.row or 0][piece.column or 0]
            if (value is None) or (piece.digits is None) != isinstance(value, str):
                return None
            texts.append(value if isinstance(value, str) else f"{value:{',' if piece.grouped else ''}.{piece.digits}f}")
    return "".join(texts)


def write_replayed_text_reading(script: Script, values: Mapping[str, str]) -> str:
    """Return how the rules read the question, with these values of parameters; empty if that cannot be said."""
    reading = script.reading
    for parameter in script.parameters:
        value = values.get(parameter.name, parameter.default)
        if value == parameter.default:
            continue
        pattern = rf"(?<![\w.,-]){re.escape(parameter.default)}(?![\w-]|[.,]\d)"
        if len(re.findall(pattern, reading)) != 1:
            return ""
        reading = re.sub(pattern, lambda _, v=value: v, reading)  # type: ignore[misc]
    return reading
