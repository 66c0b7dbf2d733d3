"""A session on the host: it runs cells one after the other in an interpreter that keeps its variables."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, Self

from etude import wire
from etude.arrow_limits import (
    check_arrow_limits,
    check_arrow_row_bytes,
    check_arrow_schema,
    check_arrow_stream_schema,
    refuse_compressed_arrow,
)
from etude.cancellation import Cancellation
from etude.defaults import ROW_BYTES
from etude.entities import SessionLimits
from etude.errors import Invalid, LimitExceeded, SandboxError, problem
from etude.json_limits import check_json_body, has_more_json_values
from etude.sessions import kernel
from etude.sessions.base import (
    Cell,
    Channel,
    Display,
    Outcome,
    Output,
    Provider,
    SandboxSpec,
    drop_old_displays,
)
from etude.sessions.lent_memory import LentMemory
from etude.sessions.processor_time import idle_check

MAX_FRAME = 64 << 20
MAX_DISPLAYS = 64
SMALL_CALL = 1 << 16
"""Requests of a session up to this size are parsed at once."""
CALL_VALUES = 150_000
"""The most values in a request of a session: more than a query of the greatest length can have as parameters."""
END_VALUES = 150_000
"""The most values in the end of a cell: more than a value of `kernel.INLINE` characters can have."""
MAX_SHARED = 1 << 30
"""The most bytes of shared memory that the displays of one cell may use."""
GRACE_S = 1.0
LONGEST_S = 1e6
"""The longest timeout that is set on a socket, for cells with a very long time limit."""
LOOK_S = 0.25
"""How often a cell that sends nothing is checked."""
FRAMES, PACE_S = 2000, 0.1
"""The most frames that are read from a session within these seconds."""
BACKGROUND_S = 0.1
"""The next cell reports the processor time used between two cells if it is at least this many seconds."""
HISTORY = 32
"""How many cells a session remembers, unless it is given another number. Each holds its value, which can be large."""
_TIMEOUT = "The cell passed its time limit of {:g} s and was stopped."
_decode = json.JSONDecoder().decode
_STDOUT, _STDERR, _DISPLAY, _END, _CALL = b"OEDXC"


class SessionBroker(Protocol):
    """The host's side of `db` in a session: it runs the queries."""

    def answer(self, request: dict[str, Any], left_s: float) -> tuple[dict[str, Any], int | None]:
        """Return the header of the reply and, if it has data, a descriptor of sealed shared memory.

        The answer must come within `left_s` seconds, when the time limit of the cell ends.
        """

    def cancel(self) -> None:
        """Stop the query that a session waits for, if any. Can be called from any thread."""


class _ListenerFailed(Exception):
    """The `on_output` callback raised an exception, which is the cause of this one."""


