"""A quick profile for a first question: values of columns that have few, ranges of dates, and keys, within seconds.

Many small questions about columns are asked in one statement. Tables are measured in the given order, and those that
the time does not suffice for are left out. Nothing is counted exactly; `measure/profile.py` does that.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Literal

from etude.catalog.keys.key_names import KeyNameWords, key_name_word_set, key_name_words
from etude.catalog.measure.patterns import find_patterns
from etude.catalog.measure.pii import MASK_FROM, find_pii
from etude.catalog.measure.type_families import type_family_of
from etude.catalog.model import (
    DATED,
    ColumnProfile,
    Family,
    ForeignKeyEvidence,
    KeyEvidence,
    Provenance,
    SourceProfile,
    TableProfile,
    TopValue,
    profile_datetime,
)
from etude.db import Database
from etude.entities import Column, Table
from etude.errors import STOPS, EtudeError, LimitExceeded
from etude.sources.quoting import quote_identifier, quote_table

FEW = 12
"""The values of a column are listed if there are at most this many."""
ROWS = 100_000
"""Tables with more rows are looked at only as far as this."""
COLUMNS = 40
"""How many columns of a table are looked at."""
MANY_TABLES = 40
"""Of more tables, numbers and nulls are not looked at: their schema is not shown in full anyway."""
TOGETHER = 20
"""Questions in one statement."""
LEAST_S = 0.05
_TEXT = {"mysql": "CHAR"}
_DATES = key_name_word_set("date day time timestamp at on dt since joined created updated month")


@dataclass(frozen=True)
class _Question:
    """A small query whose answer is a few texts."""

    table: str
    column: str
    kind: Literal["values", "range", "extent", "nulls", "unique", "strays"]
    sql: str
    """Selects one column `v` of text."""
    target: tuple[str, str] = ("", "")
    """For `strays`: the table and the column that it may refer to."""


@dataclass
class _Answers:
    """Answers by table and column."""

    values: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    ranges: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    extents: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """The smallest and the largest number of a column."""
    nulls: dict[tuple[str, str], int] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    counts: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """Distinct values and rows, of columns that are named like a key."""
    references: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    measured: set[str] = field(default_factory=set)


class _Clock:
    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return self._end - time.monotonic()


class QuickLook:
    """A quick profile while it is made. Any thread can read at any time what has been measured so far."""

    def __init__(self, db: Database, order: Sequence[str]) -> None:
        self._db = db
        self._catalog = db.catalog()
        self._answers = _Answers()
        position = {name: n for n, name in enumerate(order)}
        self._tables = sorted(self._catalog.tables, key=lambda t: position.get(t.name, len(position)))

    def start(self, seconds: float) -> None:
        """Start the engine of the source, which may take longer than the first tables."""
        with suppress(LimitExceeded):
            self._db.sql("SELECT 1", record=False, timeout_s=max(seconds, LEAST_S))

    def measure(self, seconds: float) -> bool:
        """Measure the tables in their order, within a time in seconds; return whether the time sufficed."""
        clock, dialect, names = _Clock(seconds), self._catalog.dialect, KeyNameWords(self._tables)
        few = len(self._tables) <= MANY_TABLES
        questions = [q for table in self._tables for q in _questions(table, dialect, names, few)]
        whole = _ask(self._db, dialect, questions, self._answers, clock)
        declared = {t.name: t.primary_key[0] for t in self._tables if len(t.primary_key) == 1}
        keyed = declared | self._answers.keys
        strays = [q for table in self._tables for q in _references(table, dialect, names, keyed)]
        return _ask(self._db, dialect, strays, self._answers, clock) and whole

    @property
    def measured(self) -> int:
        """How many tables were measured so far."""
        return len(self._answers.measured)

    def profile(self) -> SourceProfile:
        """Return the profile of the tables that were measured so far."""
        catalog, measured = self._catalog, frozenset(self._answers.measured)
        return SourceProfile(
            source=catalog.source,
            kind=catalog.kind,
            dialect=catalog.dialect,
            fingerprint=catalog.fingerprint,
            tables=tuple(_profile(t, catalog.dialect, self._answers) for t in self._tables if t.name in measured),
        )


def _questions(table: Table, dialect: str, names: KeyNameWords, few_tables: bool) -> Iterator[_Question]:
    sql = quote_table(table.name, dialect)
    keys = {*table.primary_key, *(c for k in table.foreign_keys for c in k.columns)}
    for column in table.columns[:COLUMNS]:
        family, quoted = type_family_of(dialect, column.type), quote_identifier(column.name, dialect)
        plain = names.column(table.name, column.name)
        identifies = not table.primary_key and (plain == ("id",) or names.names_row_of(table.name, plain))
        if identifies:
            counts = [_as_text(f"count({what})", dialect) for what in (f"DISTINCT {quoted}", "*")]
            both = " UNION ALL ".join(f"SELECT {count} AS v FROM {sql}" for count in counts)
            yield _Question(table.name, column.name, "unique", both)
        is_key = identifies or table.primary_key == (column.name,)
        if is_key and _is_lookup(table) and family in ("text", "integer") and not _is_personal(table, column, family):
            values = f"SELECT {_as_text(quoted, dialect)} AS v FROM {sql}"
            yield _Question(table.name, column.name, "values", values)
        elif is_key or column.name in keys or plain[-1:] == ("id",) or _is_personal(table, column, family):
            continue
        elif family in DATED or (family == "text" and _is_named_date(column)):
            ends = [_as_text(f"{end}({quoted})", dialect) for end in ("min", "max")]
            both = f"SELECT {ends[0]} AS v FROM {sql} UNION ALL SELECT {ends[1]} AS v FROM {sql}"
            yield _Question(table.name, column.name, "range", both)
        elif family in ("text", "integer"):
            rows = f"(SELECT {quoted} AS v FROM {sql} LIMIT {ROWS})" if _is_large(table) else sql
            value = "v" if _is_large(table) else quoted
            few = f"(SELECT DISTINCT {value} AS v FROM {rows}{_alias(rows)} WHERE {value} IS NOT NULL LIMIT {FEW + 1})"
            yield _Question(table.name, column.name, "values", f"SELECT {_as_text('v', dialect)} AS v FROM {few} AS d")
        if _is_large(table) or not few_tables:
            continue
        if family in ("integer", "decimal", "float"):
            ends = [_as_text(f"{end}({quoted})", dialect) for end in ("min", "max")]
            both = f"SELECT {ends[0]} AS v FROM {sql} UNION ALL SELECT {ends[1]} AS v FROM {sql}"
            yield _Question(table.name, column.name, "extent", both)
        if column.nullable:
            nulls = f"SELECT {_as_text(f'count(*) - count({quoted})', dialect)} AS v FROM {sql}"
            yield _Question(table.name, column.name, "nulls", nulls)


def _references(table: Table, dialect: str, names: KeyNameWords, keyed: dict[str, str]) -> Iterator[_Question]:
    """Yield a question for each column whose name refers to the key of another table: its values that are not there."""
    if table.foreign_keys or _is_large(table):
        return
    for column in table.columns[:COLUMNS]:
        plain = names.column(table.name, column.name)
        other = names.belongs_elsewhere(table.name, plain)
        if other is None or other not in keyed or keyed.get(table.name) == column.name:
            continue
        child, parent = quote_table(table.name, dialect), quote_table(other, dialect)
        own, key = quote_identifier(column.name, dialect), quote_identifier(keyed[other], dialect)
        absent = f"NOT EXISTS (SELECT 1 FROM {parent} AS p WHERE p.{key} = c.{own})"
        sql = f"SELECT {_as_text('count(*)', dialect)} AS v FROM {child} AS c WHERE c.{own} IS NOT NULL AND {absent}"
        yield _Question(table.name, column.name, "strays", sql, (other, keyed[other]))


def _ask(db: Database, dialect: str, questions: Sequence[_Question], answers: _Answers, clock: _Clock) -> bool:
    """Ask many questions in one statement; return whether the time sufficed for all of them.

    If a statement fails or takes too long, the questions of each table are asked by themselves. Each statement may take
    half of the time that is left, so that one slow table does not cost the others their turn; a table that took longer
    is asked again in the end.
    """
    slow: list[Sequence[_Question]] = []
    for part in _parts(questions):
        if clock.left < LEAST_S:
            return False
        try:
            _take(db, dialect, part, answers, clock)
        except STOPS:
            raise
        except EtudeError:
            by_table: dict[str, list[_Question]] = defaultdict(list)
            for question in part:
                by_table[question.table].append(question)
            slow += _ask_alone(db, dialect, list(by_table.values()), answers, clock)
    return not _ask_alone(db, dialect, slow, answers, clock)


def _ask_alone(
    db: Database, dialect: str, tables: Sequence[Sequence[_Question]], answers: _Answers, clock: _Clock
) -> list[Sequence[_Question]]:
    """Ask the questions of each table by themselves; return those that the time did not suffice for."""
    slow = []
    for few in tables:
        try:
            if clock.left < LEAST_S:
                slow.append(few)
            else:
                _take(db, dialect, few, answers, clock)
        except STOPS:
            raise
        except LimitExceeded:
            slow.append(few)
        except EtudeError:
            continue  # a table that cannot be read is left out
    return slow


def _parts(questions: Sequence[_Question]) -> Iterator[Sequence[_Question]]:
    """Yield the questions of the first table, so that something is known soon, then many at a time."""
    first = sum(1 for _ in takewhile(lambda q: q.table == questions[0].table, questions[:TOGETHER]))
    if first:
        yield questions[:first]
    for start in range(first, len(questions), TOGETHER):
        yield questions[start : start + TOGETHER]


def _take(db: Database, dialect: str, questions: Sequence[_Question], answers: _Answers, clock: _Clock) -> None:
    parts = (f"SELECT {n} AS n, v FROM ({q.sql}) AS q{n}" for n, q in enumerate(questions))
    found: dict[int, list[str]] = defaultdict(list)
    for number, value in db.sql(" UNION ALL ".join(parts), record=False, timeout_s=max(clock.left / 2, LEAST_S)).rows():
        if value is not None:
            found[int(number)].append(str(value))
    for number, question in enumerate(questions):
        _note(question, found[number], answers)


def _note(question: _Question, texts: list[str], answers: _Answers) -> None:
    place = question.table, question.column
    answers.measured.add(question.table)
    match question.kind:
        case "values" if 0 < len(texts) <= FEW:
            answers.values[place] = texts
        case "range" if len(texts) == 2:
            answers.ranges[place] = texts
        case "extent" if len(texts) == 2:
            answers.extents[place] = texts
        case "nulls" if len(texts) == 1:
            answers.nulls[place] = int(texts[0])
        case "unique" if len(texts) == 2:
            distinct, rows = sorted(map(int, texts))
            answers.counts[place] = distinct, rows
            if distinct == rows:
                answers.keys.setdefault(question.table, question.column)
        case "strays" if texts == ["0"]:
            answers.references[place] = question.target
        case _:
            pass


def _profile(table: Table, dialect: str, answers: _Answers) -> TableProfile:
    key = answers.keys.get(table.name)
    counted = (answers.counts.get((table.name, c.name)) for c in table.columns)
    rows = next((rows for _, rows in filter(None, counted)), table.row_count)
    references = ((c, answers.references.get((table.name, c.name))) for c in table.columns)
    return TableProfile(
        name=table.name,
        kind=table.kind,
        plan="light",
        rows=rows,
        rows_provenance=Provenance(method="metadata"),
        columns=tuple(_column(table, c, dialect, answers) for c in table.columns),
        keys=(KeyEvidence(columns=(key,), origin="inferred", unique=True),) if key else (),
        foreign_keys=tuple(
            ForeignKeyEvidence(columns=(c.name,), to_table=to[0], to_columns=(to[1],), origin="inferred")
            for c, to in references
            if to is not None
        ),
    )


def _column(table: Table, column: Column, dialect: str, answers: _Answers) -> ColumnProfile:
    family, place = type_family_of(dialect, column.type), (table.name, column.name)
    profile = ColumnProfile(name=column.name, type=column.type, family=family, comment=column.comment)
    if (nulls := answers.nulls.get(place)) is not None and table.row_count:
        profile = profile.model_copy(update={"nulls": nulls, "rows": table.row_count})
    if ends := answers.ranges.get(place):
        dated = all(profile_datetime(end) is not None for end in ends)
        # A text in another form, such as 8/21/2015, has no order: its first value is only a sample.
        return profile.model_copy(update={"family": "date" if dated else family, "min": ends[0], "max": ends[1]})
    if ends := answers.extents.get(place):
        with suppress(ValueError):
            low, high = sorted(int(end) if end.lstrip("-").isdigit() else float(end) for end in ends)
            profile = profile.model_copy(update={"min": low, "max": high})
    if (counts := answers.counts.get(place)) is not None:
        profile = profile.model_copy(update={"distinct": counts[0]})
    values = answers.values.get(place)
    if values is None or _looks_personal(values):
        return profile
    whole = family == "integer" and all(v.lstrip("-").isdigit() for v in values)
    top = tuple(TopValue(value=int(v) if whole else v, count=1, share=0.0) for v in values)
    unique = len(values) == table.row_count or None
    # In a large table only the first rows were looked at, so there may be more.
    known = {} if _is_large(table) else {"distinct": len(values), "unique": unique}
    return profile.model_copy(update={"top": top, **known})


def _is_personal(table: Table, column: Column, family: Family) -> bool:
    return any(hint.confidence >= MASK_FROM for hint in find_pii(table.name, column.name, family, ()))


def _looks_personal(values: Iterable[str]) -> bool:
    patterns = find_patterns(list(values))
    return any(hint.confidence >= MASK_FROM for hint in find_pii("", "value", "text", patterns))


def _is_named_date(column: Column) -> bool:
    """Return whether a text is a date by its name, or by its type in SQLite, which stores dates as text."""
    return bool(_DATES & set(key_name_words(column.name))) or column.type.lower().startswith(("date", "timestamp"))


def _is_lookup(table: Table) -> bool:
    """Return whether a table is so small that the values of its key are worth listing."""
    return table.row_count is not None and table.row_count <= FEW


def _is_large(table: Table) -> bool:
    return table.row_count is None or table.row_count > ROWS


def _as_text(expression: str, dialect: str) -> str:
    return f"CAST({expression} AS {_TEXT.get(dialect, 'VARCHAR' if dialect == 'duckdb' else 'TEXT')})"


def _alias(rows: str) -> str:
    return " AS r" if rows.startswith("(") else ""
