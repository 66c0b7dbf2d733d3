"""Inside the sandbox: runs cells and keeps their names. It imports nothing of etude, for nothing of etude is needed.

Frames on the socket: length (u32), kind (one byte), payload. To the host: `R` ready, `O` and `E` text of the two
streams, `D` a display, `X` the end of a cell, `C` a call for data, or for memory to put a display in. From the host:
`x` a cell, which is its number (u32) and its text, `s` the seed of random numbers, `r` the reply to a call.
Before it is ready, the fork server's child may send `N`, a socket for the host's proxy, or `F`, why it failed.
User code can write to the socket too: all that a frame can do is harm its own session.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import contextlib
import ctypes
import errno
import fcntl
import inspect
import io
import json
import linecache
import mmap
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
import traceback
import types
import weakref
from collections.abc import Iterator
from typing import Any

HEAD = struct.Struct("!IB")
NUMBER = struct.Struct("!I")
INLINE = 1 << 18
ARROW, PNG, CHART = "application/vnd.apache.arrow.stream", "image/png", "application/vnd.vegalite.v5+json"
MEDIA = (ARROW, PNG, CHART)
"""The forms of a display; the host takes no other, for the name travels far."""
MAX_CALL = 8 << 20
"""Bytes of a request: what the host reads of one takes many times that of its memory."""
MAX_END = 8 * INLINE
"""Bytes of the end of a cell; a value is part of it only up to `INLINE` characters."""
MAX_HEAD = 4096
"""Bytes of what a display says of itself."""
PREVIEW = 16_384
COMPLETIONS = 200
"""Names that are offered for the beginning of one."""
SPIN_S = 100e-6
SLEEPS = 16
"""Waits that are slept through once one was looked through in vain."""
_encode = json.JSONEncoder(default=str, ensure_ascii=False).encode
CELL, SEED, REPLY = b"xsr"
PIECE = 1 << 20
DEPTH = 50
_SCALARS = frozenset({bool, int, float, str})
SOURCES = 1000
"""Cells whose lines a traceback can show."""
_LIBC = ctypes.CDLL(None)
_LIBC.mmap.restype = ctypes.c_void_p
SESSION: KernelSession | None = None
"""The session of this process; `etude.connect()` finds its way to the host by it."""


class SocketWait:
    """Waits until a socket has something to read.

    Answers often come within microseconds: to look for them again and again is quicker than to sleep and be woken. On
    a busy machine it is slower, for others take the processor meanwhile; so once it was in vain, it sleeps for a while.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._sleeps = 0

    def wait(self, milliseconds: float | None = None) -> bool:
        """Whether there is something to read, by then."""
        if self._sleeps:
            self._sleeps -= 1
        else:
            until = time.perf_counter() + SPIN_S
            while time.perf_counter() < until:
                if self._poll.poll(0):
                    return True
                os.sched_yield()  # the other side may be waiting for this very processor
            self._sleeps = SLEEPS
        return self.sleep(milliseconds)

    def sleep(self, milliseconds: float | None = None) -> bool:
        """The same, where it is known to take long."""
        return bool(self._poll.poll(milliseconds))


class OutputStream(io.TextIOBase):
    """A text stream that leaves as it is written: line by line, or in pieces of a few kilobytes."""

    def __init__(self, session: KernelSession, kind: bytes, name: str) -> None:
        self._session = session
        self._kind = kind
        self.name = name
        self.other: OutputStream | None = None
        """The stream beside it, which has to let out what it holds back before this one takes more."""
        self._parts: list[str] = []
        self._size = 0

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of all text."""
        return "utf-8"

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, text: str) -> int:
        """Take text; whole lines go out at once."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if self.other is not None and self.other._parts:
            self.other.flush()
        self._parts.append(text)
        self._size += len(text)
        if "\n" in text or self._size > 8192:
            self.flush()
        return len(text)

    def flush(self) -> None:
        """Send what was held back."""
        if self._parts:
            text, self._parts, self._size = "".join(self._parts), [], 0
            # In pieces, for the host takes a frame that is too long for an attack.
            for start in range(0, len(text), PIECE):
                self._session.send(self._kind, text[start : start + PIECE].encode("utf-8", "replace"))

    def fileno(self) -> int:
        """There is no file behind it."""
        raise io.UnsupportedOperation("fileno")


