"""A sandbox for a whole program, such as a test suite with a browser: its own files, processes and network.

The program sees the interpreter, one writable folder and what is mounted over it, and reaches only its own loopback
network. When it ends, or after a time limit, all processes that it started end with it. A session's sandbox is
stricter, but too strict for a browser: it forbids Unix sockets and most settings of sockets.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from etude import process_confinement
from etude.errors import SandboxError
from etude.learning.edits.workspace_files import read_workspace_file_bytes
from etude.sessions import isolation

OUTPUT = 1 << 20
"""Only this many last bytes of a program's output are kept."""
MESSAGES = 64 << 20
"""The most bytes of messages; a program that sends more is ended."""
RESULT = 16 << 20
"""The most bytes of the file that is read when a program ends."""
_START = (
    "import sys; sys.path[:] = {path!r}; from etude.learning.edits.program_sandbox import run_inside_program_sandbox; "
    "run_inside_program_sandbox()"
)
_SETTINGS = ("alternatives", "chromium", "chromium.d", "firefox", "ssl/certs", "mime.types", "nsswitch.conf", "java")
"""What programs read below /etc, besides fonts and the time zone: nothing there is a secret."""
_TMP = "/tmp"  # noqa: S108 - inside the sandbox it is a file system of its own


@dataclass(frozen=True)
class ProgramLimits:
    """The limits of one program."""

    wall_s: float = 600.0
    memory: int = 4 << 30
    """Private memory of each process."""
    processes: int = 512
    scratch: int = 1 << 30
    """The size of its folder for temporary files, and how much its copy of the code may grow. Both are in memory."""


@dataclass(frozen=True)
class Program:
    """A program and what it may use."""

    command: Sequence[str]
    copy: Path
    """A folder of the host, of which it gets a copy that it may write to; its working folder."""
    folder: str
    """The path at which it sees that copy."""
    result: str = ""
    """The name of a file in that copy that is read when the program ends."""
    readable: Sequence[str] = ()
    mounts: Mapping[str, str] = field(default_factory=dict)
    """Files and folders of the host that it may read, by the path at which it sees them."""
    environment: Mapping[str, str] = field(default_factory=dict)
    key: str = ""
    """A secret that the program reads once, from the descriptor named by `ETUDE_KEY_PIPE`."""
    limits: ProgramLimits = ProgramLimits()


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    code: int
    output: str
    messages: bytes
    """What it wrote to the descriptor named by `ETUDE_MESSAGES`."""
    timed_out: bool
    too_many_messages: bool = False
    result: bytes | None = None
    """The content of the file that `result` of the program names, at most `RESULT + 1` bytes; None if there is none."""


