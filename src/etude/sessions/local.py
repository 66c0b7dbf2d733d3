"""The `local` provider: fork servers on this machine, at the best isolation level that the system allows."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from functools import cache
from importlib.machinery import PathFinder
from typing import Any

from etude import process_confinement
from etude.entities import SessionLimits
from etude.errors import SandboxError
from etude.sessions import cgroups, isolation, kernel
from etude.sessions.base import REQUIRED, Channel, Provider, SandboxSpec, isolation_level_hint
from etude.sessions.cgroups import Cgroup, Cgroups
from etude.sessions.proxy import Proxy

PRELOAD = ("numpy", "pandas", "pyarrow", "pyarrow.parquet", "duckdb", "etude.session_api")
ANALYSIS = ("polars", "scipy", "sklearn", "statsmodels", "matplotlib", "seaborn", "altair", "networkx")
"""Libraries that a session can import if they are installed. The extra `analysis` has some of them."""
START_S = 60.0
REFILL_S = 0.05
KINDS = 8
"""How many kinds of sessions are kept ready: otherwise every new combination of limits would add one."""
_START = "import sys; sys.path[:] = {path!r}; from etude.sessions.fork_server import run_fork_server; run_fork_server()"
LEVEL_2_PATHS = (
    *("/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime"),
    *("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random"),
    *("/proc/self/cgroup", "/sys/fs/cgroup"),  # DuckDB reads its limits there, and crashes if it cannot
)
# The server must have a single thread when it forks, so array libraries use one, and Arrow the system allocator.
ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "LANG": "C.UTF-8",
    "MPLBACKEND": "agg",
}


class LocalForkServer:
    """The host's client of one fork server."""

    _gone = False
    _groups: Cgroups | None = None
    _owner = ""

    def __init__(self, spec: SandboxSpec, level: int, groups: Cgroups | None = None) -> None:
        self.level = level
        self._groups = groups
        self._owner = cgroups.new_cgroup_owner()
        self._lock = threading.Lock()
        self._count = 0
        self._proxies: weakref.WeakSet[Proxy] = weakref.WeakSet()
        self._scratch_root = tempfile.mkdtemp(prefix="etude-session-") if level < 3 else ""
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-E", "-s", "-c", _START.format(path=_import_path())]
        with contextlib.ExitStack() as opened:
            opened.callback(self._control.close)
            opened.callback(shutil.rmtree, self._scratch_root, ignore_errors=True)
            with theirs, process_confinement.explained_interpreter_start(SandboxError):
                self._process = subprocess.Popen(
                    [*command, "--control", str(theirs.fileno())],
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=None if os.environ.get("ETUDE_DEBUG") else subprocess.DEVNULL,
                    # No variables of the host: a session can read the environment of its fork server.
                    env={"PATH": "/usr/bin:/bin", **ENVIRONMENT},
                    start_new_session=True,
                )
            opened.pop_all()
        self._send(self._config(spec))
        answer, _ = self._receive()
        if not answer.get("ok"):
            self.close()
            raise SandboxError(
                f"The fork server could not start at level {level}: {answer.get('error')}.",
                hint=_start_hint(str(answer.get("error"))),
            )

    def _config(self, spec: SandboxSpec) -> dict[str, Any]:
        readable = isolation.isolated_interpreter_paths()
        if self.level < 3:
            if os.getuid() == 0:
                os.chown(self._scratch_root, isolation.NOBODY, isolation.NOBODY)
            readable += LEVEL_2_PATHS
        trusted = isolation.isolated_certificate_paths() if spec.network else None
        return {
            "level": self.level,
            "readable": [*readable, *(trusted or {}).values()],
            "data": spec.mounts,
            "preload": PRELOAD,
            "scratch_root": self._scratch_root,
            "network": trusted,
            "owner": self._owner,
            "cgroups": [str(f) for f in self._groups.folders.values()] if self._groups else [],
        }

    @property
    def alive(self) -> bool:
        """True if the server runs and its control socket is open."""
        return not self._gone and self._process.poll() is None and not self._hung_up()

    def _hung_up(self) -> bool:
        """True if the server ended, even if the process that cleans up after it still runs."""
        descriptor = self._control.fileno()
        if descriptor < 0:
            return True
        control = select.poll()
        control.register(descriptor, 0)
        return bool(control.poll(0))

    def fork(self, spec: SandboxSpec, limits: SessionLimits) -> Channel:
        """Fork an interpreter and return once it is ready."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with theirs:
                pidfd, group = self._request(spec, limits, theirs.fileno())
        except SandboxError as error:
            with ours:
                raise _read_failure(ours) or error from None
        channel = self._hold(ours, pidfd)
        channel.group = group
        channel.isolation["cgroup"] = group.version if group else None
        listener = _await_ready(channel)
        if listener is not None:
            channel.proxy = Proxy(listener, spec.network)
            channel.isolation["network"] = list(spec.network)
            self._proxies.add(channel.proxy)
        return channel

    def _request(self, spec: SandboxSpec, limits: SessionLimits, sock: int) -> tuple[int, Cgroup | None]:
        """Ask the server to fork. The new process joins its own control group before it does anything else."""
        group: Cgroup | None = None
        try:
            group = self._groups.create(self._owner, limits) if self._groups else None
            with self._lock, _opened(group) as group_fds:
                self._count += 1
                request = {"cage": _cage(spec, limits), "scratch": f"{self._scratch_root}/{self._count}"}
                self._send(request, sock, *group_fds)
                answer, fds = self._receive()
            if not answer.get("ok"):
                raise SandboxError(f"A session could not be forked: {answer.get('error')}.", hint="Try again.")
        except (SandboxError, OSError) as error:
            if group is not None:
                group.close()
            if isinstance(error, SandboxError):
                raise
            raise SandboxError(f"The limits of a session could not be set: {error}.", hint="Try again.") from None
        return fds[0], group

    def _hold(self, sock: socket.socket, pidfd: int) -> Channel:
        return LocalChannel(self, sock, pidfd, {"provider": "local", "level": self.level})

    def ask(self, what: str, value: int, pidfd: int) -> None:
        """Send the server a request about a session, without waiting for an answer."""
        with self._lock, contextlib.suppress(SandboxError):
            self._send({what: value}, pidfd)

    def _send(self, message: dict[str, Any], *fds: int) -> None:
        try:
            socket.send_fds(self._control, [json.dumps(message).encode()], fds)
        except OSError as error:
            self._gone = True
            raise SandboxError(f"The fork server is gone: {error.strerror}.", hint="Try again.") from None

    def _receive(self) -> tuple[dict[str, Any], list[int]]:
        try:
            waiting = select.poll()  # not select(), which does not support descriptors above 1023
            waiting.register(self._control, select.POLLIN)
            if not waiting.poll(START_S * 1000):
                self.close()
                raise SandboxError(f"The fork server did not answer within {START_S:g} s.", hint="Try again.")
            message, fds, _, _ = socket.recv_fds(self._control, 1 << 16, 1)
        except (OSError, ValueError):  # the socket was closed meanwhile
            message, fds = b"", []
        if not message:
            self._gone = True
            raise SandboxError("The fork server ended.", hint="Try again; ETUDE_DEBUG=1 shows its output.")
        return json.loads(message), list(fds)

    def close(self) -> None:
        """End the server and every session it forked."""
        self._control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2)
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for proxy in list(self._proxies):
            proxy.close()
        if self._groups is not None:
            cgroups.remove_cgroups(self._owner, (str(f) for f in self._groups.folders.values()))
        if self._scratch_root:
            shutil.rmtree(self._scratch_root, ignore_errors=True)


class LocalChannel(Channel):
    """A channel to a session of a fork server."""

    def __init__(self, server: LocalForkServer, sock: socket.socket, pidfd: int, isolation: dict[str, Any]) -> None:
        super().__init__(sock, pidfd, isolation)
        self._server = server

    def end_children(self) -> None:
        """End the processes that the interpreter started, if its level does not let it do so itself."""
        if self._server.level < 3:
            with self._lock:
                self._server.ask("end_children", 1, self._pidfd)


def _start_hint(error: str) -> str:
    """Return what to do if the fork server could not start."""
    if error.startswith("PermissionError"):
        return (
            "Sessions do not run as root: install Python, its packages and etude where every user may read them, such "
            "as /opt/etude. `etude check sandbox local` shows what else this machine refuses."
        )
    return "`etude check sandbox local` shows what this machine allows."


def _opened(group: Cgroup | None) -> contextlib.AbstractContextManager[list[int]]:
    return group.opened() if group is not None else contextlib.nullcontext([])


def _await_ready(channel: Channel) -> socket.socket | None:
    """Wait until the session is ready; with a network, return the listening socket that it sends first."""
    channel.sock.settimeout(START_S)
    listener: socket.socket | None = None
    try:
        kind, body, fds = _first_frame(channel.sock)
        if kind == b"N"[0] and fds:
            listener = socket.socket(fileno=fds[0])
            kind, body, _ = _first_frame(channel.sock)
    except OSError as error:
        _close_both(channel, listener)
        raise SandboxError(f"A session did not start: {error}.", hint="Try again.") from None
    channel.sock.settimeout(None)
    if kind != b"R"[0]:
        _close_both(channel, listener)
        raise _not_confined(body)
    return listener


def _read_failure(sock: socket.socket) -> SandboxError | None:
    """Return the error of a session that ended before the server returned it, or None if it sent none."""
    sock.setblocking(False)
    try:
        kind, body, fds = _first_frame(sock)
    except OSError:
        return None
    for fd in fds:
        os.close(fd)
    return _not_confined(body) if kind == b"F"[0] else None


def _not_confined(why: bytes) -> SandboxError:
    return SandboxError(f"A session could not be confined: {why.decode(errors='replace')}.", hint="Try again.")


def _close_both(channel: Channel, listener: socket.socket | None) -> None:
    channel.close()
    if listener is not None:
        listener.close()


def _first_frame(sock: socket.socket) -> tuple[int, bytes, list[int]]:
    head, fds, _, _ = socket.recv_fds(sock, kernel.HEAD.size, 1, socket.MSG_CMSG_CLOEXEC)
    length, kind = kernel.HEAD.unpack(head + _exactly(sock, kernel.HEAD.size - len(head)))
    return kind, _exactly(sock, min(length, 65_536)), list(fds)


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = sock.recv(size - len(data))
        if not part:
            raise OSError("the process ended before it was ready")
        data += part
    return data


def _cage(spec: SandboxSpec, limits: SessionLimits) -> dict[str, Any]:
    return {
        "memory": limits.memory,
        "processes": limits.processes,
        "open_files": limits.open_files,
        "scratch": limits.scratch,
        "cpu_s": limits.cpu_s,
        "allow_exec": spec.allow_exec,
    }


def _kind(spec: SandboxSpec, limits: SessionLimits) -> tuple[Any, ...]:
    """Return a key that is equal for interchangeable sessions. The host enforces the limits that are not in it."""
    return (spec.key(), *_cage(spec, limits).values(), limits.cpus)


def _import_path() -> list[str]:
    """Return the import path of the server: the folders of the interpreter and of etude."""
    own = [*isolation.isolated_interpreter_paths(), os.path.dirname(os.path.dirname(process_confinement.__file__))]
    return [p for p in sys.path if any(p == o or p.startswith(f"{o}/") for o in own)]


def require_local_network(spec: SandboxSpec, level: int, missing: list[str]) -> None:
    """Raise `SandboxError` if the spec has a list of hosts, but a session would not have its own network."""
    if spec.network and level < 3:
        raise SandboxError(
            f"A list of hosts for the network needs isolation level 3; here it is level {level}.",
            hint="Below level 3 a session shares the network of its system, so it may not use sockets. "
            f"Missing: {'; '.join(missing)}.",
            level=level,
            asked=3,
        )


@cache
def installed_local_packages() -> tuple[str, ...]:
    """Return the libraries for analysis that can be imported; nothing is imported to find out."""
    # Not `importlib.util.find_spec`: a command leaves pandas out of its own process, but not out of sessions.
    return tuple(name for name in (*REQUIRED, *ANALYSIS) if PathFinder.find_spec(name) is not None)


class LocalProvider(Provider):
    """Runs one fork server for each spec, and keeps a few sessions ready. Thread-safe."""

    def __init__(self, ready: int = 2, max_level: int = 3) -> None:
        self._size = ready
        self._max_level = max_level
        self._lock = threading.RLock()
        self._zygotes: dict[tuple[Any, ...], LocalForkServer] = {}
        self._outdated: list[LocalForkServer] = []
        self._ready: dict[tuple[Any, ...], list[Channel]] = {}
        self._closed = False
        self._looked = False
        self._found: Cgroups | None = None

    def packages(self) -> tuple[str, ...]:
        """Return the libraries for analysis that this interpreter has: sessions import the same ones."""
        return installed_local_packages()

    def start(self, spec: SandboxSpec, limits: SessionLimits) -> Channel:
        """Return an interpreter that was kept ready for such a session, or fork one now."""
        key = _kind(spec, limits)
        while (channel := self._take(key)) is not None:
            if self._is_served(spec) and not channel.ended:
                self._refill(spec, limits)
                return channel
            channel.close()
        channel = self._fork(spec, limits)
        self._refill(spec, limits)
        return channel

    def _is_served(self, spec: SandboxSpec) -> bool:
        """True if the fork server runs. If it has ended, its sessions are about to end."""
        with self._lock:
            found = self._zygotes.get(spec.key())
        return found is not None and found.alive

    def _take(self, key: tuple[Any, ...]) -> Channel | None:
        with self._lock:
            waiting = self._ready.pop(key, None)
            if not waiting:
                return None
            self._ready[key] = waiting  # move it to the end: the kind used least recently is dropped first
            return waiting.pop()

    def _fork(self, spec: SandboxSpec, limits: SessionLimits) -> Channel:
        level = self._level(spec)
        fork_server = self._fork_server(spec, level)
        try:
            return fork_server.fork(spec, limits)
        except SandboxError:
            if fork_server.alive:
                raise
            # The server ended since it was last used: start another.
            return self._fork_server(spec, level).fork(spec, limits)

    def _refill(self, spec: SandboxSpec, limits: SessionLimits) -> None:
        if self._size:
            # A little later: the session just returned needs the processor for its first cell.
            timer = threading.Timer(REFILL_S, self._make_ready, (spec, limits))
            timer.daemon = True
            timer.start()

    def _make_ready(self, spec: SandboxSpec, limits: SessionLimits) -> None:
        key = _kind(spec, limits)
        with contextlib.suppress(SandboxError):
            while not self._closed and len(self._ready.get(key, ())) < self._size:
                made = self._fork(spec, limits)
                surplus = [made]
                with self._lock:
                    waiting = self._ready.setdefault(key, [])
                    if not self._closed and len(waiting) < self._size:
                        waiting.append(made)
                        surplus = []
                    for kind in [*self._ready][:-KINDS]:
                        surplus += self._ready.pop(kind)
                for channel in surplus:
                    channel.close()

    def _level(self, spec: SandboxSpec) -> int:
        level, missing = isolation.probe_isolation()
        if level > self._max_level:
            level, missing = self._max_level, [f"this provider has a `max_level` of {self._max_level}"]
        if level < spec.level:
            raise SandboxError(
                f"Isolation level {spec.level} was asked for; this machine allows level {level}.",
                hint=f"Missing: {'; '.join(missing)}. {isolation_level_hint(level)}",
                level=level,
                asked=spec.level,
            )
        require_local_network(spec, level, missing)
        return level

    def _fork_server(self, spec: SandboxSpec, level: int) -> LocalForkServer:
        with self._lock:
            if self._closed:
                raise SandboxError("The sandboxes are shut down.", hint="Open another app.")
            found = self._zygotes.get(spec.key())
            if found is not None and found.alive and found.level < level:
                # It was started when a probe had failed. Its sessions go on; new ones get the better level.
                self._outdated.append(found)
                found = None
            if found is None or not found.alive:
                if found is not None:
                    found.close()
                found = self._zygotes[spec.key()] = LocalForkServer(spec, level, self._groups())
            return found

    def _groups(self) -> Cgroups | None:
        if not self._looked:
            self._found, self._looked = cgroups.find_cgroups(), True
        return self._found

    def close(self) -> None:
        """End every fork server, and so every session."""
        with self._lock:
            self._closed = True
            for channel in (c for waiting in self._ready.values() for c in waiting):
                channel.close()
            self._ready.clear()
            for fork_server in (*self._zygotes.values(), *self._outdated):
                fork_server.close()
            self._zygotes.clear()
