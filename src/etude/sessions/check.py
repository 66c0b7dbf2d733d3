"""The conformance suite of sandbox providers, for `etude check sandbox`. It also tries to break out."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from etude.conformance import CheckResult, Failed, run_conformance_checks
from etude.entities import SessionLimits
from etude.sessions.base import Cell, Output, Provider, SandboxSpec
from etude.sessions.session import Session

_LIMITS = SessionLimits(wall_s=60, memory=512 << 20, processes=48, open_files=128, scratch=32 << 20, output=1 << 20)
LATE_S = 2.0
"""Seconds by which a cell may end late."""
_SECRET = "etude-check-secret"  # noqa: S105 - the checks look for it


def check_sandbox(provider: Provider) -> Iterator[CheckResult]:
    """Run every check, one result each; a failing check does not stop the others."""
    yield from run_conformance_checks(CHECKS, provider)


def _open(provider: Provider, seed: int = 0, **limits: Any) -> Session:
    return Session(provider, SandboxSpec(), _LIMITS.model_copy(update=limits), seed=seed)


def _run(session: Session, code: str, wall_s: float | None = None) -> Any:
    cell = session.execute(code, wall_s=wall_s)
    if not cell.ok:
        raise Failed(f"{cell.outcome}: {_error(cell)}, from: {code}")
    return cell.value


def _error(cell: Cell) -> str:
    return f"{(cell.error or {}).get('type')}: {(cell.error or {}).get('message')}"


def _expect(seen: object, wanted: object, what: str) -> None:
    if seen != wanted:
        raise Failed(f"{what}: expected {wanted!r}, saw {seen!r}")


def _refused(session: Session, code: str, what: str) -> None:
    cell = session.execute(code)
    if cell.ok:
        raise Failed(f"{what}, with the value {cell.text[:200]}")


def _isolation(provider: Provider) -> str:
    with _open(provider) as session:
        level = session.isolation.get("level")
        if not isinstance(level, int) or level < 2 or not session.isolation.get("provider"):
            raise Failed(f"the isolation level is missing or too low: {session.isolation}")
        return f"level {level} by `{session.isolation['provider']}`"


def _state(provider: Provider) -> str:
    with _open(provider) as session, _open(provider) as other:
        _run(session, "import math\nx = 41\ndef f(): return x + 1")
        _expect(_run(session, "f()"), 42, "a name of an earlier cell")
        _expect(_run(session, "_ + 1"), 43, "the last value")
        cell = other.execute("x")
        _expect((cell.error or {}).get("type"), "NameError", "a name of another session")
    return "variables are kept from cell to cell, and not visible to other sessions"


def _values(provider: Provider) -> str:
    with _open(provider) as session:
        for code, wanted in (
            ("1 + 1", 2),
            ("'a'", "a"),
            ("[1, {'b': None}]", [1, {"b": None}]),
            ("x = 1", None),
            ("2;", None),
        ):
            _expect(_run(session, code), wanted, f"the value of `{code}`")
        _expect(_run(session, "import asyncio\nawait asyncio.sleep(0, 7)"), 7, "an awaited value")
        _expect(session.execute("object").text, "<class 'object'>", "the text of a value that is not data")
    return "the last expression is the value, as data or as text"


def _tables(provider: Provider) -> str:
    with _open(provider) as session:
        framed = _run(session, "from importlib.util import find_spec\nfind_spec('pandas') is not None")
        made = "import pandas as pd\npd.DataFrame" if framed else "import pyarrow as pa\npa.table"
        seen = _run(session, made + "({'a': [1, 2], 'b': ['x', None]})")
        _expect(seen.to_pydict(), {"a": [1, 2], "b": ["x", None]}, "a small table")
        large = _run(session, "import pyarrow as pa\npa.table({'a': range(200_000)})")
        _expect((large.num_rows, large["a"][-1].as_py()), (200_000, 199_999), "a large table")
    return "data frames and tables arrive as Arrow" if framed else "tables arrive as Arrow; pandas is not installed"


def _streams(provider: Provider) -> str:
    with _open(provider) as session:
        seen: list[Output] = []
        code = "import sys\nfor i in range(3):\n    print(i)\n    print(-i, file=sys.stderr)"
        cell = session.execute(code, on_output=seen.append)
        _expect((cell.stdout, cell.stderr), ("0\n1\n2\n", "0\n-1\n-2\n"), "the two streams")
        _expect([o.stream for o in seen], ["stdout", "stderr"] * 3, "the order of the pieces")
        cell = session.execute("print('x' * 3_000_000)\n5")
        if len(cell.stdout) > _LIMITS.output or not cell.notes:
            raise Failed(
                f"{len(cell.stdout):,} characters were kept, with a limit of {_LIMITS.output:,}; notes: {cell.notes}"
            )
        _expect(cell.value, 5, "the value after too much output")
    return "output arrives in order, as it is written, and is cut at its limit"


def _errors(provider: Provider) -> str:
    with _open(provider) as session:
        cell = session.execute("def f():\n    return 1 / 0\nf()")
        error = cell.error or {}
        _expect((cell.outcome, error.get("type"), error.get("line")), ("error", "ZeroDivisionError", 2), "an error")
        if "kernel" in error["traceback"] or "return 1 / 0" not in error["traceback"]:
            raise Failed(f"the traceback shows more or less than the user's code: {error['traceback']}")
        for code in (
            "raise SystemExit(3)",
            "class R:\n    def __repr__(self): raise SystemExit\nR()",
            "x = (",
            "input()",
        ):
            _expect(session.execute(code).outcome, "error", f"the outcome of `{code}`")
        _expect(_run(session, "1"), 1, "a cell after errors")
    return "an error has its line and the traceback of the user's code, and the session continues"


def _interrupt(provider: Provider) -> str:
    slowest = 0.0
    with _open(provider) as session:
        _run(session, "kept = 7")
        endless = ("while True: pass", "import time\ntime.sleep(60)", "while True: print('x' * 1000)")
        for code in endless:
            cell, took = _interrupted(session, f"print('begun')\n{code}")
            slowest = max(slowest, took)
            _expect(cell.outcome, "interrupted", f"the outcome of `{code}`")
            _expect(_run(session, "kept"), 7, f"a name after `{code}` was interrupted")
        if slowest > LATE_S:
            raise Failed(f"an interrupt took {slowest:.1f} s")
        session.interrupt()
        _expect(_run(session, "kept"), 7, "a cell after an interrupt between two cells")
    return f"a cell stops within {slowest * 1000:.0f} ms, and its variables are kept"


def _interrupted(session: Session, code: str) -> tuple[Cell, float]:
    """Run a cell, interrupt it a moment after its first output, and return it with the time it took to stop."""
    asked = time.perf_counter()

    def interrupt() -> None:
        nonlocal asked
        asked = time.perf_counter()
        session.interrupt()

    timer = threading.Timer(0.2, interrupt)

    def listen(_: Output) -> None:
        if timer.ident is None:
            timer.start()

    cell = session.execute(code, on_output=listen)
    timer.cancel()
    return cell, time.perf_counter() - asked


def _timeout(provider: Provider) -> str:
    with _open(provider) as session:
        _run(session, "kept = 7")
        _expect(session.execute("while True: pass", wall_s=0.5).outcome, "timeout", "an endless cell")
        _expect(_run(session, "kept"), 7, "a name after a time limit")
        deaf = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
        started = time.perf_counter()
        cell = session.execute(deaf, wall_s=0.5)
        took = time.perf_counter() - started
        _expect(cell.outcome, "timeout", "a cell that ignores the interrupt")
        if took > 3 + LATE_S or not cell.notes:
            raise Failed(f"a cell that ignores the interrupt ended after {took:.1f} s with the notes {cell.notes}")
        _expect(session.execute("kept").outcome, "error", "a name after the session was killed")
    return f"a cell is interrupted, or killed after {took:.1f} s with a note"


def _memory(provider: Provider) -> str:
    with _open(provider) as session:
        for code in ("x = bytearray(2 << 30)", "import mmap\nx = [mmap.mmap(-1, 1 << 30) for _ in range(8)]"):
            cell = session.execute(code)
            if cell.ok:
                raise Failed(f"this exceeded the limit of {_LIMITS.memory >> 20} MiB: {code}")
        _expect(_run(session, "1"), 1, "a cell after the limit")
    return f"at most {_LIMITS.memory >> 20} MiB"


def _processes(provider: Provider) -> str:
    code = (
        "import os, time\nkids = []\ntry:\n    for _ in range(500):\n        pid = os.fork()\n"
        "        if pid == 0:\n            time.sleep(20); os._exit(0)\n        kids.append(pid)\n"
        "except OSError: pass\nfor pid in kids:\n    os.kill(pid, 9); os.waitpid(pid, 0)\nlen(kids)"
    )
    with _open(provider) as session:
        seen = _run(session, code)
        if seen >= 500:
            raise Failed("500 processes were started")
        _expect(_run(session, "1"), 1, "a cell after the limit")
    return f"at most {seen} processes"


def _scratch(provider: Provider) -> str:
    code = (
        "import time\nwritten = 0\ntry:\n    for i in range(20):\n        with open(f'file{i}', 'wb') as file:\n"
        "            for _ in range(10):\n                written += file.write(b'x' * (1 << 20))\n"
        # Without a mount of limited size, a session that writes too much is ended a moment later.
        f"except OSError: pass\nif written > {_LIMITS.scratch}: time.sleep(20)\nwritten"
    )
    with _open(provider) as session:
        _expect(_run(session, "open('a', 'w').write('b')\nopen('a').read()"), "b", "a file of its own")
        cell = session.execute(code)
        if cell.ok and cell.value > _LIMITS.scratch:
            raise Failed(f"{cell.value >> 20} MiB were written; the limit is {_LIMITS.scratch >> 20}")
        _expect(_run(session, "2"), 2, "a cell after the limit")
    return f"at most {_LIMITS.scratch >> 20} MiB of files"


def _network(provider: Provider) -> str:
    with _open(provider) as session:
        for family in ("AF_INET", "AF_INET6", "AF_NETLINK", "AF_PACKET", "AF_VSOCK"):
            code = f"import socket\ns = socket.socket(socket.{family}, socket.SOCK_DGRAM)\ns.connect(('127.0.0.1', 9))"
            _refused(session, code, f"a socket of {family} was connected")
        _refused(session, "import socket\nsocket.create_connection(('127.0.0.1', 80), 1)", "a connection was made")
    return "no socket can connect"


def _files(provider: Provider) -> str:
    with _open(provider) as session:
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)  # noqa: S103 - the sandbox must refuse it, not the file mode
            with open(f"{folder}/secret", "w", encoding="ascii") as file:
                file.write(_SECRET)
            for path in (f"{folder}/secret", "/etc/shadow", "/etc/hostname", "/var/log/dpkg.log", "/proc/1/maps"):
                cell = session.execute(f"open({path!r}).read()")
                if cell.ok and (_SECRET in str(cell.value) or not path.startswith(("/proc", folder))):
                    raise Failed(f"`{path}` of the host can be read")
        for path in ("/usr/lib/etude-check", "/etc/etude-check", "/dev/shm/etude-check", "/etude-check"):  # noqa: S108
            _refused(session, f"open({path!r}, 'w')", f"`{path}` was written")
        _refused(session, "import json\nopen(json.__file__, 'a')", "the interpreter's library could be written")
        _refused(session, "import subprocess\nsubprocess.run(['/bin/true'])", "a program was started")
    return "files of the host cannot be read or written, and programs cannot be started"


def _environment(provider: Provider) -> str:
    os.environ["ETUDE_CHECK_SECRET"] = _SECRET
    try:
        with _open(provider) as session:
            seen = _run(session, "import os\nstr(dict(os.environ))")
            if _SECRET in seen:
                raise Failed("a variable of the host is visible")
            initial = session.execute("open('/proc/self/environ').read()")
            if initial.ok and _SECRET in str(initial.value):
                raise Failed("a variable of the host is visible in /proc")
    finally:
        del os.environ["ETUDE_CHECK_SECRET"]
    return "variables of the host are not visible"


def _user(provider: Provider) -> str:
    with _open(provider) as session:
        user = _run(session, "import os\n[os.getuid(), os.geteuid(), os.getgid()]")
        if 0 in user:
            raise Failed(f"the session runs as root: {user}")
        _refused(session, "import os\nos.setuid(0)", "it became root")
        _refused(session, "import os\nos.kill(os.getppid() or 4_000_000, 0)", "the parent can be signalled")
    return f"runs as user {user[0]}"


def _seed(provider: Provider) -> str:
    code = "import random\n[random.random(), random.randint(0, 10**9)]"
    seen = []
    for seed in (1, 1, 2):
        with _open(provider, seed=seed) as session:
            seen.append(_run(session, code))
    _expect(seen[0], seen[1], "two sessions of one seed")
    if seen[0] == seen[2]:
        raise Failed("different seeds gave the same numbers")
    return "equal seeds give equal numbers"


def _leftovers(provider: Provider) -> str:
    session = _open(provider)
    pid = session._opened().pid
    deaf = "for n in range(1, 32):\n        if n not in (9, 19): signal.signal(n, signal.SIG_IGN)"
    _run(session, f"import os, signal, time\nif os.fork() == 0:\n    {deaf}\n    time.sleep(60)\n    os._exit(0)")
    before = _below(pid)
    session.close()
    give_up = time.monotonic() + 30
    while left := [p for p in (pid, *before) if _is_running(p)]:
        if time.monotonic() > give_up:
            raise Failed(f"processes {left} still run after the session was closed")
        time.sleep(0.05)
    return "no process outlives its session"


def _below(pid: int) -> list[int]:
    """Return the descendants of a process; none if they are not visible."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                found += [int(p) for p in file.read().split()]
    except OSError:
        return []
    return [p for child in found for p in (child, *_below(child))]


def _is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


CHECKS: dict[str, Callable[[Provider], str]] = {
    "isolation": _isolation,
    "state": _state,
    "values": _values,
    "tables": _tables,
    "streams": _streams,
    "errors": _errors,
    "interrupt": _interrupt,
    "timeout": _timeout,
    "memory": _memory,
    "processes": _processes,
    "scratch": _scratch,
    "network": _network,
    "files": _files,
    "environment": _environment,
    "user": _user,
    "seed": _seed,
    "leftovers": _leftovers,
}