class Session:
    """One interpreter that keeps its state. Cells run one at a time; any thread may call `interrupt`."""

    def __init__(
        self,
        provider: Provider,
        spec: SandboxSpec | None = None,
        limits: SessionLimits | None = None,
        broker: SessionBroker | None = None,
        seed: int = 0,
        history: int = HISTORY,
    ) -> None:
        self._provider = provider
        self._spec = spec or SandboxSpec()
        self.limits = limits or SessionLimits()
        self._broker = broker
        self._seed = seed
        self._lock = threading.Lock()
        self._channel: Channel | None = None
        self._shared_bytes = 0
        self._running = False
        self._interrupted = False
        self._fresh = True
        self._closed = False
        self._cells = 0
        self.history: deque[Cell] = deque(maxlen=history)
        self._isolation: dict[str, Any] = {}
        self._idle_from: float | None = None
        """Processor seconds of the session when it was first found idle after a cell."""
        self._background_s = 0.0
        self._end_reason = ""
        self._lent = LentMemory(self.limits.memory + MAX_SHARED)
        self._opened()
        idle_check.add(self)

    @property
    def alive(self) -> bool:
        """True if the interpreter still runs, with its variables."""
        return self._channel is not None and not self._channel.ended

    @property
    def isolation(self) -> dict[str, Any]:
        """The provider, the isolation level and other facts about the sandbox."""
        return self._isolation

    def memory_bytes(self) -> int:
        """Return the memory that the session holds, with the results that were sent to it."""
        channel = self._channel
        if channel is None or channel.ended:
            return 0
        return max(channel.memory_bytes() - self._shared_bytes, 0) + self._lent.held_bytes()

    def _opened(self) -> Channel:
        if self._fresh and not self.alive:
            self._drop()  # it ended before its first cell, so nothing is lost: start another
        if self._channel is None:
            if self._closed:
                raise SandboxError("The session is closed.", hint="Open another one.")
            self._channel = self._provider.start(self._spec, self.limits)
            self._isolation = self._channel.isolation
            # A new interpreter shares its memory with the one that it was forked from, except in a group of its own.
            self._shared_bytes = 0 if self._channel.group is not None else self._channel.memory_bytes()
            self._fresh = True
            self._frames = SessionFrames(self._channel.sock)
        return self._channel

    # -- running

    def execute(
        self,
        code: str,
        *,
        number: int | None = None,
        wall_s: float | None = None,
        on_output: Callable[[Output], None] | None = None,
        cancel: Cancellation | None = None,
    ) -> Cell:
        """Run a cell. Errors of its code are in the cell: this raises only if the sandbox fails or `cancel` is set."""
        with self._lock, contextlib.ExitStack() as stack:
            self._cells = number = number or self._cells + 1
            run = _Run(number, code, self.limits.output, on_output)
            stack.callback(run.close)
            wall_s = wall_s or self.limits.wall_s
            started = time.perf_counter()
            proxy = self._opened().proxy
            self._interrupted, self._running = False, True
            self._note_background(run)
            try:
                if cancel is not None:
                    stack.enter_context(cancel.stopping(self.interrupt))
                outcome = self._drive(run, wall_s)
            except _ListenerFailed as failed:
                raise failed.__cause__ or failed from None
            finally:
                self._running = False
            for news in proxy.take_news() if proxy is not None else ():
                run.note(news)
            self._settle(run, time.perf_counter() - started)
            cell = run.cell(outcome, (time.perf_counter() - started) * 1000, wall_s)
            self.history.append(cell)
            if cell.display:
                drop_old_displays(self.history)
            return cell

    def _drive(self, run: _Run, wall_s: float) -> Outcome:
        channel = self._opened()
        request = _frame(kernel.CELL, kernel.NUMBER.pack(run.id) + run.code.encode("utf-8", "surrogatepass"))
        if self._fresh:
            # With the first cell, not at the start: sessions that are kept ready have no seed yet.
            request, self._fresh = _frame(kernel.SEED, str(self._seed).encode()) + request, False
        stop = _Stop(time.monotonic() + wall_s)
        look = time.monotonic() + LOOK_S
        pace = _Pace()
        try:
            if channel.ended:
                run.came_too_late = True
                raise wire.Closed
            _send(channel.sock, request, stop.deadline)
            while True:
                now = time.monotonic()
                if now >= stop.deadline or self._interrupted:
                    stop.escalate(channel, now, self._interrupted)
                if now >= look:
                    look = now + LOOK_S
                    self._check_cpu(channel.cpu_s())
                frame = self._frames.next(min(stop.deadline, now + LOOK_S))
                if frame is None:
                    continue
                pace.step()
                kind, payload = frame
                if run.take(kind, payload):
                    return self._ended(run, stop.outcome)
                if kind == _CALL:
                    self._answer(run, channel, payload, stop.deadline)
        except (wire.Closed, OSError, ValueError, RecursionError):
            # It ended, sent invalid frames or ignored the interrupt: drop it; the next cell starts a fresh one.
            self._drop()
            run.reason, self._end_reason = self._end_reason, ""
            run.note("The session was killed and its variables are lost; the next cell starts in a fresh one.")
            return stop.outcome or "killed"
        except BaseException:
            self._drop()  # frames of this cell must not be taken for those of the next one
            raise

    # -- processor time

    def _check_cpu(self, used_s: float) -> None:
        if used_s > self.limits.cpu_s:
            self._end_reason = (
                f"The session and the processes it started used {used_s:,.0f} s of processor time; "
                f"its limit, `cpu_s`, is {self.limits.cpu_s:,} s."
            )
            raise wire.Closed

    def check_background(self) -> None:
        """Count the processor time used while no cell runs; end the session if it exceeded its limit."""
        if not self._lock.acquire(blocking=False):
            return  # a cell runs, and its own loop checks it
        try:
            self._lent.release()
            channel = self._channel
            if channel is None or channel.ended:
                return
            used_s = channel.cpu_s()
            if self._idle_from is None:
                self._idle_from = used_s
            self._background_s = used_s - self._idle_from
            try:
                self._check_cpu(used_s)
            except wire.Closed:
                channel.signal(signal.SIGKILL)
        finally:
            self._lock.release()

    def _note_background(self, run: _Run) -> None:
        if self._background_s >= BACKGROUND_S:
            run.note(
                f"Before this cell, the session used {self._background_s:,.1f} s of processor time while no cell ran."
            )
        self._idle_from, self._background_s = None, 0.0

    def _settle(self, run: _Run, elapsed_s: float) -> None:
        """After a cell, end the processes it left running, and read the processor time unless the cell was short."""
        channel = self._channel
        if channel is None:
            return
        if run.end.get("left"):
            run.note("Processes that the cell left running were ended with it.")
            channel.end_children()
        if elapsed_s > BACKGROUND_S:
            self._idle_from = channel.cpu_s()

    # -- frames

    def _ended(self, run: _Run, stopping: Outcome | None) -> Outcome:
        if run.end["ok"]:
            return "ok"
        if stopping is not None:
            return stopping
        # Libraries turn an interrupt into errors of their own.
        return "interrupted" if self._interrupted else "error"

    def _answer(self, run: _Run, channel: Channel, payload: bytes, deadline: float) -> None:
        request = _read_request(payload)
        if not isinstance(request.get("method"), str):
            raise wire.Closed
        fd = sent = None
        try:
            if request.get("method") == "memory":
                head, fd = run.lend(request.get("size"))
            elif self._broker is None:
                raise SandboxError("This session has no source.", hint="Open it with one.")
            else:
                head, fd = self._broker.answer(request, max(deadline - time.monotonic(), 0))
            if fd is not None:
                sent = self._lent.lend(fd)
        except Exception as error:
            # Any error, of the request or of the host, is the reply to the session; it must not end the host's loop.
            head = {"problem": problem(error)}
        body = json.dumps(head | {"id": request.get("id")}).encode()
        try:
            _send(channel.sock, _frame(kernel.REPLY, body), deadline, sent)
        finally:
            for own in (fd, sent):
                if own is not None:
                    os.close(own)

    # -- control

    def interrupt(self) -> None:
        """Stop the running cell and the query it waits for; variables it has set stay."""
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
            channel.close()
        self._lent.close()

    def close(self) -> None:
        """End the interpreter. The session cannot be used again."""
        idle_check.remove(self)
        with self._lock:
            self._closed = True
            self._drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Stop:
    """The steps by which a cell is stopped: an interrupt, a second one if the first had no effect, then a kill."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.outcome: Outcome | None = None
        self._warned = False

    def escalate(self, channel: Channel, now: float, interrupted: bool) -> None:
        """Take the next step, if it is due."""
        if self.outcome is None:
            if not interrupted:  # `interrupt` has already sent the signal
                channel.signal(signal.SIGINT)
            self.outcome, self.deadline = "interrupted" if interrupted else "timeout", now + LOOK_S
        elif now >= self.deadline and not self._warned:
            # The first signal has no effect on a cell that had not begun, or that catches it.
            channel.signal(signal.SIGINT)
            self._warned, self.deadline = True, now + GRACE_S
        elif now >= self.deadline:
            raise wire.Closed


class _Pace:
    """Makes a session that sends frames without end wait, so that it does not take the host's processor from others."""

    def __init__(self) -> None:
        self._count = 0
        self._started = time.monotonic()

    def step(self) -> None:
        """Count a frame; after `FRAMES` of them, wait until their `PACE_S` seconds are over."""
        self._count += 1
        if self._count >= FRAMES:
            time.sleep(max(self._started + PACE_S - time.monotonic(), 0))
            self._count, self._started = 0, time.monotonic()


