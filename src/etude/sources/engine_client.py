"""The host's side of one engine process: it sends queries and receives batches."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude import wire
from etude.arrow_limits import (
    check_arrow_limits,
    check_arrow_row_bytes,
    check_arrow_schema,
    check_arrow_stream_schema,
    check_type_names,
)
from etude.errors import Cancelled, EtudeError, LimitExceeded, SourceError, from_problem
from etude.scratch_folder import ScratchFolder
from etude.sources import engine_process
from etude.sources.base import MORE_TIME, Json, LoadProgress, LoadWait, Mount, empty_batch, query_timeout_error

if TYPE_CHECKING:
    from etude.entities import Limits
    from etude.sources.query_parameters import Encoded


GRACE_S = 1.0


START_S = 60.0


CHECK_S = 0.1
"""How often the host checks, while files are read, whether the query that waits for them was cancelled."""


PART = 32 << 20


SCRATCH = "etude-engine-"


OnProgress = Callable[[float], None]


@dataclass(frozen=True)
class EngineLimits:
    """What one engine process may use."""

    memory: int
    """Bytes of private memory; the operating system enforces it."""
    scratch_bytes: int
    threads: int


class ResultStream:
    """A result as it arrives: iterate over `batches`; then `end` holds the outcome."""

    def __init__(self) -> None:
        self.batches: Iterator[Any] = iter(())
        self.types: list[str] = []
        """The engine's names of the column types, known after the first batch."""
        self.info: Json = {}
        """What the engine reported about itself: dialect, versions, isolation."""
        self.end: Json = {}
        self.parts: list[int | bytes] | None = None
        """Set to a list before the batches are read, it collects them as received: each part is an Arrow stream, a
        descriptor of sealed shared memory (which the reader closes) or, if it is small, its bytes."""
        self.notes: dict[str, list[str]] = {}
        """What was found in files that were read for this query, by table."""
        self._stop: Callable[[], None] | None = None
        self._cancelled = False
        self._lock = threading.Lock()

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled

    def cancel(self) -> None:
        """Stop the query in the engine; may be called from any thread, even before the query started."""
        with self._lock:
            self._cancelled = True
            stop = self._stop
        if stop is not None:
            stop()

    def started(self, stop: Callable[[], None]) -> None:
        """Let `cancel` call `stop`; call it now if the query was already cancelled."""
        with self._lock:
            self._stop = stop
            cancelled = self._cancelled
        if cancelled:
            stop()


