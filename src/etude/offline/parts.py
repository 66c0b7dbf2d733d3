"""The parts of a question, typed: what is asked for, of what, under which conditions, in which order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from etude.offline.dates import Span
from etude.offline.index import Hit, Meaning

Fn = Literal["count", "sum", "avg", "min", "max", "median"]
Direction = Literal["asc", "desc"]


@dataclass(frozen=True)
class Name:
    """A noun of the question and what it may mean."""

    text: str
    meanings: tuple[Meaning, ...]
    owner: Name | None = None
    """The noun it belongs to: the author of `the author's name`."""

    @property
    def tables(self) -> tuple[Meaning, ...]:
        """The tables it may mean."""
        return tuple(m for m in self.meanings if m.column is None and not m.label)

    @property
    def columns(self) -> tuple[Meaning, ...]:
        """The columns it may mean."""
        return tuple(m for m in self.meanings if m.column is not None or m.label)


@dataclass(frozen=True)
class Measure:
    """A number computed over rows; `each` is what the rows of an inner count are counted for."""

    fn: Fn
    name: Name
    distinct: bool = False
    rows: bool = False
    """Counts the rows that have the column, not its values."""
    of_count: bool = False
    """The average (and so on) of counts: `average number of orders per customer`."""
    until: Name | None = None
    """The second of two dates, of which the days between are measured."""
    text: str = ""


@dataclass(frozen=True)
class Condition:
    """A restriction of rows, as the question says it; the column may still be open."""

    kind: Literal["compare", "average", "between", "match", "value", "span", "weekday", "null", "flag"]
    text: str
    name: Name | None = None
    op: str = "="
    values: tuple[str | float | int | bool, ...] = ()
    hits: tuple[Hit, ...] = ()
    span: Span | None = None
    said: str = ""
    negated: bool = False
    near: tuple[str, ...] = ()
    """Words before a date that may say which date."""
    after: Name | None = None
    """The noun that it follows."""
    of: Name | None = None
    """The noun that it stands before as an adjective."""
    beside: bool = True
    """No other noun or measure stands between."""
    either: tuple[Condition, ...] = ()
    """Further conditions of which one is enough."""


@dataclass(frozen=True)
class Group:
    """What the answer has one row for."""

    name: Name | None
    grain: str | None = None
    text: str = ""


@dataclass(frozen=True)
class Rank:
    """The highest, the most, the top n."""

    direction: Direction
    by: Measure | Name | None = None
    implied: tuple[str, ...] = ()
    """Attributes that an adjective stands for: `longest` is about length or duration."""
    text: str = ""
    then: Measure | None = None
    """What decides between those that tie."""


@dataclass(frozen=True)
class Ordering:
    """The order that was asked for; without `by`, of what was measured."""

    by: Measure | Name | None
    direction: Direction | None


@dataclass(frozen=True)
class Threshold:
    """A condition on a measure of each group."""

    measure: Measure
    op: str
    number: float | int


@dataclass(frozen=True)
class Absence:
    """Things that have no such other thing."""

    name: Name
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True)
class Ratio:
    """One number over another."""

    upper: Side
    lower: Side
    scale: int = 1


@dataclass(frozen=True)
class Side:
    """One of the two numbers of a ratio: a measure, or rows or a column under conditions."""

    subject: Measure | Name | None
    conditions: tuple[Condition, ...] = ()
    context: tuple[Name, ...] = ()
    """What the rows must refer to."""
    loose: tuple[Name, ...] = ()
    thresholds: tuple[Threshold, ...] = ()


@dataclass(frozen=True)
class Question:
    """A question taken apart."""

    requested: tuple[Name | Measure, ...] = ()
    """What the answer shows, in the order of the question."""
    listed: bool = False
    """A sentence said which columns to return."""
    asked: tuple[Name | Measure, ...] = ()
    """What the first sentence asked for."""
    lowest: bool = False
    subject: Name | None = None
    plural: bool = False
    context: tuple[Name, ...] = ()
    conditions: tuple[Condition, ...] = ()
    groups: tuple[Group, ...] = ()
    rank: Rank | None = None
    top: int | None = None
    ordering: Ordering | None = None
    thresholds: tuple[Threshold, ...] = ()
    absences: tuple[Absence, ...] = ()
    ratio: Ratio | None = None
    averaged: bool = False
    """The average of the ratio, not the ratio itself."""
    shares: int = 0
    """Show each group's part of the whole: of 1 or of 100."""
    change: Literal["", "percent", "difference"] = ""
    """Show for each period how it changed since the one before."""
    distinct: bool = False
    both: bool = False
    loose: tuple[Name, ...] = ()
    """Nouns that say something of the subject: a flag, or a number that is not zero."""
    verbs: tuple[str, ...] = ()
    alone: str = ""
    """The verb that ends a sentence: nothing follows that it could connect."""
    prefer: tuple[tuple[str, str], ...] = ()
    """Columns, each with its table, that an answer to a question back has chosen."""
    unknown: tuple[str, ...] = field(default=(), compare=False)
    """Words that nothing explains; an answer needs this empty."""
    notes: tuple[str, ...] = ()
    """Corrections and readings to tell."""
