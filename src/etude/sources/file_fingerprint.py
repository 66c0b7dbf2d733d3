"""Fingerprints of files: they change with every write, whether in place, by copy or by rename."""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress

TICK_NS = 20_000_000
"""Longer than a tick of the clock that a file system stamps writes with."""
TRIES = 5
DUCKDB_HEADERS = 3 * 4096
SQLITE_HEADER = 100
WAL_HEADER = 32


def file_stamp(path: str) -> str:
    """Return identity, size and times of a file; raise `OSError` if it cannot be found.

    The time of the last change (`ctime`) is set by the kernel: `cp -p`, `touch -d` and `rsync` do not restore it. Two
    writes within one tick of its clock look the same, so a file that was written just now is looked at again.
    """
    stat = os.stat(path)
    for _ in range(TRIES):
        age = time.time_ns() - stat.st_ctime_ns
        if not 0 <= age < TICK_NS:
            break
        time.sleep((TICK_NS - age) / 1e9)
        stat = os.stat(path)
    parts = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
    return ".".join(f"{part:x}" for part in parts)


def file_fingerprint(path: str) -> str:
    """Return a fingerprint of a DuckDB file and its log; it is empty if the file does not exist."""
    marks = []
    for each in (path, f"{path}.wal"):
        with suppress(FileNotFoundError):
            marks.append(file_stamp(each))
    # The headers count the checkpoints.
    return "-".join([*marks, _hash_head(path, DUCKDB_HEADERS)]) if marks else ""


def sqlite_fingerprint(path: str) -> str:
    """Return a fingerprint of a SQLite file and its log, which changes with every write to either."""
    marks = []
    # The header of the file counts changes, and that of the log the times it began anew.
    for each, size in ((path, SQLITE_HEADER), (f"{path}-wal", WAL_HEADER)):
        with suppress(OSError):
            marks += [file_stamp(each), _hash_head(each, size)]
    return "|".join(marks)


def paths_fingerprint(paths: tuple[str, ...]) -> str:
    """Return a fingerprint of several files together; raise `OSError` if one cannot be found."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path}\0{file_stamp(path)}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _hash_head(path: str, size: int) -> str:
    with suppress(OSError), open(path, "rb", buffering=0) as file:
        return hashlib.sha256(file.read(size)).hexdigest()[:16]
    return ""