class SessionFrames:
    """Reads frames from a session. It does not trust the stated lengths: it caps them before it buffers anything."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._watch = kernel.KernelSocketWait(sock)
        self._data = bytearray()

    def next(self, deadline: float) -> tuple[int, bytes] | None:
        """Return the next frame, or None after the deadline; raise `wire.Closed` if the session ended."""
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
            if not self._watch.wait(max(deadline - time.monotonic(), 0) * 1000):
                return None
            part = self._sock.recv(1 << 16)
            if not part:
                raise wire.Closed
            self._data += part


class _Run:
    """Collects the frames of one cell. It does not trust them: it caps sizes and compares ids."""

    def __init__(
        self,
        number: int,
        code: str,
        cap: int,
        on_output: Callable[[Output], None] | None,
    ) -> None:
        self.id = number
        self.code = code
        self.end: dict[str, Any] = {}
        self.came_too_late = False
        """True if the session had ended before the cell began."""
        self.reason = ""
        """Why the host ended the session, if it did."""
        self._cap = cap
        self._on_output = on_output
        self._text: dict[str, list[str]] = {"stdout": [], "stderr": []}
        self._size = 0
        self._cut = 0
        self._displays: list[Display] = []
        self._table: Any = None
        """The last displayed table, if it can be read."""
        self._lent: dict[int, int] = {}
        self._lent_bytes = 0
        self._notes: list[str] = []

    def close(self) -> None:
        """Release the memory that was lent and not returned."""
        while self._lent:
            os.close(self._lent.popitem()[1])

    def lend(self, size: object) -> tuple[dict[str, Any], int]:
        """Create shared memory for a display; return the reply to the session and the descriptor to send with it."""
        if not isinstance(size, int) or size <= 0:
            raise Invalid(f"`{size!r:.80}` is not a number of bytes.", hint="Ask for 1 byte or more.")
        if self._lent_bytes + size > MAX_SHARED or len(self._lent) >= MAX_DISPLAYS:
            raise LimitExceeded(
                f"The displays of a cell may take {MAX_SHARED:,} bytes; with these {size:,} they would take more.",
                hint="Show fewer rows.",
                limit="displays",
            )
        number = self._lent_bytes = self._lent_bytes + size  # it only grows, so every number is unique
        self._lent[number] = wire.lend_wire_memory(size)
        return {"lent": number}, os.dup(self._lent[number])

    def note(self, text: str) -> None:
        self._notes.append(text)

    def take(self, kind: int, payload: bytes) -> bool:
        """Handle a frame; return True if it ends the cell."""
        try:
            if kind == _END:
                return self._finish(payload)
            if kind == _STDOUT:
                self._write("stdout", payload)
            elif kind == _STDERR:
                self._write("stderr", payload)
            elif kind == _DISPLAY:
                self._show(payload)
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
                try:
                    self._on_output(Output(stream, text))
                except Exception as error:
                    raise _ListenerFailed from error  # unwrapped, it could be taken for an error of the session

    def _show(self, payload: bytes) -> None:
        (size,) = struct.unpack("!I", payload[:4])
        if size > kernel.MAX_HEAD:
            raise wire.Closed
        head = json.loads(payload[4 : 4 + size])
        data: Any = memoryview(payload)[4 + size :]
        if "size" in head:
            length = int(head["size"])  # may raise, so before the descriptor is taken over
            data = memoryview(wire.map_wire_memory(self._lent.pop(head["lent"]), length, whole=True))
        elif len(data) > kernel.INLINE:
            raise wire.Closed  # the kernel sends larger displays through shared memory
        if head["id"] != self.id or len(self._displays) >= MAX_DISPLAYS or head["media"] not in kernel.MEDIA:
            return
        if head["media"] == kernel.ARROW:
            try:
                self._table = _read_table(data)
            except LimitExceeded as error:
                self.note(f"A table is not shown. {error.message}")
                return
            except Exception:  # untrusted data, and Arrow extension types run Python code on it
                self._table = None
        self._displays.append(Display(head["media"], data))

    def _finish(self, payload: bytes) -> bool:
        if len(payload) > kernel.MAX_END:
            raise wire.Closed  # the kernel never sends this much, and parsed it takes many times its length
        if len(payload) > SMALL_CALL and has_more_json_values(payload, END_VALUES):
            raise wire.Closed
        end = _decode(payload.decode())
        if b"\\u" in payload:
            # An escape can be half of a surrogate pair, which cannot be stored as UTF-8.
            end = _decode(json.dumps(end, ensure_ascii=False).encode("utf-8", "replace").decode())
        if not isinstance(end, dict) or end.get("id") != self.id or not isinstance(end.get("ok"), bool):
            return False
        if not all(isinstance(end.get(part), dict | None) for part in ("value", "error")):
            raise wire.Closed
        self.end = end
        return True

    def cell(self, outcome: Outcome, elapsed_ms: float, wall_s: float) -> Cell:
        if self._cut:
            self.note(f"{self._cut:,} bytes of output were cut; {self._cap:,} are kept.")
        shown, error = self.end.get("value") or {}, self._error(outcome, wall_s)
        if outcome == "timeout" and error is not None and error["type"] != "Timeout":
            self.note(_TIMEOUT.format(wall_s))
        if isinstance(shown.get("note"), str):
            self.note(shown["note"][:500])
        return Cell(
            id=self.id,
            code=self.code,
            outcome=outcome,
            stdout="".join(self._text["stdout"]),
            stderr="".join(self._text["stderr"]),
            value=self._value(shown),
            text=str(shown.get("text", "")),
            display=tuple(self._displays),
            error=error,
            elapsed_ms=elapsed_ms,
            notes=tuple(self._notes),
        )

    def _error(self, outcome: Outcome, wall_s: float) -> dict[str, Any] | None:
        sent = self.end.get("error")
        error = _as_error(sent) if sent else None
        if outcome == "timeout" and (error is None or error["type"] == "KeyboardInterrupt"):
            kind, message = "Timeout", _TIMEOUT.format(wall_s)
        elif error is not None or outcome not in ("interrupted", "killed"):
            return error
        elif outcome == "interrupted":
            kind, message = "KeyboardInterrupt", "The cell did not stop when it was interrupted."
        elif self.reason:
            kind, message = "SessionDied", self.reason
        elif self.came_too_late:
            kind, message = "SessionDied", "The session had ended before the cell began."
        else:
            kind = "SessionDied"
            message = "The session ended while the cell ran: most likely it exceeded its limit of memory or files."
        where = error or {"traceback": "", "line": None}
        lines = where["traceback"].removesuffix("KeyboardInterrupt\n")
        return where | {
            "type": kind,
            "message": message,
            "traceback": f"{lines}{kind}: {message}\n" if lines else "",
        }

    def _value(self, shown: dict[str, Any]) -> Any:
        if "json" in shown:
            return shown["json"]
        if shown.get("media") == kernel.ARROW and any(d.media == kernel.ARROW for d in self._displays):
            return self._table if self._table is not None else str(shown.get("text", ""))
        return shown.get("text") if shown else None


def _read_request(payload: bytes) -> dict[str, Any]:
    """Return what a session asks for. A text of millions of values would keep all other threads waiting."""
    try:
        if len(payload) > kernel.MAX_CALL:
            raise wire.Closed
        if len(payload) > SMALL_CALL:
            check_json_body(payload, CALL_VALUES)
        request = json.loads(payload)
    except (Invalid, ValueError, RecursionError):
        raise wire.Closed from None
    if not isinstance(request, dict):
        raise wire.Closed
    return request


def _read_table(data: bytes | memoryview) -> Any:
    """Return the table of a display. The data is untrusted, so this can raise any exception."""
    import pyarrow as pa

    check_arrow_stream_schema(data)
    refuse_compressed_arrow(data)
    reader = pa.ipc.open_stream(pa.py_buffer(data))
    check_arrow_schema(reader.schema)
    if not all(_is_known(field.type) for field in reader.schema):
        raise ValueError
    table = reader.read_all()
    table.validate(full=True)  # offsets are untrusted, and Arrow does not check them when it reads values
    check_arrow_limits(table)
    for batch in table.to_batches():
        check_arrow_row_bytes(batch, ROW_BYTES)
    return table


def _is_known(arrow: Any) -> bool:
    """True if Arrow validates the type in full. Views are excluded: some that passed have crashed the reader."""
    import pyarrow as pa

    types = pa.types
    if isinstance(arrow, pa.BaseExtensionType):
        return _is_known(arrow.storage_type)
    if types.is_dictionary(arrow):
        return _is_known(arrow.value_type) and not types.is_nested(arrow.value_type)  # Parquet has no such dictionaries
    if types.is_struct(arrow) or types.is_list(arrow) or types.is_large_list(arrow):
        return all(_is_known(arrow.field(i).type) for i in range(arrow.num_fields))
    if types.is_fixed_size_list(arrow):
        return _is_known(arrow.value_type)
    if types.is_map(arrow):
        return _is_known(arrow.key_type) and _is_known(arrow.item_type)
    texts = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    others = (types.is_primitive, types.is_null, types.is_decimal, types.is_fixed_size_binary, types.is_interval)
    return any(is_one(arrow) for is_one in (*texts, *others))


def _as_error(error: dict[str, Any]) -> dict[str, Any]:
    """Return an error sent by a session with the fields and types that callers expect."""
    line, inner = error.get("line"), error.get("problem")
    checked: dict[str, Any] = {part: str(error.get(part, "")) for part in ("type", "message", "traceback")}
    checked["line"] = line if isinstance(line, int) else None
    # An error of the host itself, which the session sent back.
    whole = isinstance(inner, dict) and all(isinstance(inner.get(p), str) for p in ("type", "title", "code", "detail"))
    return checked | ({"problem": inner} if whole else {})


def _frame(kind: int, payload: bytes) -> bytes:
    return kernel.HEAD.pack(len(payload), kind) + payload


def _send(sock: socket.socket, data: bytes, deadline: float, fd: int | None = None) -> None:
    """Send all data; raise `OSError` if the session does not read it before the deadline of the cell."""
    sent = 0
    if fd is None:
        with contextlib.suppress(BlockingIOError):
            sent = sock.send(data, socket.MSG_DONTWAIT)
        if sent == len(data):
            return
    sock.settimeout(min(max(deadline - time.monotonic(), 0) + GRACE_S, LONGEST_S))
    try:
        if fd is not None:
            sent = socket.send_fds(sock, [data], [fd])
        sock.sendall(data[sent:])
    finally:
        sock.settimeout(None)