class HostError(Exception):
    """The host refused or failed a request; `problem` says why."""

    def __init__(self, problem: dict[str, Any]) -> None:
        super().__init__(problem.get("detail", "the host refused"))
        self.problem = problem


class KernelSession:
    """One interpreter behind one socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._watch = SocketWait(sock)
        self._send_lock = threading.Lock()
        self._call_lock = threading.Lock()
        self._data = b""
        self._fds: list[int] = []
        self._calls = 0
        self._cell = 0
        self._is_copy = False
        self._in_cell = False
        self._in_frame = False
        self._interrupted = False
        self._loop: asyncio.AbstractEventLoop | None = None
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        self.names: dict[str, Any] = module.__dict__
        self.names["__builtins__"] = builtins

    # -- frames

    def send(self, kind: bytes, payload: bytes) -> None:
        """Send one frame whole."""
        data = HEAD.pack(len(payload), kind[0]) + payload
        whole = self._whole_frame() if self._in_cell else contextlib.nullcontext()
        with whole, self._send_lock:
            self._sock.sendall(data)

    def _receive(self, between_cells: bool = False) -> tuple[int, bytes]:
        """The next frame. Descriptors that come along wait in line for the frame that names their size."""
        while True:
            if len(self._data) >= HEAD.size:
                length, kind = HEAD.unpack_from(self._data)
                size = HEAD.size + length
                if len(self._data) >= size:
                    payload, self._data = self._data[HEAD.size : size], self._data[size:]
                    return kind, payload
            if between_cells:
                self._watch.wait()
                part = self._sock.recv(1 << 16)
            else:
                self._watch.sleep()  # here an interrupt may come: nothing is taken yet
                with self._whole_frame():
                    part, fds, _, _ = socket.recv_fds(self._sock, 1 << 16, 4)
                    self._fds += fds
            if not part:
                os._exit(0)
            self._data += part

    @contextlib.contextmanager
    def _whole_frame(self) -> Iterator[None]:
        """Put an interrupt off until the frame is through: half a frame would make all that follows unreadable."""
        if threading.current_thread() is not threading.main_thread():
            yield  # interrupts come to the main thread alone
            return
        self._in_frame = True
        try:
            yield
        finally:
            self._in_frame = False
        if self._interrupted:
            self._interrupted = False
            if self._in_cell:
                raise KeyboardInterrupt

    def call(self, method: str, **arguments: Any) -> tuple[dict[str, Any], Any]:
        """Ask the host for something; the answer is a dict and, for data, a buffer in shared memory."""
        with self._call_lock:
            if self._is_copy:
                raise RuntimeError("a process that was forked cannot ask the host")
            if not self._in_cell:
                raise RuntimeError("the host answers only while a cell runs: let the cell wait for its threads")
            self._calls += 1
            number = self._calls
            request = json.dumps({"id": number, "cell": self._cell, "method": method} | arguments).encode()
            if len(request) > MAX_CALL:
                raise ValueError(f"a request of {len(request):,} bytes is too long; the host takes {MAX_CALL:,}")
            self.send(b"C", request)
            while True:
                kind, payload = self._receive()
                if kind == REPLY:
                    head, data = self._opened(payload)
                    if head.get("id") == number:
                        if "problem" in head:
                            raise HostError(head["problem"])
                        return head, data
                    # It is the reply to a call that was interrupted: nobody waits for it any more.
                    if "lent" in head:
                        os.close(data)

    def _forget_descriptors(self) -> None:
        while self._fds:
            os.close(self._fds.pop())

    def _opened(self, payload: bytes) -> tuple[dict[str, Any], Any]:
        head = json.loads(payload)
        if "lent" in head:
            return head, self._fds.pop(0)
        if "size" not in head:
            return head, None
        fd = self._fds.pop(0)
        try:
            return head, _map(fd, head["size"])
        finally:
            os.close(fd)

    # -- cells

    def serve(self) -> None:
        """Run cells until the host closes the socket."""
        signal.signal(signal.SIGINT, self._on_interrupt)
        os.register_at_fork(after_in_child=self._become_copy)
        sys.stdout, sys.stderr = out, err = OutputStream(self, b"O", "<stdout>"), OutputStream(self, b"E", "<stderr>")
        out.other, err.other = err, out
        # Whoever has caught the output for a while puts these back.
        sys.__stdout__, sys.__stderr__ = out, err  # type: ignore[misc, assignment]
        builtins.input = _refuse_input
        fcntl.flock = _lock_whole_file
        socket.socket.sendmsg = _send_parts  # type: ignore[assignment, method-assign]
        # What a cell touches first is copied from the fork server now, while nobody waits.
        self._display(self._execute("import sys\ndel sys\n1", "<warm-up>"))
        _encode({"id": 0, "ok": True})
        self._has_children()
        self.send(b"R", b"{}")
        while True:
            try:
                kind, payload = self._receive(between_cells=True)
                if kind == CELL:
                    # In bytes, not as JSON: a round trip is short enough for that to tell.
                    (number,) = NUMBER.unpack_from(payload)
                    self._run(number, payload[NUMBER.size :].decode("utf-8", "surrogatepass"))
                elif kind == SEED:
                    seed(int(payload))
                else:
                    self._forget_descriptors()  # the reply to a call that was interrupted
            except KeyboardInterrupt:
                continue  # it came between two cells: there was nothing left to stop

    def _become_copy(self) -> None:
        self._is_copy = True

    def _on_interrupt(self, number: int, frame: Any) -> None:
        if self._in_frame:
            self._interrupted = True
        elif self._in_cell:
            raise KeyboardInterrupt

    def _run(self, number: int, code: str) -> None:
        self._cell = number
        end: dict[str, Any] = {"id": number, "ok": True}
        try:
            self._in_cell = True
            try:
                value = self._execute(code, f"<cell {number}>")
                if value is not None:
                    self.names["_"] = value
                    end["value"] = self._display(value)
                self._show_figures(end)
            finally:
                self._in_cell = False
        except BaseException as error:
            # Whatever user code raises, SystemExit and an exception from __repr__ included, is the cell's error.
            end = {"id": number, "ok": False, "error": describe_error(error)}
        if self._is_copy:
            os._exit(0)  # forked by user code and not ended there: two would take cells from one socket
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, OutputStream):
                stream.flush()
        if self._has_children():
            end["left"] = True
        # A thread that waits for the host gets its reply first: after the end nobody would send one.
        with self._call_lock:
            self.send(b"X", _encode(end).encode("utf-8", "replace"))
        # What is left to do is done while the host reads the answer.
        if "left" in end:
            self._end_children()
        linecache.cache.pop(f"<cell {number - SOURCES}>", None)  # else a long session would only grow

    def _execute(self, code: str, name: str) -> Any:
        # Lines as the parser counts them; each ends in a newline, else a traceback points beside the place.
        lines = io.StringIO(f"{code}\n", newline=None).readlines()
        linecache.cache[name] = (len(code), None, lines, name)
        expression = _as_expression(code, name)
        if expression is not None:
            return self._evaluate(expression)
        tree = ast.parse(code, name)
        last: ast.Expression | None = None
        if tree.body and isinstance(tree.body[-1], ast.Expr) and not code.rstrip().endswith(";"):
            statement = tree.body.pop()
            assert isinstance(statement, ast.Expr)  # noqa: S101 - for the type checker
            last = ast.Expression(statement.value)
        if tree.body:
            self._evaluate(_compile(tree, name, "exec"))
        return self._evaluate(_compile(last, name, "eval")) if last is not None else None

    def _evaluate(self, compiled: types.CodeType) -> Any:
        if not compiled.co_flags & inspect.CO_COROUTINE:
            return eval(compiled, self.names)  # noqa: S307 - running what the user wrote is the point
        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
        task = self._loop.create_task(eval(compiled, self.names))  # noqa: S307
        try:
            return self._loop.run_until_complete(task)
        finally:
            if not task.done():  # it was interrupted: else it would go on in the next cell that waits for something
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    self._loop.run_until_complete(task)

    def _show_figures(self, end: dict[str, Any]) -> None:
        """Show what was drawn and not asked for: few end a cell with the figure itself."""
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is not None:
            for number in pyplot.get_fignums():
                end.setdefault("value", self._display(pyplot.figure(number)))

    def _display(self, value: Any) -> dict[str, Any]:
        shown = describe_value(value)
        blob = shown.pop("blob", None)
        if blob is not None:
            try:
                self._send_display({"id": self._cell, "media": shown["media"]}, blob)
            except (OSError, HostError, RuntimeError) as error:
                # The cell has its value all the same: that it cannot be shown makes no error of it.
                del shown["media"]
                return shown | {"note": f"The value is shown as text: {len(blob):,} bytes cannot be sent ({error})."}
        return shown

    def _send_display(self, head: dict[str, Any], blob: Any) -> None:
        if len(blob) > INLINE:
            head["size"], head["lent"], blob = len(blob), self._share(blob), b""
        told = json.dumps(head).encode()
        self.send(b"D", b"".join((struct.pack("!I", len(told)), told, blob)))

    def _share(self, blob: Any) -> int:
        """Fill memory that the host lends, and seal it; returns the number by which the host knows it.

        A session sends no descriptors: those on their way count for all processes of a user together.
        """
        reply, fd = self.call("memory", size=len(blob))
        try:
            _fill(fd, blob)
        finally:
            os.close(fd)
        return int(reply["lent"])

    def _has_children(self) -> bool:
        """Reap processes that have ended; whether there are others."""
        try:
            # As the first process of its namespace the session inherits every orphan.
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return False
        return True

    def _end_children(self) -> None:
        """End the processes that a cell left running."""
        while self._has_children():
            if os.getpid() != 1:
                return  # without a process namespace the number for all would mean others as well; the host ends them
            os.kill(-1, signal.SIGKILL)
            os.waitpid(-1, 0)


def _compile(code: str | ast.Module | ast.Expression, name: str, mode: str) -> types.CodeType:
    # What this module imports from the future is not what the user wrote: it would make texts of their annotations.
    compiled: types.CodeType = compile(code, name, mode, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    return compiled


def _as_expression(code: str, name: str) -> types.CodeType | None:
    """A single line that is an expression, compiled: it needs no tree to find its value."""
    if "\n" in code:
        return None
    try:
        return _compile(code, name, "eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # a statement, or wrong: the usual way tells


def seed(value: int) -> None:
    """Make random numbers repeatable: sessions are forked from one process, which leaves them all alike."""
    import random

    random.seed(value)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(value % (1 << 32))


def _refuse_input(prompt: object = "") -> str:
    raise RuntimeError("input() is not available: nobody is at the keyboard. Put the value into the code.")


def _lock_whole_file(fd: Any, operation: int, /) -> None:
    """Do what `fcntl.flock` does by a record lock on the whole file, as NFS does.

    The call itself is refused: it locks exclusively whatever can be read. This needs a file that is open for writing.
    """
    kinds = {fcntl.LOCK_SH: fcntl.F_RDLCK, fcntl.LOCK_EX: fcntl.F_WRLCK, fcntl.LOCK_UN: fcntl.F_UNLCK}
    kind = kinds.get(operation & ~fcntl.LOCK_NB)
    if kind is None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    # Of the open file, not of the process, as those of `flock` are.
    command = fcntl.F_OFD_SETLK if operation & fcntl.LOCK_NB else fcntl.F_OFD_SETLKW
    fcntl.fcntl(fd, command, struct.pack("hhqqi4x", kind, os.SEEK_SET, 0, 0, 0))


_sendmsg = socket.socket.sendmsg


def _send_parts(sock: socket.socket, buffers: Any, ancdata: Any = (), flags: int = 0, address: Any = None, /) -> int:
    """Do what `socket.sendmsg` does, without the call of that name if nothing but data is sent.

    That call can also send descriptors, and so most sessions may not use it. Newer versions of asyncio write by it.
    """
    parts, added = list(buffers), list(ancdata)
    if added or address is not None:
        return _sendmsg(sock, parts, added, flags, address)
    if flags or sock.gettimeout():
        return sock.send(b"".join(parts), flags)
    return os.writev(sock.fileno(), parts)


def _map(fd: int, size: int) -> memoryview:
    """Shared memory to read from. Not by `mmap`, which keeps a file open for each, of which a session has few."""
    length = ctypes.c_size_t(size)
    address = _LIBC.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, fd, ctypes.c_long(0))
    if address == ctypes.c_void_p(-1).value:
        raise MemoryError(f"a result of {size:,} bytes has no room in the session's address space")
    mapped = (ctypes.c_char * size).from_address(address)
    weakref.finalize(mapped, _LIBC.munmap, ctypes.c_void_p(address), length)
    return memoryview(mapped).cast("B").toreadonly()


def _fill(fd: int, blob: Any) -> None:
    """Write a blob to shared memory and seal it."""
    with open(fd, "wb", buffering=0, closefd=False) as file:
        left = memoryview(blob)
        while left:
            left = left[file.write(left) :]
    for last in (*[False] * 19, True):
        try:
            fcntl.fcntl(fd, 1033, 0x8)  # its size is sealed already
            break
        except OSError as error:
            if last or error.errno != errno.EBUSY:
                raise
            time.sleep(0.05)  # the system holds one of its pages for a moment


def print_completions(text: str, within_s: float) -> None:
    """Print what a name that begins so could be, one to a line; nothing where that takes longer.

    A copy of the process finds out: to look at a value can run code of its own, which may change something or not end.
    """
    assert SESSION is not None  # noqa: S101 - for the type checker
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            import rlcompleter

            sys.stdout = sys.stderr = io.StringIO()
            complete = rlcompleter.Completer(SESSION.names).complete
            names = [name for state in range(COMPLETIONS) if (name := complete(text, state))]
            with open(into, "w", encoding="utf-8") as file:
                file.write("\n".join(names))
        finally:
            os._exit(0)
    os.close(into)
    until, found = time.monotonic() + within_s, b""
    try:
        while select.select([out], [], [], max(until - time.monotonic(), 0))[0] and (part := os.read(out, 1 << 16)):
            found += part
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(out)
    sys.stdout.write(found.decode())


def describe_value(value: Any) -> dict[str, Any]:
    """How a value is shown: its text, and where there is a richer form that one as a blob with its media type."""
    for describe in (_table, _chart, _figure) if type(value) not in _SCALARS else ():
        rich = describe(value)
        if rich is not None:
            return rich
    text = repr(value)
    shown = _preview(text) | {"type": type(value).__name__}
    numpy = sys.modules.get("numpy")
    plain = value.item() if numpy is not None and isinstance(value, numpy.generic) else value
    if len(text) <= INLINE and _is_plain(plain):
        shown["json"] = plain
    return shown


def _preview(text: str) -> dict[str, Any]:
    """The beginning of a text; where that is not all, with a note that says so."""
    if len(text) <= PREVIEW:
        return {"text": text}
    note = f"The text of the value is cut: of {len(text):,} characters {PREVIEW:,} are shown."
    return {"text": text[:PREVIEW], "note": note}


def _is_plain(value: Any, depth: int = 0) -> bool:
    if depth > DEPTH:
        return False  # it may hold itself
    if isinstance(value, bool | int | float | str):
        return not (isinstance(value, str) and len(value) > PREVIEW)
    if isinstance(value, list | tuple) and len(value) <= 1000:
        return type(value) is list and all(_is_plain(v, depth + 1) for v in value)
    if type(value) is dict and len(value) <= 1000:
        return all(isinstance(k, str) and _is_plain(v, depth + 1) for k, v in value.items())
    return value is None


def _table(value: Any) -> dict[str, Any] | None:
    module = type(value).__module__.partition(".")[0]
    if module not in ("pandas", "pyarrow", "polars", "duckdb", "_duckdb", "etude"):
        return None
    table = _to_arrow(value)
    if table is None:
        return None
    import pyarrow as pa

    shown = _preview(repr(value)) | {"type": type(value).__name__, "rows": table.num_rows}
    sink = pa.BufferOutputStream()
    try:
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    except (pa.ArrowException, OSError):
        return shown  # too large for what memory there is, or of a type that cannot travel: the text will do
    return shown | {"media": ARROW, "blob": memoryview(sink.getvalue())}


def _to_arrow(value: Any) -> Any:
    import pyarrow as pa

    kind = type(value).__name__
    if isinstance(value, pa.Table):
        return value
    if isinstance(value, pa.RecordBatch):
        return pa.Table.from_batches([value])
    if isinstance(value, pa.Array | pa.ChunkedArray):
        return pa.table({"value": value})
    try:
        if kind == "DataFrame" and hasattr(value, "to_arrow"):
            # Polars would give texts as views, which the host does not read.
            return value.to_arrow(compat_level=sys.modules["polars"].CompatLevel.oldest())
        if kind == "DataFrame":
            keep_index = type(value.index).__name__ != "RangeIndex"
            return pa.Table.from_pandas(value, preserve_index=keep_index)
        if kind == "Series" and hasattr(value, "to_frame"):
            frame = value.to_frame(name=value.name if value.name is not None else "value")
            return _to_arrow(frame)
        if kind in ("Result", "DuckDBPyRelation") and hasattr(value, "arrow"):
            found = value.arrow()
            return found.read_all() if isinstance(found, pa.RecordBatchReader) else _to_arrow(found)
    except Exception as error:
        if kind == "DuckDBPyRelation" and type(error).__module__ in ("duckdb", "_duckdb"):
            raise  # the query itself, which runs only now
        return None  # columns that Arrow has no type for, or that fail on the way: the text will do
    return None


def _chart(value: Any) -> dict[str, Any] | None:
    if type(value).__module__.startswith("altair") and hasattr(value, "to_dict"):
        value = value.to_dict()
    if isinstance(value, dict) and "vega-lite" in str(value.get("$schema", "")):
        blob = json.dumps(value, default=str).encode()
        return {"text": "<chart>", "type": "chart", "media": CHART, "blob": blob}
    return None


def _figure(value: Any) -> dict[str, Any] | None:
    if not type(value).__module__.startswith("matplotlib"):
        return None
    figure = getattr(value, "figure", None) or value
    if not hasattr(figure, "savefig"):
        return None
    sink = io.BytesIO()
    figure.savefig(sink, format="png", bbox_inches="tight")
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close(figure)
    return _preview(repr(value)) | {"type": "figure", "media": PNG, "blob": sink.getvalue()}


def describe_error(error: BaseException) -> dict[str, Any]:
    """An exception as data: its type, its text, and a traceback of the user's code alone."""
    try:
        message = _without_middle(str(error))
    except BaseException:
        message = "<the exception has no text: its __str__ failed>"
    line = None
    if isinstance(error, SyntaxError) and (error.filename or "").startswith("<cell "):
        line = error.lineno
        if error.text is None and line is not None:  # what is found only after parsing comes without it
            error.text = linecache.getline(error.filename or "", line)
    told = traceback.TracebackException.from_exception(error, lookup_lines=False)
    _keep_own_frames(told)
    if told.stack and line is None:
        # Of the cell that ran; the frames below can be in functions of earlier ones.
        line = [f.lineno for f in told.stack if f.filename == told.stack[0].filename][-1]
    shown = {
        "type": type(error).__name__,
        "message": message,
        "traceback": _without_middle("".join(told.format())),
        "line": line,
    }
    return shown | ({"problem": error.problem} if isinstance(error, HostError) else {})


def _keep_own_frames(error: traceback.TracebackException) -> None:
    """Leave the frames of cells alone, also in what led to the error; what led to it inside of a library goes."""
    waiting = [error]
    while waiting:
        told = waiting.pop()
        own = [f for f in told.stack if f.filename.startswith("<cell ")]
        told.stack = traceback.StackSummary.from_list(own) if own else None  # type: ignore[assignment]
        for part in ("__cause__", "__context__"):
            before = getattr(told, part)
            if before is None:
                continue
            if before.stack and not any(f.filename.startswith("<cell ") for f in before.stack):
                setattr(told, part, None)
            else:
                waiting.append(before)
        waiting += told.exceptions or ()


def _without_middle(text: str) -> str:
    """The text, or where it is long its two ends: the first tells where, the last what."""
    half = PREVIEW // 2
    if len(text) <= PREVIEW:
        return text
    return f"{text[:half]}\n... {len(text) - 2 * half:,} characters are cut ...\n{text[-half:]}"


def serve(sock: socket.socket) -> None:
    """Be the session behind `sock` until it closes."""
    global SESSION  # noqa: PLW0603 - a process is one session
    SESSION = KernelSession(sock)
    SESSION.serve()
