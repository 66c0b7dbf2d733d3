"""The interpreter inside the sandbox: it runs cells and keeps their variables. It imports no other module of etude.

Frames on the socket: length (u32), kind (one byte), payload. To the host: `R` ready, `O` and `E` text of the two
streams, `D` a display, `X` the end of a cell, `C` a call for data, or for memory to put a display in. From the host:
`x` a cell, which is its number (u32) and its text, `s` the seed of random numbers, `r` the reply to a call.
Before it is ready, the fork server's child may send `N`, a socket for the host's proxy, or `F`, the reason it failed.
User code can write to the socket too, but a forged frame can only harm its own session.
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
LINES = 10_000
"""How many lines of a cell are sent one by one: the host reads no more than some thousand frames a second."""
COPIED = 4 << 20
"""Results up to this size are copied, because the host limits how many pieces of its memory a session holds."""
ARROW, PNG, CHART = "application/vnd.apache.arrow.stream", "image/png", "application/vnd.vegalite.v5+json"
MEDIA = (ARROW, PNG, CHART)
"""The media types of displays. The host rejects all others, because it passes the type on to clients."""
MAX_CALL = 8 << 20
"""The most bytes of a request: parsed, it takes many times as much of the host's memory."""
MAX_END = 8 * INLINE
"""The most bytes of the end of a cell, which includes a value only up to `INLINE` characters."""
MAX_HEAD = 4096
"""The most bytes of the header of a display."""
PREVIEW = 16_384
COMPLETIONS = 200
"""The most names that a completion offers."""
SPIN_S = 100e-6
SLEEPS = 16
"""How many waits skip spinning after one that spun without success."""
_encode = json.JSONEncoder(default=str, ensure_ascii=False).encode
CELL, SEED, REPLY = b"xsr"
PIECE = 1 << 20
DEPTH = 50
_SCALARS = frozenset({bool, int, float, str})
RESULTS = ("result_df", "result_rows", "result")
"""Variables that a cell may assign instead of ending with an expression."""
SOURCES = 1000
"""How many cells keep their source lines for tracebacks."""
_LIBC = ctypes.CDLL(None)
_LIBC.mmap.restype = ctypes.c_void_p
SESSION: KernelSession | None = None
"""The session of this process, through which `etude.connect()` reaches the host."""


