"""A store after a year: runs are listed, filtered, searched and opened; half of them are pruned while clients work.

`python -m bench operations` measures 200,000 runs on SQLite and 20,000 on Postgres; `python -m bench.operations SQLITE
POSTGRES` other numbers, such as a million on Postgres. Each run has 20 events. The peer of a read is the plain
statement, without the models that etude makes of its rows. Pruning runs in a process of its own, as `etude prune` does.
"""

from __future__ import annotations

import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bench.figure import Figure, medians, print_table
from bench.queue import postgres
from etude.app import App
from etude.entities import RunFilter
from etude.events import Note
from etude.store.base import PUT_RUN, RUNS, Execute, Store
from etude.store.postgres import PostgresStore
from etude.store.run_rows import RunRow

SQLITE_RUNS, POSTGRES_RUNS = 200_000, 20_000
STEPS = 8
EVENTS = 4 + 2 * STEPS
"""Events of each run: queued, started, the start and the end of each step, an artifact, finished."""
PART = 5000
"""Runs that are written at once."""
CLIENTS = 50
FILES = 500
"""Runs of each half whose artifact is a real file; the others refer to these too."""
MOST_MS = 50.0
WORDS = [
    "revenue",
    "region",
    "order",
    "customer",
    "month",
    "category",
    "product",
    "discount",
    "return",
    "country",
    "week",
    "channel",
]
MONTH = timedelta(days=30)
PRUNE = """
import json, sys
from etude.app import App
from etude.operations import prune

prune.IN_FLIGHT_S = 0.0
with App(**json.loads(sys.argv[1])) as app:
    print(json.dumps(prune.prune(app).as_json()))
"""


def measure(sqlite_runs: int = SQLITE_RUNS, postgres_runs: int = POSTGRES_RUNS) -> list[Figure]:
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="etude-bench-") as folder:
        home = Path(folder)
        if sqlite_runs:
            with App(home=home / "sqlite", retention={"runs": 90}) as app:
                figures += _measure(app, sqlite_runs, "SQLite")
        if postgres_runs:
            with postgres() as create, App(home=home / "pg", store=create(), retention={"runs": 90}) as app:
                figures += _measure(app, postgres_runs, "Postgres")
    return figures


def _measure(app: App, runs: int, name: str) -> Iterator[Figure]:
    started = time.perf_counter()
    filled = _fill(app, runs)
    took, size = time.perf_counter() - started, app.store.size() / 1e9
    print(f"{name}: {runs:,} runs in {took:.0f} s, {size:.1f} GB", file=sys.stderr, flush=True)
    yield from _read(app.store, filled, runs, name)
    yield from _prune(app, filled, runs, name)


class Filled:
    """What was written: the ids of runs, and the artifact of each."""

    def __init__(self) -> None:
        self.old: list[tuple[str, str]] = []
        self.new: list[tuple[str, str]] = []


