"""How the process of an engine starts: as a new interpreter, or as a fork of one that has just begun.

A fork saves the start of a second interpreter and a second load of Arrow. It is for a command that has done nothing
else yet: the child gets a copy of all memory of its parent.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
from socket import socket
from typing import NoReturn, Protocol

_START = "import sys; sys.path[:] = {path!r}; from etude.sources.engine import run_engine; run_engine()"
_KEPT = ("PATH", "LANG", "LC_ALL", "TZ", "ETUDE_DEBUG")


class EngineProcess(Protocol):
    """A child process, as `subprocess.Popen` shows it."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""

    def wait(self) -> int:
        """Wait for the end of the process and return its exit code."""

    def kill(self) -> None:
        """Kill the process."""


def spawn_engine(data: socket, control: socket, network: bool, preload: str, scratch: str) -> EngineProcess:
    """Start an engine in a new interpreter."""
    command = [sys.executable, "-E", "-s", "-c", _START.format(path=sys.path)]
    command += ["--data", str(data.fileno()), "--control", str(control.fileno())]
    command += ["--network"] if network else ["--preload", preload]
    from etude import process_confinement

    with process_confinement.explained_interpreter_start():
        return subprocess.Popen(
            command,
            pass_fds=(data.fileno(), control.fileno()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=None if os.environ.get("ETUDE_DEBUG") else subprocess.DEVNULL,
            env=_clean_environment(scratch),
            start_new_session=True,  # Ctrl-C reaches only the host, which then cancels properly
        )


def can_fork_engine() -> bool:
    """Return whether this process may be forked: if it has one thread, no lock can be held by another one."""
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False


def fork_engine(data: socket, control: socket, preload: str, scratch: str) -> EngineProcess:
    """Start an engine without a network in a fork of this process; see `can_fork_engine`."""
    from etude.lean_imports import import_without_numpy

    import_without_numpy()
    # Arrow's second allocator would start a thread, and a process with threads must not be forked.
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    import pyarrow  # noqa: F401

    pid = os.fork()
    if pid == 0:
        _become_engine(data, control, preload, scratch)
    return ForkedEngineProcess(pid)


def _become_engine(data: socket, control: socket, preload: str, scratch: str) -> NoReturn:
    """Drop what belongs to the host, then serve as `spawn_engine` would: it has its own session and descriptors."""
    try:
        from etude import process_confinement
        from etude.sources.engine import serve_engine

        gc.freeze()
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        process_confinement.replace_process_environment(_clean_environment(scratch))
        _keep_descriptors(data.fileno(), control.fileno())
        serve_engine(data, control, network=False, preload=preload)
    finally:
        # Nothing of the host runs here: no exit handlers, no flush of its output.
        os._exit(1)


def _keep_descriptors(*kept: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1) if os.environ.get("ETUDE_DEBUG") else (0, 1, 2):
        os.dup2(null, number)
    start = 3
    for number in sorted(kept):
        os.closerange(start, number)
        start = number + 1
    os.closerange(start, os.sysconf("SC_OPEN_MAX"))


class ForkedEngineProcess:
    """A forked child, with the part of `subprocess.Popen` that engines use."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""
        return self._reap(os.WNOHANG)

    def wait(self) -> int:
        """Wait for the end of the process and return its exit code."""
        code = self._reap(0)
        return -1 if code is None else code

    def kill(self) -> None:
        """Kill the process."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def _reap(self, options: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def _clean_environment(home: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    # One thread for Arrow: its pool would only idle beside the engine's own.
    return kept | {"HOME": home, "TMPDIR": home, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
