"""The `container` provider: the fork server inside a Docker or Podman container, one for each kind of sandbox.

The container is started once; sessions are forked inside it as on the bare machine. The fork server connects to a
Unix socket of the host in a folder that is mounted into the container, and sends sockets and process handles over it.
When the connection closes, the fork server and its container end: nothing outlives the host process.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import secrets
import select
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etude import process_confinement
from etude.entities import SessionLimits
from etude.errors import Invalid, SandboxError
from etude.sessions import local
from etude.sessions.base import Channel, Provider, SandboxSpec, isolation_level_hint

ENGINES = ("docker", "podman")
LABEL = "etude.owner"
START_S = 120.0
_ASK_S = 30.0
_PLACE = "/opt/etude"
_SOCKETS, _PACKAGE, _LIBRARIES = f"{_PLACE}/run", f"{_PLACE}/package", f"{_PLACE}/site-packages"
# Below our own folder: if the folder exists in the image, the engine keeps its mode and ignores the one set here.
_SCRATCH = f"{_PLACE}/scratch"
_BOOT = "import sys; sys.path[:0] = {path!r}; from etude.sessions.fork_server import run_fork_server; run_fork_server()"
_OPEN_FILES = 4096
# User ids that systemd reserves for dynamic users, so that a container's user does not exist on the host. Each
# container has its own, because the kernel counts processes per user across containers.
_USERS = range(61_184, 65_520)


@dataclass(frozen=True)
class ContainerLimits:
    """The limits of one container, for all of its sessions together."""

    memory: int = 8 << 30
    processes: int = 1024
    cpus: float = 0.0
    """Zero means all processors."""
    scratch: int = 1 << 30
    """At level 2 all sessions share it; at level 3 each session has its own scratch folder."""


@dataclass(frozen=True)
class ContainerEngine:
    """A container engine that is installed and running."""

    name: str
    version: str

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one of its short commands."""
        command = [self.name, *arguments]
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=_ASK_S, check=False)
        except subprocess.TimeoutExpired:
            raise SandboxError(
                f"`{self.name} {arguments[0]}` did not answer within {_ASK_S:g} s.",
                hint=f"Check the output of `{self.name} info`.",
            ) from None


def find_container_engine(names: Sequence[str] = ENGINES) -> ContainerEngine:
    """Return the first engine that answers; raise `SandboxError` if none does."""
    answers = []
    for name in names:
        fields = "{{.Server.Version}}" if name == "docker" else "{{.Client.Version}}"
        try:
            asked = ContainerEngine(name, "").run("version", "--format", fields)
        except FileNotFoundError:
            answers.append(f"`{name}` is not installed")
            continue
        except SandboxError as slow:
            answers.append(slow.message.rstrip("."))
            continue
        if asked.returncode == 0:
            return ContainerEngine(name, asked.stdout.strip())
        answers.append(f"`{name}`: {_last_line(asked.stderr)}")
    raise SandboxError(
        f"No container engine answers: {'; '.join(answers)}.",
        hint="Install Podman (`apt-get install podman runc`), start Docker, or use the sandbox `local`.",
    )


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it printed nothing")


