"""Judge the answer to a generated question: right, silent, or what is wrong with it."""

from __future__ import annotations

from tests.offline.battery import Asked
from tests.offline.questions import TODAY
from tests.offline.readings import find_unsaid

from etude.app import App
from etude.evaluation import comparable_evaluated_row, compare_evaluated_rows
from etude.offline.result_check import doubt_result
from etude.offline.understand import Understanding, understand
from etude.offline.vocabulary import Vocabulary
from etude.sources.plan.compile import compile_plan


def judge_question(app: App, asked: Asked, vocabulary: Vocabulary) -> str:
    """Return `right`, `silent`, or what is wrong with the answer."""
    found = understand(asked.question, vocabulary, today=TODAY)
    if not isinstance(found, Understanding):
        return "silent"
    assert vocabulary.catalog is not None
    url = str(asked.world.path)
    result = app.sql(url, compile_plan(found.plan, vocabulary.catalog), record=False)
    rows = [comparable_evaluated_row(row) for row in result.iter_rows()]
    if doubt_result(found, [column.name for column in result.columns], rows, len(rows)):
        return "silent"
    if unsaid := find_unsaid(found.plan, found.reading):
        return f"unsaid: {', '.join(unsaid)}; read as: {found.reading}"
    reference = (
        [comparable_evaluated_row(row) for row in app.sql(url, asked.sql, record=False).iter_rows()]
        if asked.sql
        else None
    )
    if reference is not None and compare_evaluated_rows(rows, reference) is not None:
        return "right"
    return f"wrong: read as: {found.reading}"
