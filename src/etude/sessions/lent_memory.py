"""Shared memory that a session may still hold."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import weakref

from etude import wire
from etude.errors import LimitExceeded

MOST_FILES = 512
"""How many pieces of shared memory a session may hold. The host has a descriptor open for each."""


class LentMemory:
    """Counts the shared memory that the host sent to a session, until no process has it any more.

    The session is not asked, because it is not trusted: the kernel refuses a lease on a file that somebody has open or
    mapped. On a system without leases nothing is counted.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._watched: dict[int, int] = {}
        """By the number of the file, a descriptor that the session does not have."""
        self._end = weakref.finalize(self, _close_all, self._watched)

    def lend(self, fd: int) -> int:
        """Return a descriptor to send; raise `LimitExceeded` if the session would hold too much."""
        if not _has_leases():
            return os.dup(fd)
        self.release()
        found = os.fstat(fd)
        if found.st_ino not in self._watched:
            held = sum(os.fstat(kept).st_size for kept in self._watched.values())
            if held + found.st_size > self._most_bytes or len(self._watched) >= MOST_FILES:
                raise LimitExceeded(
                    f"The results that this session holds take {held:,} bytes in {len(self._watched)} pieces; with "
                    f"{found.st_size:,} bytes more they pass the limit of {self._most_bytes:,} bytes or {MOST_FILES} "
                    "pieces.",
                    hint="Delete results that you no longer need (`del name`), or read fewer rows.",
                    limit="lent",
                )
            self._watched[found.st_ino] = _reopen(fd, os.O_RDONLY)
        return _reopen(fd, fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE)

    def release(self) -> None:
        """Stop counting what no process has any more, and free it."""
        for number in [n for n, fd in self._watched.items() if not _is_held(fd)]:
            os.close(self._watched.pop(number))

    def held_bytes(self) -> int:
        """Return the bytes that the session held when they were last counted; may be called from any thread."""
        held = 0
        for fd in list(self._watched.values()):
            with contextlib.suppress(OSError):  # released meanwhile
                held += os.fstat(fd).st_size
        return held

    def close(self) -> None:
        """Stop counting at all: the session has ended."""
        _close_all(self._watched)


def _reopen(fd: int, access: int) -> int:
    """Open the file again. A copy of the descriptor would not do: leases count how often a file was opened by name."""
    return os.open(f"/proc/self/fd/{fd}", access | os.O_CLOEXEC)


def _is_held(fd: int) -> bool:
    """Return True if the file is open or mapped by anything but this descriptor."""
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError:
        return True
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


@functools.cache
def _has_leases() -> bool:
    """Return True if the kernel tells a file that is held from one that is not."""
    if not hasattr(fcntl, "F_SETLEASE"):
        return False
    try:
        own = wire.share_wire_memory(b"-")
        watched, sent = _reopen(own, os.O_RDONLY), _reopen(own, os.O_RDONLY)
    except OSError:
        return False
    held = _is_held(watched)
    os.close(sent)
    free = not _is_held(watched)
    os.close(watched)
    os.close(own)
    return held and free


def _close_all(watched: dict[int, int]) -> None:
    while watched:
        os.close(watched.popitem()[1])
