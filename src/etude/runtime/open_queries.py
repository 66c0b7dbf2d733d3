"""The recorded queries that an app is running: closing the app ends them, and waits until that is recorded."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from etude.errors import Cancelled, EtudeError, Interrupted
from etude.sources.engine_client import ResultStream

CLOSE_S = 5.0
"""How long `close` waits for queries to end."""


class OpenQueries:
    """A registry of recorded queries in progress. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._streams: set[ResultStream] = set()
        self._running = 0
        self._interrupted = False

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Count a query while the block runs, until its end is recorded."""
        with self._changed:
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def watch(self, stream: ResultStream) -> ResultStream:
        """Return the stream of a query; it raises `Interrupted` once the queries are interrupted."""
        stream.batches = self._read(stream, stream.batches)
        return stream

    def _read(self, stream: ResultStream, batches: Iterator[Any]) -> Iterator[Any]:
        with self._changed:
            self._check()
            self._streams.add(stream)
        try:
            yield from batches
        except Cancelled:
            self._check()
            raise
        finally:
            with self._changed:
                self._streams.discard(stream)

    def _check(self) -> None:
        if self._interrupted:
            raise Interrupted("The process was shut down before the query ended.", hint="Run it again.") from None

    def interrupt(self) -> None:
        """Cancel the queries; they end as interrupted."""
        with self._changed:
            self._interrupted = True
            streams = list(self._streams)
        for stream in streams:
            with contextlib.suppress(EtudeError):
                stream.cancel()

    def close(self) -> None:
        """Interrupt the queries, and wait up to `CLOSE_S` seconds until their ends are recorded."""
        self.interrupt()
        with self._changed:
            self._changed.wait_for(lambda: not self._running, CLOSE_S)
