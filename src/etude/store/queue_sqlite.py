"""The queue on SQLite: its dialect, and bells that processes of one machine ring at each other's.

A bell is a named pipe beside the database. Whoever waits sleeps in the kernel until a byte comes: idle workers cost
nothing, and a wake-up takes microseconds.
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
from etude.store.queue_dialect import QueueDialect, Ring, Tell

if TYPE_CHECKING:
    from etude.store.sqlite import SqliteStore

READ = 1 << 16
"""All that a pipe holds: no line is read in two."""


class SqliteDialect(QueueDialect):
    """Writers exclude each other already, so nothing needs a lock of its own."""

    now = "((julianday('now') - 2440587.5) * 86400.0)"
    lock = ""
    skip = ""
    among = dict.fromkeys(("int", "text"), "IN (SELECT value FROM json_each(?))")

    def __init__(self, store: SqliteStore) -> None:
        super().__init__(store)
        self._folder = store.path.with_name(store.path.name + ".w")

    def table(self, columns: Sequence[tuple[str, str]]) -> str:
        """A table of values, from one JSON text."""
        fields = ", ".join(f"json_extract(value, '$[{i}]') AS {name}" for i, (name, _) in enumerate(columns))
        return f"(SELECT {fields} FROM json_each(?))"

    def list_value(self, values: Sequence[object]) -> object:
        """One JSON text."""
        return json.dumps(list(values))

    def table_values(self, rows: Sequence[Sequence[object]]) -> tuple[object, ...]:
        """One JSON text."""
        return (json.dumps([list(row) for row in rows], allow_nan=False),)

    def hold(self) -> bool:
        """Whether it is held: a lock on a file is, until the process ends."""
        return True

    def ring(self, execute: Execute, rings: Sequence[Ring], origin: str) -> None:
        """Do nothing: pipes are no part of a transaction."""

    def rung(self, rings: Sequence[Ring], origin: str) -> None:
        """Ring at the other processes."""
        # A write of this size is whole or not there.
        line = "".join(f"{kind} {agent}\n" for kind, agent in rings)[: select.PIPE_BUF].encode()
        with suppress(FileNotFoundError):
            for entry in os.scandir(self._folder):
                if entry.name.startswith("bell_") and entry.name != f"bell_{origin}":
                    _ring(entry.path, line)

    def listen(self, origin: str, tell: Tell, ended: Callable[[], bool]) -> None:
        """Wait for rings until it has ended; each is told."""
        from etude.store.sqlite import _make_folder

        _make_folder(self._folder)
        path = str(self._folder / f"bell_{origin}")
        fd = _hang(path)
        try:
            waiting = select.poll()
            waiting.register(fd, select.POLLIN)
            tell("all", 0)
            while not ended():
                if not waiting.poll(1000):
                    continue
                text = os.read(fd, READ)
                for line in text.decode(errors="replace").splitlines():
                    _tell(line, tell)
        finally:
            os.close(fd)
            with suppress(OSError):
                os.unlink(path)


def _hang(path: str) -> int:
    """A new bell, open for reading."""
    while True:
        with suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        # Also open for writing, so that it never reads as ended.
        fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        # Somebody who rang before it was open may have removed it as a dead one's.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(fd), os.stat(path)):
                return fd
        os.close(fd)


def _ring(path: str, line: bytes) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        # Nobody reads it any more: its process is gone. Any other trouble is of this process, and the bell stays.
        if error.errno == errno.ENXIO:
            with suppress(OSError):
                if stat.S_ISFIFO(os.stat(path).st_mode):
                    os.unlink(path)
        return
    try:
        # A full pipe has rung often enough.
        with suppress(BlockingIOError, BrokenPipeError):
            os.write(fd, line)
    finally:
        os.close(fd)


def _tell(line: str, tell: Tell) -> None:
    kind, _, rest = line.partition(" ")
    tell(kind, int(rest) if rest.isdigit() else 0)