class ContainerProvider(Provider):
    """Starts one container for each spec, and forks sessions inside it. Thread-safe.

    The file system of the container is an `image` or, with Podman, the folder of a root file system, `rootfs`. Either
    needs Python 3.11 or newer, and numpy, pandas, pyarrow and duckdb. With `host_packages`, the libraries of this
    interpreter are mounted instead; the versions of Python must match. `options` are passed to the engine unchanged.
    """

    def __init__(
        self,
        image: str = "",
        *,
        rootfs: str | Path = "",
        engine: str = "",
        python: str = "python3",
        host_packages: bool = False,
        limits: ContainerLimits | None = None,
        options: Sequence[str] = (),
    ) -> None:
        if bool(image) == bool(rootfs):
            raise Invalid("A container needs either an image or a root file system.", hint="Give `image` or `rootfs`.")
        if rootfs and engine not in ("", "podman"):
            raise Invalid(f"`{engine}` cannot run a root file system.", hint="Use `podman`, or make an image of it.")
        self.engine = find_container_engine(["podman"] if rootfs else [engine] if engine else ENGINES)
        self._image = [image] if image else ["--rootfs", f"{Path(rootfs).resolve()}:O"]
        self._python = python
        self._host_packages = host_packages
        self._limits = limits or ContainerLimits()
        self._options = tuple(options)
        self._lock = threading.Lock()
        self._starting: dict[tuple[Any, ...], threading.Lock] = {}
        self._containers: dict[tuple[Any, ...], Container] = {}
        self._attempts = list(_attempts(self.engine, self._limits))
        self._swept = False

    def packages(self) -> tuple[str, ...]:
        """Return the libraries of this interpreter if they are mounted, else those that every image has."""
        return local.installed_local_packages() if self._host_packages else super().packages()

    def start(self, spec: SandboxSpec, limits: SessionLimits) -> Channel:
        """Fork an interpreter in the container of the spec; start the container first if it does not run."""
        return self._container(spec).fork(spec, limits)

    def _container(self, spec: SandboxSpec) -> Container:
        with self._lock:
            starting = self._starting.setdefault(spec.key(), threading.Lock())
        with starting:
            found = self._containers.get(spec.key())
            if found is None or not found.alive:
                if found is not None:
                    found.close()
                found = self._containers[spec.key()] = self._launch(spec)
            return found

    def _launch(self, spec: SandboxSpec) -> Container:
        if not self._swept:
            self._swept = True
            remove_leftover_containers(self.engine)
        reasons: list[str] = []
        libraries_of = sys.version_info[:2] if self._host_packages else None
        for attempt in self._attempts:
            report = self._report(attempt, reasons)
            try:
                found = Container(self.engine, self._command(spec, attempt), spec, report, libraries_of)
            except _LimitsRefused as error:
                reasons += [] if str(error) in reasons else [str(error)]
                continue
            if attempt.limited:
                self._attempts = [attempt]
            return found
        raise SandboxError(
            f"`{self.engine.name}` could not start the container: {'; '.join(reasons)}.",
            hint="Install the runtime `runc`, or try the engine by hand: "
            f"`{self.engine.name} run --rm --network none {' '.join(self._image)} true`.",
        )

    def _report(self, attempt: _Attempt, reasons: list[str]) -> dict[str, Any]:
        image = self._image[-1].removesuffix(":O")
        report: dict[str, Any] = {"engine": f"{self.engine.name} {self.engine.version}", "image": image}
        return report | {"refusals": [] if attempt.limited else list(reasons)}

    def _command(self, spec: SandboxSpec, attempt: _Attempt) -> list[str]:
        user = secrets.choice(_USERS)
        flags = ["--rm", "--label", f"{LABEL}={_owner()}", "--hostname", "session", "--workdir", "/"]
        flags += ["--network", "none", "--read-only", "--cap-drop", "all", "--security-opt", "no-new-privileges"]
        flags += ["--user", f"{user}:{user}", "--pull", "never", "--log-driver", "none"]
        flags += ["--stop-signal", "SIGKILL"]  # as process 1 of its container, the fork server ignores others
        flags += ["--tmpfs", f"{_SCRATCH}:rw,noexec,nosuid,nodev,size={self._limits.scratch},mode=1777"]
        flags += [*_ulimit("nofile", resource.RLIMIT_NOFILE, _OPEN_FILES)]
        flags += [*_ulimit("nproc", resource.RLIMIT_NPROC, self._limits.processes)]
        for name, value in local.ENVIRONMENT.items():
            flags += ["--env", f"{name}={value}"]
        if self.engine.name == "docker":
            # The configuration of the client may give every container a proxy, whose address can contain a password.
            for name in ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "all_proxy"):
                flags += ["--env", f"{name}=", "--env", f"{name.upper()}="]
        if self.engine.name == "podman":
            # A proxy's address can contain a password. /tmp and /run would be writable folders without a size limit.
            flags += ["--http-proxy=false", "--env-host=false", "--read-only-tmpfs=false"]
            # The kernel lets a session mount its own /proc only if this one is unmasked. No session sees this one.
            flags += ["--security-opt", "unmask=ALL"]
        path = [_PACKAGE]
        flags += _bind(str(Path(process_confinement.__file__).parent), f"{_PACKAGE}/etude")
        if self._host_packages:
            path.append(_LIBRARIES)
            flags += _bind(sysconfig.get_path("purelib"), _LIBRARIES)
        for source, at in spec.mounts.items():
            flags += _bind(source, at)
        boot = ["-E", "-s", "-c", _BOOT.format(path=path), "--connect", f"{_SOCKETS}/control"]
        entry = ["--entrypoint", self._python]
        return [*attempt.globals, "run", *flags, *attempt.flags, *self._options, *entry, *self._image, *boot]

    def close(self) -> None:
        """Remove every container, and so end every session."""
        with self._lock:
            starting = list(self._starting.items())
        for key, lock in starting:
            with lock:  # waits for a start in progress, whose container would otherwise stay
                found = self._containers.pop(key, None)
                if found is not None:
                    found.close()


