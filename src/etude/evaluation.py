"""Measure how often questions are answered rightly: ask each of them, and compare the result with its reference."""

from __future__ import annotations

import json
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from itertools import islice, product
from pathlib import Path
from typing import Any, Literal

from sqlglot.errors import SqlglotError

from etude.app import App
from etude.errors import EtudeError, Invalid, NotUnderstood, Refused
from etude.runtime.answer import Answer
from etude.sources.sql_parsing import parse_one_sql

ASKS_ORDER = re.compile(r"\b(order|sort|rank|top|highest to|lowest to|descending|ascending|alphabetical)", re.I)
SAYS_TIE = re.compile(r"\b(ties?|tied)\b", re.I)
MOST_ROWS = 100_000
MOST_MATCHES = 10_000
"""At most this many ways to find the columns of a reference among those of an answer are tried."""
STEPS = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95)
"""The confidences at which precision and coverage are reported."""

Rows = list[tuple[Any, ...]]
Verdict = Literal["right", "wrong", "asked back", "refused", "failed", "no reference"]


@dataclass(frozen=True)
class ReferenceQuestion:
    """A question with its reference: SQL whose result is right, or the rows themselves."""

    question: str
    sql: tuple[str, ...] = ()
    """Any of these is a right answer."""
    answer: tuple[tuple[Any, ...], ...] | None = None
    db: str = ""
    """The database it is about, if the source is a folder of databases."""
    cause: str = ""
    """The kind of question, whose figures are shown apart."""


@dataclass(frozen=True)
class Judged:
    """What became of a question."""

    case: ReferenceQuestion
    verdict: Verdict
    seconds: float
    first: bool = False
    """It was the first question on its database, which has to be looked at."""
    exact: bool = False
    """The answer has no columns besides those of the reference."""
    confidence: float | None = None
    cost_usd: float = 0.0
    reading: str = ""
    said: str = ""
    """The SQL of an answer, the question that was asked back, or the reason of a refusal."""


@dataclass(frozen=True)
class EvaluationScore:
    """The figures of some questions."""

    asked: int
    right: int
    exact: int
    wrong: int
    asked_back: int
    refused: int
    failed: int
    unknown: int
    """Questions whose reference does not run; they count nowhere else."""
    first_s: float | None
    later_s: float | None
    cost_usd: float

    @property
    def answered(self) -> int:
        """The answers that were given."""
        return self.right + self.wrong

    @property
    def precision(self) -> float | None:
        """The share of right answers among those given."""
        return self.right / self.answered if self.answered else None

    @property
    def coverage(self) -> float | None:
        """The share of right answers among all questions."""
        return self.right / self.asked if self.asked else None


