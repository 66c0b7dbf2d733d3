"""A query or a cell as a run of its own, worked at like the steps of a question."""

from __future__ import annotations

from etude.entities import Run
from etude.errors import Invalid
from etude.events import RunFinished
from etude.runtime.query import RunLog
from etude.runtime.tool_context import RecordedToolContext


def run_code(run: Run, context: RecordedToolContext, log: RunLog) -> None:
    """Run it and put its end on record; raises what it failed with."""
    with log.closing():
        if run.source is None:
            raise Invalid("It is not known where to run this.", hint="Name a dataset.")
        answer, code = None, run.text
        match run.kind:
            case "sql":
                context.sql(run.source, run.text)
            case "plan":
                code = context.plan(run.source, run.text).sql
            case _:
                answer = context.python(run.text).text or None
        log.add(RunFinished(result=context.result, artifact=context.artifact, answer=answer, code=code))