class KernelSocketWait:
    """Waits until a socket has something to read.

    Answers often come within microseconds, so it spins first, which is faster than to sleep and be woken. On a busy
    machine spinning is slower, because other processes need the processor: after a spin without success, the next
    `SLEEPS` waits only sleep.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._sleeps = 0

    def wait(self, milliseconds: float | None = None) -> bool:
        """Return True as soon as there is something to read, or False after the timeout."""
        if self._sleeps:
            self._sleeps -= 1
        else:
            until = time.perf_counter() + SPIN_S
            while time.perf_counter() < until:
                if self._poll.poll(0):
                    return True
                os.sched_yield()  # the other side may need this processor to answer
            self._sleeps = SLEEPS
        return self.sleep(milliseconds)

    def sleep(self, milliseconds: float | None = None) -> bool:
        """Wait without spinning, if the answer is known to take long."""
        return bool(self._poll.poll(milliseconds))


class KernelOutputStream(io.TextIOBase):
    """A text stream that sends what is written to it line by line, and after many lines in pieces of some kilobytes."""

    def __init__(self, session: KernelSession, kind: bytes, name: str) -> None:
        self._session = session
        self._kind = kind
        self.name = name
        self.other: KernelOutputStream | None = None
        """The other of the two streams. It is flushed before a write to this one, to keep the order of the output."""
        self.lines = 0
        """How often the running cell has sent text."""
        self._parts: list[str] = []
        self._size = 0

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of all text."""
        return "utf-8"

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str) -> int:
        """Buffer the text; send it if it ends a line or the buffer is full."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if self.other is not None and self.other._parts:
            self.other.flush()
        self._parts.append(text)
        self._size += len(text)
        if self._size > 8192 or ("\n" in text and self.lines < LINES):
            self.lines += 1
            self.flush()
        return len(text)

    def flush(self) -> None:
        """Send the buffered text."""
        if self._parts:
            text, self._parts, self._size = "".join(self._parts), [], 0
            # In pieces, because the host treats an overlong frame as an attack.
            for start in range(0, len(text), PIECE):
                self._session.send(self._kind, text[start : start + PIECE].encode("utf-8", "replace"))

    def fileno(self) -> int:
        """Raise `UnsupportedOperation`: the stream has no file descriptor."""
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
        self._watch = KernelSocketWait(sock)
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
        """Send one complete frame."""
        data = HEAD.pack(len(payload), kind[0]) + payload
        whole = self._whole_frame() if self._in_cell else contextlib.nullcontext()
        with whole, self._send_lock:
            self._sock.sendall(data)

    def _receive(self, between_cells: bool = False) -> tuple[int, bytes]:
        """Return the next frame. Descriptors that arrive with it are queued for the frame that states their size."""
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
                self._watch.sleep()  # an interrupt is safe here: nothing was read yet
                with self._whole_frame():
                    part, fds, _, _ = socket.recv_fds(self._sock, 1 << 16, 4)
                    self._fds += fds
            if not part:
                os._exit(0)
            self._data += part

    @contextlib.contextmanager
    def _whole_frame(self) -> Iterator[None]:
        """Defer an interrupt until the frame is complete: after half a frame, all that follows would be unreadable."""
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread gets interrupts
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
        """Send a request to the host; return its reply as a dict and, if it has data, a buffer in shared memory."""
        with self._call_lock:
            if self._is_copy:
                raise RuntimeError("a forked process cannot send requests to the host")
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
                    # It is the reply to a call that was interrupted, so it is ignored.
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
            size = head["size"]
            return head, memoryview(os.pread(fd, size, 0)) if size <= COPIED else _map(fd, size)
        finally:
            os.close(fd)

    # -- cells

    def serve(self) -> None:
        """Run cells until the host closes the socket."""
        signal.signal(signal.SIGINT, self._on_interrupt)
        os.register_at_fork(after_in_child=self._become_copy)
        sys.stdout, sys.stderr = out, err = (
            KernelOutputStream(self, b"O", "<stdout>"),
            KernelOutputStream(self, b"E", "<stderr>"),
        )
        out.other, err.other = err, out
        # Code that redirects the output restores it from these.
        sys.__stdout__, sys.__stderr__ = out, err  # type: ignore[misc, assignment]
        builtins.input = _refuse_input
        fcntl.flock = _lock_whole_file
        socket.socket.sendmsg = _send_parts  # type: ignore[assignment, method-assign]
        # Warm up: memory pages that a first cell writes to are copied from the fork server now, not while a user waits.
        self._display(self._execute("import sys\ndel sys\n1", "<warm-up>"))
        _encode({"id": 0, "ok": True})
        self._has_children()
        self.send(b"R", b"{}")
        while True:
            try:
                kind, payload = self._receive(between_cells=True)
                if kind == CELL:
                    # In bytes, not as JSON: a round trip is so short that parsing JSON would show.
                    (number,) = NUMBER.unpack_from(payload)
                    self._run(number, payload[NUMBER.size :].decode("utf-8", "surrogatepass"))
                elif kind == SEED:
                    seed_kernel(int(payload))
                else:
                    self._forget_descriptors()  # the reply to a call that was interrupted
            except KeyboardInterrupt:
                continue  # it came between two cells: there is nothing to stop

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
                else:
                    value = self._assigned_result(code)
                if value is not None:
                    end["value"] = self._display(value)
                self._show_figures(end)
            finally:
                self._in_cell = False
        except BaseException as error:
            # Anything that user code raises is the cell's error, including SystemExit and exceptions from __repr__.
            end = {"id": number, "ok": False, "error": describe_kernel_error(error)}
        if self._is_copy:
            os._exit(0)  # user code forked and did not exit: two processes would read cells from one socket
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, KernelOutputStream):
                stream.flush()
                stream.lines = 0
        if self._has_children():
            end["left"] = True
        # A thread that waits for the host gets its reply first: after the cell has ended, the host sends none.
        with self._call_lock:
            self.send(b"X", _encode(end).encode("utf-8", "replace"))
        # The rest is done while the host reads the answer.
        if "left" in end:
            self._end_children()
        linecache.cache.pop(f"<cell {number - SOURCES}>", None)  # otherwise a long session would only grow

    def _execute(self, code: str, name: str) -> Any:
        # Split into lines as the parser does. Each must end in a newline, or a traceback marks the wrong columns.
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

    def _assigned_result(self, code: str) -> Any:
        """Return the variable that a cell without a last value assigned as its result; None if there is none."""
        if "result" not in code:
            return None
        tree = ast.walk(ast.parse(code))
        assigned = {n.id for n in tree if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        name = next((n for n in RESULTS if n in assigned and self.names.get(n) is not None), None)
        value = self.names.get(name or "")
        return _rows_to_table(value) if name == "result_rows" else value

    def _evaluate(self, compiled: types.CodeType) -> Any:
        if not compiled.co_flags & inspect.CO_COROUTINE:
            return eval(compiled, self.names)  # noqa: S307 - running what the user wrote is the point
        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
        task = self._loop.create_task(eval(compiled, self.names))  # noqa: S307
        try:
            return self._loop.run_until_complete(task)
        finally:
            if not task.done():  # interrupted: otherwise it would continue in the next cell that awaits something
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    self._loop.run_until_complete(task)

    def _show_figures(self, end: dict[str, Any]) -> None:
        """Display open figures that are not the value of the cell: few cells end with the figure itself."""
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is not None:
            for number in pyplot.get_fignums():
                end.setdefault("value", self._display(pyplot.figure(number)))

    def _display(self, value: Any) -> dict[str, Any]:
        shown = describe_kernel_value(value)
        blob = shown.pop("blob", None)
        if blob is not None:
            try:
                self._send_display({"id": self._cell, "media": shown["media"]}, blob)
            except (OSError, HostError, RuntimeError) as error:
                # The cell still has its value: a display that cannot be sent is not an error of the cell.
                del shown["media"]
                return shown | {"note": f"The value is shown as text: {len(blob):,} bytes cannot be sent ({error})."}
        return shown

    def _send_display(self, head: dict[str, Any], blob: Any) -> None:
        if len(blob) > INLINE:
            head["size"], head["lent"], blob = len(blob), self._share(blob), b""
        header = json.dumps(head).encode()
        self.send(b"D", b"".join((struct.pack("!I", len(header)), header, blob)))

    def _share(self, blob: Any) -> int:
        """Fill memory that the host lends, seal it, and return the number by which the host knows it.

        A session never sends descriptors: the kernel counts those in flight for all processes of a user together.
        """
        reply, fd = self.call("memory", size=len(blob))
        try:
            _fill(fd, blob)
        finally:
            os.close(fd)
        return int(reply["lent"])

    def _has_children(self) -> bool:
        """Reap child processes that have ended; return True if others still run."""
        try:
            # As process 1 of its namespace, the session inherits every orphan.
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return False
        return True

    def _end_children(self) -> None:
        """End the processes that a cell left running."""
        while self._has_children():
            if os.getpid() != 1:
                return  # without a process namespace, -1 would mean other processes too; the host ends these
            os.kill(-1, signal.SIGKILL)
            os.waitpid(-1, 0)


def _compile(code: str | ast.Module | ast.Expression, name: str, mode: str) -> types.CodeType:
    # `dont_inherit`: the `annotations` future of this module would turn annotations of the user's code into strings.
    compiled: types.CodeType = compile(code, name, mode, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    return compiled


def _as_expression(code: str, name: str) -> types.CodeType | None:
    """Compile a single line that is an expression, which needs no syntax tree to find its value; otherwise None."""
    if "\n" in code:
        return None
    try:
        return _compile(code, name, "eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # a statement, or an error, which the full parse reports


def seed_kernel(value: int) -> None:
    """Seed the random numbers: sessions are forked from one process and would all draw the same ones."""
    import random

    random.seed(value)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(value % (1 << 32))


def _refuse_input(prompt: object = "") -> str:
    raise RuntimeError("input() is not available: a session has no keyboard. Put the value into the code.")


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
    """Map shared memory for reading. Not with `mmap`, which keeps a descriptor open, and a session has few."""
    length = ctypes.c_size_t(size)
    address = _LIBC.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, fd, ctypes.c_long(0))
    if address == ctypes.c_void_p(-1).value:
        raise MemoryError(f"a result of {size:,} bytes does not fit into the session's address space")
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
            time.sleep(0.05)  # the kernel still uses one of its pages for a moment


def print_completions_in_session(text: str, within_s: float) -> None:
    """Print the completions of a name, one per line; stop after `within_s` seconds.

    A forked copy looks for them: reading an attribute can run user code, which may change something or not end.
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


