"""The interface of sandbox providers: they start interpreters and state the isolation level of each."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import MutableSequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from etude.entities import SessionLimits
from etude.errors import Invalid
from etude.host_addresses import parse_allowed_host
from etude.sessions import processor_time
from etude.sessions.cgroups import Cgroup
from etude.sessions.proxy import Proxy


@dataclass(frozen=True)
class SandboxSpec:
    """The kind of sandbox that a session needs. Equal specs can share a fork server."""

    level: int = 2
    """The lowest acceptable isolation level. The provider uses the best it can, and refuses if that is lower."""
    mounts: dict[str, str] = field(default_factory=dict)
    """Folders of the host that a session may read, each with its path inside the session."""
    allow_exec: bool = False
    network: tuple[str, ...] = ()
    """The only hosts that a session may connect to, each as `host:port`; none by default."""

    def __post_init__(self) -> None:
        for entry in self.network:
            parse_allowed_host(entry)
        for path, at in self.mounts.items():
            if not os.path.exists(path):
                raise Invalid(f"`{path}` cannot be mounted: it does not exist.", hint="Check the path.")
            # Any other path could be mounted outside the root of the session.
            if not at.startswith("/") or at != os.path.normpath(at) or at.count("/") == len(at):
                raise Invalid(
                    f"`{at}` cannot be a path in a session.",
                    hint="Give an absolute, normalized path below `/`, such as `/data`.",
                )

    def key(self) -> tuple[Any, ...]:
        """Return a key that is equal for equivalent specs."""
        places = tuple(sorted({parse_allowed_host(entry) for entry in self.network}))
        return (self.level, tuple(sorted(self.mounts.items())), self.allow_exec, places)


def isolation_level_hint(level: int) -> str:
    """Return what to do if only this isolation level is possible."""
    if level >= 2:
        return f"Accept level {level} with `--isolation {level}`, or `isolation={level}` in Python."
    return "Use the sandbox `container`, or a system that allows more: docs/sandboxes.md lists the levels."


class Channel:
    """The host's end of one interpreter: a socket for frames, and a handle of its process."""

    def __init__(self, sock: socket.socket, pidfd: int, isolation: dict[str, Any]) -> None:
        self.sock = sock
        self.isolation = isolation
        self.group: Cgroup | None = None
        """The control group of the interpreter and the processes it starts, if the system allows one."""
        self.proxy: Proxy | None = None
        """The proxy for its network, if it has one. The proxy remembers every connection."""
        self._pidfd = pidfd
        self._lock = threading.RLock()
        """Guards the process handle: once closed, its descriptor number could refer to another process."""

    def signal(self, number: int) -> None:
        """Send a signal to the interpreter; do nothing if it has ended."""
        import signal

        with self._lock, contextlib.suppress(OSError):
            signal.pidfd_send_signal(self._pidfd, number)

    @property
    def pid(self) -> int:
        """The process id on the host; 0 after the process has ended."""
        try:
            with open(f"/proc/self/fdinfo/{self._pidfd}", encoding="ascii") as file:
                line = next(line for line in file if line.startswith("Pid:"))
        except (OSError, StopIteration):
            return 0
        return max(int(line.split()[1]), 0)

    def cpu_s(self) -> float:
        """Return the processor seconds used by the interpreter and all processes it started."""
        with contextlib.suppress(OSError, ValueError):
            if self.group is not None:
                return self.group.cpu_s()
        return processor_time.read_processor_time(self.pid)

    def memory_bytes(self) -> int:
        """Return the memory that the interpreter and all processes it started hold."""
        with contextlib.suppress(OSError, ValueError):
            if self.group is not None:
                return self.group.memory_bytes()
        pid = self.pid
        return processor_time.read_process_memory(pid) if pid else 0

    def end_children(self) -> None:
        """End the processes that the interpreter started, if it cannot do so itself."""

    @property
    def ended(self) -> bool:
        """True if the interpreter has ended."""
        with self._lock:
            return self._pidfd < 0 or self._wait_for_end(0)

    def _wait_for_end(self, milliseconds: int) -> bool:
        end = select.poll()
        end.register(self._pidfd, select.POLLIN)
        return bool(end.poll(milliseconds))

    def close(self) -> None:
        """End the interpreter and release its resources."""
        import signal

        if self._pidfd >= 0:
            self.signal(signal.SIGKILL)
            self.sock.close()
            if self.proxy is not None:
                self.proxy.close()
            if self.group is not None:
                self._wait_for_end(10_000)  # a group with a live process cannot be removed
                self.group.close()
            with self._lock:
                os.close(self._pidfd)
                self._pidfd = -1


REQUIRED = ("pandas", "numpy", "pyarrow", "duckdb")
"""The libraries that every sandbox has."""


class Provider(ABC):
    """Starts sandboxed interpreters."""

    @abstractmethod
    def start(self, spec: SandboxSpec, limits: SessionLimits) -> Channel:
        """Start an interpreter and return once it is ready. Raises `SandboxError` if the spec cannot be met."""

    @abstractmethod
    def close(self) -> None:
        """End all interpreters of this provider."""

    def packages(self) -> tuple[str, ...]:
        """Return the libraries that every session can import, for the prompt of a model; others may be there too."""
        return REQUIRED


Outcome = Literal["ok", "error", "interrupted", "timeout", "killed", "refused"]


@dataclass(frozen=True)
class Output:
    """A piece of output, as it was written."""

    stream: Literal["stdout", "stderr"]
    text: str


@dataclass(frozen=True)
class Display:
    """A rich form of a value: an image, a chart or a table."""

    media: str
    data: bytes | memoryview


@dataclass(frozen=True)
class Cell:
    """One execution and its outcome."""

    id: int
    code: str
    outcome: Outcome
    stdout: str = ""
    stderr: str = ""
    value: Any = None
    """The value itself if it is plain data, a `pyarrow.Table` if it is a table, otherwise its text."""
    text: str = ""
    """The `repr` of the value."""
    display: tuple[Display, ...] = ()
    error: dict[str, Any] | None = None
    elapsed_ms: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if the cell succeeded."""
        return self.outcome == "ok"

    def without_contents(self) -> Cell:
        """Return the cell without its output, value and displays."""
        return replace(self, stdout="", stderr="", value=None, display=())


HELD = 1 << 30
"""The most bytes of displays that all cells of a history may keep in memory."""


def drop_old_displays(history: MutableSequence[Cell]) -> None:
    """Empty older cells if the displays of all cells exceed `HELD`; the newest cell stays complete."""
    held = 0
    for position in range(len(history) - 1, -1, -1):
        held += sum(len(display.data) for display in history[position].display)
        if held > HELD and position < len(history) - 1:
            history[position] = history[position].without_contents()
