"""Confine a process with the operating system: memory, priority, environment, network, files, new privileges.

Each function confines the calling process permanently and returns True if that worked. On a system without the
feature (macOS, an old kernel, a container that forbids it) it changes nothing and returns False; the caller reports it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import itertools
import os
import resource
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from etude.errors import EtudeError, Unavailable

_LINUX = sys.platform == "linux"
_CLONE_NEWNET, _CLONE_NEWUSER = 0x40000000, 0x10000000
_PR_SET_NO_NEW_PRIVS = 38
_M_ARENA_MAX = -8
_LANDLOCK_CREATE, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT = 444, 445, 446
_LANDLOCK_RULE_PATH_BENEATH = 1
_READ_FILE, _READ_DIR, _EXECUTE = 1 << 2, 1 << 3, 1 << 0
_MAKE_DEVICES = 1 << 6 | 1 << 11
_FILE_ONLY = _EXECUTE | 1 << 1 | _READ_FILE | 1 << 14 | 1 << 15
# The file-system rights that each Landlock ABI knows: a kernel refuses a ruleset with unknown bits.
_RIGHTS_BY_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_RIGHTS_NEWEST = (1 << 16) - 1


@contextlib.contextmanager
def explained_interpreter_start(kind: type[EtudeError] = Unavailable) -> Iterator[None]:
    """Start another process of this interpreter in the block; raise `kind`, with what to do, if it may not be executed.

    A user may run etude without the right to start it again: `setpriv` and `su` look up the first process as root.
    """
    try:
        yield
    except (PermissionError, FileNotFoundError) as error:
        path = os.path.realpath(sys.executable)
        raise kind(
            f"`{sys.executable}` cannot be started by user {os.geteuid()}, and etude runs queries and sessions in "
            f"processes of their own: {error.strerror}.",
            hint=f"`namei -l {path}` shows which folder this user may not enter. Give the rights, or install etude "
            "with a Python that every user may execute, such as `/usr/bin/python3 -m venv /opt/etude`.",
        ) from None


def confine_process_resources(memory_bytes: int, file_bytes: int, open_files: int = 1024) -> None:
    """Limit private memory, the size of written files and the number of open files; disable core dumps."""
    _lower(resource.RLIMIT_CORE, 0)
    # RLIMIT_DATA counts only private writable memory, not reserved or shared address space.
    _lower(resource.RLIMIT_DATA if _LINUX else resource.RLIMIT_AS, memory_bytes)
    _lower(resource.RLIMIT_FSIZE, file_bytes)
    _lower(resource.RLIMIT_NOFILE, open_files)


def _lower(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(kind, (value, value))


def replace_process_environment(variables: Mapping[str, str]) -> None:
    """Set these variables instead of all others, and overwrite the old values in memory: they may hold secrets."""
    place = ctypes.POINTER(ctypes.c_void_p).in_dll(_libc(), "environ")
    texts = list(itertools.takewhile(bool, map(place.__getitem__, itertools.count())))
    copies = [value for value in getattr(os.environ, "_data", {}).values() if isinstance(value, bytes)]
    os.environ.clear()
    for text in texts:
        ctypes.memset(text, 0, len(ctypes.string_at(text)))
    for value in copies:
        if len(value) > 1:  # all of Python shares the objects of single bytes
            ctypes.memset(ctypes.c_char_p(value), 0, len(value))
    os.environ.update(variables)


def prefer_process_for_oom_kill() -> bool:
    """Ask the kernel to kill this process first if the machine runs out of memory."""
    try:
        Path("/proc/self/oom_score_adj").write_text("1000")
    except OSError:
        return False
    return True


def share_process_arenas(count: int = 2) -> bool:
    """Let all threads share `count` arenas of glibc's allocator. Call it before they start.

    By default each of many threads fills an arena of its own with holes, and a server grows for hours.
    """
    mallopt = getattr(_libc(), "mallopt", None) if _LINUX else None
    return mallopt is not None and bool(mallopt(_M_ARENA_MAX, count))


def lower_process_priority(nice: int) -> None:
    """Give way to the host when processors are scarce, so that it stays responsive under any load."""
    with contextlib.suppress(OSError):
        os.nice(max(nice - os.nice(0), 0))


def refuse_new_process_privileges() -> bool:
    """Prevent set-uid programs from raising this process's privileges."""
    return _LINUX and bool(_libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)