def describe_kernel_value(value: Any) -> dict[str, Any]:
    """Describe a value: its text and, if it has a richer form, that form as a blob with its media type."""
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
    """Return the beginning of a text, with a note if the text was cut."""
    if len(text) <= PREVIEW:
        return {"text": text}
    note = f"The text of the value is cut: {PREVIEW:,} of {len(text):,} characters are shown."
    return {"text": text[:PREVIEW], "note": note}


def _is_plain(value: Any, depth: int = 0) -> bool:
    if depth > DEPTH:
        return False  # it may contain itself
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
        return shown  # too large for the memory, or of a type that cannot be serialized: the text is shown
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
            # By default, Polars returns texts as string views, which the host does not read.
            return value.to_arrow(compat_level=sys.modules["polars"].CompatLevel.oldest())
        if kind == "DataFrame":
            if _counts_rows(value.index):
                return pa.Table.from_pandas(value, preserve_index=False)
            return pa.Table.from_pandas(_with_named_index(value), preserve_index=True)
        if kind == "Series" and hasattr(value, "to_frame"):
            frame = value.to_frame(name=value.name if value.name is not None else "value")
            return _to_arrow(frame)
        if kind in ("Result", "DuckDBPyRelation") and hasattr(value, "arrow"):
            found = value.arrow()
            return found.read_all() if isinstance(found, pa.RecordBatchReader) else _to_arrow(found)
    except Exception as error:
        if kind == "DuckDBPyRelation" and type(error).__module__ in ("duckdb", "_duckdb"):
            raise  # the query itself failed: it runs only now
        return None  # Arrow has no type for a column, or the conversion failed: the text is shown
    return None


