"""From a run that worked to a script: the steps behind the answer, their parameters, their guards, and the text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any

from etude.entities import Read, Run, Step
from etude.ids import new_id
from etude.replays.asked_question import AskedQuestion, QuestionUnit, is_relative_question, years_in_question
from etude.replays.cell_parameters import find_cell_parameters
from etude.replays.cells import SlicedCells
from etude.replays.fingerprint import result_fingerprint
from etude.replays.guards import derive_guards, guarded_shapes
from etude.replays.query_facts import RANDOM, TIME, QueryFacts, read_query_facts
from etude.replays.repair import measure_for_repair
from etude.replays.replayed_text import Shown, find_text_pieces
from etude.replays.script import Parameter, Script, ScriptStep, Slot
from etude.replays.script_parameters import bound_parameters, find_script_parameters
from etude.runtime.answer import answer_reading
from etude.runtime.query import CELL

if TYPE_CHECKING:
    from etude.entities import Catalog
    from etude.result import Result
    from etude.store.objects import Objects

ROWS = 1000
"""Rows of a result that are compared with the text of the answer."""
KNOWN_TABLES = 500
"""The names of more tables are not kept with a script."""
NEAR_DAYS = 400
"""A date that the question does not name and that is this close to the day it was asked may follow from that day."""
NO_RESULT = "The answer rests on no result."
_DAY = re.compile(r"(?<!\d)(\d{4})-(\d{2})-(\d{2})(?!\d)")


class NotCompiled(Exception):
    """The run cannot be a script; the message says why."""


@dataclass(frozen=True)
class Material:
    """What compiling a run needs besides the run."""

    asked: AskedQuestion
    catalog: Catalog
    query: Callable[[str], Sequence[Sequence[Any]]]
    """Runs a query of etude's own on the source."""
    read: Callable[[Any, Any, str], Result]
    objects: Objects
    notes: str
    """A fingerprint of the annotations."""
    slice_cells: Callable[[Run, frozenset[str]], SlicedCells]
    """Returns the cells behind the shown cells of a run."""


@dataclass(frozen=True)
class Compiled:
    """A script, and why it may not answer a question by itself."""

    script: Script
    reason: str = ""
    """Empty if it may."""


@dataclass
class _Parts:
    steps: list[ScriptStep] = field(default_factory=list)
    shown: list[Shown] = field(default_factory=list)
    facts: list[QueryFacts] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    reads: dict[str, Read] = field(default_factory=dict)
    parameters: list[Parameter] = field(default_factory=list)
    follows: bool = False
    """Whether its cells build on cells of earlier runs."""
    reduced: bool = False
    """Whether its cells were found by trial."""


def check_script_compilable(run: Run) -> None:
    """Raise `NotCompiled` for a run that computed nothing, before anything is read for it."""
    if run.status != "succeeded" or run.source is None:
        raise NotCompiled(f"The run is {run.status}." if run.source else "The question names no dataset.")
    if not any(step.kind in ("sql", "python") for step in run.steps):
        raise NotCompiled(NO_RESULT)


def compile_script_of_run(run: Run, material: Material) -> Compiled:
    """Return the script of a run that succeeded; raise `NotCompiled` if it computed nothing that can run again."""
    check_script_compilable(run)
    parts = _collect(run, material)
    if not parts.steps:
        raise NotCompiled(NO_RESULT)
    catalog = material.catalog
    shapes = guarded_shapes(catalog, parts.facts)
    joined = frozenset().union(*(f.joined for f in parts.facts)) if parts.facts else frozenset()
    guards = derive_guards(catalog, shapes, joined, material.query)
    parameters = bound_parameters(parts.parameters, catalog, material.query)
    kept = {p.name for p in parameters}
    steps = [_keep_slots(step, kept) for step in parts.steps]
    by_rules = run.model == "offline"
    answer = run.answer or ""
    script = Script(
        id=new_id("script"),
        question=run.text,
        source=run.source,
        location=run.location,
        dialect=catalog.dialect,
        model=run.model or "offline",
        run_id=run.id,
        parent=(run.replay.script or "") if run.replay is not None and run.replay.level == "patch" else "",
        asked_at=run.created_at,
        key=material.asked.key(frozenset(p.position for p in parameters)),
        key_anywhere=material.asked.key_anywhere(),
        steps=tuple(steps),
        of_steps=sum(s.kind in ("sql", "python") and _is_own(s, run) for s in run.steps),
        parameters=parameters,
        shapes=shapes,
        guards=guards,
        profiles=measure_for_repair(catalog, shapes, material.query),
        queries=tuple(dict.fromkeys(parts.queries)),
        tables=tuple(t.name for t in catalog.tables) if len(catalog.tables) <= KNOWN_TABLES else (),
        reads=tuple(parts.reads.values()),
        answer=answer,
        figures=run.figures,
        chart=run.chart,
        pieces=() if by_rules else find_text_pieces(answer, run.text, parts.shown, parameters),
        reading=answer_reading(run),
        by_rules=by_rules,
        day=_only_day(run, [s.code for s in steps], material.asked.units),
        notes=material.notes,
        same_data=parts.reduced,
        versions={k: v for step in run.steps for k, v in step.versions.items()},
        tokens=run.usage.tokens_in + run.usage.tokens_out,
        own_ms=compiled_run_ms(run),
    )
    return Compiled(script, _doubt(run, script, parts))


