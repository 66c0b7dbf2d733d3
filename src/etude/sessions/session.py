"""A session as its user sees it: cells go in, outcomes come out, names stay."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, Self

from etude import wire
from etude.entities import SessionLimits
from etude.errors import EtudeError, SandboxError, problem
from etude.sessions import kernel
from etude.sessions.base import Cell, Channel, Display, Outcome, Output, Provider, SandboxSpec

MAX_FRAME = 64 << 20
MAX_DESCRIPTORS = 16
MAX_DISPLAYS = 64
MAX_SHARED = 1 << 30
"""Bytes of shared memory that the displays of one cell may keep alive."""
GRACE_S = 1.0
HISTORY = 32
"""Cells that a session remembers; each holds its value, which can be large."""
SPIN_S = 100e-6


class Broker(Protocol):
    """The host's side of `db` in a session."""

    def answer(self, request: dict[str, Any]) -> tuple[dict[str, Any], int | None]:
        """The head of the reply, and a descriptor of sealed shared memory where there is data."""

    def cancel(self) -> None:
        """Stop the query that a session waits for, if any; from any thread."""


class Session:
    """One interpreter that keeps its state. Cells run one at a time; `interrupt` may come from any thread."""

    def __init__(
        self,
        provider: Provider,
        spec: SandboxSpec | None = None,
        limits: SessionLimits | None = None,
        broker: Broker | None = None,
        seed: int = 0,
    ) -> None:
        self._provider = provider
        self._spec = spec or SandboxSpec()
        self.limits = limits or SessionLimits()
        self._broker = broker
        self._seed = seed
        self._lock = threading.Lock()
        self._channel: Channel | None = None
        self._running = False
        self._interrupted = False
        self._fresh = True
        self._cells = 0
        self.history: deque[Cell] = deque(maxlen=HISTORY)
        self._opened()

    @property
    def isolation(self) -> dict[str, Any]:
        """What confines the session: the provider and its level."""
        return self._opened().isolation

    def _opened(self) -> Channel:
        if self._channel is None:
            self._channel = self._provider.start(self._spec, self.limits)
            self._fresh = True
            self._frames = Frames(self._channel.sock)
        return self._channel

    def _opened_frames(self) -> Frames:
        self._opened()
        return self._frames

    # -- running

    def execute(
        self,
        code: str,
        *,
        number: int | None = None,
        wall_s: float | None = None,
        on_output: Callable[[Output], None] | None = None,
    ) -> Cell:
        """Run a cell. Its errors are in the cell; only a broken sandbox raises."""
        with self._lock:
            self._cells = number = number or self._cells + 1
            run = _Run(number, code, self.limits.output, on_output, self._opened_frames)
            started = time.perf_counter()
            self._interrupted, self._running = False, True
            try:
                outcome = self._drive(run, wall_s or self.limits.wall_s)
            finally:
                self._running = False
            cell = run.cell(outcome, (time.perf_counter() - started) * 1000)
            self.history.append(cell)
            return cell

    def _drive(self, run: _Run, wall_s: float) -> Outcome:
        channel = self._opened()
        request: dict[str, Any] = {"id": run.id, "code": run.code}
        if self._fresh:
            # With the first cell, not at the start: a session that waited for its user has no seed yet.
            request["seed"], self._fresh = self._seed, False
        body = json.dumps(request).encode()
        deadline = time.monotonic() + wall_s
        stopping: Outcome | None = None
        try:
            _send(channel.sock, kernel.HEAD.pack(len(body), b"x"[0]) + body, deadline)
            while True:
                frame = self._opened_frames().next(deadline)
                if frame is None:
                    if stopping is not None:
                        raise wire.Closed
                    stopping, deadline = "timeout", time.monotonic() + GRACE_S
                    channel.signal(signal.SIGINT)
                    continue
                kind, payload = frame
                if run.take(kind, payload):
                    return self._ended(run, stopping)
                if kind == b"C"[0]:
                    self._answer(channel, payload, deadline)
        except (wire.Closed, OSError, ValueError, RecursionError):
            # It ended, or spoke nonsense, or did not heed the interrupt: it goes, and a fresh one comes when needed.
            self._drop()
            run.note("The session was killed and its variables are lost; the next cell starts in a fresh one.")
            return stopping or "killed"

    def _ended(self, run: _Run, stopping: Outcome | None) -> Outcome:
        if run.end["ok"]:
            return "ok"
        if stopping is not None:
            return stopping
        return "interrupted" if self._interrupted and run.error_type == "KeyboardInterrupt" else "error"

    def _answer(self, channel: Channel, payload: bytes, deadline: float) -> None:
        request = json.loads(payload)
        if not isinstance(request, dict):
            raise wire.Closed
        fd = None
        try:
            if self._broker is None:
                raise SandboxError("This session has no source.", hint="Open it with one.")
            head, fd = self._broker.answer(request)
        except EtudeError as error:
            head = {"problem": problem(error)}
        body = json.dumps(head | {"id": request.get("id")}).encode()
        frame = kernel.HEAD.pack(len(body), b"r"[0]) + body
        try:
            _send(channel.sock, frame, deadline, fd)
        finally:
            if fd is not None:
                os.close(fd)

    # -- control

    def interrupt(self) -> None:
        """Stop the running cell, and the query it waits for; the names it has set stay."""
        self._interrupted = True
        if self._broker is not None:
            self._broker.cancel()
        channel = self._channel
        if channel is not None and self._running:
            channel.signal(signal.SIGINT)

    def reset(self) -> None:
        """Start over with a fresh interpreter and an empty history."""
        with self._lock:
            self._drop()
            self.history.clear()
            self._cells = 0

    def _drop(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            self._frames.close()
            channel.close()

    def close(self) -> None:
        """End the interpreter."""
        with self._lock:
            self._drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Frames:
    """Frames from a session. Their lengths are its word, so they are capped before anything is held."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._data = bytearray()
        self._fds: list[int] = []

    def next(self, deadline: float) -> tuple[int, bytes] | None:
        """The next frame, or None once the deadline has passed; `wire.Closed` when there will be none."""
        while True:
            size = kernel.HEAD.size
            if len(self._data) >= size:
                length, kind = kernel.HEAD.unpack_from(self._data)
                if length > MAX_FRAME:
                    raise wire.Closed
                size += length
                if len(self._data) >= size:
                    payload = bytes(self._data[kernel.HEAD.size : size])
                    del self._data[:size]
                    return kind, payload
            if not self._ready(deadline):
                return None
            part, fds, _, _ = socket.recv_fds(self._sock, 1 << 16, MAX_DESCRIPTORS)
            self._fds += fds
            if not part or len(self._fds) > MAX_DESCRIPTORS:
                raise wire.Closed
            self._data += part

    def _ready(self, deadline: float) -> bool:
        # Most cells end within microseconds: to look again and again for so long is quicker than to sleep and wake.
        until = time.monotonic() + SPIN_S
        while time.monotonic() < until:
            if self._poll.poll(0):
                return True
            os.sched_yield()  # the session may be waiting for this very processor
        return bool(self._poll.poll(max(deadline - time.monotonic(), 0) * 1000))

    def take_descriptor(self) -> int:
        """The descriptor that came with the frame just read."""
        if not self._fds:
            raise wire.Closed
        return self._fds.pop(0)

    def close(self) -> None:
        """Let go of descriptors that nobody asked for."""
        while self._fds:
            os.close(self._fds.pop())


class _Run:
    """Collects the frames of one cell. What a frame says is the session's word: sizes are capped, ids compared."""

    def __init__(
        self,
        number: int,
        code: str,
        cap: int,
        on_output: Callable[[Output], None] | None,
        frames: Callable[[], Frames],
    ) -> None:
        self.id = number
        self._frames = frames
        self.code = code
        self.end: dict[str, Any] = {}
        self._cap = cap
        self._on_output = on_output
        self._text: dict[str, list[str]] = {"stdout": [], "stderr": []}
        self._size = 0
        self._cut = 0
        self._displays: list[Display] = []
        self._shared = 0
        self._notes: list[str] = []

    @property
    def error_type(self) -> str:
        return str((self.end.get("error") or {}).get("type", ""))

    def note(self, text: str) -> None:
        self._notes.append(text)

    def take(self, kind: int, payload: bytes) -> bool:
        """Whether the cell ended with this frame."""
        try:
            match bytes([kind]):
                case b"O":
                    self._write("stdout", payload)
                case b"E":
                    self._write("stderr", payload)
                case b"D":
                    self._show(payload)
                case b"X":
                    return self._finish(payload)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, struct.error):
            raise wire.Closed from None
        return False

    def _write(self, stream: Any, payload: bytes) -> None:
        room = max(self._cap - self._size, 0)
        text = payload[:room].decode("utf-8", "replace")
        self._size += len(payload)
        self._cut += max(len(payload) - room, 0)
        if text:
            self._text[stream].append(text)
            if self._on_output is not None:
                self._on_output(Output(stream, text))

    def _show(self, payload: bytes) -> None:
        (size,) = struct.unpack("!I", payload[:4])
        head = json.loads(payload[4 : 4 + size])
        data: Any = memoryview(payload)[4 + size :]
        if "size" in head:
            length = int(head["size"])  # before the descriptor is ours to close
            data = memoryview(wire.map_sealed(self._frames().take_descriptor(), length))
            self._shared += len(data)
            if self._shared > MAX_SHARED:
                raise wire.Closed
        elif len(data) > kernel.INLINE:
            raise wire.Closed  # the kernel sends so much by shared memory alone
        if head["id"] != self.id or len(self._displays) >= MAX_DISPLAYS:
            return
        self._displays.append(Display(str(head["media"]), data))

    def _finish(self, payload: bytes) -> bool:
        end = json.loads(payload)
        if not isinstance(end, dict) or end.get("id") != self.id or not isinstance(end.get("ok"), bool):
            return False
        if not all(isinstance(end.get(part), dict | None) for part in ("value", "error")):
            raise wire.Closed
        self.end = end
        return True

    def cell(self, outcome: Outcome, elapsed_ms: float) -> Cell:
        if self._cut:
            self.note(f"{self._cut:,} bytes of output were cut; {self._cap:,} are kept.")
        shown = self.end.get("value") or {}
        return Cell(
            id=self.id,
            code=self.code,
            outcome=outcome,
            stdout="".join(self._text["stdout"]),
            stderr="".join(self._text["stderr"]),
            value=self._value(shown),
            text=str(shown.get("text", "")),
            display=tuple(self._displays),
            error=self.end.get("error") or _default_error(outcome),
            elapsed_ms=elapsed_ms,
            notes=tuple(self._notes),
        )

    def _value(self, shown: dict[str, Any]) -> Any:
        if "json" in shown:
            return shown["json"]
        if shown.get("media") == "application/vnd.apache.arrow.stream" and self._displays:
            import pyarrow as pa

            try:
                data = pa.py_buffer(self._displays[-1].data)
                if any(_is_compressed(m.metadata) for m in pa.ipc.MessageReader.open_stream(data)):
                    raise ValueError  # the kernel never compresses, and a little could become very much
                table = pa.ipc.open_stream(data).read_all()
                table.validate(full=True)  # offsets are the session's word, and reading by them is not checked
                return table
            except (pa.ArrowException, OSError, ValueError, KeyError, struct.error):
                return str(shown.get("text", ""))
        return shown.get("text") if shown else None


