"""Detect the dialect of delimited text, and read its records so that no line is lost."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

DELIMITERS = (",", "\t", ";", "|")
RARE_DELIMITERS = ("~", "^", "\xa6", "\xa7", "\x1f", "\x01")
"""Characters that separate fields only if each line has the same number of them."""
TITLE_ROWS = 20
MOST_REGULAR = 0.8
"""Below a header that does not come first, this share of the rows must have its number of fields."""
SIGN = r"[+\u2212\u2013-]?"
MONEY = r"[A-Z]{0,2}[$]|[€£¥\uffe5₹]"
NUMBER = re.compile(
    rf"\(?{SIGN}\s?(?:{MONEY})?\s?{SIGN}[.,]?\d[\d.,'\u2019 \xa0\u202f]*([eE][+-]?\d+)?\s?(?:{MONEY}|%|kr|zł|Kč)?-?\)?"
)
DATE = re.compile(r"\d{1,4}([./-])\d{1,2}\1\d{1,4}([ T]\d{1,2}:\d{2}.*)?|\d{4}[年년] ?\d{1,2}[月월] ?\d{1,2}[日일]")
SAMPLE_RECORDS = 2_000
# A quote that does not close within this many characters is a character of the text, not the start of a field.
LONGEST_QUOTED = 64 << 20


@dataclass(frozen=True)
class CsvDialect:
    """Delimiter, quote and escape of a file, and the number of its columns."""

    delimiter: str
    quote: str = '"'
    escape: str = '"'
    width: int = 1


@dataclass(frozen=True)
class CsvRecord:
    """One row as written: where it starts, its fields, and whether a quote in it is a plain character."""

    line: int
    fields: list[str]
    stray_quote: bool = False
    blank: bool = False
    size: int = 0
    spaced_quotes: bool = False
    """Spaces stand between a quoted field and a delimiter; they were left out."""


def detect_csv_dialect(sample: str, whole: bool) -> CsvDialect:
    """Return the dialect that makes the sample most regular; `whole` means that the sample is the whole file."""
    best, best_score = CsvDialect(","), -1.0
    for dialect in _candidates(sample):
        found = list(islice(read_csv_records(io.StringIO(sample, newline=""), dialect, cut=not whole), SAMPLE_RECORDS))
        if not whole and len(found) > 1 and len(found) < SAMPLE_RECORDS:
            found.pop()
        score, width = _score(found)
        if dialect.delimiter in RARE_DELIMITERS and not _is_even(found):
            continue
        decimal = best.delimiter == "," and score == best_score and _has_decimal_commas(found)
        if score > best_score or decimal:
            best, best_score = CsvDialect(dialect.delimiter, dialect.quote, dialect.escape, width), score
    return best


def read_csv_records(lines: Iterable[str], dialect: CsvDialect, cut: bool = False) -> Iterator[CsvRecord]:
    """Yield every record of the file, including faulty ones; blank lines are records marked as blank.

    `cut` means that the lines are only the start of a file, so a quoted field may be open at the end.
    """
    source = _Lines(lines)
    while (line := source.next()) is not None:
        number, text = source.number, line.rstrip("\r\n")
        if dialect.quote not in text:
            yield CsvRecord(number, text.split(dialect.delimiter), blank=not text.strip(" "), size=len(line))
            continue
        record = _quoted(line, number, source, dialect)
        if cut and source.ended:
            return
        yield record


class _Lines:
    """Numbered lines that can be pushed back."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self._back: list[str] = []
        self.number = 0
        self.ended = False

    def next(self) -> str | None:
        line = self._back.pop() if self._back else next(self._lines, None)
        self.number += line is not None
        self.ended = line is None
        return line

    def give_back(self, lines: list[str]) -> None:
        self._back += reversed(lines)
        self.number -= len(lines)


def _quoted(line: str, number: int, source: _Lines, dialect: CsvDialect) -> CsvRecord:
    """Read a record that starts on a line with quotes; it may continue on the next lines."""
    taken = [line]
    fields, rest = _split(line, dialect)
    while rest is not None:
        field, tail = _to_closing(rest[1:], source, taken, dialect)
        if field is None:
            break
        fields.append(_unescape(field, dialect))
        rest = None
        if tail.startswith(dialect.delimiter):
            more, rest = _split(tail[1:], dialect)
            fields += more
    alone, _ = _split(line, dialect, literal=True)
    if rest is not None or (len(taken) > 1 and len(fields) != dialect.width == len(alone) > 1):
        source.give_back(taken[1:])
        return CsvRecord(number, alone, stray_quote=True, size=len(line))
    stray = len(taken) == 1 and _has_stray(line, dialect)
    spaced = len(taken) == 1 and not stray and _has_spaced_quotes(line, dialect)
    return CsvRecord(number, fields, stray_quote=stray, size=sum(map(len, taken)), spaced_quotes=spaced)


