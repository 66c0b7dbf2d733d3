"""What a sandbox provider gives: channels to fresh interpreters, at an isolation level that is stated."""

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

from etude.addresses import parse_entry
from etude.entities import SessionLimits
from etude.errors import Invalid
from etude.sessions import usage
from etude.sessions.cgroups import Cgroup
from etude.sessions.proxy import Proxy


@dataclass(frozen=True)
class SandboxSpec:
    """What kind of sandbox: equal specs can share a fork server."""

    level: int = 2
    """The isolation that is asked for at least; the provider gives its best and refuses below this."""
    mounts: dict[str, str] = field(default_factory=dict)
    """Folders of the host that a session may read, and where it finds them."""
    allow_exec: bool = False
    network: tuple[str, ...] = ()
    """The only places that a session may connect to, each as `host:port`; by default none."""

    def __post_init__(self) -> None:
        for entry in self.network:
            parse_entry(entry)
        for path, at in self.mounts.items():
            if not os.path.exists(path):
                raise Invalid(f"There is no `{path}` to give to a session.", hint="Check the path.")
            # Anything else would be mounted beside the root of the session instead of in it.
            if not at.startswith("/") or at != os.path.normpath(at) or at.count("/") == len(at):
                raise Invalid(f"`{at}` is no place in a session.", hint="Give a whole path, such as `/data`.")

    def key(self) -> tuple[Any, ...]:
        """What makes two specs the same."""
        places = tuple(sorted({parse_entry(entry) for entry in self.network}))
        return (self.level, tuple(sorted(self.mounts.items())), self.allow_exec, places)


class Channel:
    """The host's end of one interpreter: a socket for frames, and a hold on the process."""

    def __init__(self, sock: socket.socket, pidfd: int, isolation: dict[str, Any]) -> None:
        self.sock = sock
        self.isolation = isolation
        self.group: Cgroup | None = None
        """What bounds the interpreter with all it starts, where there is such a thing."""
        self.proxy: Proxy | None = None
        """Its way out, where it was given one; it remembers what was asked of it."""
        self._pidfd = pidfd
        self._lock = threading.RLock()
        """Who signals must not meet a descriptor that was closed meanwhile and is another process's by now."""

    def signal(self, number: int) -> None:
        """Send a signal to the interpreter; nothing happens where it is gone."""
        import signal

        with self._lock, contextlib.suppress(OSError):
            signal.pidfd_send_signal(self._pidfd, number)

    @property
    def pid(self) -> int:
        """The process as the host sees it; 0 once it is gone."""
        try:
            with open(f"/proc/self/fdinfo/{self._pidfd}", encoding="ascii") as file:
                line = next(line for line in file if line.startswith("Pid:"))
        except (OSError, StopIteration):
            return 0
        return max(int(line.split()[1]), 0)

    def cpu_s(self) -> float:
        """Return the processor seconds that the interpreter and all it started have used."""
        with contextlib.suppress(OSError, ValueError):
            if self.group is not None:
                return self.group.cpu_s()
        return usage.read_tree(self.pid)

    def end_children(self) -> None:
        """End the processes that the interpreter started, if it cannot do so itself."""

    @property
    def ended(self) -> bool:
        """Whether the interpreter has ended."""
        with self._lock:
            return self._pidfd < 0 or self._wait_for_end(0)

    def _wait_for_end(self, milliseconds: int) -> bool:
        end = select.poll()
        end.register(self._pidfd, select.POLLIN)
        return bool(end.poll(milliseconds))

    def close(self) -> None:
        """End the interpreter and let go of it."""
        import signal

        if self._pidfd >= 0:
            self.signal(signal.SIGKILL)
            self.sock.close()
            if self.proxy is not None:
                self.proxy.close()
            if self.group is not None:
                self._wait_for_end(10_000)  # before it has ended, its group cannot be removed
                self.group.close()
            with self._lock:
                os.close(self._pidfd)
                self._pidfd = -1


class Provider(ABC):
    """Starts interpreters somewhere."""

    @abstractmethod
    def start(self, spec: SandboxSpec, limits: SessionLimits) -> Channel:
        """A fresh interpreter that has said it is ready; `SandboxError` where it cannot be had as asked."""

    @abstractmethod
    def close(self) -> None:
        """End all interpreters of this provider."""


Outcome = Literal["ok", "error", "interrupted", "timeout", "killed", "refused"]


@dataclass(frozen=True)
class Output:
    """A piece of output as it comes."""

    stream: Literal["stdout", "stderr"]
    text: str


@dataclass(frozen=True)
class Display:
    """A rich form of a value: an image, a chart or a table."""

    media: str
    data: bytes | memoryview


@dataclass(frozen=True)
class Cell:
    """One execution and what came of it."""

    id: int
    code: str
    outcome: Outcome
    stdout: str = ""
    stderr: str = ""
    value: Any = None
    """The value itself where it is plain data, a `pyarrow.Table` for tables, else its text."""
    text: str = ""
    """How the value shows itself."""
    display: tuple[Display, ...] = ()
    error: dict[str, Any] | None = None
    elapsed_ms: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether it ran to its end."""
        return self.outcome == "ok"

    def without_contents(self) -> Cell:
        """How it went, without what it held."""
        return replace(self, stdout="", stderr="", value=None, display=())


HELD = 1 << 30
"""Bytes of displays that the cells of a history keep alive together."""


def let_go_of_displays(history: MutableSequence[Cell]) -> None:
    """Empty older cells where all together hold too much; the newest stays whole."""
    held = 0
    for position in range(len(history) - 1, -1, -1):
        held += sum(len(display.data) for display in history[position].display)
        if held > HELD and position < len(history) - 1:
            history[position] = history[position].without_contents()
