"""One queue engine in one process: `python queue_engines.py ENGINE ROLE PLACE`, told what to do over stdin.

As `setup` it makes its tables; as `produce` it reads `COUNT SECONDS` and adds actions at that pace, printing each
number with the time before it was added; as `work` it runs them, printing each number with the time it started.
Only the engine's own package is imported, so that each side pays for itself alone.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

SLOTS = 10
AGENTS = 60
POLL_S = 0.02
"""How often those look that cannot be woken; their defaults are up to a second."""


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def started(number: object) -> None:
    say("start", number, time.time())


def paces() -> Any:
    for line in sys.stdin:
        count, seconds = line.split()
        yield int(count), float(seconds)


def produce(add: Callable[[int], object]) -> None:
    say("ready")
    number = time.time_ns()  # no other producer's
    for count, seconds in paces():
        for _ in range(count):
            at = time.time()
            add(number)
            say("add", number, at)
            number += 1
            time.sleep(seconds)
        say("added")


async def produce_async(add: Callable[[int], Any]) -> None:
    say("ready")
    number = time.time_ns()  # no other producer's
    for count, seconds in paces():
        for _ in range(count):
            at = time.time()
            await add(number)
            say("add", number, at)
            number += 1
            await asyncio.sleep(seconds)
        say("added")


class Etude:
    def __init__(self, place: str) -> None:
        from etude.store.postgres import PostgresStore
        from etude.store.queue import Queue
        from etude.store.sqlite import SqliteStore

        self.store = (PostgresStore if place.startswith("postgresql") else SqliteStore)(place)
        self.queue = Queue(self.store)

    def setup(self) -> None:
        with self.queue.transaction() as work:
            for n in range(AGENTS):
                work.do("INSERT INTO agents (id, kind, created_at, updated_at) VALUES (?, 'note', 0, 0)", str(n))

    def produce(self) -> None:
        from etude.store.action import NewAction

        produce(lambda n: self.queue.enqueue(NewAction(str(n % AGENTS), payload=str(n))))

    def work(self) -> None:
        from types import SimpleNamespace

        from etude.agents.base import InboxItem, Kind, StepContext, StepResult
        from etude.agents.worker import Worker
        from etude.entities import Entity

        class Note(Kind[Entity]):
            def step(self, ctx: StepContext, state: dict[str, Any], inbox: list[InboxItem]) -> StepResult:
                started(inbox[0].body)
                return StepResult()

        say("ready")
        Worker(SimpleNamespace(store=self.store), self.queue, slots=SLOTS, kinds={"note": Note}).start()
        threading.Event().wait()


class Pgqueuer:
    def __init__(self, place: str) -> None:
        self.place = place

    async def driver(self) -> Any:
        import asyncpg
        from pgqueuer.db import AsyncpgDriver

        return AsyncpgDriver(await asyncpg.connect(self.place))

    def setup(self) -> None:
        async def install() -> None:
            from pgqueuer.queries import Queries

            await Queries(await self.driver()).install()

        asyncio.run(install())

    def produce(self) -> None:
        async def run() -> None:
            from pgqueuer.queries import Queries

            queries = Queries(await self.driver())
            await produce_async(lambda n: queries.enqueue(["note"], [str(n).encode()], [0]))

        asyncio.run(run())

    def work(self) -> None:
        async def run() -> None:
            from pgqueuer import PgQueuer

            worker = PgQueuer(await self.driver())

            @worker.entrypoint("note")
            async def note(job: Any) -> None:
                started(job.payload.decode())

            say("ready")
            await worker.run(batch_size=SLOTS)

        asyncio.run(run())


class Procrastinate:
    def __init__(self, place: str) -> None:
        from procrastinate import App, PsycopgConnector

        self.app = App(connector=PsycopgConnector(conninfo=place))
        self.task = self.app.task(name="note")(self.note)

    @staticmethod
    async def note(n: int) -> None:
        started(n)

    def setup(self) -> None:
        async def install() -> None:
            async with self.app.open_async():
                await self.app.schema_manager.apply_schema_async()

        asyncio.run(install())

    def produce(self) -> None:
        async def run() -> None:
            async with self.app.open_async():
                await produce_async(lambda n: self.task.defer_async(n=n))

        asyncio.run(run())

    def work(self) -> None:
        async def run() -> None:
            async with self.app.open_async():
                say("ready")
                await self.app.run_worker_async(concurrency=SLOTS, install_signal_handlers=False)

        asyncio.run(run())


class Dbos:
    def __init__(self, place: str) -> None:
        self.url = place if place.startswith("postgresql") else f"sqlite:///{place}"

    def setup(self) -> None:
        from dbos import DBOS

        DBOS(
            config={"name": "bench", "system_database_url": self.url, "log_level": "ERROR", "application_version": "1"}
        )
        DBOS.workflow(name="note")(started)
        DBOS.launch()
        DBOS.register_queue("bench", worker_concurrency=SLOTS, polling_interval_sec=POLL_S)

    def produce(self) -> None:
        from dbos import DBOSClient

        client = DBOSClient(system_database_url=self.url)
        produce(lambda n: client.enqueue({"queue_name": "bench", "workflow_name": "note", "app_version": "1"}, n))

    def work(self) -> None:
        say("ready")
        self.setup()
        threading.Event().wait()


class Absurd:
    def __init__(self, place: str) -> None:
        self.place = place

    def setup(self) -> None:
        import psycopg
        from absurd_sdk import Absurd
        from absurdctl import BUNDLED_SCHEMA_SQL

        with psycopg.connect(self.place, autocommit=True) as db:
            db.execute(BUNDLED_SCHEMA_SQL)
        Absurd(self.place, "bench").create_queue()

    def produce(self) -> None:
        from absurd_sdk import Absurd

        app = Absurd(self.place, "bench")
        produce(lambda n: app.spawn("note", {"n": n}, queue="bench"))

    def work(self) -> None:
        from absurd_sdk import Absurd

        app = Absurd(self.place, "bench")

        @app.register_task("note")
        def note(params: Any, context: Any) -> None:
            started(params["n"])

        say("ready")
        app.start_worker(concurrency=SLOTS, poll_interval=POLL_S)


ENGINES = {"etude": Etude, "pgqueuer": Pgqueuer, "procrastinate": Procrastinate, "dbos": Dbos, "absurd": Absurd}

if __name__ == "__main__":
    engine: Any = ENGINES[sys.argv[1]](sys.argv[3])
    getattr(engine, sys.argv[2])()
    if sys.argv[2] == "setup":
        say("ready")
        os._exit(0)
