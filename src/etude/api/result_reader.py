"""Reads results for requests: in processes of their own, so that the server's memory and event loop stay free."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from etude import process_confinement, wire
from etude.api import result_formats as formats
from etude.errors import LimitExceeded, SourceError, Unavailable, from_problem, problem
from etude.fair_share import ThreadFairShare

if TYPE_CHECKING:
    from etude.app import App
    from etude.entities import Artifact, ResultInfo

KEPT = 2
"""Processes that stay open for the next request."""
WAIT_S = 60.0
"""How long a request waits for a process."""
SORTED_BYTES = 1 << 30
"""The most bytes of sort orders that are kept on disk, so that the second page of a sort needs no second sort."""
SORTED = 64
"""The most sort orders that are kept: each is an open file of the server, however few rows it has."""
_START = (
    "import sys; sys.path[:] = {path!r}; from etude.api.result_process import run_result_process; run_result_process()"
)


class ResultReader:
    """Sorts, filters and converts results in other processes. Thread-safe."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._scratch: Path = app.scratch
        self._share = ThreadFairShare(app.settings.engine.processes)
        self._lock = threading.Lock()
        self._idle: list[_Process] = []
        self._orders = ResultSortOrders(self._scratch)

    def read(
        self, tenant: str, info: ResultInfo, artifact: Artifact, run_id: str, view: formats.ResultSelection, media: str
    ) -> Iterator[bytes]:
        """Return the result in a media type, piece by piece. Errors that come before the first piece are raised here.

        An error after that is raised by the iterator, so that the response breaks off instead of looking complete.
        """
        pieces = self._read(tenant, info, artifact, run_id, view, media)
        first = next(pieces, b"")
        return _chain(first, pieces)

    def _read(
        self, tenant: str, info: ResultInfo, artifact: Artifact, run_id: str, view: formats.ResultSelection, media: str
    ) -> Iterator[bytes]:
        until = time.monotonic() + WAIT_S

        def check() -> None:
            if time.monotonic() > until:
                raise Unavailable(
                    f"Other results were being read for {WAIT_S:g} s.", hint="Try again, or raise `engine.processes`."
                )

        lent = self._app.objects.lend(artifact.hash, run_id, self._scratch)
        with contextlib.ExitStack() as held:
            held.callback(os.close, lent.fd)
            files, key = [lent.fd], (artifact.hash, view.sort, view.filter)
            order = None
            if view.sort or view.filter:
                order = held.enter_context(self._orders.borrow(key))
                files.append(order.file.fileno())
            head = asdict(view) | {"media": media, "info": info.model_dump(mode="json"), "run_id": run_id}
            head |= {"filled": order is not None and order.filled, "damaged": problem(lent.damaged)}
            sums = lent.sums.pack() if lent.sums is not None else b""
            held.enter_context(self._share.hold(tenant, check))
            process = self._take()
            try:
                # The first answer comes after the sort; later ones wait for nothing but the conversion.
                for piece in process.ask(head, sums, files, self._app.settings.limits.timeout_s):
                    if order is not None and not order.filled:
                        self._orders.keep(key, order)
                    yield piece
            finally:
                self._give_back(process)

    def _take(self) -> _Process:
        with self._lock:
            while self._idle:
                process = self._idle.pop()
                if process.alive:
                    return process
                process.end()
        engine = self._app.settings.engine
        return _Process(engine.memory, engine.scratch)

    def _give_back(self, process: _Process) -> None:
        with self._lock:
            if process.idle and len(self._idle) < KEPT:
                self._idle.append(process)
                return
        process.end()

    def close(self) -> None:
        """End all processes that are not in use, and remove the kept sort orders."""
        with self._lock:
            idle, self._idle = self._idle, []
        for process in idle:
            process.end()
        self._orders.close()


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


class _Process:
    """One process that reads results. Not thread-safe."""

    def __init__(self, memory: int, file_bytes: int) -> None:
        self._sock, theirs = wire.wire_socket_pair()
        self.idle = True
        """Whether it may serve a next request."""
        kept = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "LC_ALL", "TZ")}
        with contextlib.ExitStack() as opened:
            opened.callback(self._sock.close)
            with theirs, process_confinement.explained_interpreter_start():
                self._process = subprocess.Popen(
                    [sys.executable, "-E", "-s", "-c", _START.format(path=sys.path), str(theirs.fileno())],
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=None if os.environ.get("ETUDE_DEBUG") else subprocess.DEVNULL,
                    env=kept | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
                    start_new_session=True,
                )
            opened.pop_all()
        wire.send_wire_frame(self._sock, {"memory": memory, "file_bytes": file_bytes})

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, head: dict[str, Any], sums: bytes, files: list[int], timeout_s: float) -> Iterator[bytes]:
        """Yield the pieces of the answer to a request."""
        self.idle = False
        self._sock.settimeout(timeout_s)
        try:
            wire.send_wire_frame(self._sock, head, sums, files=files)
            while True:
                frame = wire.receive_wire_frame(self._sock)
                if not frame.head.get("ok"):
                    self.idle = frame.head["error"].get("limit") != "memory"
                    raise from_problem(frame.head["error"])
                if not frame.head.get("more"):
                    self.idle = True
                    return
                yield bytes(frame.blob)
        except TimeoutError:
            raise LimitExceeded(
                f"Reading the result exceeded its time limit of {timeout_s:g} s.",
                hint="Select fewer rows, or raise `limits.timeout_s`.",
                limit="timeout_s",
                value=timeout_s,
            ) from None
        except wire.Closed:
            raise SourceError("The process that read the result ended unexpectedly.", hint="Try again.") from None

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._sock.close()


class SortOrder:
    """The positions of the rows of a result in one order, in a file without a name."""

    def __init__(self, file: IO[bytes], filled: bool = False) -> None:
        self.file = file
        self.filled = filled


class ResultSortOrders:
    """Keeps sort orders of results on disk, the last used ones up to `SORTED` and `SORTED_BYTES`. Thread-safe."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._kept: OrderedDict[tuple[Any, ...], tuple[int, int]] = OrderedDict()
        """A descriptor of each order and its size."""
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def borrow(self, key: tuple[Any, ...]) -> Iterator[SortOrder]:
        """Lend the order that is kept under a key, or an empty file to write it to."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None:
                self._kept.move_to_end(key)
                file: IO[bytes] = os.fdopen(os.dup(kept[0]), "r+b")
        if kept is None:
            self._scratch.mkdir(parents=True, exist_ok=True)
            file = tempfile.TemporaryFile(dir=self._scratch)  # noqa: SIM115 - closed below
        with file:
            yield SortOrder(file, kept is not None)

    def keep(self, key: tuple[Any, ...], order: SortOrder) -> None:
        """Keep an order that was written, unless it has no rows: that one has no second page."""
        order.filled = True
        size = os.fstat(order.file.fileno()).st_size
        if not 0 < size <= SORTED_BYTES:
            return
        with self._lock:
            self._drop(key)
            self._kept[key] = (os.dup(order.file.fileno()), size)
            while len(self._kept) > SORTED or self.size > SORTED_BYTES:
                self._drop(next(iter(self._kept)))

    @property
    def size(self) -> int:
        """The bytes of the kept orders."""
        return sum(size for _, size in self._kept.values())

    def _drop(self, key: tuple[Any, ...]) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            os.close(kept[0])

    def close(self) -> None:
        """Remove all orders."""
        with self._lock:
            for key in list(self._kept):
                self._drop(key)
