"""Run a battery of attacks on sessions at one isolation level, and print the result of each as JSON.

    python attack.py LEVEL BATTERY...

This is a separate program because a level may need another interpreter than the tests: at level 2 root becomes the user
`nobody`, who may not be able to read the interpreter of the tests.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECRET, SECRET_ENV = "TOPSECRET", "TOPSECRET_ENV"
MEMORY, SCRATCH = 512 << 20, 64 << 20
WALL_S, PROTOCOL_WALL_S = 8.0, 2.0
PATIENCE_S = 60.0
"""The limit for short operations, generous enough for slow machines."""
LOST_MEMORY = 400 << 20
INSIDE = """
def call(number, *arguments):
    import ctypes
    lib = ctypes.CDLL(None, use_errno=True)
    lib.syscall.restype = ctypes.c_long
    given = [a if isinstance(a, bytes) else ctypes.c_long(a) for a in arguments]
    result = lib.syscall(ctypes.c_long(number), *given)
    return result, (ctypes.get_errno() if result < 0 else 0)
"""


@dataclass(frozen=True)
class Attempt:
    id: str
    category: str
    code: str


def read_battery(path: Path) -> list[Attempt]:
    """Return the attempts in a file; lines that start with # are comments."""
    attempts = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            name, category, _, code = line.split(" | ", 3)
            attempts.append(Attempt(name.strip(), category.strip(), json.loads(f'"{code}"')))
    return attempts