def run_program_in_sandbox(program: Program) -> Ended:
    """Run a program in a sandbox and wait for its end."""
    level, missing = isolation.probe_isolation()
    if level < 3:
        raise SandboxError(
            f"A test suite needs isolation level 3; here it is level {level}.", hint=f"Missing: {'; '.join(missing)}."
        )
    import etude

    own = [*isolation.isolated_interpreter_paths(), os.path.dirname(os.path.dirname(etude.__file__))]
    path = [p for p in sys.path if any(p == o or p.startswith(f"{o}/") for o in own)]
    with tempfile.TemporaryFile() as output, _Channel(MESSAGES) as messages, _Channel(RESULT + 2) as result:
        with process_confinement.explained_interpreter_start(SandboxError):
            process = subprocess.Popen(
                [sys.executable, "-E", "-s", "-c", _START.format(path=path)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                pass_fds=(messages.theirs, result.theirs),
                env={"PATH": "/usr/bin:/bin"},
                start_new_session=True,
            )
        config = _config(program, messages.theirs, result.theirs)
        messages.receive(process.kill)
        result.receive(process.kill)
        timed_out = False
        try:
            process.communicate(json.dumps(config).encode(), timeout=program.limits.wall_s)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            _end(process)
        received, written = messages.take(), result.take()
        size = output.seek(0, os.SEEK_END)
        output.seek(max(0, size - OUTPUT))
        text = output.read().decode("utf-8", "replace")
    if process.returncode == _NOT_CONFINED:
        raise SandboxError(f"The sandbox of a test suite did not start: {text[-500:].strip()}", hint="Try again.")
    # The first byte tells an empty file from none.
    found = written[1:] if written else None
    return Ended(process.returncode, text, received, timed_out, messages.is_full, found)


class _Channel:
    """A pipe from a program, of which a limited number of bytes is read."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._received = bytearray()
        self._ours, self.theirs = os.pipe()
        self._reader: threading.Thread | None = None
        self.is_full = False

    def __enter__(self) -> _Channel:
        return self

    def __exit__(self, *_: object) -> None:
        if self._reader is None:
            os.close(self.theirs)
            os.close(self._ours)

    def receive(self, end: Callable[[], None]) -> None:
        """Start to read, and call `end` if there is more than may be sent."""
        os.close(self.theirs)
        self._reader = threading.Thread(target=self._read, args=(end,), daemon=True)
        self._reader.start()

    def _read(self, end: Callable[[], None]) -> None:
        try:
            while chunk := os.read(self._ours, 1 << 16):
                self._received += chunk
                if len(self._received) > self._most:
                    self.is_full = True
                    end()
                    return
        finally:
            os.close(self._ours)

    def take(self) -> bytes:
        """Return all that was received, or nothing if it was too much."""
        if self._reader is not None:
            self._reader.join(10)
        return b"" if self.is_full else bytes(self._received)


_NOT_CONFINED = 125


def _config(program: Program, messages: int, result: int) -> dict[str, Any]:
    return {
        "host": os.getpid(),
        "command": list(program.command),
        "copy": str(program.copy),
        "copy_size": _size_of(program.copy) + program.limits.scratch,
        "result": program.result,
        "results": result,
        "folder": program.folder,
        "readable": [
            *isolation.isolated_interpreter_paths(),
            *program.readable,
            *(f"/etc/{name}" for name in _SETTINGS),
        ],
        "mounts": {source: at for at, source in program.mounts.items()},
        "environment": dict(program.environment),
        "key": program.key,
        "messages": messages,
        "memory": program.limits.memory,
        "processes": program.limits.processes,
        "scratch": program.limits.scratch,
    }


def _size_of(folder: Path) -> int:
    """Return the bytes that a copy of a folder in memory takes: whole pages."""
    sizes = (os.lstat(Path(place, name)).st_size for place, _, names in os.walk(folder) for name in names)
    return sum(size + 4096 for size in sizes)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the launcher: the kernel then ends the first process of the namespace, and with it all others."""
    if process.poll() is None:
        process.kill()
    process.wait()


# -- inside


def run_inside_program_sandbox() -> NoReturn:
    """Enter the sandbox, run the program, and exit with its code."""
    config = json.loads(sys.stdin.buffer.read())
    try:
        # The thread that started this process waits for its end, so it ends with the host, however the host ends.
        isolation.die_with_parent(parent=config["host"])
        _enter_namespaces(config)
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.stderr.flush()
        os._exit(_NOT_CONFINED)
    os._exit(_run_as_first(config))


def _enter_namespaces(config: dict[str, Any]) -> None:
    as_root = os.getuid() == 0
    uid, gid = os.getuid(), os.getgid()
    root = (config["readable"], config["mounts"])
    copy = {config["copy"]: (config["folder"], config["copy_size"])}
    extra = (copy, {_TMP: config["scratch"], "/dev/shm": config["scratch"]})  # noqa: S108
    spaces = isolation.NEWPID | isolation.NEWNET | isolation.NEWIPC | isolation.NEWUTS | isolation.NEWCGROUP
    if as_root:
        isolation.enter_namespaces(isolation.NEWNS)
        isolation.build_private_root(*root, False, *extra)
        isolation.become_nobody()
        isolation.die_with_parent(parent=config["host"])  # a change of the user id resets that
        uid = gid = isolation.NOBODY
    isolation.enter_namespaces(isolation.NEWUSER | isolation.NEWNS | spaces)
    isolation.map_namespace_ids(0, uid, gid)
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        os._exit(code if code >= 0 else 128 - code)
    isolation.die_with_parent()
    if not as_root:
        isolation.build_private_root(*root, True, *extra)
    else:
        isolation.mount_proc()
    isolation.raise_namespace_loopback()
    isolation.enter_namespaces(isolation.NEWUSER)
    isolation.map_namespace_ids(isolation.INSIDE_UID, 0, 0)


def _run_as_first(config: dict[str, Any]) -> int:
    """Start the program, reap its orphans, and return its exit code. When this process ends, all others do."""
    for kind, value in (
        (resource.RLIMIT_CORE, 1),
        (resource.RLIMIT_DATA, config["memory"]),
        (resource.RLIMIT_FSIZE, config["scratch"]),
        (resource.RLIMIT_NPROC, config["processes"]),
    ):
        _, hard = resource.getrlimit(kind)
        allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (allowed, allowed))
    # Not by the environment: /proc shows that to the program's own code for as long as the program runs.
    key, write_key = os.pipe()
    os.write(write_key, config.pop("key").encode())
    os.close(write_key)
    child = os.fork()
    if child == 0:
        _become_program(config, key)
    os.close(key)
    os.close(config["messages"])
    while True:
        pid, status = os.wait()
        if pid == child:
            _send_result(config)
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _send_result(config: dict[str, Any]) -> None:
    """Send the file that the host asked for, if it is a regular file."""
    with contextlib.suppress(OSError):
        if config["result"]:
            content = read_workspace_file_bytes(Path(config["folder"]), config["result"], RESULT + 1)
            with open(config["results"], "wb") as channel:
                channel.write(b"+" + content)


def _become_program(config: dict[str, Any], key: int) -> NoReturn:
    try:
        with contextlib.suppress(OSError):
            os.setsid()
        isolation.drop_capabilities()
        os.chdir(config["folder"])
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0)
        os.set_inheritable(config["messages"], True)
        os.set_inheritable(key, True)
        os.close(config["results"])
        environment = {
            "HOME": _TMP,
            "TMPDIR": _TMP,
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
            "ETUDE_MESSAGES": str(config["messages"]),
            "ETUDE_KEY_PIPE": str(key),
            **config["environment"],
        }
        for number in (signal.SIGPIPE, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        isolation.apply_seccomp_filter(isolation.build_program_seccomp_filter())
        os.execvpe(config["command"][0], config["command"], environment)  # noqa: S606 - it is confined
    except OSError as error:
        os.write(2, f"{config['command'][0]}: {error.strerror or error}\n".encode())
    os._exit(127)
