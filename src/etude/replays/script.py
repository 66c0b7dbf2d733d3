"""A script: the queries and cells behind an answer, with parameters, guards and a way to write the answer's text."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any, Literal

from etude.entities import Entity, Figure, Read, ResultInfo
from etude.replays.guards import DataGuard, GuardedTableShape
from etude.replays.mutants import MutantReport
from etude.replays.repair import TableMeasures

Form = Literal["number", "text", "date", "year", "year_start", "year_end", "next_year_start", "python"]


class Parameter(Entity):
    """A literal of the question that the code contains as well."""

    name: str
    kind: Literal["integer", "number", "text", "date", "year", "limit"]
    default: str
    """The literal as the question has it, without quotation marks."""
    position: int
    """Which unit of the question it is."""
    table: str = ""
    column: str = ""
    """The column that it is compared with; empty for a limit."""
    low: str | None = None
    high: str | None = None
    """The least and greatest value of that column."""


class Slot(Entity):
    """Where a parameter is in the code of a step, and how it is written there."""

    start: int
    end: int
    parameter: str
    form: Form
    """As in SQL; `python` is a text in Python."""
    quotes: str = ""
    """Of a query inside a cell: the prefix and the quotation marks of its text."""


class ScriptStep(Entity):
    """A query, or a cell of a session."""

    kind: Literal["sql", "python"]
    code: str
    slots: tuple[Slot, ...] = ()
    result: ResultInfo | None = None
    """The shape of what it returned."""
    fingerprint: str = ""
    """The fingerprint of what it returned or printed; see `fingerprint.py`."""
    ordered: bool = False
    shows: bool = True
    """Whether the answer uses what it returned or printed; otherwise it only prepares a later cell."""


class Piece(Entity):
    """A part of the text of an answer: fixed words, a cell of a result, the number of its rows, or a parameter."""

    text: str = ""
    step: int | None = None
    row: int | None = None
    column: int | None = None
    rows: bool = False
    parameter: str = ""
    digits: int | None = None
    """Digits after the point; None for values that are not numbers."""
    grouped: bool = False
    """Whether the number has thousands separators."""


class Script(Entity):
    """A compiled run."""

    id: str
    question: str
    source: str
    location: str | None = None
    dialect: str
    model: str
    run_id: str
    parent: str = ""
    """The script that the run of this one was answered by, after a model corrected it."""
    asked_at: datetime
    key: str
    key_anywhere: str = ""
    """The key of the question wherever the data are, for data that moved."""
    steps: tuple[ScriptStep, ...]
    of_steps: int = 0
    parameters: tuple[Parameter, ...] = ()
    shapes: tuple[GuardedTableShape, ...] = ()
    guards: tuple[DataGuard, ...] = ()
    mutants: MutantReport = MutantReport()
    """What the guards did with damaged data."""
    queries: tuple[str, ...] = ()
    """The queries that its steps made on the data that the guards were derived from."""
    profiles: tuple[TableMeasures, ...] = ()
    """What is known of the columns that it uses, to find them again under another name."""
    tables: tuple[str, ...] = ()
    """The tables that the source had, if they were not too many."""
    reads: tuple[Read, ...] = ()
    """The tables with the fingerprints of their data, for which the guards hold."""
    answer: str = ""
    figures: tuple[Figure, ...] = ()
    """Where the figures of the answer come from; they hold while the answer does."""
    chart: dict[str, Any] | None = None
    """The chart that the run showed, without its data."""
    pieces: tuple[Piece, ...] = ()
    """The text of the answer with its figures as references; empty if some words may be wrong with other data."""
    reading: str = ""
    by_rules: bool = False
    """Whether the rules wrote the answer, and not a model."""
    day: date | None = None
    """The only day on which it answers the question, if the question depends on the day."""
    notes: str = ""
    """A fingerprint of the annotations of the source."""
    same_data: bool = False
    """Whether it only answers on the very same data: its cells were found by trial, and other data may need more."""
    versions: dict[str, str] = {}
    tokens: int = 0
    """Tokens that the run used."""
    own_ms: float = 0.0
    """How long the run took without waiting for a model."""