def _fill(app: App, runs: int) -> Filled:
    """Write runs with their events as plain rows; half of them are older than the settings keep them."""
    chance, filled, store = random.Random(7), Filled(), app.store
    files = [app.objects.put(f"result {n}".encode(), "text/plain").hash for n in range(2 * FILES)]
    now = datetime.now(UTC)
    worker = store.worker_id
    write = _copy_rows if store.dialect == "postgres" else _insert_rows
    for start in range(0, runs, PART):
        rows: dict[str, list[tuple[Any, ...]]] = {"runs": [], "events": [], "artifact_runs": []}
        for n in range(start, min(start + PART, runs)):
            old = n < runs // 2
            # Spread evenly over a month each: the old half half a year ago, the new one since a month.
            at = now - (6 * MONTH if old else MONTH) + MONTH * ((n if old else n - runs // 2) / runs)
            run_id = f"run_{n:026d}"
            # Some files belong to the old half alone, some to the new one alone, some to both.
            hash = files[(n % FILES) + (0 if old else FILES // 2)]
            (filled.old if old else filled.new).append((run_id, hash))
            text = f"{chance.choice(WORDS)} by {chance.choice(WORDS)} of number{n % 1000}"
            failed = n % 50 == 0
            status, kind = ("failed", "sql") if failed else ("succeeded", chance.choice(("sql", "ask", "python")))
            row = RunRow(run_id, kind, text, f"source{n % 20}", None, None, worker, status, EVENTS, at, at, at, 10)
            rows["runs"].append((*row.values(), store.tenant))
            rows["events"] += [(run_id, seq, at, kind, body) for seq, (kind, body) in enumerate(_events(text, hash), 1)]
            rows["artifact_runs"].append((hash, store.tenant, run_id))
        with store._transaction() as execute:
            for table, some in rows.items():
                write(store, execute, table, some)
    with store._transaction() as execute:
        execute("ANALYZE")
    return filled


COLUMNS = {
    "runs": re.findall(r"\w+", PUT_RUN.partition("(")[2].partition(")")[0]),
    "events": ["run_id", "seq", "at", "type", "body"],
    "artifact_runs": ["hash", "tenant", "run_id"],
}


def _insert_rows(store: Store, execute: Execute, table: str, rows: list[tuple[Any, ...]]) -> None:
    names = COLUMNS[table]
    some = 5000 // len(names)
    for start in range(0, len(rows), some):
        part = rows[start : start + some]
        places = ", ".join([f"({', '.join('?' * len(names))})"] * len(part))
        execute(f"INSERT INTO {table} ({', '.join(names)}) VALUES {places}", *(value for row in part for value in row))


def _copy_rows(store: Store, execute: Execute, table: str, rows: list[tuple[Any, ...]]) -> None:
    """Write rows by COPY, on a connection of its own."""
    assert isinstance(store, PostgresStore)
    statement = f"COPY {table} ({', '.join(COLUMNS[table])}) FROM STDIN".encode()
    with store._borrowed() as db, db.cursor().copy(statement) as copy:
        lines = ("\t".join(map(_copied, row)) for row in rows)
        copy.write("".join(f"{line}\n" for line in lines))


def _copied(value: object) -> str:
    return "\\N" if value is None else str(value)  # none of the texts has a character that COPY would read otherwise


def _events(text: str, hash: str) -> Iterator[tuple[str, str]]:
    artifact = f'{{"hash": "{hash}", "media": "text/plain", "size": 10}}'
    yield "run.queued", f'{{"type": "run.queued", "kind": "sql", "text": "{text}", "source": "shop"}}'
    yield "run.started", '{"type": "run.started", "worker": "w"}'
    for step in range(STEPS):
        code = f"SELECT region, sum(amount) AS revenue FROM orders WHERE year = {2000 + step} GROUP BY region -- {text}"
        yield (
            "step.started",
            f'{{"type": "step.started", "step_id": "s{step}", "kind": "sql", "code": "{code}"}}',
        )
        yield (
            "step.finished",
            f'{{"type": "step.finished", "step_id": "s{step}", "outcome": "ok", "artifact": {artifact}}}',
        )
    yield "artifact.created", f'{{"type": "artifact.created", "artifact": {artifact}}}'
    yield "run.finished", f'{{"type": "run.finished", "answer": "The {text} is 42."}}'


def _read(store: Store, filled: Filled, runs: int, name: str) -> Iterator[Figure]:
    chance = random.Random(11)
    page = store.runs(limit=50)
    plain = f"{RUNS} WHERE tenant = 'main' ORDER BY created_at DESC, id DESC LIMIT 51"
    filtered = plain.replace("WHERE", "WHERE status = 'failed' AND source = 'source0' AND")

    def open_run() -> None:
        store._folded.clear()
        store.run(chance.choice(filled.new)[0])

    def plain_events() -> None:
        run_id = chance.choice(filled.new)[0]
        store._read("SELECT seq, CAST(body AS TEXT) FROM events WHERE run_id = ? ORDER BY seq", run_id)

    tasks: list[tuple[str, Callable[[], object], Callable[[], object] | None]] = [
        ("list 50 runs", lambda: store.runs(limit=50), lambda: store._read(plain)),
        ("list the next page", lambda: store.runs(limit=50, cursor=page.next), None),
        (
            "filter by status and source",
            lambda: store.runs(RunFilter(status="failed", source="source0"), limit=50),
            lambda: store._read(filtered),
        ),
        ("search a rare word", lambda: store.runs(RunFilter(text=f"number{chance.randrange(1000)}"), limit=50), None),
        ("search two common words", lambda: store.runs(RunFilter(text="revenue month"), limit=50), None),
        ("open a run", open_run, plain_events),
        ("stream a run's events", lambda: store.entries(chance.choice(filled.new)[0]), plain_events),
    ]
    for what, ours, peer in tasks:
        took = medians([ours, *([peer] if peer else [])], 40)
        yield Figure(
            f"{name}, {runs:,} runs: {what}",
            took[0] * 1000,
            took[1] * 1000 if peer else None,
            "ms",
            most=MOST_MS,
        )


def _prune(app: App, filled: Filled, runs: int, name: str) -> Iterator[Figure]:
    """Delete the old half while clients list, search, open and write."""
    stop, errors, took = threading.Event(), list[BaseException](), list[float]()
    opened = 0

    def work(number: int) -> None:
        nonlocal opened
        chance = random.Random(number)
        try:
            while not stop.is_set():
                run_id, hash = chance.choice(filled.new)
                started = time.perf_counter()
                run = app.store.run(run_id)
                took.append(time.perf_counter() - started)
                app.objects.get(hash)
                app.store.runs(RunFilter(text=chance.choice(WORDS)), limit=20)
                if chance.random() < 0.05:
                    app.store.append(run_id, Note(text="looked at"), expect=run.seq)
                opened += 1
                stop.wait(0.1)
        except BaseException as error:
            if "is at" not in str(error):  # two clients wrote to the same run, which is refused by design
                errors.append(error)

    clients = [threading.Thread(target=work, args=(n,)) for n in range(CLIENTS)]
    for client in clients:
        client.start()
    began = time.perf_counter()
    settings = {"home": str(app.settings.home), "store": app.settings.store_url, "retention": {"runs": 90}}
    done = subprocess.run([sys.executable, "-c", PRUNE, json.dumps(settings)], capture_output=True, check=True)
    report = json.loads(done.stdout)
    seconds = time.perf_counter() - began
    stop.set()
    for client in clients:
        client.join()
    deleted = report["tenants"]["main"]["runs"]
    lost = sum(not app.objects.exists(hash) for hash in {hash for _, hash in filled.new})
    left = app.store._read("SELECT count(*) FROM runs")[0][0]
    yield Figure(f"{name}: runs that prune left of {runs:,}", left, runs - len(filled.old), "runs", most_ratio=1.0)
    yield Figure(f"{name}: errors of {CLIENTS} clients meanwhile ({opened:,} rounds)", len(errors), None, "", most=0)
    yield Figure(f"{name}: files lost that a kept run refers to", lost, None, "", most=0)
    yield Figure(f"{name}: files removed", report["artifacts"], FILES // 2, "files", most_ratio=1.0)
    yield Figure(f"{name}: open a run meanwhile", statistics.median(took) * 1000, None, "ms")
    yield Figure(f"{name}: runs pruned per second, with {CLIENTS} clients", deleted / seconds, None, "runs/s")
    for error in errors[:3]:
        print(repr(error), file=sys.stderr)


if __name__ == "__main__":
    print_table(measure(*map(int, sys.argv[1:])))
