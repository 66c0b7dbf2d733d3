"""Fingerprints of database files: they change with every write, without reading the data."""

from __future__ import annotations

import os
from contextlib import suppress


def file_fingerprint(path: str) -> str:
    """A fingerprint of a file from its size and time of change: other after every write, empty without a file."""
    parts = []
    for each in (path, f"{path}.wal"):
        with suppress(FileNotFoundError):
            stat = os.stat(each)
            parts.append(f"{stat.st_size:x}.{stat.st_mtime_ns:x}")
    return "-".join(parts)


def sqlite_fingerprint(path: str) -> str:
    """Return a fingerprint of a SQLite file and its log, which changes with every write to either."""
    marks = [file_fingerprint(path), file_fingerprint(f"{path}-wal")]
    with suppress(OSError), open(path, "rb") as file:
        # Two writes within one tick of the file system's clock differ only in the change counter.
        marks.append(file.read(28)[24:].hex())
    return "|".join(marks)
