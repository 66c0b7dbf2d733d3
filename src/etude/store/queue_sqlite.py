"""The queue on SQLite: its dialect, and notifications between the processes of one machine.

Each listening process has a named pipe beside the database and sleeps in the kernel until a byte arrives. Idle
workers cost nothing, and a wake-up takes microseconds.
"""

from __future__ import annotations

import errno
import json
import os
import select
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from etude.store.base import Execute
from etude.store.queue_dialect import Listener, Notification, QueueDialect

if TYPE_CHECKING:
    from etude.store.sqlite import SqliteStore

PIPE_SIZE = 1 << 16
"""The capacity of a pipe: one read returns all of it, so no line is split."""


class SqliteQueueDialect(QueueDialect):
    """SQLite has one writer at a time, so rows need no locks."""

    now = "((julianday('now') - 2440587.5) * 86400.0)"
    lock = ""
    skip = ""
    among = dict.fromkeys(("int", "text"), "IN (SELECT value FROM json_each(?))")

    def __init__(self, store: SqliteStore) -> None:
        super().__init__(store)
        self._folder = store.path.with_name(store.path.name + ".w")

    def table(self, columns: Sequence[tuple[str, str]]) -> str:
        """Return a table expression that reads one JSON parameter."""
        fields = ", ".join(f"json_extract(value, '$[{i}]') AS {name}" for i, (name, _) in enumerate(columns))
        return f"(SELECT {fields} FROM json_each(?))"

    def list_value(self, values: Sequence[object]) -> object:
        """Return one JSON text."""
        return json.dumps(list(values))

    def table_values(self, rows: Sequence[Sequence[object]]) -> tuple[object, ...]:
        """Return one JSON text."""
        return (json.dumps([list(row) for row in rows], allow_nan=False),)

    def hold(self) -> bool:
        """Return True: the process holds its file lock until it ends."""
        return True

    def notify_on_commit(self, execute: Execute, notifications: Sequence[Notification], origin: str) -> None:
        """Do nothing: pipes do not take part in transactions."""

    def notify_after_commit(self, notifications: Sequence[Notification], origin: str) -> None:
        """Write to the pipes of the other processes."""
        # Writes of up to PIPE_BUF bytes are atomic.
        line = "".join(f"{kind} {agent}\n" for kind, agent in notifications)[: select.PIPE_BUF].encode()
        with suppress(FileNotFoundError):
            for entry in os.scandir(self._folder):
                if entry.name.startswith("wake_") and entry.name != f"wake_{origin}":
                    _write(entry.path, line)

    def listen(self, origin: str, listener: Listener, ended: Callable[[], bool]) -> None:
        """Read this process's pipe until `ended()` is true."""
        from etude.store.sqlite import _make_folder

        _make_folder(self._folder)
        path = str(self._folder / f"wake_{origin}")
        fd = _open_pipe(path)
        try:
            waiting = select.poll()
            waiting.register(fd, select.POLLIN)
            listener("all", 0)
            while not ended():
                if not waiting.poll(1000):
                    continue
                text = os.read(fd, PIPE_SIZE)
                for line in text.decode(errors="replace").splitlines():
                    _pass_on(line, listener)
        finally:
            os.close(fd)
            with suppress(OSError):
                os.unlink(path)


def _open_pipe(path: str) -> int:
    """Create a named pipe and open it for reading."""
    while True:
        with suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        # Open it for writing too, so that a read never returns end-of-file.
        fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        # A process that wrote before this open may have removed the pipe as one without a reader.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(fd), os.stat(path)):
                return fd
        os.close(fd)


def _write(path: str, line: bytes) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        # ENXIO: no process reads the pipe any more. Other errors concern this process, and the pipe stays.
        if error.errno == errno.ENXIO:
            with suppress(OSError):
                if stat.S_ISFIFO(os.stat(path).st_mode):
                    os.unlink(path)
        return
    try:
        # The reader of a full pipe has enough to wake it.
        with suppress(BlockingIOError, BrokenPipeError):
            os.write(fd, line)
    finally:
        os.close(fd)


def _pass_on(line: str, listener: Listener) -> None:
    kind, _, rest = line.partition(" ")
    listener(kind, int(rest) if rest.isdigit() else 0)