def _to_closing(start: str, source: _Lines, taken: list[str], dialect: CsvDialect) -> tuple[str | None, str]:
    """Read the quoted field that `start` opens; return it (None if its quote never closes) and the text after it."""
    pieces, length = [start], len(start)
    while length < LONGEST_QUOTED and (line := source.next()) is not None:
        taken.append(line)
        length += len(line)
        end = _closing(line, 0, dialect)
        if end < 0:
            pieces.append(line)
            continue
        if line[end + 1 : end + 2] not in ("", dialect.delimiter, "\r", "\n"):
            # It would close in the middle of text, so the opening quote is a plain character.
            return None, ""
        return "".join([*pieces, line[:end]]), line[end + 1 :]
    return None, ""


def _split(text: str, dialect: CsvDialect, literal: bool = False) -> tuple[list[str], str | None]:
    """Return the fields of a record, and the text from an unclosed quoted field on, if there is one.

    With `literal`, an unclosed quote is a plain character.
    """
    delimiter, quote = dialect.delimiter, dialect.quote
    fields: list[str] = []
    at = 0
    body = text.rstrip("\r\n")
    while True:
        if text.startswith(quote, at):
            end = _closing(text, at + 1, dialect)
            if end < 0 and not literal:
                return fields, text[at:]
        else:
            end = _spaced_closing(body, at, dialect)
        if end >= 0 and (after := _end_of_field(body, end + 1, delimiter)) >= 0:
            fields.append(_unescape(text[text.index(quote, at) + 1 : end], dialect))
            at = after
            if at >= len(body):
                return fields, None
            at += 1
            continue
        end = body.find(delimiter, at)
        if end < 0:
            fields.append(body[at:])
            return fields, None
        fields.append(body[at:end])
        at = end + 1


def _spaced_closing(body: str, at: int, dialect: CsvDialect) -> int:
    """Return where a quoted field ends that starts after spaces, or -1."""
    start = at
    while body.startswith(" ", start):
        start += 1
    if start == at or dialect.delimiter == " " or not body.startswith(dialect.quote, start):
        return -1
    return _closing(body, start + 1, dialect)


def _end_of_field(body: str, at: int, delimiter: str) -> int:
    """Return where the delimiter or the end of the line follows, perhaps after spaces; -1 if something else does."""
    while body.startswith(" ", at):
        at += 1
    return at if at >= len(body) or body.startswith(delimiter, at) else -1


def _closing(text: str, at: int, dialect: CsvDialect) -> int:
    """Return where the quoted field that starts before `at` ends, or -1."""
    quote, escape = dialect.quote, dialect.escape
    while (end := text.find(quote, at)) >= 0:
        if escape == quote:
            if not text.startswith(quote, end + 1):
                return end
            at = end + 2
        else:
            slashes = end - len(text[at:end].rstrip(escape)) - at
            if slashes % 2 == 0:
                return end
            at = end + 1
    return -1


def _unescape(text: str, dialect: CsvDialect) -> str:
    quote, escape = dialect.quote, dialect.escape
    if escape == quote:
        return text.replace(quote * 2, quote)
    return text.replace(escape * 2, "\0").replace(escape + quote, quote).replace("\0", escape)


def _has_stray(line: str, dialect: CsvDialect) -> bool:
    """Return whether a quote in the line does not belong to a well-formed quoted field."""
    quote, delimiter, at = dialect.quote, dialect.delimiter, 0
    body = line.rstrip("\r\n")
    while at <= len(body):
        at += body.startswith(f"={quote}", at)  # spreadsheets take `="007"` for text
        end = _closing(body, at + 1, dialect) if body.startswith(quote, at) else _spaced_closing(body, at, dialect)
        if body.startswith(quote, at) or end >= 0:
            after = _end_of_field(body, end + 1, delimiter) if end >= 0 else -1
            if after < 0:
                return True
            at = after + 1
        else:
            end = body.find(delimiter, at)
            if quote in body[at : end if end >= 0 else len(body)]:
                return True
            if end < 0:
                return False
            at = end + 1
    return False


def _has_spaced_quotes(line: str, dialect: CsvDialect) -> bool:
    """Return whether spaces stand around a quoted field."""
    quote, delimiter, at = dialect.quote, dialect.delimiter, 0
    body = line.rstrip("\r\n")
    while at < len(body):
        if body.startswith(quote, at):
            end = _closing(body, at + 1, dialect) + 1
            after = _end_of_field(body, end, delimiter)
            if after > end:
                return True
            at = after + 1
        elif _spaced_closing(body, at, dialect) >= 0:
            return True
        else:
            end = body.find(delimiter, at)
            if end < 0:
                return False
            at = end + 1
    return False