def compiled_run_ms(run: Run) -> float:
    """Return how long a run took without waiting for a model or a person."""
    whole = (run.ended_at - run.started_at).total_seconds() * 1000 if run.ended_at and run.started_at else 0.0
    waited = sum(s.elapsed_ms or 0.0 for s in run.steps if s.kind == "model") if run.model != "offline" else 0.0
    return max(whole - waited, 0.0)


def _is_own(step: Step, run: Run) -> bool:
    """Return whether a step is a cell, or a query that no cell made."""
    return step.kind == "python" or step.parent not in {s.id for s in run.steps if s.kind == "python"}


def _doubt(run: Run, script: Script, parts: _Parts) -> str:
    """Return why a script must not answer a question by itself; empty if nothing speaks against it."""
    if any(s.code == "ask_user" for s in run.steps):
        return "The answer depends on what a person replied, not only on the question."
    if any(g.by == "user" for g in run.guidance):
        return "A person guided the run, so the question alone does not lead to this answer."
    if run.unverified and not script.by_rules:  # the rules write all their figures from the result
        return "The answer contains numbers that no result holds."
    if any(step.result is not None and step.result.truncated for step in script.steps):
        return "A limit cut a result, so the rows would depend on chance."
    if parts.follows:
        return "Its cells build on variables of earlier questions."
    if any(RANDOM.search(step.code) for step in script.steps if step.kind == "sql"):
        return "The code draws random values."
    if not parts.facts:
        return "It is not known which data the code reads, so no guard could protect it."
    others = {read.source for read in script.reads} - {script.source}
    if others:
        return f"The query also reads `{sorted(others)[0]}`."
    return ""


# -- the steps behind the answer


def _collect(run: Run, material: Material) -> _Parts:
    parts = _Parts()
    tables = _tables(run)
    cells = [s for s in run.steps if s.kind == "python" and s.outcome == "ok"]
    needed = _needed(run, material, tables, cells)
    if run.kind != "ask":
        needed = frozenset(s.id for s in (*tables, *cells))
    own = run.result_artifact.hash if run.result_artifact else None
    # The table of the last query is the result of a replay. Queries only read, so their order does not matter.
    for step in sorted(tables, key=lambda s: s.artifact is not None and s.artifact.hash == own):
        if step.id in needed:
            _add_query(run, step, material, parts)
    shown_cells = frozenset(c.id for c in cells if c.id in needed)
    if shown_cells:
        _add_cells(run, shown_cells, material, parts)
    return parts


def _tables(run: Run) -> list[Step]:
    """Return the queries that were not made by cells and that returned a table, in order."""
    # A tool that failed after its query, such as a script that did not fit, has no part in the answer.
    others = {s.id for s in run.steps if s.kind == "python" or (s.kind == "tool" and s.outcome == "error")}
    done = [s for s in run.steps if s.kind == "sql" and s.outcome == "ok" and s.result is not None]
    return [s for s in done if s.parent not in others]


def _needed(run: Run, material: Material, tables: Sequence[Step], cells: Sequence[Step]) -> frozenset[str]:
    """Return the steps whose values the answer contains, and the one that returned its table."""
    answer = run.answer or ""
    last = max((*tables, *cells), key=lambda s: s.started_at, default=None)
    found = {last.id} if last is not None else set()
    own = run.result_artifact.hash if run.result_artifact else None
    for step in tables:
        values = _values(material.read(step.result, step.artifact, run.id)) if step.artifact else ()
        if (step.artifact and step.artifact.hash == own) or any(_occurs(v, answer) for v in values):
            found.add(step.id)
    covered: set[str] = set()
    for step in reversed(cells):
        output = " ".join(read_compiled_cell_output(step, material.objects, run.id))
        stated = {n for n in re.findall(r"\d[\d,.]*\d|\d{2,}", output) if _occurs(n, answer)}
        # A number that a later cell shows as well need not be shown twice.
        if stated - covered:
            found.add(step.id)
            covered |= stated
    # The cell whose table is the result: the tool that ran it has the artifact.
    for step in run.steps:
        if own and step.kind == "tool" and step.artifact and step.artifact.hash == own:
            found |= {c.id for c in cells if c.parent == step.id}
    return frozenset(found)