class EngineClient:
    """One engine process. Not thread-safe, except for `cancel`."""

    def __init__(self, network: bool, limits: EngineLimits, preload: str = "duckdb", *, fork: bool = False) -> None:
        self.network = network
        self.limits = limits
        """They apply from the moment the process opens its sources."""
        self._scratch = ScratchFolder(SCRATCH)
        self._data, data = wire.wire_socket_pair()
        self._control, control = wire.wire_socket_pair()
        self._control_lock = threading.Lock()
        self._poll = select.poll()
        self._poll.register(self._data, select.POLLIN)
        self._poll.register(self._control, select.POLLIN)
        self._query_id = 0
        self.killed = False
        self.info: Json = {}
        with contextlib.ExitStack() as opened:
            opened.callback(self._data.close)
            opened.callback(self._control.close)
            with data, control:
                folder = str(self._scratch.path)
                if fork:
                    self._process = engine_process.fork_engine(data, control, preload, folder)
                else:
                    self._process = engine_process.spawn_engine(data, control, network, preload, folder)
            opened.pop_all()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    @property
    def ready(self) -> bool:
        """Whether it may serve a next query: it runs, and nothing unread of an earlier one waits in its socket."""
        return self.alive and not any(fd == self._data.fileno() for fd, _ in self._poll.poll(0))

    def open(self, mounts: tuple[Mount, ...]) -> None:
        """Open the sources; from then on the process is confined to them."""
        readable = [p for m in mounts for p in _paths(m)]
        files = [p for m in mounts for f in m.files for p in f["paths"]]
        head = self._confinement(readable, files, []) | {
            "op": "open",
            "mounts": [asdict(m) for m in mounts],
        }
        self.info = self._ask(head, START_S)

    def load(
        self, jobs: list[Json], wait: LoadWait, on_progress: OnProgress | None = None
    ) -> Iterator[list[Json] | EtudeError]:
        """Convert files to Parquet in this process, which then serves nothing else; yield tables or an error for each.

        A job has a `file` and the `out_dir` for its tables. If the process dies, the list ends early. If the wait ends
        first, the process is killed and the error of the wait is raised.
        """
        files = [p for job in jobs for p in job["file"]["paths"]]
        head = self._confinement([], files, [job["out_dir"] for job in jobs])
        self._send(head | {"op": "load", "files": jobs})
        for at, job in enumerate(jobs):
            path = job["file"]["paths"][0]
            tell = None if on_progress is None else _tell_loading(on_progress, at, len(jobs), path)
            try:
                yield self._loaded(wait, path, tell)
            except EtudeError as error:
                if isinstance(error, Cancelled) or error.details.get("limit") in ("timeout_s", "storage"):
                    raise  # the query or the upload ends, and with it the reading of all files
                yield error
                if not self.alive:
                    return

    def _loaded(self, wait: LoadWait, path: str, on_progress: OnProgress | None) -> list[Json]:
        while (frame := self._receive(time.monotonic() + CHECK_S, on_progress)) is None:
            wait.check(path)
        tables: list[Json] = _checked(frame.head)["tables"]
        return tables

    def _confinement(self, readable: list[str], files: list[str], writable: list[str]) -> Json:
        return {
            "memory": self.limits.memory,
            "engine_memory": int(self.limits.memory * 0.8),
            "threads": self.limits.threads,
            "file_bytes": self.limits.scratch_bytes,
            "network": self.network,
            "scratch": str(self._scratch.path),
            "readable": readable,
            "unlinked": files,
            "writable": [str(self._scratch.path), *writable],
        }

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when an answer arrives."""
        return self._data.fileno()

    def has_small_answer(self) -> bool:
        """Return whether a whole small frame has arrived, so that reading it does not block."""
        return wire.has_small_wire_frame(self._data)

    def catalog(self, timeout_s: float) -> list[Json]:
        """Return the tables of the open sources."""
        tables: list[Json] = self._ask({"op": "catalog"}, timeout_s)["tables"]
        return tables

    def named_columns(self, sql: str, timeout_s: float) -> frozenset[str] | None:
        """Return the names in a query; None if it may use columns that it does not name."""
        names = self._ask({"op": "named_columns", "sql": sql}, timeout_s)["names"]
        return frozenset(names) if names is not None else None

    def _ask(self, head: Json, timeout_s: float) -> Json:
        self._send(head)
        return self._answered(head["op"], timeout_s)

    def _answered(self, asked: str, timeout_s: float, on_progress: OnProgress | None = None) -> Json:
        frame = self._receive(time.monotonic() + timeout_s, on_progress)
        if frame is None:
            self.kill()
            raise LimitExceeded(
                f"The source did not answer `{asked}` within {timeout_s:g} s.",
                hint=f"Check the load of the source, or {MORE_TIME}",
                limit="timeout_s",
            )
        return _checked(frame.head)

    def query(
        self,
        sql: str,
        limits: Limits | Mapping[str, Any],
        describe: bool,
        on_progress: Callable[[float], None] | None = None,
        params: Encoded | None = None,
    ) -> ResultStream:
        """Run one statement. With `describe`, the end holds the estimate and the fingerprints of the tables read."""
        self._query_id += 1
        query_id = self._query_id
        given = dict(limits)
        budget = bool(given["scan_rows"] or given["scan_bytes"])
        head = {"op": "query", "id": query_id, "sql": sql, "describe": describe or budget} | given
        self._send(head | {"params": params} if params else head)
        stream = ResultStream()
        stream.info = self.info
        stream.started(lambda: self._cancel(query_id))
        batches = self._batches(stream, time.monotonic() + given["timeout_s"], given["timeout_s"], on_progress)
        stream.batches = _check_rows(batches, given["row_bytes"])
        return stream

    def _batches(
        self, stream: ResultStream, deadline: float, timeout_s: float, on_progress: Callable[[float], None] | None
    ) -> Iterator[Any]:
        try:
            while True:
                frame = self._wait(stream, deadline, timeout_s, on_progress)
                stream.types = frame.head.get("types", [])
                took: Json = {"op": "took"}
                if stream.parts is not None:
                    stream.parts.append(bytes(frame.blob) if frame.fd is None else frame.fd)
                    took["chunk"] = PART  # few large parts instead of many small ones: each is an open file
                check_type_names(stream.types)
                yield from self._decoded(frame.blob)
                if not frame.head.get("more"):
                    stream.end = frame.head
                    return
                self._send(took)
        finally:
            if not stream.end:
                self._settle(stream)

    def _decoded(self, blob: Any) -> list[Any]:
        import pyarrow as pa

        try:
            return _decode(blob)
        except pa.ArrowException as error:
            self.kill()  # an engine that sends this cannot be trusted with the next query
            raise SourceError(f"The engine sent a result that cannot be read: {error}.", hint="Try again.") from None

    def _wait(
        self, stream: ResultStream, deadline: float, timeout_s: float, on_progress: Callable[[float], None] | None
    ) -> wire.Frame:
        try:
            frame = self._receive(deadline, on_progress, keep=stream.parts is not None)
        except KeyboardInterrupt:
            raise Cancelled("The query was cancelled.") from None
        if frame is None:
            raise query_timeout_error(timeout_s)
        if not frame.head.get("ok"):
            stream.end = frame.head
            if frame.fd is not None:
                os.close(frame.fd)
            if frame.head.get("error", {}).get("limit") == "memory" or self._bloated():
                self.kill()  # the memory it holds would be missing for the next query
        return wire.Frame(_checked(frame.head), frame.blob, frame.fd)

    def _bloated(self) -> bool:
        """Return whether a failed query left it with so much memory that the next one would suffer."""
        try:
            with open(f"/proc/{self._process.pid}/statm", encoding="ascii") as file:
                resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError):
            return False
        return resident > self.limits.memory // 4

    def _settle(self, stream: ResultStream) -> None:
        """Make the engine idle after an abandoned query: cancel it, wait briefly, then kill."""
        if not self.alive:
            return
        if self._bloated():
            self.kill()
            return
        stream.cancel()
        until = time.monotonic() + GRACE_S
        with contextlib.suppress(EtudeError, wire.Closed):
            while (frame := self._receive(until, None)) is not None:
                if not frame.head.get("more"):
                    stream.end = {"ok": False}
                    return
                self._send({"op": "took"})
        self.kill()

    def _cancel(self, query_id: int) -> None:
        with self._control_lock, contextlib.suppress(wire.Closed, OSError):
            wire.send_wire_frame(self._control, {"id": query_id})

    def _send(self, head: Json) -> None:
        try:
            wire.send_wire_frame(self._data, head)
        except (wire.Closed, OSError):
            raise self._ended() from None

    def _receive(
        self, deadline: float, on_progress: Callable[[float], None] | None, keep: bool = False
    ) -> wire.Frame | None:
        """Return the next frame of the answer, or None if the deadline has passed."""
        data = self._data.fileno()
        try:
            while True:
                left = deadline - time.monotonic()
                ready = [fd for fd, _ in self._poll.poll(max(left, 0) * 1000)]
                if data in ready:
                    frame = wire.receive_wire_frame(self._data, keep)
                    if frame.head.get("error", {}).pop("fatal", False):
                        self.kill()  # its database is unusable, and would fail the queries of others
                    return frame
                if ready:
                    done = wire.receive_wire_frame(self._control).head.get("progress")
                    if on_progress is not None and done is not None:
                        on_progress(done)
                elif left <= 0:
                    return None
        except (wire.Closed, OSError):
            raise self._ended() from None

    def _ended(self) -> EtudeError:
        self.kill()
        code = self._process.returncode
        if code in (-signal.SIGABRT, -signal.SIGKILL, -signal.SIGSEGV):
            return LimitExceeded(
                f"The engine was killed by signal {-code} during this query: it most likely exceeded its memory limit "
                f"of {self.limits.memory >> 20:,} MiB. It was replaced.",
                hint="Filter or aggregate earlier, or raise `engine.memory`.",
                limit="memory",
            )
        return SourceError(f"The engine ended unexpectedly (exit {code}). It was replaced.", hint="Try again.")

    def kill(self) -> None:
        """Kill the process now, and remove its scratch folder."""
        self.killed = True
        if self.alive:
            self._process.kill()
        self._process.wait()
        self._data.close()
        self._control.close()
        self._scratch.remove()


def _tell_loading(on_progress: OnProgress, at: int, jobs: int, path: str) -> OnProgress:
    """Return a callback that reports a file's progress as that of all files, and report its start."""
    name = os.path.basename(path)

    def tell(done: float) -> None:
        on_progress(LoadProgress((at + done) / jobs, name))

    tell(0.0)
    return tell


def _decode(blob: Any) -> list[Any]:
    import pyarrow as pa

    check_arrow_stream_schema(blob)
    reader = pa.ipc.open_stream(pa.py_buffer(blob))
    check_arrow_schema(reader.schema)
    batches = list(reader)
    for batch in batches:
        check_arrow_limits(batch)
    return batches or [empty_batch(reader.schema)]


def _check_rows(batches: Iterator[Any], most: int) -> Iterator[Any]:
    """Pass on batches whose rows are within the limit. The engine refuses others too, but it may be compromised."""
    rows = 0
    with contextlib.closing(batches):  # type: ignore[type-var]
        for batch in batches:
            check_arrow_row_bytes(batch, most, rows)
            yield batch
            rows += batch.num_rows


def _checked(head: Json) -> Json:
    if not head.get("ok"):
        raise from_problem(head["error"])
    return head


def _paths(mount: Mount) -> list[str]:
    if mount.kind == "files":
        return []  # each file is listed individually
    if "://" in mount.url:
        return []
    # The folder, because a database file has others beside it (a log, a shared index).
    return [str(Path(mount.url).parent)]