def _counts_rows(index: Any) -> bool:
    """Return whether an index of pandas only counts rows: unnamed integers from 0, in any order or repeated."""
    if type(index).__name__ == "RangeIndex":
        return True
    if index.nlevels > 1 or index.name is not None or getattr(index.dtype, "kind", "") not in "iu":
        return False
    return not index.is_unique or (len(index) > 0 and index.min() == 0 and index.max() == len(index) - 1)


def _with_named_index(frame: Any) -> Any:
    """Return a frame whose index has the names that `reset_index` would give, so that its columns have some too."""
    index = frame.index
    first = "index" if index.nlevels == 1 and "index" not in frame.columns else "level_0"
    named = [first if n == 0 else f"level_{n}" for n in range(index.nlevels)]
    return frame.set_axis(index.set_names([old if old is not None else new for old, new in zip(index.names, named)]))


def _rows_to_table(value: Any) -> Any:
    """Return rows as an Arrow table, if they are a list of dicts or of tuples; otherwise the value itself."""
    import pyarrow as pa

    if not isinstance(value, list) or not value:
        return value
    try:
        if all(isinstance(row, dict) for row in value):
            return pa.Table.from_pylist(value)
        if all(isinstance(row, list | tuple) and len(row) == len(value[0]) for row in value):
            return pa.table({f"column{i}": list(column) for i, column in enumerate(zip(*value))})
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass  # Arrow has no one type for a column: the text is shown
    return value


