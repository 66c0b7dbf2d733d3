"""The servers and workers that use a store, each with its version. A lock, not a heartbeat, shows that one is alive."""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from etude import __version__
from etude.entities import Entity

if TYPE_CHECKING:
    from etude.store.base import Store

Role = Literal["server", "worker"]

ENTER = """INSERT INTO processes (id, role, host, pid, version, address, started_at) VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET role = excluded.role, address = excluded.address"""
LEAVE = "DELETE FROM processes WHERE id = ?"
LIST = "SELECT id, role, host, pid, version, address, started_at FROM processes ORDER BY started_at, id"


class ProcessInfo(Entity):
    """A server or a worker. A server runs agents too."""

    id: str
    role: Role
    host: str
    pid: int
    version: str
    address: str
    """The URL of a server; empty for a worker."""
    started_at: datetime
    alive: bool


class Processes:
    """The servers and workers of a store."""

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
