"""A query, a plan or a cell as a run of its own."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from etude.cell_text import cell_to_json
from etude.entities import Run
from etude.errors import Invalid
from etude.events import RunFinished
from etude.result import Result
from etude.runtime.chart import choose_chart
from etude.runtime.tool_context import RecordedToolContext

if TYPE_CHECKING:
    from etude.sessions.base import Cell

SHOWN_NAMES = 8
"""Columns that the text of a query names."""
CHARS = 20_000
"""Characters of the text of a cell; the record of the cell keeps all that it printed."""


def run_code(run: Run, context: RecordedToolContext) -> RunFinished:
    """Run the code of a run and return its end."""
    if run.source is None:
        raise Invalid("It is not known which source to run this on.", hint="Name a dataset.")
    code, chart = run.text, None
    match run.kind:
        case "sql":
            rows = context.sql(run.source, run.text)
            answer, chart = describe_code_rows(rows), choose_chart(rows)
        case "plan":
            result = context.plan(run.source, run.text)
            answer, code, chart = describe_code_rows(result), result.sql, choose_chart(result)
        case _:
            answer = describe_code_output(context.python(run.text))
    return RunFinished(result=context.result, artifact=context.artifact, answer=answer or None, code=code, chart=chart)


def describe_code_rows(result: Result) -> str:
    """Return a line on a result: its only value, or how many rows and which columns it has."""
    names = [c.name for c in result.columns]
    if result.row_count == 1 and len(names) == 1:
        ((value,),) = itertools.islice(result.iter_rows(), 1)
        return f"{_line(names[0])}: {_line(cell_to_json(value))}"
    more = ", ..." if len(names) > SHOWN_NAMES else ""
    return f"{phrase_row_count(result.row_count)}: {', '.join(map(_line, names[:SHOWN_NAMES]))}{more}."


def describe_code_output(cell: Cell, stored: bool = True) -> str:
    """Return what a cell printed and its value; of a table that is stored as the run's result only the shape."""
    import pyarrow as pa

    value = cell.text
    if stored and isinstance(cell.value, pa.Table):
        value = (
            f"{phrase_row_count(cell.value.num_rows)}: {', '.join(map(_line, cell.value.column_names[:SHOWN_NAMES]))}."
        )
    text = "\n".join(filter(None, (cell.stdout.rstrip("\n"), value)))
    if len(text) <= CHARS:
        return text
    return f"{text[:CHARS]}\n[{len(text) - CHARS:,} more characters are in the record of the cell]"


def phrase_row_count(count: int) -> str:
    """Return the number of rows in words."""
    return f"{count:,} row{'' if count == 1 else 's'}"


def _line(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 200 else text[:199] + "…"