class Place:
    """A host to attack: secrets, sockets, a process and another session, all accessible to the session's user."""

    def __init__(self, level: int) -> None:
        from etude.sessions import isolation
        from etude.sessions.base import SandboxSpec, SessionLimits
        from etude.sessions.local import LocalProvider
        from etude.sessions.session import Session

        self.level = level
        self.user = isolation.NOBODY if os.getuid() == 0 else os.getuid()
        self.mark = f"/etude-{uuid.uuid4().hex}"
        os.environ["PATH"] += f":{self.mark}"  # no session may see it
        os.environ["SECRET_ENV"] = SECRET_ENV
        self.root = Path(tempfile.mkdtemp(prefix="etude-attack-"))
        tempfile.tempdir = str(self._folder("temporary"))
        self.host, self.data = self._folder("host"), self._folder("data")
        self._write(self.host / "secret.txt", SECRET)
        self._write(self.host / "mine.txt", "mine")
        self._write(self.data / "x.csv", "a\n1\n")
        (self.data / "out").symlink_to(self.host / "secret.txt")
        if os.getuid() == 0:
            below = self._folder("data/below")
            isolation.enter_namespaces(isolation.NEWNS)
            isolation._mount("none", "/", "", isolation._MS_REC | isolation._MS_PRIVATE)
            isolation._mount("tmpfs", str(below), "tmpfs", 0, "mode=755")
            self._write(below / "y.csv", "a\n1\n")
            os.chmod(below, 0o777)
        os.chmod(self.root, 0o755)
        self._sockets = [self._listen(socket.AF_UNIX, p) for p in (f"{self.host}/host.sock", f"{self.data}/data.sock")]
        self._sockets += [
            self._listen(socket.AF_UNIX, f"\0{self.mark}"),
            self._listen(socket.AF_INET, ("127.0.0.1", 0)),
        ]
        datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        datagrams.bind(f"{self.host}/host.dgram")
        os.chmod(f"{self.host}/host.dgram", 0o777)
        self._sockets.append(datagrams)
        self.victim = subprocess.Popen(["sleep", "600"], user=self.user if os.getuid() == 0 else None)
        self.provider = LocalProvider(
            ready=0, max_level=level
        )  # no prestarted sessions, so that each count below is of one session
        self.spec = SandboxSpec(level=level, mounts={str(self.data): "/data"})
        self.limits = SessionLimits(
            memory=MEMORY, scratch=SCRATCH, processes=48, open_files=128, cpu_s=20, wall_s=WALL_S, output=1 << 20
        )
        self._open = lambda: Session(self.provider, self.spec, self.limits)
        self.neighbour = self._open()
        self.neighbour.execute("import os, socket\nopen('neighbour.txt', 'w').write('TOPSECRET')\nmine = 42")
        self.neighbour_pid = self.neighbour._channel.pid
        self.forker_pid = int(_status(self.neighbour_pid)["PPid"])
        self.peer_scratch = self.neighbour.execute("os.getcwd()").value
        self._servers = [p for p in self._below() if p != self.neighbour_pid]
        self.files = self._state()

    def _folder(self, name: str) -> Path:
        path = self.root / name
        path.mkdir()
        path.chmod(0o755)
        return path

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text)
        os.chown(path, self.user, -1)

    def _listen(self, family: int, address: Any) -> socket.socket:
        sock = socket.socket(family)
        sock.bind(address)
        sock.listen(64)
        if family == socket.AF_UNIX and address[0] == "/":
            os.chmod(address, 0o777)
        return sock

    def _state(self) -> dict[str, Any]:
        """Return the state that no attempt may change: names, modes, owners, times and contents of files."""
        found = {}
        for folder in (self.host, self.data):
            for path in [folder, *folder.rglob("*")]:
                info = path.lstat()
                content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
                found[str(path)] = (info.st_mode, info.st_uid, info.st_mtime_ns, info.st_nlink, content)
        return found

    def names(self) -> dict[str, Any]:
        from etude.sessions import isolation

        machine = isolation.seccomp_machine()
        assert machine is not None
        shared = isolation._IF_SHARED if self.level >= 3 else frozenset()
        allowed = (isolation._BY_ARGUMENT | shared) - {"execve", "execveat"}
        return {
            "VICTIM": self.victim.pid,
            "PORT": self._sockets[3].getsockname()[1],
            "DATA": "/data" if self.level >= 3 else str(self.data),
            "SYS": machine.numbers,
            "REFUSED": [n for n in machine.numbers if n not in allowed and n != "clone3"],
            "LEVEL": self.level,
            "HOST_PID": os.getpid(),
            "FORKER": self.forker_pid,
            "NEIGHBOUR": self.neighbour_pid,
            "PEER_SCR": self.peer_scratch,
            "PROGRAM": str(Path(__file__).parent),
            "PROGRAM_DATA": str(self.data),
            "HOST_NAME": platform.node(),
            "MARK": self.mark,
            "LIMIT": MEMORY,
            "SCRATCH": SCRATCH,
        }

    def attack(self, attempt: Attempt) -> dict[str, Any]:
        """Make an attempt; return its outcome, and why it is a breach if it is one."""
        Path("/proc/self/clear_refs").write_text("5")  # reset the peak of our memory
        descriptors, memory = len(os.listdir("/proc/self/fd")), _memory()
        session = self._open()
        wall_s = PROTOCOL_WALL_S if attempt.category == "protocol" else WALL_S
        said: dict[str, Any] = {"id": attempt.id, "category": attempt.category, "breach": ""}

        def run() -> None:
            lines = "\n".join(f"{name} = {value!r}" for name, value in self.names().items())
            session.execute(f"{INSIDE}\n{lines}\nimport os\nSCR = os.getcwd()", wall_s=PATIENCE_S)
            cell = session.execute(attempt.code.replace("@HOST@", str(self.host)), wall_s=wall_s)
            error = (cell.error or {}) if isinstance(cell.error, dict) else {"type": repr(cell.error)}
            said.update(outcome=cell.outcome, value=str(cell.value)[:300].encode("ascii", "replace").decode())
            said["error"] = f"{error.get('type')}: {error.get('message')}"[:200]
            if cell.ok and "ESCAPED" in str(cell.value):
                said["breach"] = said["value"]

        def guarded() -> None:
            try:
                run()
            except Exception as error:  # nothing that a session sends may raise in the host
                said["breach"] = f"the host raised {type(error).__name__}: {error}"[:300]

        started = time.monotonic()
        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        thread.join(wall_s + PATIENCE_S)
        if thread.is_alive():
            said["breach"] = "the host hung past the time limit"
            session._channel.signal(signal.SIGKILL)
            thread.join(PATIENCE_S)
        else:
            session.close()
        said["seconds"] = round(time.monotonic() - started, 2)
        said["breach"] = said["breach"] or self._damage(descriptors, memory)
        return said

    def _damage(self, descriptors: int, memory: int) -> str:
        if len(os.listdir("/proc/self/fd")) > descriptors:
            return "the host has a descriptor more"
        if _memory("VmHWM") - memory > LOST_MEMORY:
            return f"the host took {(_memory('VmHWM') - memory) >> 20} MiB"
        if self.victim.poll() is not None or _status(self.victim.pid)["State"].startswith("T"):
            return "the victim was hit"
        cell = self.neighbour.execute("mine", wall_s=PATIENCE_S)
        if cell.value != 42:
            return f"the neighbour was hit: {cell.outcome}"
        if self._state() != self.files:
            changed = [p for p, s in self._state().items() if self.files.get(p) != s]
            self.files = self._state()
            return f"files of the host changed: {changed}"
        return ""

    def close(self) -> list[str]:
        """Close everything; return the processes and files that should be gone but are not."""
        self.neighbour.close()
        # The fork server reaps its children a few times a second.
        running = _last(lambda: [p for p in self._below() if p not in self._servers])
        left = [f"process {p} after its session was closed" for p in running]
        self.provider.close()
        self.victim.kill()
        self.victim.wait()
        left += [f"process {p} after the provider was closed" for p in _last(self._below)]
        left += [f"file {p}" for p in _last(lambda: list((self.root / "temporary").rglob("*")))]
        for sock in self._sockets:
            sock.close()
        if (self.data / "below").exists():
            subprocess.run(["umount", str(self.data / "below")], check=False)
        shutil.rmtree(self.root, ignore_errors=True)
        return left

    def _below(self) -> list[int]:
        """Return the running descendants of this process, except the victim."""
        parents = {p: s for p in _processes() if (s := _status(p)) and not s["State"].startswith("Z")}
        found = {os.getpid()}
        while more := {p for p, s in parents.items() if int(s["PPid"]) in found} - found:
            found |= more
        return [p for p in found if p not in (os.getpid(), self.victim.pid)]


def _last(find: Callable[[], list[Any]]) -> list[Any]:
    """Wait until `find` returns nothing; return what it still finds after PATIENCE_S."""
    until = time.monotonic() + PATIENCE_S
    while (found := find()) and time.monotonic() < until:
        time.sleep(0.05)
    return found


def _processes() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid())


def _status(pid: int) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def _memory(what: str = "VmRSS") -> int:
    return int(_status(os.getpid())[what].split()[0]) << 10


def main() -> None:
    """Make all attempts; print one line of JSON for each, and one for what was left behind."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    from etude.sessions import isolation

    isolation.adopt_orphaned_processes()  # so that orphaned processes become our children and are found
    level, wanted = int(sys.argv[1]), os.environ.get("ATTEMPTS", "").split()
    place = Place(level)
    try:
        for battery in sys.argv[2:]:
            for attempt in read_battery(Path(battery)):
                if not wanted or attempt.id in wanted:
                    print(json.dumps(place.attack(attempt)), flush=True)
    finally:
        print(json.dumps({"id": "left", "left": place.close()}), flush=True)


if __name__ == "__main__":
    main()