@dataclass(frozen=True)
class _Attempt:
    """One set of engine options, with or without limits."""

    globals: tuple[str, ...]
    flags: tuple[str, ...]
    limited: bool


def _attempts(engine: ContainerEngine, limits: ContainerLimits) -> Iterator[_Attempt]:
    """Yield attempts from best to worst: some runtimes do not support some versions of control groups."""
    memory, cpus = str(limits.memory), min(limits.cpus or sys.maxsize, os.cpu_count() or 1)
    flags = ("--memory", memory, "--memory-swap", memory, "--pids-limit", str(limits.processes), "--cpus", f"{cpus:g}")
    podman = engine.name == "podman"
    yield _Attempt((), flags, True)
    if podman:
        yield _Attempt(("--runtime", "runc"), flags, True)
        yield _Attempt(("--runtime", "crun"), flags, True)
    yield _Attempt((), ("--cgroups", "disabled") if podman else (), False)


def _ulimit(name: str, kind: int, value: int) -> tuple[str, str]:
    # The engine's default can exceed the hard limit of this process, and the start would fail.
    _, hard = resource.getrlimit(kind)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    return "--ulimit", f"{name}={value}:{value}"


def _bind(source: str, at: str) -> list[str]:
    for path in (source, at):
        if any(c in path for c in ',"\n') or not path.startswith("/"):
            raise Invalid(f"`{path}` cannot be mounted into a container.", hint="Use an absolute path without commas.")
    return ["--mount", f"type=bind,src={source},dst={at},ro"]


class _LimitsRefused(Exception):
    """The engine refused the limits, but may start the container without them."""


class Container(local.LocalForkServer):
    """The host's client of one container and the fork server inside it."""

    def __init__(
        self,
        engine: ContainerEngine,
        command: list[str],
        spec: SandboxSpec,
        report: dict[str, Any],
        libraries_of: tuple[int, int] | None,
    ) -> None:
        self._engine = engine
        self._libraries_of = libraries_of
        self._lock = threading.Lock()
        self._count = 0
        self._scratch_root = _SCRATCH
        self._proxies = weakref.WeakSet()
        self.name = f"etude-{secrets.token_hex(6)}"
        # On the host, only this user can access the folder; the container sees only the folder below it.
        with tempfile.TemporaryDirectory(prefix="etude-container-") as folder:
            self._control = self._connect(command, folder)
        try:
            self._agree(spec, report)
        except BaseException:
            self.close()
            raise

    def _agree(self, spec: SandboxSpec, report: dict[str, Any]) -> None:
        """Read what the container allows, check it against the spec, and configure the fork server."""
        place, _ = self._receive()
        self.level = place["level"]
        missing = [*place["missing"], *_unset(place, report.pop("refusals") or self._log.splitlines())]
        self._isolation = {"provider": "container", "level": self.level} | report | {"missing": missing}
        if self.level < spec.level:
            raise SandboxError(
                f"Isolation level {spec.level} was asked for; this container allows level {self.level}.",
                hint=f"Missing: {'; '.join(missing)}. {isolation_level_hint(self.level)}",
                level=self.level,
                asked=spec.level,
            )
        local.require_local_network(spec, self.level, missing)
        if self._libraries_of not in (None, tuple(place["python"])):
            ours, theirs = (".".join(map(str, v)) for v in (self._libraries_of, place["python"]))
            raise SandboxError(
                f"The container has Python {theirs}; libraries of Python {ours} cannot be used in it.",
                hint="Use an image with its own libraries and leave `host_packages` off.",
            )
        readable = [*place["readable"], *(local.LEVEL_2_PATHS if self.level < 3 else ())]
        data = {at: at for at in spec.mounts.values()}  # the engine has mounted them at these paths
        config = {"level": self.level, "readable": readable, "data": data, "preload": local.PRELOAD}
        if spec.network:
            readable += place["trusted"].values()
            config["network"] = place["trusted"]
        self._send(config | {"scratch_root": _SCRATCH})
        answer, _ = self._receive()
        if not answer.get("ok"):
            raise SandboxError(
                f"The fork server could not start in the container at level {self.level}: {answer.get('error')}.",
                hint="The image needs Python 3.11 or newer on Linux; `docs/sandboxes.md` says what else.",
            )

    def _connect(self, command: list[str], folder: str) -> socket.socket:
        sockets = f"{folder}/run"
        os.mkdir(sockets)
        os.chmod(sockets, 0o711)  # noqa: S103 - the container's user must reach the socket
        at = command.index("run") + 1
        named = [*command[:at], "--name", self.name, *_bind(sockets, _SOCKETS), *command[at:]]
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, open(f"{folder}/log", "w+b") as log:
            _bind_in(listener, sockets, "control")
            os.chmod(f"{sockets}/control", 0o666)  # noqa: S103 - the container runs as another user
            listener.listen(1)
            self._process = subprocess.Popen(
                [self._engine.name, *named],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                cwd=folder,  # if memory runs out, the engine's monitor writes a file to its working directory
                start_new_session=True,
            )
            ended = os.pidfd_open(self._process.pid)
            try:
                ready, _, _ = select.select([listener.fileno(), ended], [], [], START_S)
            finally:
                os.close(ended)
            log.seek(0)
            self._log = log.read().decode(errors="replace")
            if listener.fileno() in ready:
                return listener.accept()[0]
            self._remove()
            raise _start_error(self._engine, self._log, bool(ready))

    def _hold(self, sock: socket.socket, pidfd: int) -> Channel:
        return _ContainerChannel(self, sock, pidfd, dict(self._isolation))

    def close(self) -> None:
        """End the fork server and make sure that the container is removed."""
        self._control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        if self._process.poll() != 0:
            self._remove()
        for proxy in list(self._proxies):
            proxy.close()

    def _remove(self) -> None:
        with contextlib.suppress(SandboxError):
            self._engine.run("rm", "--force", self.name)
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()


