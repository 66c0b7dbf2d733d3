"""Control groups, which limit a session and all the processes it starts, if the system allows etude to create them.

Versions 1 and 2 are supported. Without control groups, the limits of `isolation.limit` apply to each process alone,
and the session's `isolation` says so.
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
    """The folders in which groups can be created: one in version 2, one for each controller in version 1."""

    version: int
    folders: dict[str, Path]

    def create(self, owner: str, limits: SessionLimits) -> Cgroup:
        """Create an empty group with these limits."""
        name = f"{PREFIX}{owner}-{next(_numbers)}"
        made = Cgroup(tuple(dict.fromkeys(folder / name for folder in self.folders.values())), self.version)
        try:
            for path in made.paths:
                path.mkdir()
            # The scratch folder is a file system in memory, so its files count as memory too.
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
        """Open the descriptors that `join_cgroups` needs. They work from any process, whatever its user."""
        # In version 1, moving one thread takes tens of microseconds. Moving a process takes milliseconds, because the
        # kernel stops all of its threads. A process that was just forked has only one thread.
        name = "tasks" if self.version == 1 else "cgroup.procs"
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(open(path / name, "wb")).fileno() for path in self.paths]

    def cpu_s(self) -> float:
        """Return the processor seconds of all its processes, past and present; `OSError` if they are not counted."""
        for path in reversed(self.paths):
            with contextlib.suppress(FileNotFoundError):
                if self.version == 1:
                    return int((path / "cpuacct.usage").read_text()) / 1e9
                return int((path / "cpu.stat").read_text().split()[1]) / 1e6  # `usage_usec` is its first line
        raise FileNotFoundError(errno.ENOENT, "no controller counts processor time")

    def memory_bytes(self) -> int:
        """Return the memory that its processes and their files in memory take; `OSError` if it is not counted."""
        name = "memory.usage_in_bytes" if self.version == 1 else "memory.current"
        for path in self.paths:
            with contextlib.suppress(FileNotFoundError):
                return int((path / name).read_text())
        raise FileNotFoundError(errno.ENOENT, "no controller counts memory")

    def close(self) -> None:
        """End all processes in the group and remove it."""
        for path in self.paths:
            _remove(path)


def join_cgroups(descriptors: Iterable[int]) -> None:
    """Move this single-threaded process into the group; processes it starts later belong to the group as well."""
    for descriptor in descriptors:
        os.write(descriptor, b"0")


def find_cgroups() -> Cgroups | None:
    """Return where this process may create groups, or None if it may not."""
    own = _own_paths()
    if (ROOT / "cgroup.controllers").exists():
        folder = ROOT / own.get("", "/").lstrip("/")
        found = Cgroups(2, {"": folder})
    else:
        # Controllers may share a folder: each of their names is then a link to it.
        folders = {
            c: (ROOT / c).resolve() / own[c].lstrip("/")
            for c in (*_NEEDED, "cpu", "cpuacct")
            if c in own and (ROOT / c).is_dir()
        }
        if not all(c in folders for c in _NEEDED):
            return None
        found = Cgroups(1, folders)
    remove_orphaned_cgroups(found)
    try:
        found.create(new_cgroup_owner(), SessionLimits()).close()
    except OSError:
        return None
    return found


def new_cgroup_owner() -> str:
    """Return a name for the groups of one fork server. It identifies the host process."""
    return f"{os.getpid()}-{_started(os.getpid())}-{next(_numbers)}"


def remove_cgroups(owner: str, folders: Iterable[str]) -> None:
    """Remove every group of an owner, and end all processes in them."""
    for folder in set(folders):
        for path in Path(folder).glob(f"{PREFIX}{owner}-*"):
            _remove(path)


def remove_orphaned_cgroups(groups: Cgroups) -> None:
    """Remove the groups of host processes that were killed before they could remove them."""
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
        with contextlib.suppress(OSError):  # a system without swap has no such file
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
            time.sleep(0.01)  # the kernel takes a moment to remove a killed process from its group


def _own_paths() -> dict[str, str]:
    paths: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            paths |= {c: path for c in controllers.split(",")}
    return paths


def _started(pid: int) -> str:
    """Return when a process started, in clock ticks. It tells apart two processes that had the same id."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except (OSError, IndexError):
        return ""