def _candidates(sample: str) -> Iterator[CsvDialect]:
    """Yield the dialects to try; of equally regular ones, the first wins."""
    quotes = [('"', '"')]
    if '\\"' in sample:
        quotes.append(('"', "\\"))
    if "'" in sample:
        quotes.insert(0 if _wrapped_in_apostrophes(sample) else len(quotes), ("'", "'"))
    for quote, escape in quotes:
        for delimiter in (*DELIMITERS, *(d for d in RARE_DELIMITERS if d in sample)):
            yield CsvDialect(delimiter, quote, escape)


def _wrapped_in_apostrophes(sample: str) -> bool:
    """Return whether many fields are in single quotes and none in double quotes."""
    for delimiter in DELIMITERS:
        fields = [
            f for line in islice(io.StringIO(sample, newline=""), 100) for f in line.rstrip("\r\n").split(delimiter)
        ]
        single = sum(f.startswith("'") and f.endswith("'") and len(f) > 1 for f in fields)
        if single * 5 >= len(fields) and not any(f.startswith('"') for f in fields):
            return True
    return False


def _is_even(found: list[CsvRecord]) -> bool:
    """Return whether all rows have as many fields as the first, more than one, and the first has no empty field."""
    rows = [r.fields for r in found if not r.blank]
    return len(rows) > 1 and len({len(r) for r in rows}) == 1 and len(rows[0]) > 1 and all(f.strip() for f in rows[0])


def _has_decimal_commas(found: list[CsvRecord]) -> bool:
    """Return whether commas stand only inside numbers, as in `1,5;2,5`, where both marks are equally regular."""
    commas = [field for row in found for field in row.fields if "," in field]
    return bool(commas) and all(re.fullmatch(r"[+-]?[\d.]+,\d+", field.strip()) for field in commas)


def count_csv_metadata_records(rows: list[CsvRecord], width: int) -> int:
    """Return how many rows above the header are metadata: they have another number of fields than the table.

    The row below them must be a header: all its cells are names, and a column below it holds numbers or dates.
    """
    at = next((i for i, row in enumerate(rows[: TITLE_ROWS + 1]) if len(row.fields) == width), 0)
    if width < 2 or all(len(row.fields) == 1 for row in rows[:at]):
        return 0
    header, table = rows[at].fields, [row.fields for row in rows[at + 1 :]]
    names = {name.strip().lower() for name in header}
    if len(names) < width or not all(names) or any(map(csv_value_kind, names)):
        return 0
    regular = [row for row in table if len(row) == width]
    if len(regular) < MOST_REGULAR * len(table):
        return 0
    cells = ([row[column] for row in regular if row[column].strip()] for column in range(width))
    return at if any(found and all(map(csv_value_kind, found)) for found in cells) else 0


def csv_value_kind(cell: str) -> str:
    """Return `date` or `number` if the cell is one in any of the usual styles, else an empty text."""
    text = cell.strip()
    return "date" if DATE.fullmatch(text) else "number" if NUMBER.fullmatch(text) else ""


def _score(found: list[CsvRecord]) -> tuple[float, int]:
    """Return how regular the records are, from 0 to 1, and how many columns they have."""
    rows = [r for r in found if not r.blank]
    if not rows:
        return 0.0, 1
    first = len(rows[0].fields)
    counts = Counter(len(r.fields) for r in rows)
    width, often = max(counts.items(), key=lambda item: (item[1], item[0] == first, item[0]))
    strays = sum(r.stray_quote for r in rows) / len(rows)
    if above := count_csv_metadata_records(rows, width):
        # As below, a delimiter in every line counts; otherwise quotes that hold delimiters would be taken for text.
        return often / (len(rows) - above) - strays / 2 + 0.2 * (1 not in counts), width
    if width == 1 and first == 1:
        # Of the delimiters that make one column, one that does not occur keeps each line whole.
        return 0.45 - strays - 0.05 * (1 - often / len(rows)), 1
    regular = often / len(rows) - strays / 2
    if first > 1:
        # A delimiter in every line is not a comma in a sentence, however uneven the lines are.
        return regular + 0.2 * (1 not in counts), max(first, width)
    # One cell over two columns reads as a sentence with a comma under a one-word header; more columns, as a title.
    if rows[0].fields[0].startswith("#"):
        return regular, width
    if _stands_on_titles(rows, width):
        return 0.8, width
    titled = width > 2 or any(r.blank for r in found[:3])
    return (regular - 0.2 if titled else 0.25), width


def _stands_on_titles(rows: list[CsvRecord], width: int) -> bool:
    """Return whether a regular table follows a few lines of one cell; a comma in a sentence has a space after it."""
    titles = next((at for at, row in enumerate(rows) if len(row.fields) > 1), len(rows))
    table = rows[titles:]
    if len(table) < 2 or any(len(row.fields) != width for row in table):
        return False
    return not any(field.startswith(" ") for row in table for field in row.fields[1:])