def _send(sock: socket.socket, data: bytes, deadline: float, fd: int | None = None) -> None:
    """Send all, but wait no longer than a cell may run for a session that does not read; `OSError` then."""
    sock.settimeout(max(deadline - time.monotonic(), 0) + GRACE_S)
    sent = socket.send_fds(sock, [data], [fd]) if fd is not None else 0
    sock.sendall(data[sent:])


def _is_compressed(message: Any) -> bool:
    """Whether an Arrow message says that its body is compressed; pyarrow does not tell, so its flatbuffer is read."""

    def field(table: int, index: int) -> int:
        (back,) = struct.unpack_from("<i", message, table)
        (size,) = struct.unpack_from("<H", message, table - back)
        at = 4 + 2 * index
        (offset,) = struct.unpack_from("<H", message, table - back + at) if at < size else (0,)
        return table + offset if offset else 0

    def follow(at: int) -> int:
        return at + int(struct.unpack_from("<I", message, at)[0])

    root = follow(0)
    kind, header = field(root, 1), field(root, 2)
    if not kind or not header or message[kind] not in (2, 3):
        return False
    batch = follow(header)
    if message[kind] == 2:  # a dictionary holds its batch
        data = field(batch, 1)
        if not data:
            return False
        batch = follow(data)
    return bool(field(batch, 3))


def _default_error(outcome: Outcome) -> dict[str, Any] | None:
    texts = {
        "timeout": ("Timeout", "The cell passed its time limit and was stopped."),
        "killed": ("SessionDied", "The session ended while the cell ran: most likely it passed a limit of memory."),
    }
    if outcome not in texts:
        return None
    kind, message = texts[outcome]
    return {"type": kind, "message": message, "traceback": "", "line": None}
