"""Questions in words without a model: how many get an answer, and how many of the answers are right.

`python -m bench.offline [database ...] [--wrong] [--all]` prints a line per database; `--wrong` shows each wrong
answer, `--all` also what was asked back or refused. An answer is right if it has the rows of a reference: in any order
of columns, with other columns besides (`exact` counts those without), in the order of rows that the question asks for.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import sqlglot

from bench.figure import Figure
from etude.app import App
from etude.errors import EtudeError
from etude.offline.understand import Clarification, Refusal, Understanding, understand
from etude.offline.vocabulary import Vocabulary
from etude.offline.vocabulary_build import build_vocabulary
from etude.sources.plan.compile import compile_plan

DATA = Path(os.environ.get("REFERENCE_DATA", Path(__file__).parents[2] / "shared" / "data")) / "defog"
ASKS_ORDER = re.compile(r"\b(order|sort|rank|top|highest to|lowest to|descending|ascending|alphabetical)", re.I)

Rows = list[tuple[Any, ...]]


@dataclass
class Score:
    """What became of the questions of a database."""

    right: int = 0
    exact: int = 0
    wrong: int = 0
    clarified: int = 0
    refused: int = 0
    times: list[float] = field(default_factory=list)
    build: float = 0.0

    @property
    def answered(self) -> int:
        return self.right + self.wrong

    @property
    def precision(self) -> float:
        return self.right / self.answered if self.answered else 1.0

    def __add__(self, other: Score) -> Score:
        counts = {n: getattr(self, n) + getattr(other, n) for n in ("right", "exact", "wrong", "clarified", "refused")}
        return Score(**counts, times=self.times + other.times, build=self.build + other.build)


def measure() -> list[Figure]:
    """The figures for all questions; none where the reference data is not there."""
    if not DATA.is_dir():
        return []
    total = sum(run().values(), Score())
    share = 100 * (1 - total.precision)
    return [
        Figure("offline: wrong answers, of those given", share, None, "%", most=10),
        Figure("offline: questions answered", float(total.answered), None, "questions"),
        Figure("offline: reading a question, median", statistics.median(total.times) * 1e3, None, "ms"),
    ]


def run(names: Sequence[str] = (), shown: Sequence[str] = ()) -> dict[str, Score]:
    scores = {}
    with tempfile.TemporaryDirectory(prefix="etude-bench-") as folder, App(home=Path(folder), record=False) as app:
        for name, questions in sorted(_questions().items()):
            if not names or name in names:
                scores[name] = _score(app, name, questions, shown)
    return scores


def _questions() -> dict[str, dict[str, list[str]]]:
    """By database, each question with the SQL of its references."""
    found: dict[str, dict[str, list[str]]] = {}
    for line in (DATA / "questions.jsonl").read_text().splitlines():
        record = json.loads(line)
        found.setdefault(Path(record["db"]).stem, {}).setdefault(record["question"], []).append(record["sql"])
    return found


def _score(app: App, name: str, questions: dict[str, list[str]], shown: Sequence[str]) -> Score:
    url = str(DATA / f"{name}.duckdb")
    score, start = Score(), time.perf_counter()
    vocabulary = build_vocabulary(app.catalog(url), lambda sql: app.sql(url, sql).rows())
    score.build = time.perf_counter() - start
    for question, references in questions.items():
        start = time.perf_counter()
        found = understand(question, vocabulary, today=date.today())
        score.times.append(time.perf_counter() - start)
        if isinstance(found, Understanding):
            _judge(app, url, vocabulary, found, references, score, shown)
        else:
            score.clarified += isinstance(found, Clarification)
            score.refused += isinstance(found, Refusal)
            if "other" in shown:
                print(f"{name} | {question}\n    {found.reason if isinstance(found, Refusal) else found.ask}")
    return score


def _judge(
    app: App, url: str, vocabulary: Vocabulary, found: Understanding, references: Sequence[str], score: Score,
    shown: Sequence[str],
) -> None:  # fmt: skip
    assert vocabulary.catalog is not None
    sql = compile_plan(found.plan, vocabulary.catalog)
    try:
        ours: Rows | None = app.sql(url, sql).rows()
    except EtudeError:
        ours = None
    asks = bool(ASKS_ORDER.search(found.text))
    widths = [_same(ours, app.sql(url, r), r, asks) for r in references] if ours is not None else [None]
    right = [width for width in widths if width is not None]
    score.right += bool(right)
    score.wrong += not right
    score.exact += 0 in right
    if not right and "wrong" in shown:
        print(f"{Path(url).stem} | {found.text}\n    {found.reading}\n    {sql}\n    reference: {references[0]}")


def _same(ours: Rows, reference: Any, sql: str, asks_order: bool) -> int | None:
    """How many columns more than the reference the answer has, or None if it is another answer."""
    left, right = [_plain(row) for row in ours], [_plain(row) for row in reference.rows()]
    if len(left) != len(right):
        return None
    if not right:
        return 0
    extra = len(left[0]) - len(right[0])
    ordered = _ordered(sql, [column.name for column in reference.columns]) if asks_order else []
    for places in _matches(left, right) if extra >= 0 else ():
        shown = [tuple(row[place] for place in places) for row in left]
        if Counter(shown) == Counter(right) and all(_follows(shown, right, column) for column in ordered):
            return extra
    return None


def _matches(left: Rows, right: Rows) -> Iterator[tuple[int, ...]]:
    """Ways to find the columns of the one in the other."""
    columns = [Counter(column) for column in zip(*left, strict=True)]
    wanted = [Counter(column) for column in zip(*right, strict=True)]
    choices = [[n for n, column in enumerate(columns) if column == want] for want in wanted]
    return (places for places in product(*choices) if len({*places}) == len(places))


def _ordered(sql: str, names: Sequence[str]) -> list[int]:
    """The first column that the reference sorts by, if it shows it."""
    order = sqlglot.parse_one(sql, dialect="duckdb").args.get("order")
    key = order.expressions[0].this.name if order else ""
    return [names.index(key)] if key in names else []


def _follows(left: Rows, right: Rows, column: int) -> bool:
    # Where nulls stand is the engine's choice.
    return [r[column] for r in left if r[column] is not None] == [r[column] for r in right if r[column] is not None]


def _plain(row: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(_value(value) for value in row)


def _value(value: Any) -> Any:
    match value:
        case bool():
            return value
        case int() | float() | Decimal():
            # Rounded twice: else the noise of a sum decides a digit that lies on the edge.
            return float(f"{float(f'{float(value):.13g}'):.9g}")
        case datetime():
            return value.replace(tzinfo=None).isoformat(" ")
        case date():
            return f"{value.isoformat()} 00:00:00"
    return value


def print_scores(scores: dict[str, Score]) -> None:
    print(f"{'database':<18}{'asked':>6}{'answered':>9}{'right':>6}{'exact':>6}{'wrong':>6}{'back':>5}{'refused':>8}"
          f"{'precision':>10}{'ms':>6}{'build s':>8}")  # fmt: skip
    for name, score in {**scores, "all": sum(scores.values(), Score())}.items():
        asked = score.answered + score.clarified + score.refused
        print(
            f"{name:<18}{asked:>6}{score.answered:>9}{score.right:>6}{score.exact:>6}{score.wrong:>6}"
            f"{score.clarified:>5}{score.refused:>8}{score.precision:>10.1%}"
            f"{statistics.median(score.times) * 1e3:>6.1f}{score.build:>8.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.offline")
    parser.add_argument("names", nargs="*", metavar="database")
    parser.add_argument("--wrong", action="store_true", help="show each wrong answer")
    parser.add_argument("--all", action="store_true", help="show also what was asked back or refused")
    options = parser.parse_args()
    shown = [*(["wrong"] if options.wrong or options.all else []), *(["other"] if options.all else [])]
    print_scores(run(options.names, shown))


if __name__ == "__main__":
    main()
