"""Why two runs differ: the cause in a word, and the rows that moved."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Any, Literal

from etude.cell_text import cut_cell_text
from etude.entities import Entity, Run, Step
from etude.replays.asked_question import read_question_units
from etude.runtime.standalone_script import PREAMBLE

if TYPE_CHECKING:
    from etude.result import Result

Cause = Literal["none", "question", "source", "settings", "code", "data", "engine"]
SHOWN = 20
SHOWN_CHARS = 500
"""The characters of a cell in a row that is shown."""
SHOWN_BYTES = 1 << 20
"""Fewer rows are shown if those before them take more than this."""
MOST_ROWS = 200_000
"""The most rows of each result that are compared."""
MOST_CHARS = 1 << 30
"""The most characters of the rows of both results that are compared."""


class MovedDifference(Entity):
    """The rows that two results do not share."""

    columns: tuple[str, ...]
    lost: tuple[tuple[str, ...], ...] = ()
    """Rows of the first only; at most `SHOWN`."""
    added: tuple[tuple[str, ...], ...] = ()
    lost_count: int = 0
    added_count: int = 0
    renamed: str = ""
    """What differs in the columns themselves."""
    note: str = ""
    """Which rows were not compared; empty if all were."""

    @property
    def sentence(self) -> str:
        """What moved."""
        if self.renamed:
            return self.renamed
        found = f"{self.lost_count:,} rows are gone and {self.added_count:,} are new."
        return f"{found} {self.note}" if self.note else found


class Difference(Entity):
    """How two runs differ."""

    first: str
    second: str
    cause: Cause
    detail: str
    also: tuple[str, ...] = ()
    """Other differences, which follow from the cause or add to it."""
    same_result: bool = False
    moved: MovedDifference | None = None


def find_run_differences(one: Run, other: Run, read: Callable[[Run], Result | None]) -> Difference:
    """Return the cause of what differs between two runs, and the rows that moved.

    Causes are looked for where a difference starts: another question leads to other code, other code reads other data.
    """
    found = [(cause, detail) for cause, look in _LOOKS if (detail := look(one, other))]
    before, after = read(one), read(other)
    moved = find_row_differences(before, after) if before is not None and after is not None else None
    same = moved is not None and not (moved.lost_count or moved.added_count or moved.renamed or moved.note)
    if not found and not same and one.answer != other.answer:
        # All else is the same on record, so the data are not: not every source has fingerprints.
        found = [("data", "The code, the settings and the engine are the same, but the results are not.")]
    cause, detail = found[0] if found else ("none", "Nothing that is on record differs.")
    return Difference(
        first=one.id,
        second=other.id,
        cause=cause,
        detail=detail,
        also=tuple(text for _, text in found[1:]),
        same_result=same,
        moved=None if same else moved,
    )


def _question(one: Run, other: Run) -> str:
    if one.kind != other.kind:
        return f"One is of kind {one.kind}, the other of kind {other.kind}."
    if one.kind != "ask":
        return ""  # the text is the code
    same = [u.text for u in read_question_units(one.text)] == [u.text for u in read_question_units(other.text)]
    return "" if same else f"The questions differ: “{one.text}” and “{other.text}”."


def _source(one: Run, other: Run) -> str:
    places = [run.location or run.source for run in (one, other)]
    return "" if places[0] == places[1] else f"The sources differ: `{places[0]}` and `{places[1]}`."


def _settings(one: Run, other: Run) -> str:
    if one.model != other.model:
        return f"The models differ: `{one.model}` and `{other.model}`."
    limits = [next((s.limits for s in run.steps if s.limits is not None), run.limits) for run in (one, other)]
    if limits[0] and limits[1] and limits[0] != limits[1]:
        changed = [n for n in type(limits[0]).model_fields if getattr(limits[0], n) != getattr(limits[1], n)]
        name = changed[0]
        return f"The limits differ: `{name}` is {getattr(limits[0], name):g} and {getattr(limits[1], name):g}."
    if one.budget != other.budget and one.budget and other.budget:
        return "The budgets differ."
    seeds = [{s.seed for s in run.steps if s.kind == "python"} for run in (one, other)]
    return "" if seeds[0] == seeds[1] else "The seeds of the sessions differ."


def _code(one: Run, other: Run) -> str:
    codes = [[normalize_code_for_differences(s) for s in _steps(run)] for run in (one, other)]
    if codes[0] == codes[1]:
        return ""
    # What matters is the code of the answer: queries to look around may come and go.
    ends = [c[-1] if c else "" for c in codes]
    if ends[0] == ends[1] and [c for c in codes[0] if c in codes[1]] in codes:
        return ""
    return f"The code differs: {len(codes[0])} and {len(codes[1])} steps."


def _steps(run: Run) -> list[Step]:
    cells = {s.id for s in run.steps if s.kind == "python"}
    own = [s for s in run.steps if s.kind in ("sql", "python") and s.outcome == "ok" and s.parent not in cells]
    return [s for s in own if s.code != PREAMBLE]


# In linear time: an unclosed quote or comment ends with the text.
_QUOTED_OR_COMMENT = re.compile(
    r"(?P<quoted>'(?:[^']|'')*+(?:'|\Z)|\"(?:[^\"]|\"\")*+(?:\"|\Z))|--[^\n]*|/\*(?:.*?\*/|.*)", re.DOTALL
)


def normalize_code_for_differences(step: Step) -> str:
    """Return the code of a step without what does not change its meaning: space, comments and the case of keywords."""
    if step.kind == "python":
        try:
            return ast.dump(ast.parse(step.code))
        except SyntaxError:
            return step.code
    text = _QUOTED_OR_COMMENT.sub(lambda found: found["quoted"] or " ", step.code)
    parts = re.split(r"('(?:[^']|'')*'|\"(?:[^\"]|\"\")*\")", text)
    folded = [p if n % 2 else re.sub(r"\s+", " ", p).lower() for n, p in enumerate(parts)]
    return re.sub(r" ?([(),=<>;]) ?", r"\1", "".join(folded)).strip(" ;")


def _data(one: Run, other: Run) -> str:
    marks = [{r.table: r.fingerprint for s in run.steps for r in s.reads} for run in (one, other)]
    shared = [t for t in marks[0] if t in marks[1] and marks[0][t] and marks[1][t]]
    changed = [table for table in shared if marks[0][table] != marks[1][table]]
    schemas = [{s.schema_fingerprint for s in run.steps if s.schema_fingerprint} for run in (one, other)]
    if changed:
        return f"The data of `{changed[0]}` changed."
    return "The schema changed." if all(schemas) and schemas[0] != schemas[1] else ""


def _engine(one: Run, other: Run) -> str:
    versions = [{k: v for s in run.steps for k, v in s.versions.items()} for run in (one, other)]
    changed = sorted(k for k in versions[0].keys() & versions[1].keys() if versions[0][k] != versions[1][k])
    return (
        f"The version of {changed[0]} differs: {versions[0][changed[0]]} and {versions[1][changed[0]]}."
        if changed
        else ""
    )


_LOOKS: Sequence[tuple[Cause, Callable[[Run, Run], str]]] = (
    ("question", _question),
    ("source", _source),
    ("settings", _settings),
    ("code", _code),
    ("data", _data),
    ("engine", _engine),
)


def find_row_differences(one: Result, other: Result) -> MovedDifference:
    """Return the rows that two results do not share; their order does not matter.

    Rows are read in pieces and compared by their hashes, so that large results take little memory.
    """
    names = [tuple(c.name for c in each.columns) for each in (one, other)]
    if names[0] != names[1]:
        listed = [", ".join(each) for each in names]
        return MovedDifference(columns=names[1], renamed=f"The columns differ: {listed[0]}; and {listed[1]}.")
    moved: dict[bytes, int] = {}
    """How many more of each row the first result has; a row that both have as often is not in it."""
    rows, read, complete = 0, 0, True
    # Side by side, so that a limit leaves as many rows of each.
    for pair in zip_longest(one.iter_rows_in_pieces(), other.iter_rows_in_pieces()):
        if rows >= MOST_ROWS or read > MOST_CHARS:
            complete = False
            break
        rows += 1
        for row, change in zip(pair, (1, -1)):
            if row is not None:
                texts = list(map(_shown, row))
                read += sum(map(len, texts))
                _count(moved, _hash(texts), change)
    return MovedDifference(
        columns=names[0],
        lost=_find_shown(one, {key: n for key, n in moved.items() if n > 0}, rows),
        added=_find_shown(other, {key: -n for key, n in moved.items() if n < 0}, rows),
        lost_count=sum(n for n in moved.values() if n > 0),
        added_count=-sum(n for n in moved.values() if n < 0),
        note="" if complete else f"Only the first {rows:,} rows of each result were compared.",
    )


def _count(moved: dict[bytes, int], key: bytes, change: int) -> None:
    found = moved.get(key, 0) + change
    if found:
        moved[key] = found
    else:
        del moved[key]


def _find_shown(result: Result, wanted: dict[bytes, int], rows: int) -> tuple[tuple[str, ...], ...]:
    """Return the first of the wanted rows, with their cells cut."""
    found: list[tuple[str, ...]] = []
    left, size = min(SHOWN, sum(wanted.values())), 0
    if not left:
        return ()
    for row in islice(result.iter_rows_in_pieces(), rows):
        texts = list(map(_shown, row))
        key = _hash(texts)
        if wanted.get(key, 0):
            wanted[key] -= 1
            found.append(tuple(cut_cell_text(text, SHOWN_CHARS) for text in texts))
            size += sum(map(len, found[-1]))
            if len(found) == left or size > SHOWN_BYTES:
                break
    return tuple(found)


def _hash(texts: Sequence[str]) -> bytes:
    made = hashlib.blake2b(digest_size=16)
    for text in texts:
        raw = text.encode(errors="surrogatepass")
        made.update(len(raw).to_bytes(8, "little"))  # so that no text can end where another begins
        made.update(raw)
    return made.digest()


def _shown(value: Any) -> str:
    if isinstance(value, float | Decimal):
        return f"{value:.12g}"
    return "null" if value is None else str(value)