def read_evaluation_questions(path: Path) -> list[ReferenceQuestion]:
    """Return the questions of a file with one JSON object in each line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"`{path}` cannot be read: {error}.", hint="Give a file with one JSON object per line.") from None
    cases = [_read_case(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not cases:
        raise Invalid(f"`{path}` has no questions.", hint='Write lines such as {"question": "...", "sql": "..."}.')
    return _merge(cases)


def _read_case(path: Path, number: int, line: str) -> ReferenceQuestion:
    hint = 'Write {"question": "...", "sql": "..."}, with "answer": [[...]] for rows instead of SQL.'
    try:
        body = json.loads(line)
    except json.JSONDecodeError as error:
        raise Invalid(f"Line {number} of `{path}` is not JSON: {error}.", hint=hint) from None
    question = body.get("question") if isinstance(body, dict) else None
    if not isinstance(question, str) or not question.strip():
        raise Invalid(f'Line {number} of `{path}` has no "question".', hint=hint)
    sql, answer = body.get("sql", []), body.get("answer")
    listed = (sql,) if isinstance(sql, str) else tuple(sql) if isinstance(sql, list) else ("",)
    if not all(isinstance(each, str) and each.strip() for each in listed):
        raise Invalid(f'"sql" in line {number} of `{path}` is not a query or a list of queries.', hint=hint)
    if answer is not None and not (isinstance(answer, list) and all(isinstance(row, list) for row in answer)):
        raise Invalid(f'"answer" in line {number} of `{path}` is not a list of rows.', hint=hint)
    if not listed and answer is None:
        raise Invalid(f'Line {number} of `{path}` has neither "sql" nor "answer".', hint=hint)
    rows = tuple(tuple(row) for row in answer) if answer is not None else None
    return ReferenceQuestion(question, listed, rows, str(body.get("db") or ""), str(body.get("cause") or ""))


def _merge(cases: Iterable[ReferenceQuestion]) -> list[ReferenceQuestion]:
    """Ask each question once: several lines with the same question are several references."""
    merged: dict[tuple[str, str], ReferenceQuestion] = {}
    for case in cases:
        known = merged.get((case.db, case.question))
        if known is None:
            merged[case.db, case.question] = case
        else:
            sql = tuple(dict.fromkeys((*known.sql, *case.sql)))
            merged[case.db, case.question] = ReferenceQuestion(
                known.question, sql, known.answer if known.answer is not None else case.answer, known.db, known.cause
            )
    return list(merged.values())


def find_evaluated_source(source: str, db: str) -> str:
    """Return the source of a question: the named database in the folder, or the source itself."""
    if not db:
        return source
    folder, name = Path(source), Path(db)
    if (folder / name).exists():
        return str(folder / name)
    found = sorted(each for each in folder.glob(f"{name.stem}.*") if each.suffix != ".jsonl")
    if not found:
        raise Invalid(
            f"`{source}` has no database `{db}`.",
            hint='Give the folder that holds the databases, or leave "db" out of the questions.',
        )
    return str(found[0])


def evaluate(
    app: App,
    source: str,
    cases: Sequence[ReferenceQuestion],
    model: str | None = None,
    on_judged: Callable[[Judged], None] = lambda judged: None,
) -> list[Judged]:
    """Ask all questions, database by database, and judge the answers."""
    judged, seen = [], set[str]()
    for case in sorted(cases, key=lambda case: case.db):
        url = find_evaluated_source(source, case.db)
        found = _judge(app, url, case, model, first=url not in seen)
        seen.add(url)
        judged.append(found)
        on_judged(found)
    return judged


def _judge(app: App, url: str, case: ReferenceQuestion, model: str | None, first: bool) -> Judged:
    references = _references(app, url, case)
    started = time.perf_counter()
    answer = app.ask(url, case.question, model=model, fresh=True)
    seconds = time.perf_counter() - started

    def judged(verdict: Verdict, said: str, exact: bool = False) -> Judged:
        cost = answer.run.usage.cost_usd
        return Judged(case, verdict, seconds, first, exact, answer.confidence, cost, answer.reading, said)

    if not references:
        return judged("no reference", "")
    if answer.question:
        return judged("asked back", answer.question)
    if isinstance(answer.error, NotUnderstood):
        return judged("refused", answer.error.message)
    if answer.error is not None:
        return judged("failed", answer.error.message)
    if answer.result is None:
        return judged("refused", answer.text)
    widths = [extra_evaluated_columns(rows, answer, case.question) for rows in references]
    right = [width for width in widths if width is not None]
    return judged("right" if right else "wrong", answer.code, 0 in right)


@dataclass(frozen=True)
class Reference:
    """The rows of a right answer, and the place of the column they are sorted by, if they are."""

    rows: Rows
    ordered: tuple[int, ...] = ()


def _references(app: App, url: str, case: ReferenceQuestion) -> list[Reference]:
    found = [Reference([comparable_evaluated_row(row) for row in case.answer])] if case.answer is not None else []
    for sql in case.sql:
        try:
            result = app.sql(url, sql, record=False)
            rows = [comparable_evaluated_row(row) for row in islice(result.iter_rows(), MOST_ROWS)]
        except EtudeError:
            continue
        found.append(Reference(rows, tuple(_ordered(sql, [column.name for column in result.columns]))))
    return found


def extra_evaluated_columns(reference: Reference, answer: Answer, question: str) -> int | None:
    """Return how many columns more than the reference the answer has, or None if it is another answer."""
    assert answer.result is not None  # noqa: S101 - for the type checker
    ours = [comparable_evaluated_row(row) for row in islice(answer.result.iter_rows(), MOST_ROWS)]
    tie = bool(SAYS_TIE.search(f"{answer.reading} {answer.text}"))
    ordered = reference.ordered if ASKS_ORDER.search(question) else ()
    return compare_evaluated_rows(ours, reference.rows, ordered, tie)


def compare_evaluated_rows(left: Rows, right: Rows, ordered: Sequence[int] = (), tie: bool = False) -> int | None:
    """Return how many columns `left` has besides those of `right`, or None if its rows are others.

    With `tie`, rows besides those of `right` are allowed too: the answer says that several share the place.
    """
    if len(left) < len(right) or (len(left) > len(right) and not tie):
        return None
    if not right:
        return None if left else 0
    extra = len(left[0]) - len(right[0])
    for places in islice(_matches(left, right), MOST_MATCHES) if extra >= 0 else ():
        shown = [tuple(row[place] for place in places) for row in left]
        same = Counter(right) <= Counter(shown) if len(left) > len(right) else Counter(shown) == Counter(right)
        if same and all(_follows(shown, right, column) for column in ordered):
            return extra
    return None


def _matches(left: Rows, right: Rows) -> Iterator[tuple[int, ...]]:
    """Yield ways to find the columns of the one in the other."""
    columns = [Counter(column) for column in zip(*left, strict=True)]
    wanted = [Counter(column) for column in zip(*right, strict=True)]
    choices = [[n for n, column in enumerate(columns) if want <= column] for want in wanted]
    return (places for places in product(*choices) if len({*places}) == len(places))


def _ordered(sql: str, names: Sequence[str]) -> list[int]:
    """Return the place of the first column that the reference sorts by, if it shows it."""
    try:
        order = parse_one_sql(sql, "").args.get("order")
    except (SqlglotError, Refused):
        return []
    key = order.expressions[0].this.name if order else ""
    return [names.index(key)] if key in names else []


def _follows(left: Rows, right: Rows, column: int) -> bool:
    # Where nulls stand is the engine's choice.
    ours, theirs = ([row[column] for row in rows if row[column] is not None] for rows in (left, right))
    return ours[: len(theirs)] == theirs


def comparable_evaluated_row(row: Sequence[Any]) -> tuple[Any, ...]:
    """Return a row whose values compare equal if people would call them equal."""
    return tuple(_plain(value) for value in row)


def _plain(value: Any) -> Any:
    match value:
        case bool():
            return float(value)
        case int() | float() | Decimal():
            # Rounded twice: else the noise of a sum decides a digit that lies on the edge.
            return float(f"{float(f'{float(value):.13g}'):.9g}")
        case datetime():
            return value.replace(tzinfo=None).isoformat(" ").removesuffix(" 00:00:00")
        case date():
            return value.isoformat()
        case str():
            return value.strip()
        case bytes():
            return value.decode("utf-8", "replace")
    return value


# --- figures


def score_evaluation(judged: Iterable[Judged]) -> EvaluationScore:
    """Return the figures of some judged questions."""
    found = list(judged)
    counts = Counter(each.verdict for each in found)
    first = [each.seconds for each in found if each.first]
    later = [each.seconds for each in found if not each.first]
    return EvaluationScore(
        asked=len(found) - counts["no reference"],
        right=counts["right"],
        exact=sum(each.exact for each in found),
        wrong=counts["wrong"],
        asked_back=counts["asked back"],
        refused=counts["refused"],
        failed=counts["failed"],
        unknown=counts["no reference"],
        first_s=statistics.median(first) if first else None,
        later_s=statistics.median(later) if later else None,
        cost_usd=sum(each.cost_usd for each in found),
    )


def evaluation_scores_by_group(judged: Sequence[Judged], key: Callable[[Judged], str]) -> dict[str, EvaluationScore]:
    """Return the figures of each group."""
    groups: dict[str, list[Judged]] = {}
    for each in judged:
        groups.setdefault(key(each), []).append(each)
    return {name: score_evaluation(group) for name, group in sorted(groups.items())}


@dataclass(frozen=True)
class AtConfidence:
    """The figures that hold if only answers with at least this confidence are given."""

    least: float
    answered: int
    precision: float | None
    coverage: float


def evaluation_scores_by_confidence(judged: Sequence[Judged], steps: Sequence[float] = STEPS) -> list[AtConfidence]:
    """Return precision and coverage at each confidence; empty if the answers carry none."""
    asked = [each for each in judged if each.verdict != "no reference"]
    given = [each for each in asked if each.verdict in ("right", "wrong") and each.confidence is not None]
    found = []
    for least in steps if given else ():
        kept = [each for each in given if (each.confidence or 0) >= least]
        right = sum(each.verdict == "right" for each in kept)
        found.append(AtConfidence(least, len(kept), right / len(kept) if kept else None, right / len(asked)))
    return found