def confine_process_network() -> bool:
    """Move to an empty network namespace. Unprivileged, it needs a user namespace and a single thread."""
    if not _LINUX:
        return False
    libc = _libc()
    return bool(libc.unshare(_CLONE_NEWNET) == 0 or libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) == 0)


class _Ruleset(ctypes.Structure):
    _fields_ = [("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("access", ctypes.c_uint64), ("fd", ctypes.c_int32)]


def process_landlock_abi() -> int:
    """Return the Landlock ABI version of the kernel; 0 if it has none."""
    if not _LINUX:
        return 0
    return max(int(_libc().syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))), 0)


def confine_process_paths(
    readable: Iterable[str],
    writable: Iterable[str],
    *,
    unlinked: Iterable[str] = (),
    scoped: bool = False,
    allow_tcp: bool = False,
) -> bool:
    """Restrict this thread, and those it starts, to these files and folders (Landlock).

    `unlinked` paths are readable as well, unless they contain a symbolic link: it was created after they were found,
    and may point anywhere.
    With `scoped`, the threads also cannot use TCP (unless `allow_tcp`), and can send signals and connect to abstract
    sockets only among each other.
    """
    abi = process_landlock_abi()
    if abi < 1 or not refuse_new_process_privileges():
        return False
    libc = _libc()
    rights = _RIGHTS_BY_ABI.get(abi, _RIGHTS_NEWEST)
    attr = _Ruleset(rights, 3 if scoped and not allow_tcp and abi >= 4 else 0, 3 if scoped and abi >= 6 else 0)
    # A kernel refuses a structure longer than it knows, so each ABI gets only the fields that it has.
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    ruleset = libc.syscall(_LANDLOCK_CREATE, ctypes.byref(attr), ctypes.c_size_t(size), ctypes.c_uint32(0))
    if ruleset < 0:
        return False
    try:
        for path in readable:
            _allow(libc, ruleset, path, (_READ_FILE | _READ_DIR | _EXECUTE) & rights)
        for path in unlinked:
            _allow(libc, ruleset, path, _READ_FILE, _open_unlinked)
        for path in writable:
            _allow(libc, ruleset, path, rights & ~(_EXECUTE | _MAKE_DEVICES))
        return bool(libc.syscall(_LANDLOCK_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0)) == 0)
    finally:
        os.close(ruleset)


def _open(path: str) -> int:
    return os.open(path, os.O_PATH | os.O_CLOEXEC)


def _open_unlinked(path: str) -> int:
    """Open an absolute path in which no part is a symbolic link.

    `openat2` would do it in one call, but systemd forbids it to services with `RestrictSUIDSGID`.
    """
    at = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in filter(None, path.split("/")):
        try:
            found = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
        finally:
            os.close(at)
        at = found
        if stat.S_ISLNK(os.fstat(at).st_mode):
            os.close(at)
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    return at


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, access: int, open_path: Callable[[str], int] = _open) -> None:
    try:
        fd = open_path(path)
    except OSError:
        return
    try:
        rule = _PathBeneath(access if stat.S_ISDIR(os.fstat(fd).st_mode) else access & _FILE_ONLY, fd)
        libc.syscall(
            _LANDLOCK_ADD_RULE,
            ctypes.c_int(ruleset),
            ctypes.c_int(_LANDLOCK_RULE_PATH_BENEATH),
            ctypes.byref(rule),
            ctypes.c_uint32(0),
        )
    finally:
        os.close(fd)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
