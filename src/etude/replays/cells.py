"""The cells of a run as a slice: found by syntax, run in a fresh session, and compared with what was recorded."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from etude.entities import ResultInfo, Run, Step
from etude.replays.fingerprint import output_fingerprint, rows_fingerprint
from etude.replays.script import ScriptStep
from etude.replays.slice import PROBE, CellCode, slice_session
from etude.runtime.notebook import notebook_cell_queries
from etude.runtime.query import CELL
from etude.runtime.standalone_script import PREAMBLE

if TYPE_CHECKING:
    from etude.result import Result
    from etude.runtime.broker import CellQuery
    from etude.runtime.notebook import Notebook
    from etude.sessions.base import Cell
    from etude.store.objects import Objects


@dataclass(frozen=True)
class SlicedCells:
    """The cells behind the output of a run."""

    steps: Sequence[ScriptStep]
    reduced: bool
    """Whether they were found by trial: with other data, other cells may be needed."""
    follows: bool = False
    """Whether some of them belong to earlier runs of the conversation."""


class NoSlice(Exception):
    """The cells do not give the same output again; the message says so."""


@dataclass(frozen=True)
class _Recorded:
    """A cell as it was recorded."""

    code: str
    calls: Sequence[CellQuery]
    shown: bool
    output: str
    """The fingerprint of what it printed and returned."""
    result: ResultInfo | None


def slice_run_cells(
    runs: Sequence[Run], shown: frozenset[str], notebook: Notebook, objects: Objects, tables: Mapping[str, Result]
) -> SlicedCells:
    """Return the steps of a script that gives the output of the shown cells; `runs` are those of the conversation.

    `tables` are the tables that shown cells returned, by the step.
    """
    cells = [
        each
        for run in runs
        for step in run.steps
        if step.kind == "python" and (each := _recorded(run, step, shown, objects, tables)) is not None
    ]
    codes = [CellCode(c.code, c.shown) for c in cells]

    def run_cells(kept: Mapping[int, str]) -> dict[int, Cell]:
        listed = [(n, code) for n, code in sorted(kept.items())]
        done = notebook.rehearse([(PREAMBLE, ()), *((code, cells[n].calls) for n, code in listed)])
        return dict(zip((n for n, _ in listed), done[1:], strict=True))

    def check(kept: Mapping[int, str]) -> bool:
        done = run_cells(kept)
        wanted = [n for n, c in enumerate(cells) if c.shown]
        return all(n in done and done[n].ok and cell_fingerprint(done[n]) == cells[n].output for n in wanted)

    def observe(kept: Mapping[int, str]) -> dict[int, frozenset[str]]:
        listed = sorted(kept.items())
        probe: tuple[str, Sequence[CellQuery]] = ("__import__('json').dumps(_etude_probe())", ())
        asked: list[tuple[str, Sequence[CellQuery]]] = [(f"{PREAMBLE}\n{PROBE}", ()), probe]
        for n, code in listed:
            asked += [(code, cells[n].calls), probe]
        marks = [_marks(cell) for cell in notebook.rehearse(asked)[1::2]]
        changed = {}
        for (n, _), before, after in zip(listed, marks, marks[1:]):
            changed[n] = frozenset(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        return changed

    found = slice_session(codes, check, observe)
    if found is None:
        raise NoSlice("The cells do not give the same output again.")
    steps = [
        ScriptStep(
            kind="python",
            code=code,
            result=cells[n].result,
            fingerprint=cells[n].output if cells[n].shown else "",
            shows=cells[n].shown,
        )
        for n, code in sorted(found.cells.items())
    ]
    return SlicedCells(steps, found.how == "reduced")


def _recorded(
    run: Run, step: Step, shown: frozenset[str], objects: Objects, tables: Mapping[str, Result]
) -> _Recorded | None:
    if step.code == PREAMBLE or step.artifact is None or step.artifact.media != CELL:
        return None
    cell = json.loads(objects.get(step.artifact.hash, run.id))
    code = recorded_cell_code(run, step, objects)
    if not code:
        return None
    table = tables.get(step.id)
    output = recorded_cell_fingerprint(cell, table)
    return _Recorded(
        code, notebook_cell_queries(run, step), step.id in shown, output, table.info if table is not None else None
    )


def recorded_cell_code(run: Run, step: Step, objects: Objects) -> str:
    """Return the code of a recorded cell; of one that failed, the statements that ran before its error."""
    if step.outcome == "ok" or step.artifact is None or step.artifact.media != CELL:
        return step.code if step.outcome == "ok" else ""
    cell = json.loads(objects.get(step.artifact.hash, run.id))
    return _before_error(step.code, (cell.get("error") or {}).get("line"))


def recorded_cell_fingerprint(cell: dict[str, Any], table: Result | None) -> str:
    """Return the fingerprint of what a recorded cell printed and returned."""
    if table is None:
        return output_fingerprint(cell["stdout"], cell["text"] or "")
    names = [(c.name, "") for c in table.columns]
    return output_fingerprint(cell["stdout"], "") + rows_fingerprint(names, table.iter_rows(), ordered=True)


def _before_error(code: str, line: Any) -> str:
    """Return the statements of a failed cell that ran before the one that failed."""
    try:
        body = ast.parse(code).body
    except SyntaxError:
        return ""
    if not isinstance(line, int):
        return ""
    done = [node for node in body if (node.end_lineno or node.lineno) < line]
    return "\n".join(code.splitlines()[: done[-1].end_lineno]) if done else ""


def cell_fingerprint(cell: Cell) -> str:
    """Return the fingerprint of what a cell printed and returned."""
    import pyarrow as pa

    if not isinstance(cell.value, pa.Table):
        return output_fingerprint(cell.stdout, cell.text or "")
    from etude.entities import ResultInfo
    from etude.result import Result, describe_result_columns

    table = cell.value
    info = ResultInfo(columns=describe_result_columns(table.schema, []), row_count=table.num_rows)
    result = Result(info, table.to_batches() or None)
    rows = result.iter_rows() if table.num_rows else iter(())
    return output_fingerprint(cell.stdout, "") + rows_fingerprint(
        [(name, "") for name in table.column_names], rows, ordered=True
    )


def _marks(cell: Cell) -> dict[str, str]:
    try:
        found: dict[str, str] = json.loads(ast.literal_eval(cell.text)) if cell.ok else {}
    except (ValueError, SyntaxError):
        return {}
    return found
