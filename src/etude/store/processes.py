"""The processes that use a store, each with its role and version.

A lock shows that a process is alive, and a heartbeat that it works: one that hangs keeps its lock, but writes no
heartbeat. With each heartbeat a process compares its clock with that of the store.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, Self

from etude import __version__
from etude.entities import Entity
from etude.errors import EtudeError
from etude.store.queue import Queue

if TYPE_CHECKING:
    from etude.store.base import Store

log = logging.getLogger("etude")

Role = Literal["server", "worker", "observer", "learner"]
RUN_AGENTS: frozenset[Role] = frozenset({"server", "worker"})
"""Roles whose processes run agents."""
ProcessState = Literal["alive", "hung", "gone"]

BEAT_S = 5.0
HUNG_S = 30.0
"""A process that has written no heartbeat for this long hangs: by then others have taken over its actions."""
STOP_S = 5.0

ENTER = """INSERT INTO processes (id, role, host, pid, version, address, started_at, seen_at, clock_skew_s)
    VALUES (?, ?, ?, ?, ?, ?, ?, {now}, ?)
    ON CONFLICT (id) DO UPDATE SET role = excluded.role, address = excluded.address, seen_at = excluded.seen_at,
        clock_skew_s = excluded.clock_skew_s"""
LEAVE = "DELETE FROM processes WHERE id = ?"
LIST = """SELECT id, role, host, pid, version, address, started_at, {now} - seen_at, clock_skew_s
    FROM processes ORDER BY started_at, id"""
CLOCK = "SELECT {now}"


class ProcessInfo(Entity):
    """A process of an installation. A server runs agents too."""

    id: str
    role: Role
    host: str
    pid: int
    version: str
    address: str
    """The URL of a server; empty for others."""
    started_at: datetime
    state: ProcessState
    """`hung`: its lock is held, but it has written no heartbeat for a while. `gone`: it ended without stopping."""
    alive: bool
    """True if its state is `alive`."""
    seen_s: float | None = None
    """Seconds since its last heartbeat; None if it is of a version that writes none."""
    clock_skew_s: float | None = None
    """Seconds that its clock is ahead of the clock of the store, at least; negative if it is behind."""


class Processes:
    """The processes that use a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queue = Queue(store)
        self._started_at = datetime.now(UTC)

    def enter(self, role: Role, address: str = "") -> None:
        """Add this process, or write another heartbeat of it."""
        values = (socket.gethostname(), os.getpid(), __version__, address, self._started_at)
        skew = self.clock_skew()
        with self._queue.transaction() as work:
            work.do(ENTER, self._store.worker_id, role, *values, skew)

    def leave(self) -> None:
        """Remove this process, because it stops."""
        with self._store._transaction() as execute:
            execute(LEAVE, self._store.worker_id)

    @contextlib.contextmanager
    def entered(self, role: Role) -> Iterator[None]:
        """List this process while the block runs; SIGTERM ends the block, so that the process leaves."""
        before = None
        with contextlib.suppress(ValueError):  # only the main thread may handle signals
            before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        heartbeat = ProcessHeartbeat(self._store, role)
        try:
            heartbeat.start()  # SIGTERM may arrive as soon as this process is listed
            yield
        finally:
            heartbeat.stop()
            if before is not None:
                signal.signal(signal.SIGTERM, before)

    def list(self) -> list[ProcessInfo]:
        """Return all processes, those that are gone without having left too."""
        rows = self._queue.read(LIST)
        dead = self._store._dead({str(row[0]) for row in rows}) if rows else set()
        return [_process(row, row[0] in dead) for row in rows]

    def forget_dead(self) -> int:
        """Remove the processes that are gone; return how many there were."""
        dead = [process.id for process in self.list() if process.state == "gone"]
        with self._store._transaction() as execute:
            for each in dead:
                execute(LEAVE, each)
        return len(dead)

    def hold(self) -> None:
        """Hold the lock that shows that this process is alive, also after the connection to the store was lost."""
        self._queue.hold()

    def clock_skew(self) -> float:
        """Return how many seconds, at least, the clock of this machine is ahead of the clock of the store.

        The store reads its clock at some moment of the round trip, so that much of the difference proves nothing.
        """
        before = time.time()
        theirs = float(self._queue.read(CLOCK)[0][0])
        after = time.time()
        off, unsure = (before + after) / 2 - theirs, abs(after - before) / 2
        return math.copysign(max(abs(off) - unsure, 0.0), off)


class ProcessHeartbeat:
    """Lists this process in the store, and writes from a thread that it works, until it is stopped.

    `working` returns False if the process hangs, though this thread runs.
    """

    def __init__(self, store: Store, role: Role, address: str = "", working: Callable[[], bool] | None = None) -> None:
        self._processes = Processes(store)
        self._role: Role = role
        self._address = address
        self._working = working
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="etude-heartbeat", daemon=True)

    def start(self) -> Self:
        """Enter this process and remove those that are gone; if the store is down, enter it as soon as it is back."""
        try:
            self._processes.forget_dead()
            self._processes.enter(self._role, self._address)
        except EtudeError as error:
            log.warning("this %s is not listed yet: %s", self._role, error.message)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Remove this process, because it stops."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join(STOP_S)
        with contextlib.suppress(EtudeError):  # the store may be gone; then its lock shows that this process is too
            self._processes.leave()

    def _run(self) -> None:
        while not self._stopped.wait(BEAT_S):
            try:
                if self._working is None:
                    # A worker holds the lock itself, because it must know if it was lost.
                    self._processes.hold()
                if self._working is None or self._working():
                    self._processes.enter(self._role, self._address)
            except EtudeError:
                continue  # the store is down
            except Exception:
                log.exception("the heartbeat failed; trying again")


def _process(row: tuple[Any, ...], dead: bool) -> ProcessInfo:
    name, role, host, pid, version, address, started, seen, skew = row
    at = datetime.fromisoformat(started) if isinstance(started, str) else started.astimezone(UTC)
    state: ProcessState = "gone" if dead else "hung" if seen is not None and seen > HUNG_S else "alive"
    return ProcessInfo(
        id=name,
        role=role,
        host=host,
        pid=pid,
        version=version,
        address=address,
        started_at=at,
        state=state,
        alive=state == "alive",
        seen_s=None if seen is None else round(max(seen, 0.0), 3),
        clock_skew_s=None if skew is None else round(skew, 3),
    )