class _ContainerChannel(local.LocalChannel):
    """A channel whose process may belong to another user."""

    def signal(self, number: int) -> None:
        """Send a signal to the interpreter, through the fork server if this process may not signal it."""
        with self._lock, contextlib.suppress(OSError):
            try:
                signal.pidfd_send_signal(self._pidfd, number)
            except PermissionError:
                self._server.ask("signal", number, self._pidfd)


def _bind_in(listener: socket.socket, folder: str, name: str) -> None:
    """Bind a socket in a folder, even if its path is longer than the 107 bytes that the kernel allows."""
    at = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        listener.bind(f"/proc/self/fd/{at}/{name}")
    finally:
        os.close(at)


def _start_error(engine: ContainerEngine, log: str, ended: bool) -> Exception:
    if not ended:
        return SandboxError(
            f"The container did not connect within {START_S:g} s: {_last_line(log)}.",
            hint=f"`{engine.name}` must run on this machine, not on a remote one or in a virtual machine.",
        )
    reason = _last_line(log).removeprefix("Error: ").rstrip(".")
    if re.search(r'cgroup|OCI runtime "', log, re.IGNORECASE):
        return _LimitsRefused(reason)
    if re.search("no such image|image not known|unable to find image", log, re.IGNORECASE):
        return SandboxError(
            f"The image was not found: {reason}.", hint=f"Get it with `{engine.name} pull`, then try again."
        )
    return SandboxError(
        f"The container could not be started: {reason}.",
        hint="The image needs Python 3.11 or newer; `docs/sandboxes.md` says what else.",
    )


def _unset(place: dict[str, Any], refusals: list[str]) -> list[str]:
    """Return the limits that the engine did not apply: some engines drop limits with only a warning."""
    reason = f" ({'; '.join(refusals)})" if refusals else ""
    return [
        f"a limit of {name}, which the engine did not set{reason}: each session still has its own limit"
        for name in ("memory", "processes")
        if place[name] is None
    ]


# -- leftovers


def _owner() -> str:
    """Return the owner label of this process: its process namespace, id and start time."""
    return f"{os.stat('/proc/self/ns/pid').st_ino}.{os.getpid()}.{_started(os.getpid())}"


def _started(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def remove_leftover_containers(engine: ContainerEngine) -> list[str]:
    """Remove containers whose owner has ended, which a killed engine can leave behind; return their names."""
    listed = engine.run("ps", "--all", "--filter", f"label={LABEL}", "--format", "{{.Names}}")
    here = str(os.stat("/proc/self/ns/pid").st_ino)
    removed = []
    for name in listed.stdout.split():
        owner = engine.run("inspect", "--format", f'{{{{index .Config.Labels "{LABEL}"}}}}', name).stdout.strip()
        place, _, rest = owner.partition(".")
        pid, _, started = rest.partition(".")
        # In another process namespace the id means another process, so nothing is known about it.
        if place == here and pid.isdigit() and _started(int(pid)) != started:
            engine.run("rm", "--force", name)
            removed.append(name)
    return removed
