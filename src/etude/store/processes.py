"""The processes that use a store, each with its role and version. A lock, not a heartbeat, shows that one is alive."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from etude import __version__
from etude.entities import Entity
from etude.errors import EtudeError

if TYPE_CHECKING:
    from etude.store.base import Store

Role = Literal["server", "worker", "observer", "learner"]
RUN_AGENTS: frozenset[Role] = frozenset({"server", "worker"})
"""Roles whose processes run agents."""

ENTER = """INSERT INTO processes (id, role, host, pid, version, address, started_at) VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET role = excluded.role, address = excluded.address"""
LEAVE = "DELETE FROM processes WHERE id = ?"
LIST = "SELECT id, role, host, pid, version, address, started_at FROM processes ORDER BY started_at, id"


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
    alive: bool


class Processes:
    """The processes that use a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def enter(self, role: Role, address: str = "") -> None:
        """Add this process."""
        values = (socket.gethostname(), os.getpid(), __version__, address, datetime.now(UTC))
        with self._store._transaction() as execute:
            execute(ENTER, self._store.worker_id, role, *values)

    def leave(self) -> None:
        """Remove this process, because it stops."""
        with self._store._transaction() as execute:
            execute(LEAVE, self._store.worker_id)

    @contextlib.contextmanager
    def entered(self, role: Role) -> Iterator[None]:
        """List this process while the block runs; SIGTERM ends the block, so that the process leaves."""
        with contextlib.suppress(ValueError):  # only the main thread may handle signals
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        self.forget_dead()
        self.enter(role)
        try:
            yield
        finally:
            with contextlib.suppress(EtudeError):  # the store may be gone; then its lock shows that this process is too
                self.leave()

    def list(self) -> list[ProcessInfo]:
        """Return all processes, those that are gone without having left too."""
        rows = self._store._read(LIST)
        dead = self._store._dead({str(row[0]) for row in rows}) if rows else set()
        return [_process(row, row[0] not in dead) for row in rows]

    def forget_dead(self) -> int:
        """Remove the processes that are gone; return how many there were."""
        dead = [process.id for process in self.list() if not process.alive]
        with self._store._transaction() as execute:
            for each in dead:
                execute(LEAVE, each)
        return len(dead)


def _process(row: tuple[Any, ...], alive: bool) -> ProcessInfo:
    *fields, started = row
    at = datetime.fromisoformat(started) if isinstance(started, str) else started.astimezone(UTC)
    return ProcessInfo(**dict(zip(ProcessInfo.model_fields, fields)), started_at=at, alive=alive)
