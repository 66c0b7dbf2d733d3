"""A query, a plan or a cell as a run of its own."""

from __future__ import annotations

from etude.entities import Run
from etude.errors import Invalid
from etude.events import RunFinished
from etude.runtime.tool_context import RecordedToolContext


def run_code(run: Run, context: RecordedToolContext) -> RunFinished:
    """Run the code of a run and return its end."""
    if run.source is None:
        raise Invalid("It is not known which source to run this on.", hint="Name a dataset.")
    answer, code = None, run.text
    match run.kind:
        case "sql":
            context.sql(run.source, run.text)
        case "plan":
            code = context.plan(run.source, run.text).sql
        case _:
            answer = context.python(run.text).text or None
    return RunFinished(result=context.result, artifact=context.artifact, answer=answer, code=code)
