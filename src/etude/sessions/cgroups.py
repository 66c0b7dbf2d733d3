"""Control groups: what bounds a session with all the processes it starts, where the system lets us make them.

Version 1 and version 2. Without them the limits of `isolation.limit` hold for each process alone, and a session says
so in its `isolation`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from etude.entities import SessionLimits

ROOT = Path("/sys/fs/cgroup")
PREFIX = "etude-"
_NEEDED = ("memory", "pids")
_PERIOD = 100_000
_numbers = count(1)


@dataclass(frozen=True)
class Cgroups:
    """Where groups can be made: one folder in version 2, one for each controller in version 1."""

    version: int
    folders: dict[str, Path]

    def create(self, owner: str, limits: SessionLimits) -> Cgroup:
        """A new, empty group with the limits set."""
        name = f"{PREFIX}{owner}-{next(_numbers)}"
        made = Cgroup(tuple(dict.fromkeys(folder / name for folder in self.folders.values())), self.version)
        try:
            for path in made.paths:
                path.mkdir()
            # Files on the scratch are memory too, of a file system that lives in it.
            _limit(self, name, limits.memory + limits.scratch, limits.processes, limits.cpus)
        except OSError:
            made.close()
            raise
        return made


@dataclass(frozen=True)
class Cgroup:
    """The group of one session."""

    paths: tuple[Path, ...]
    version: int

    @contextlib.contextmanager
    def opened(self) -> Iterator[list[int]]:
        """Descriptors by which a process that holds them can `join`, whoever it is."""
        # In version 1 a thread that moves itself alone spares the kernel to stop all others: tens of microseconds
        # instead of milliseconds. A process that was just forked has no other thread.
        name = "tasks" if self.version == 1 else "cgroup.procs"
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(open(path / name, "wb")).fileno() for path in self.paths]

    def cpu_s(self) -> float:
        """Return the processor seconds of all that is or was in it; `OSError` if the system does not count them."""
        for path in reversed(self.paths):
            with contextlib.suppress(FileNotFoundError):
                if self.version == 1:
                    return int((path / "cpuacct.usage").read_text()) / 1e9
                return int((path / "cpu.stat").read_text().split()[1]) / 1e6  # `usage_usec` is its first line
        raise FileNotFoundError(errno.ENOENT, "no controller counts processor time")

    def close(self) -> None:
        """End what is in it and remove it."""
        for path in self.paths:
            _remove(path)


def join(descriptors: Iterable[int]) -> None:
    """Move this process, which has one thread, into the group; what it starts from then on is in as well."""
    for descriptor in descriptors:
        os.write(descriptor, b"0")


def find() -> Cgroups | None:
    """Where this process may make groups, or None."""
    own = _own_paths()
    if (ROOT / "cgroup.controllers").exists():
        folder = ROOT / own.get("", "/").lstrip("/")
        found = Cgroups(2, {"": folder})
    else:
        # Two controllers may share a folder, which then has a link for each.
        folders = {
            c: (ROOT / c).resolve() / own[c].lstrip("/")
            for c in (*_NEEDED, "cpu", "cpuacct")
            if c in own and (ROOT / c).is_dir()
        }
        if not all(c in folders for c in _NEEDED):
            return None
        found = Cgroups(1, folders)
    remove_orphans(found)
    try:
        found.create(new_owner(), SessionLimits()).close()
    except OSError:
        return None
    return found


def new_owner() -> str:
    """A name for the groups of one fork server, from which its host can be told."""
    return f"{os.getpid()}-{_started(os.getpid())}-{next(_numbers)}"


def remove_all(owner: str, folders: Iterable[str]) -> None:
    """Remove every group of an owner, and end what is in them."""
    for folder in set(folders):
        for path in Path(folder).glob(f"{PREFIX}{owner}-*"):
            _remove(path)


def remove_orphans(groups: Cgroups) -> None:
    """Remove groups of processes that were killed before they could."""
    for folder in set(groups.folders.values()):
        with contextlib.suppress(OSError):
            for path in folder.glob(f"{PREFIX}*-*-*"):
                pid, started = path.name.removeprefix(PREFIX).split("-")[:2]
                if not pid.isdigit() or _started(int(pid)) != started:
                    _remove(path)


def _limit(groups: Cgroups, name: str, memory: int, processes: int, cpus: float) -> None:
    quota = int(cpus * _PERIOD) if cpus else 0
    if groups.version == 2:
        folder = groups.folders[""] / name
        (folder / "memory.max").write_text(str(memory))
        (folder / "pids.max").write_text(str(processes))
        with contextlib.suppress(OSError):  # swap that is not there needs no limit
            (folder / "memory.swap.max").write_text("0")
        if quota:
            (folder / "cpu.max").write_text(f"{quota} {_PERIOD}")
        return
    (groups.folders["memory"] / name / "memory.limit_in_bytes").write_text(str(memory))
    (groups.folders["pids"] / name / "pids.max").write_text(str(processes))
    if quota and "cpu" in groups.folders:
        (groups.folders["cpu"] / name / "cpu.cfs_quota_us").write_text(str(quota))


def _remove(path: Path) -> None:
    import signal

    for _ in range(50):
        try:
            path.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            with contextlib.suppress(OSError):
                for pid in (path / "cgroup.procs").read_text().split():
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.01)  # the kernel takes a moment to let go of a process that was killed


def _own_paths() -> dict[str, str]:
    paths: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            paths |= {c: path for c in controllers.split(",")}
    return paths


def _started(pid: int) -> str:
    """When a process began, in clock ticks: a number that is used again has another."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except (OSError, IndexError):
        return ""
