"""What the store costs: reading a checked result, opening a long run, finding runs among many."""

from __future__ import annotations

import random
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa

from bench.figure import Figure, medians
from bench.queue import postgres
from etude.entities import ResultColumn, ResultInfo, RunFilter
from etude.events import Event, RunQueued, RunStarted, StepFinished, StepStarted
from etude.result import Result
from etude.spool import spool_to_parquet
from etude.store.base import Store
from etude.store.objects import Objects
from etude.store.postgres import PostgresStore
from etude.store.sqlite import SqliteStore

ROWS = (1_000, 20_000, 200_000, 2_000_000)
EVENTS = 10_000
RUNS = 200_000


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="etude-bench-") as folder:
        figures = list(_reading(Path(folder)))
        figures.append(_opening(Path(folder)))
        with SqliteStore(Path(folder) / "many.db") as store:
            figures += _finding(store, "SQLite")
        with postgres() as create, PostgresStore(create()) as store:
            figures += _finding(store, "Postgres")
    return figures


def _reading(folder: Path) -> Iterator[Figure]:
    objects = Objects(folder / "objects")
    for rows in ROWS:
        table = duckdb.sql(
            f"""SELECT i AS id, hash(i) % 1000 AS k, random() AS x, date '2020-01-01' + (i % 1000)::int AS d,
                'customer ' || (hash(i) % 50000) AS name FROM range({rows}) r(i)"""
        ).to_arrow_table()
        sink = pa.BufferOutputStream()
        spool_to_parquet(sink, table.schema, table.to_batches())
        artifact = objects.put(bytes(sink.getvalue()), "application/vnd.apache.parquet")
        path = objects.local_path(artifact.hash)
        columns = tuple(ResultColumn(name=f.name, type=str(f.type)) for f in table.schema)
        info = ResultInfo(columns=columns, row_count=rows)
        plain = Result(info, None, path)
        checked = Result(info, None, open_kept=lambda h=artifact.hash: objects.open(h))  # type: ignore[misc]

        ours, theirs = medians([lambda r=checked: _read(r), lambda r=plain: _read(r)], max(9, 200_000 // rows))  # type: ignore[misc]
        name = f"read a result of {rows:,} rows, checked, against unchecked"
        yield Figure(name, ours * 1e3, theirs * 1e3, "ms", most_ratio=1.10)


def _read(result: Result) -> None:
    for _ in result.batches():
        pass


def _opening(folder: Path) -> Figure:
    """A long run, opened by a process that has not seen it, against parsing its events alone."""
    from etude.events import EVENT

    with SqliteStore(folder / "long.db") as store:
        events: list[Event] = [RunQueued(kind="ask", text="?"), RunStarted(worker=store.worker_id)]
        for number in range((EVENTS - 2) // 2):
            events.append(StepStarted(step_id=f"s{number}", kind="sql", code="SELECT 1", source="shop"))
            events.append(StepFinished(step_id=f"s{number}", outcome="ok", elapsed_ms=1.5, shown="x" * 200))
        store.append("run_long", *events, expect=0)
        bodies = [event.model_dump_json() for event in events]

        def open_run() -> None:
            store._folded.clear()
            store.run("run_long")

        def parse() -> None:
            for body in bodies:
                EVENT.validate_json(body)

        ours, limit = medians([open_run, parse], 9)
    return Figure(f"open a run of {EVENTS:,} events, against parsing them", ours * 1e3, limit * 1e3, "ms", most=300)


def _finding(store: Store, name: str) -> Iterator[Figure]:
    fill(store, RUNS)
    with store._transaction() as execute:
        execute("ANALYZE")  # as the server does itself, a minute after a bulk load
    store.append("run_one", RunQueued(kind="sql", text="one"), expect=0)
    ours, plain = medians([lambda: store.run("run_one"), lambda: store._read("SELECT 1")], 50)
    yield from _beside_searches(store, name, ours)
    yield Figure(f"{name}: open one run, against SELECT 1", ours * 1e3, plain * 1e3, "ms")
    for what, find in filters(store).items():
        find()
        ours, plain = medians([find, lambda: store.runs(limit=50)], 9)
        yield Figure(f"{name}: {RUNS:,} runs by {what}, against the newest 50", ours * 1e3, plain * 1e3, "ms", most=50)


def _beside_searches(store: Store, name: str, alone: float) -> Iterator[Figure]:
    """What opening a run costs while four others search."""
    ended = threading.Event()

    def search() -> None:
        while not ended.is_set():
            store.runs(RunFilter(text="alpha omega"))

    with ThreadPoolExecutor(4) as pool:
        work = [pool.submit(search) for _ in range(4)]
        (beside,) = medians([lambda: store.run("run_one")], 200)
        ended.set()
    for each in work:
        each.result()
    yield Figure(f"{name}: open one run beside four searches, against alone", beside * 1e3, alone * 1e3, "ms")


def filters(store: Store) -> dict[str, Callable[[], object]]:
    """Every way to find runs, at its worst: what is rare, what is everywhere, what is not there."""
    wanted = {
        "text that many have": RunFilter(text="revenue"),
        "text that few have": RunFilter(text="customer 77777"),
        "text that none has": RunFilter(text="zebra"),
        "two common words that are never together": RunFilter(text="alpha omega"),
        "part of a word": RunFilter(text="eve"),
        "two letters": RunFilter(text="zq"),
        "text and status": RunFilter(text="revenue", status="failed"),
        "status": RunFilter(status="failed"),
        "kind": RunFilter(kind="catalog"),
        "kind and status": RunFilter(kind="sql", status="failed"),
        "source": RunFilter(source="source 7"),
        "source and kind": RunFilter(source="source 7", kind="catalog"),
        "time": RunFilter(since=START + timedelta(seconds=100), until=START + timedelta(seconds=200)),
        "thread": RunFilter(thread_id="thread_none"),
    }
    found: dict[str, Callable[[], object]] = {
        what: lambda f=filter: store.runs(f, limit=50)  # type: ignore[misc]
        for what, filter in wanted.items()
    }
    return found | {"beginning of an id": lambda: store.resolve_run("run_on")}


START = datetime(2026, 1, 1, tzinfo=UTC)


def fill(store: Store, count: int) -> None:
    """Put many runs into the lists, without the events that would take an hour."""
    from etude.entities import Run
    from etude.store.base import PUT_RUN
    from etude.store.run_rows import make_run_row

    some = random.Random(0)
    words = ["revenue", "orders", "by", "month", "region", "average", "top", "product", "price", "quantity"]
    for first in range(0, count, 10_000):
        with store._transaction() as execute:
            for number in range(first, min(first + 10_000, count)):
                text = f"SELECT {' '.join(some.choices(words, k=8))} FROM customer {number}"
                text += " alpha" if number % 2 else " omega"
                status = "failed" if number % 1000 == 0 else "succeeded"
                run = Run(
                    id=f"run_{number:012}",
                    kind="catalog" if number % 5000 == 0 else "sql",
                    text=text,
                    source=f"source {number % 20}",
                    status=status,  # type: ignore[arg-type]
                    seq=1,
                    created_at=START + timedelta(seconds=number),
                )
                execute(PUT_RUN, *make_run_row(run, START).values(), store.tenant)
