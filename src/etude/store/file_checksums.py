"""Files that are checked as they are read, by the SHA-256 in their names and the XXH3 of each chunk.

Hashing a large file before its first page is shown would cost more than the page. So a second file holds the XXH3 of
each chunk, and a reader checks only the chunks it touches. XXH3 is as fast as memory, and damage passes it once in 2^64
cases; a SHA-256 protects the sums themselves. If they are missing or damaged, the whole file is hashed and they are
computed again.
"""

from __future__ import annotations

import hashlib
import io
import os
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xxhash import xxh3_64, xxh3_64_intdigest

CHUNK = 1 << 17
"""Bytes per sum."""
LARGE = 1 << 16
"""Files above this size have sums; a smaller one is hashed whole."""
PIECE = CHUNK
"""Bytes that are read and checked at once: few enough to stay in the processor's cache."""
MOST_SUMS = 1 << 30
"""A file of sums is never larger."""
PART = ".part-"
"""Prefix of the names of files that are still being written."""
_HEAD = struct.Struct("<Q")


def read_file_at_most(path: Path, size: int) -> bytes | None:
    """Return the bytes of a file, or None if it has more. `Path.read_bytes` takes several times as long."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        length = os.fstat(fd).st_size
        if length > size:
            return None
        parts = []
        while part := os.read(fd, length + 1):
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)
    finally:
        os.close(fd)


class FileChecksumming:
    """Takes the bytes of a file in pieces of any size and keeps their SHA-256, size and sums."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._chunks: list[int] = []
        self._chunk = xxh3_64()
        self.size = 0

    def add(self, data: bytes) -> None:
        """Add the next bytes."""
        self._digest.update(data)
        rest = memoryview(data)
        while rest:
            piece = rest[: CHUNK - self.size % CHUNK]
            self._chunk.update(piece)
            self.size += len(piece)
            rest = rest[len(piece) :]
            if self.size % CHUNK == 0:
                self._chunks.append(self._chunk.intdigest())
                self._chunk.reset()

    @property
    def hash(self) -> str:
        """The SHA-256 so far."""
        return self._digest.hexdigest()

    def sums(self) -> FileChecksums:
        """Return the sums so far."""
        chunks = [*self._chunks, self._chunk.intdigest()] if self.size % CHUNK else self._chunks
        return FileChecksums(self.size, tuple(chunks))


@dataclass(frozen=True)
class FileChecksums:
    """The size of a file and the XXH3 of each of its chunks."""

    size: int
    chunks: tuple[int, ...]

    def write(self, path: Path, hash: str) -> None:
        """Write the sums, without a sync, because they can be computed again."""
        body = self.pack()
        target = checksums_path(path)
        part = target.parents[1] / f"{PART}{target.name}-{os.getpid()}-{threading.get_ident()}"
        with suppress(OSError):
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            part.write_bytes(_seal(hash, body) + body)
            os.replace(part, target)

    def pack(self) -> bytes:
        """Return the sums as bytes."""
        return _HEAD.pack(self.size) + struct.pack(f"<{len(self.chunks)}Q", *self.chunks)

    @staticmethod
    def unpack(body: bytes | memoryview) -> FileChecksums:
        """Return the sums that `pack` made into bytes."""
        count = (len(body) - _HEAD.size) // 8
        return FileChecksums(_HEAD.unpack_from(body)[0], struct.unpack_from(f"<{count}Q", body, _HEAD.size))

    @staticmethod
    def read(path: Path, hash: str) -> FileChecksums | None:
        """Return the stored sums of a file; None if there are none or they are damaged."""
        try:
            data = read_file_at_most(checksums_path(path), MOST_SUMS)
        except OSError:
            return None
        if data is None:
            return None
        seal, body = data[:32], data[32:]
        if len(body) < _HEAD.size or len(body) % 8 or seal != _seal(hash, body):
            return None
        return FileChecksums.unpack(body)


def checksums_path(path: Path) -> Path:
    """Return the path of the sums of `FOLDER/artifacts/ab/NAME`: `FOLDER/sums/ab/NAME`."""
    return path.parents[2] / "sums" / path.parent.name / path.name