def _values(result: Result) -> Iterator[str]:
    from etude.offline.answer_sentence import phrase_answer_value

    for row in result.first_rows(ROWS):
        for value in row:
            if value is not None and len(text := phrase_answer_value(value)) > 2:
                yield text
                yield str(value)


def _occurs(value: str, text: str) -> bool:
    # A value may be much longer than the text, and a pattern of it would take long to compile.
    return value in text and re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text) is not None


def read_compiled_cell_output(step: Step, objects: Objects, run_id: str) -> tuple[str, str]:
    """Return what a cell printed, and the text of its value."""
    if step.artifact is None or step.artifact.media != CELL:
        return "", ""
    cell = json.loads(objects.get(step.artifact.hash, run_id))
    return cell["stdout"], cell["text"] or ""


def _add_query(run: Run, step: Step, material: Material, parts: _Parts) -> None:
    if step.params.get("values"):
        raise NotCompiled("The query was given values apart from its text.")
    assert step.result is not None and step.artifact is not None  # noqa: S101 - for the type checker
    facts = _note_reads(step, material, parts)
    result = material.read(step.result, step.artifact, run.id)
    parameters: Sequence[Parameter] = ()
    slots: Sequence[Slot] = ()
    tables = {name: table for name in facts.columns if (table := material.catalog.table(name)) is not None}
    if not parts.steps and len(_tables(run)) == 1:
        # With several queries, a literal may be in one of them in a form that is not recognised.
        parameters, slots = find_script_parameters(step.code, material.catalog.dialect, material.asked.units, tables)
    parts.parameters += parameters
    parts.steps.append(
        ScriptStep(
            kind="sql",
            code=step.code,
            slots=tuple(slots),
            result=step.result,
            fingerprint=result_fingerprint(result, facts.ordered),
            ordered=facts.ordered,
        )
    )
    parts.shown.append(make_compiled_result(result, facts.ordered))


def make_compiled_result(result: Result, ordered: bool) -> Shown:
    """Return the first rows of a result, for the text of an answer."""
    rows = result.first_rows(ROWS)
    return Shown(tuple(c.name for c in result.columns), rows, result.row_count, ordered=ordered)


def _note_reads(step: Step, material: Material, parts: _Parts) -> QueryFacts:
    tables = {r.table: table for r in step.reads if (table := material.catalog.table(r.table)) is not None}
    facts = read_query_facts(step.code, material.catalog.dialect, tables)
    parts.facts.append(facts)
    parts.queries.append(step.code)
    for read in step.reads:
        parts.reads.setdefault(read.table, read)
    return facts


def _add_cells(run: Run, shown: frozenset[str], material: Material, parts: _Parts) -> None:
    sliced = material.slice_cells(run, shown)
    parts.follows, parts.reduced = sliced.follows, sliced.reduced
    steps = list(sliced.steps)
    ids = {s.id for s in run.steps if s.kind == "python"}
    for step in run.steps:
        if step.kind == "sql" and step.outcome == "ok" and step.parent in ids:
            _note_reads(step, material, parts)
    if not parts.steps:
        used: dict[str, frozenset[str]] = {}
        for facts in parts.facts:
            used |= {name: used.get(name, frozenset()) | columns for name, columns in facts.columns.items()}
        parameters, steps = find_cell_parameters(steps, material.asked.units, used, material.catalog, material.query)
        parts.parameters += parameters
    parts.steps += steps
    for step in run.steps:
        if step.id in shown:
            printed, value = read_compiled_cell_output(step, material.objects, run.id)
            parts.shown.append(Shown(output=f"{printed}{value}"))


def _keep_slots(step: ScriptStep, kept: set[str]) -> ScriptStep:
    return step.model_copy(update={"slots": tuple(s for s in step.slots if s.parameter in kept)})


# -- what else the answer depends on


def _only_day(run: Run, codes: Sequence[str], units: Sequence[QuestionUnit]) -> date | None:
    """Return the day the question was asked if the code holds only for that day."""
    asked = run.created_at.date()
    code = "\n".join(codes)
    named = years_in_question(units)
    days = {u.text for u in units if u.kind == "date"}
    for found in _DAY.finditer(code):
        year = int(found[1])
        explained = found.group() in days or year in named or (year - 1 in named and found.group().endswith("-01-01"))
        if not explained and abs(year * 366 - asked.year * 366) <= NEAR_DAYS:
            return asked
    return asked if is_relative_question(run.text) and not TIME.search(code) else None
