"""Artifacts in a folder of this machine: files named by the SHA-256 of their bytes, written whole or not at all."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from etude.errors import Damaged, Invalid
from etude.store.file_checksums import (
    LARGE,
    PART,
    CheckedFile,
    FileChecksumming,
    FileChecksums,
    checksums_path,
    make_checksums,
)

CHUNK = 1 << 20
LEFTOVER_S = 24 * 3600
"""Age at which an unfinished file is removed."""
HASH = re.compile(r"[0-9a-f]{64}")


def artifact_key(digest: str) -> str:
    """Return the place of an artifact below its folder or bucket."""
    if not HASH.fullmatch(digest):
        raise Invalid(f"`{digest[:80]}` is not the hash of an artifact: 64 hexadecimal digits.")
    return f"artifacts/{digest[:2]}/{digest}"


def put_artifact(folder: Path, data: bytes | Path) -> FileChecksumming:
    """Store the bytes, or those of the file, and return their hash and size; bytes that are already stored stay."""
    # One pass: hash while copying next to the target, then rename the copy.
    with temporary_artifact(folder / "artifacts") as (file, temporary):
        written = FileChecksumming()
        for chunk in artifact_chunks(data):
            written.add(chunk)
            file.write(chunk)
        target = folder / artifact_key(written.hash)
        if not keep_whole_artifact(folder, target, written.hash):
            file.flush()
            # Sync before the rename, so that not even a power cut leaves a partial file under this name.
            os.fsync(file.fileno())
            target.parent.mkdir(mode=0o700, exist_ok=True)
            os.replace(temporary, target)
            sync_artifact_folder(target.parent)
            if written.size > LARGE:
                written.sums().write(target, written.hash)
    return written


def keep_whole_artifact(folder: Path, target: Path, digest: str) -> bool:
    """Return whether the artifact exists and is whole; if so, it counts as new, so that it is not collected now."""
    with lock_artifacts(folder, fcntl.LOCK_SH):
        with suppress(FileNotFoundError):
            os.utime(target)
        return is_whole_artifact(target, digest)


def collect_artifact(folder: Path, digest: str, before: float) -> int | None:
    """Remove an artifact that was last stored before a time, in seconds since 1970; return its size.

    Return None if it stays, because it was stored again since then; 0 if there is none.
    """
    target = folder / artifact_key(digest)
    # A writer that finds the artifact holds the lock until it has set its time, and does not find it after this.
    with lock_artifacts(folder, fcntl.LOCK_EX):
        try:
            found = target.stat()
        except FileNotFoundError:
            return 0
        if found.st_mtime >= before:
            return None
        target.unlink()
    with suppress(FileNotFoundError):
        checksums_path(target).unlink()
    return found.st_size


@contextmanager
def lock_artifacts(folder: Path, kind: int) -> Iterator[None]:
    """Hold the lock between writers of artifacts (`LOCK_SH`) and their collection (`LOCK_EX`)."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, kind)
        yield
    finally:
        os.close(fd)


def is_whole_artifact(path: Path, digest: str) -> bool:
    """Return whether the file exists and holds the bytes of that hash."""
    try:
        if path.stat().st_size <= LARGE:
            return hashlib.sha256(path.read_bytes()).hexdigest() == digest
        sums = FileChecksums.read(path, digest) or make_checksums(path, digest)
        if sums is None:
            return False
        with CheckedFile(path, sums, lambda: Damaged(f"`{path}` is damaged.")) as file:
            file.check()
    except (FileNotFoundError, Damaged):
        return False
    return True


def artifact_chunks(data: bytes | Path) -> Iterator[bytes]:
    """Yield the bytes, or those of the file, in pieces."""
    if isinstance(data, bytes):
        yield data
        return
    try:
        file = data.open("rb")
    except OSError as error:
        raise Invalid(f"The file `{data}` cannot be read: {error.strerror}.") from error
    with file:
        while chunk := file.read(CHUNK):
            yield chunk


def sync_artifact_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def remove_unfinished_artifacts(folder: Path) -> None:
    """Remove unfinished files of killed processes, if they are too old to be in use."""
    oldest = time.time() - LEFTOVER_S
    for place in (folder / "artifacts", folder / "sums"):
        with suppress(OSError):
            for entry in os.scandir(place):
                if entry.name.startswith(PART) and entry.is_file() and entry.stat().st_mtime < oldest:
                    with suppress(OSError):
                        os.unlink(entry.path)


@contextmanager
def temporary_artifact(folder: Path) -> Iterator[tuple[IO[bytes], str]]:
    """Open a temporary file in the folder; it is removed after the block unless it was renamed."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd, name = tempfile.mkstemp(prefix=PART, dir=folder)
    try:
        with os.fdopen(fd, "wb") as file:
            yield file, name
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)
