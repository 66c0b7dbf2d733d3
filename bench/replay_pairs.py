"""Pairs of runs that differ for one known reason, to see whether `runs diff` names it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from bench.replay_mutants import QUESTIONS, TABLES
from etude.entities import Limits, Run
from etude.replays.differences import Cause, find_run_differences

if TYPE_CHECKING:
    from etude.app import App
    from etude.result import Result

ASKED = (
    ("How many customers are there?", "How many orders are there?"),
    ("How many customers are there per country?", "How many customers are there per city?"),
    ("What is the total amount per channel?", "What is the average amount per channel?"),
    ("How many orders are there per status?", "How many orders are there per channel?"),
    ("What is the highest amount?", "What is the lowest amount?"),
    ("How many customers are there per segment?", "How many customers are there?"),
    ("What is the total amount in 2024?", "What is the total amount in 2025?"),
    ("What is the total quantity?", "What is the average quantity?"),
    ("How many payments are there per method?", "How many payments are there?"),
    ("What is the total paid?", "What is the highest paid?"),
)


@dataclass(frozen=True)
class Pair:
    """Two runs, and why they differ."""

    first: Run
    second: Run
    cause: Cause


def write_shop(folder: Path, *statements: str) -> None:
    """Write the data as Parquet files."""
    folder.mkdir(parents=True, exist_ok=True)
    with duckdb.connect() as db:
        for statement in (*TABLES, *statements):
            db.execute(statement)
        for (table,) in db.execute("SELECT table_name FROM duckdb_tables()").fetchall():
            db.execute(f"COPY {table} TO '{folder / table}.parquet'")


def make_pairs(app: App, folder: Path, count: int = 100) -> Iterator[Pair]:
    """Yield pairs: about a fifth for each cause, and some that differ in nothing that matters."""
    write_shop(folder)
    each = max(count // 6, 1)
    queries = [QUESTIONS[name] for name in QUESTIONS] * 2
    firsts = [_sql(app, folder, query) for query in queries[:each]]
    for first, query in zip(firsts, queries):
        yield Pair(first, _sql(app, folder, query, Limits(rows=5_000)), "settings")
        yield Pair(first, _sql(app, folder, _rewritten(query)), "code")
        yield Pair(first, _sql(app, folder, f"  {query.replace(' FROM ', '   from ')} -- the same\n"), "none")
        steps = tuple(s.model_copy(update={"versions": s.versions | {"duckdb": "0.0.1"}}) for s in first.steps)
        yield Pair(first, first.model_copy(update={"id": "run_other", "steps": steps}), "engine")
    for one, other in ASKED[:each]:
        runs = [app.ask(str(folder), question, fresh=True).run for question in (one, other)]
        yield Pair(runs[0], runs[1], "question")
    write_shop(
        folder,
        "UPDATE orders SET amount = amount + 1, ordered = ordered + INTERVAL 1 HOUR, quantity = quantity + 1, "
        "status = CASE WHEN order_id % 9 = 0 THEN 'returned' ELSE status END",
        "UPDATE customers SET segment = 'business' WHERE customer_id < 40",
        "UPDATE payments SET paid = paid * 2",
    )
    for first, query in zip(firsts, queries):
        yield Pair(first, _sql(app, folder, query), "data")


def _sql(app: App, folder: Path, query: str, limits: Limits | None = None) -> Run:
    return app.store.run(str(app.sql(str(folder), query, limits=limits, record=True).run_id))


def _rewritten(query: str) -> str:
    for old, new in (("sum(", "max("), ("avg(", "min("), ("count(*)", "2 * count(*)")):
        if old in query:
            return query.replace(old, new, 1)
    return query + " LIMIT 1"


def judge_pairs(app: App, pairs: Iterator[Pair]) -> tuple[int, list[tuple[Pair, Cause]]]:
    """Return how many pairs there were, and those whose cause was named wrongly."""

    def read(run: Run) -> Result | None:
        kept = run.result is not None and run.result_artifact is not None
        return app.read_result(run.result, run.result_artifact, run.id) if kept else None  # type: ignore[arg-type]

    wrong, count = [], 0
    for pair in pairs:
        count += 1
        found = find_run_differences(pair.first, pair.second, read)
        if found.cause != pair.cause:
            wrong.append((pair, found.cause))
    return count, wrong