def _seal(hash: str, body: bytes) -> bytes:
    return hashlib.sha256(hash.encode() + body).digest()


def make_checksums(path: Path, hash: str) -> FileChecksums | None:
    """Hash the whole file and store its sums; return None if its bytes do not have that hash."""
    summing = FileChecksumming()
    with path.open("rb") as file:
        while data := file.read(PIECE):
            summing.add(data)
    if summing.hash != hash:
        return None
    if summing.size > LARGE:
        summing.sums().write(path, hash)
    return summing.sums()


class CheckedFile(io.RawIOBase):
    """A file open for reading that raises `damaged()` before it returns a byte that differs from what was written."""

    def __init__(self, path: Path | int, sums: FileChecksums, damaged: Callable[[], Exception]) -> None:
        self.path: Any = path
        """The path, or the descriptor of an open file, which this object then closes."""
        self._sums = sums
        self._damaged = damaged
        self._position = 0
        self._buffer: memoryview | None = None
        self._checked: set[int] = set()
        """Chunks that were checked."""
        self._kept: tuple[int, bytes] = (-1, b"")
        """The last chunk and its number: the next read often starts in it."""
        self._fd = path if isinstance(path, int) else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        if os.fstat(self._fd).st_size != sums.size:
            self.close()
            raise damaged()

    def read(self, size: int | None = -1) -> bytes:
        """Return the next bytes, checked."""
        end = self._sums.size if size is None or size < 0 else min(self._position + size, self._sums.size)
        start, self._position = self._position, max(end, self._position)
        if start >= end:
            return b""
        first = start // CHUNK
        if first == self._kept[0] and end <= (first + 1) * CHUNK:
            return self._kept[1][start - first * CHUNK : end - first * CHUNK]
        last = (end - 1) // CHUNK
        # A chunk that is returned whole is not read again soon.
        keep = start > last * CHUNK or end < min((last + 1) * CHUNK, self._sums.size)
        data = self._chunks(first, last, keep)
        return data[start - first * CHUNK : end - first * CHUNK]

    def _chunks(self, first: int, last: int, keep: bool) -> bytes:
        begin, length = first * CHUNK, min((last + 1) * CHUNK, self._sums.size) - first * CHUNK
        data = os.pread(self._fd, length, begin)
        while len(data) < length:
            more = os.pread(self._fd, length - len(data), begin + len(data))
            if not more:
                raise self._damaged()
            data += more
        view = memoryview(data)
        self._check_chunks(first, view)
        self._kept = (last, bytes(view[(last - first) * CHUNK :])) if keep else (-1, b"")
        return data

    def check_range(self, start: int, end: int) -> None:
        """Check the unchecked chunks in a range, so that a faster reader may read it afterwards."""
        if self._buffer is None:
            # Allocated once: fresh memory costs more than the check.
            self._buffer = memoryview(bytearray(min(PIECE, self._sums.size)))
        end = min(end, self._sums.size)
        for piece in range(start // CHUNK * CHUNK, end, PIECE):
            stop = min(-(-end // CHUNK) * CHUNK, piece + PIECE, self._sums.size)
            if all(chunk in self._checked for chunk in range(piece // CHUNK, -(-stop // CHUNK))):
                continue
            part = self._buffer[: stop - piece]
            if os.preadv(self._fd, [part], piece) != len(part):
                raise self._damaged()
            self._check_chunks(piece // CHUNK, part)

    def _check_chunks(self, first: int, data: memoryview) -> None:
        for number in range(first, first + -(-len(data) // CHUNK)):
            piece = data[(number - first) * CHUNK : (number - first + 1) * CHUNK]
            if xxh3_64_intdigest(piece) != self._sums.chunks[number]:
                raise self._damaged()
            self._checked.add(number)

    def check(self) -> None:
        """Check every chunk."""
        self._checked.clear()
        self.check_range(0, self._sums.size)

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a position."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._sums.size}[whence]
        self._position = max(base + offset, 0)
        return self._position

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._position

    def readable(self) -> bool:
        """Return whether it can be read."""
        return True

    def seekable(self) -> bool:
        """Return whether `seek` works."""
        return True

    def close(self) -> None:
        """Close the file; may be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        super().close()