def _chart(value: Any) -> dict[str, Any] | None:
    if type(value).__module__.startswith("altair") and hasattr(value, "to_dict"):
        value = value.to_dict()
    if isinstance(value, dict) and ("vega-lite" in str(value.get("$schema", "")) or _is_drawing(value)):
        blob = json.dumps(value, default=str).encode()
        return {"text": "<chart>", "type": "chart", "media": CHART, "blob": blob}
    return None


def _is_drawing(value: dict[Any, Any]) -> bool:
    """Return whether a dict without `$schema` is a chart with its own data."""
    return isinstance(value.get("encoding"), dict) and "mark" in value and "data" in value


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


def describe_kernel_error(error: BaseException) -> dict[str, Any]:
    """Describe an exception as data: its type, its text, and a traceback of only the user's code."""
    try:
        message = _without_middle(str(error))
    except BaseException:
        message = "<the exception has no text: its __str__ failed>"
    line = None
    if isinstance(error, SyntaxError) and (error.filename or "").startswith("<cell "):
        line = error.lineno
        if error.text is None and line is not None:  # errors found after parsing have no text
            error.text = linecache.getline(error.filename or "", line)
    trace = traceback.TracebackException.from_exception(error, lookup_lines=False)
    _keep_own_frames(trace)
    if trace.stack and line is None:
        # The line of the cell that ran: the frames below it can be in functions of earlier cells.
        line = [f.lineno for f in trace.stack if f.filename == trace.stack[0].filename][-1]
    shown = {
        "type": type(error).__name__,
        "message": message,
        "traceback": _without_middle("".join(trace.format())),
        "line": line,
    }
    return shown | _problem_of(error)


def _problem_of(error: BaseException) -> dict[str, Any]:
    """Return the host's problem that an error of an outage carries; errors of the user's own may carry anything."""
    try:
        problem = vars(error).get("problem")
        return {"problem": json.loads(json.dumps(problem))} if isinstance(problem, dict) else {}
    except Exception:
        return {}


def _keep_own_frames(error: traceback.TracebackException) -> None:
    """Remove all frames but those of cells, also from causes and contexts; drop causes that lie inside a library."""
    waiting = [error]
    while waiting:
        trace = waiting.pop()
        own = [f for f in trace.stack if f.filename.startswith("<cell ")]
        trace.stack = traceback.StackSummary.from_list(own) if own else None  # type: ignore[assignment]
        for part in ("__cause__", "__context__"):
            before = getattr(trace, part)
            if before is None:
                continue
            if before.stack and not any(f.filename.startswith("<cell ") for f in before.stack):
                setattr(trace, part, None)
            else:
                waiting.append(before)
        waiting += trace.exceptions or ()


def _without_middle(text: str) -> str:
    """Cut the middle out of a long text: the beginning says where an error is, the end says what it is."""
    half = PREVIEW // 2
    if len(text) <= PREVIEW:
        return text
    return f"{text[:half]}\n... {len(text) - 2 * half:,} characters are cut ...\n{text[-half:]}"


def serve_kernel_cells(sock: socket.socket) -> None:
    """Serve as the session behind `sock` until the socket closes."""
    global SESSION  # noqa: PLW0603 - a process is one session
    SESSION = KernelSession(sock)
    SESSION.serve()
