"""The parts of a question, typed: what is asked for, of what, under which conditions, in which order."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from etude.offline.dates import Span
from etude.offline.phrase_index import Hit, Meaning

Fn = Literal["count", "sum", "avg", "min", "max", "median", "quantile", "stddev", "correlation"]
Direction = Literal["asc", "desc"]


@dataclass(frozen=True)
class NamePart:
    """A noun of the question and what it may mean."""

    text: str
    meanings: tuple[Meaning, ...]
    owner: NamePart | None = None
    """The noun it belongs to: the author of `the author's name`."""

    def __hash__(self) -> int:
        """Hash the text only: in a source with thousands of tables a noun may have thousands of meanings."""
        return hash(self.text)

    @cached_property
    def tables(self) -> tuple[Meaning, ...]:
        """The tables it may mean."""
        return tuple(m for m in self.meanings if m.column is None and not m.label)

    @cached_property
    def columns(self) -> tuple[Meaning, ...]:
        """The columns it may mean."""
        return tuple(m for m in self.meanings if m.column is not None or m.label)


@dataclass(frozen=True)
class Measure:
    """A number computed over rows."""

    fn: Fn
    name: NamePart
    distinct: bool = False
    rows: bool = False
    """Count the rows that have the column, not its values."""
    of_count: bool = False
    """The average (and so on) of counts: `average number of orders per customer`."""
    until: NamePart | None = None
    """The second of two dates, if the measure is the number of days between them; that of two correlated numbers."""
    at: float | None = None
    """The part of the values below a quantile."""
    text: str = ""


@dataclass(frozen=True)
class Condition:
    """A restriction of rows, in the words of the question; the column may not be known yet."""

    kind: Literal["compare", "average", "between", "match", "value", "span", "weekday", "null", "flag", "outlier"]
    text: str
    name: NamePart | None = None
    op: str = "="
    values: tuple[str | float | int | bool, ...] = ()
    hits: tuple[Hit, ...] = ()
    span: Span | None = None
    said: str = ""
    negated: bool = False
    near: tuple[str, ...] = ()
    """Words before a date that may say which date column is meant."""
    after: NamePart | None = None
    """The noun that the condition follows."""
    of: NamePart | None = None
    """The noun that the condition precedes as an adjective."""
    beside: bool = True
    """No other noun or measure stands between the two."""
    unit: str = ""
    """The unit of the number it compares with."""
    implied: tuple[str, ...] = ()
    """Attributes that an adjective stands for: `older than` is about the age."""
    either: tuple[Condition, ...] = ()
    """Alternative conditions: one of all is enough."""


@dataclass(frozen=True)
class Group:
    """A grouping: the answer has one row for each value."""

    name: NamePart | None
    grain: str | None = None
    text: str = ""


@dataclass(frozen=True)
class Rank:
    """The highest, the most, the top n."""

    direction: Direction
    by: Measure | NamePart | None = None
    implied: tuple[str, ...] = ()
    """Attributes that an adjective stands for: `longest` is about length or duration."""
    text: str = ""
    then: Measure | None = None
    """The tie-breaker."""
    of: NamePart | None = None
    """The noun that an adjective stands before: the city of `the largest city`."""


@dataclass(frozen=True)
class Ordering:
    """The requested order; without `by`, that of the measure."""

    by: Measure | NamePart | None
    direction: Direction | Literal["best", "worst"] | None
    then: NamePart | None = None
    """The column that sorts rows which are equal otherwise."""


@dataclass(frozen=True)
class Threshold:
    """A condition on a measure of each group."""

    measure: Measure
    op: str
    number: float | int
    unit: str = ""


@dataclass(frozen=True)
class Absence:
    """A condition that no related rows exist: customers without orders."""

    name: NamePart
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True)
class Ratio:
    """One number divided by another."""

    upper: Side
    lower: Side
    scale: int = 1


@dataclass(frozen=True)
class Side:
    """One of the two numbers of a ratio: a measure, or rows or a column under conditions."""

    subject: Measure | NamePart | None
    conditions: tuple[Condition, ...] = ()
    context: tuple[NamePart, ...] = ()
    """Things that the rows must refer to."""
    loose: tuple[NamePart, ...] = ()
    thresholds: tuple[Threshold, ...] = ()


@dataclass(frozen=True)
class Question:
    """A question as its parts."""

    requested: tuple[NamePart | Measure, ...] = ()
    """The columns and measures of the answer, in the order of the question."""
    listed: bool = False
    """Whether a sentence says which columns to return."""
    asked: tuple[NamePart | Measure, ...] = ()
    """The columns and measures that the first sentence asks for."""
    lowest: bool = False
    subject: NamePart | None = None
    plural: bool = False
    context: tuple[NamePart, ...] = ()
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
    """If not 0, show each group's share of the whole, as a part of 1 or of 100."""
    change: Literal["", "percent", "difference"] = ""
    """Show how each period changed since the one before."""
    distinct: bool = False
    everything: bool = False
    """All columns are asked for: `all information about`."""
    gaps: bool = False
    """The missing values of each column are counted."""
    both: bool = False
    loose: tuple[NamePart, ...] = ()
    """Nouns that describe the subject: a flag, or a number that is not zero."""
    verbs: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    """The units in which the numbers are asked for: `in meters`."""
    alone: str = ""
    """The verb that ends a sentence: nothing follows that it could connect."""
    prefer: tuple[tuple[str, str], ...] = ()
    """Tables and columns that the user chose when asked back."""
    unknown: tuple[str, ...] = field(default=(), compare=False)
    """Words that no rule explains; if there are any, the question is refused."""
    notes: tuple[str, ...] = ()
    """Corrections and readings to show to the user."""
