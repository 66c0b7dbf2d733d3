"""Frames and shared memory between processes. A frame is a JSON head, an optional blob, an optional file descriptor.

Layout: total length (u32), head length (u32), head, blob. The host never trusts a length or a descriptor that an
engine states: lengths are capped, and shared memory is read only when it is sealed against change.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import mmap
import os
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

_HEAD = struct.Struct("!II")
_encode = json.JSONEncoder(separators=(",", ":")).encode
MAX_FRAME = 64 << 20
INLINE = 1 << 18
"""Blobs up to this size are sent in the frame; larger ones in shared memory."""
SMALL = 1 << 13
"""Frames up to this size can be read without blocking."""
_F_ADD_SEALS, _F_GET_SEALS = 1033, 1034
_SEAL_SIZE = 0x0002 | 0x0004  # no shrinking, no growing
_SEALS = _SEAL_SIZE | 0x0008  # no writing either
_MFD_ALLOW_SEALING, _MFD_CLOEXEC = 2, 1
_SEAL_TRIES, _SEAL_PAUSE_S = 20, 0.05


class Closed(Exception):
    """The other side is gone."""


@dataclass
class Frame:
    """One message."""

    head: dict[str, Any]
    blob: bytes | memoryview | mmap.mmap = b""
    fd: int | None = None
    """The shared memory of the blob, if requested with `keep`; the caller closes it."""


def send_wire_frame(
    sock: socket.socket,
    head: dict[str, Any],
    blob: bytes | memoryview = b"",
    fd: int | None = None,
    files: Sequence[int] = (),
) -> None:
    """Send one frame, with the shared memory `fd` of its blob or with open files; raise `Closed` if no one reads."""
    text = _encode(head).encode()
    data = _HEAD.pack(len(text) + len(blob), len(text)) + text
    try:
        if fd is None and not files:
            sock.sendall(b"".join((data, blob)))
        else:
            data = b"".join((data, blob))
            sent = socket.send_fds(sock, [data], [fd] if fd is not None else list(files))
            if sent < len(data):
                sock.sendall(data[sent:])
    except (BrokenPipeError, ConnectionResetError) as error:
        raise Closed from error


def receive_wire_frame(sock: socket.socket, keep: bool = False) -> Frame:
    """Wait for one frame; raise `Closed` at the end of the stream. With `keep`, also return the shared memory's fd."""
    fds: list[int] = []
    try:
        start, fds, _, _ = socket.recv_fds(sock, _HEAD.size, 1)
        if not start:
            raise Closed
        total, head_size = _HEAD.unpack(start + _read(sock, _HEAD.size - len(start)))
        if total > MAX_FRAME or head_size > total:
            raise Closed
        body = _read(sock, total)
        head = json.loads(body[:head_size])
        if not isinstance(head, dict) or not isinstance(head.get("size", 0), int):
            raise Closed
    except BaseException as error:
        for fd in fds:
            os.close(fd)
        if isinstance(error, ConnectionResetError | ValueError | RecursionError):
            raise Closed from error
        raise
    if fds:
        kept = os.dup(fds[0]) if keep else None
        try:
            return Frame(head, map_wire_memory(fds[0], head.get("size", 0)), kept)
        except BaseException:
            if kept is not None:
                os.close(kept)
            raise
    return Frame(head, memoryview(body)[head_size:])


def receive_wire_frame_with_files(sock: socket.socket, most: int) -> tuple[Frame, list[int]]:
    """Wait for one frame and the open files that came with it, which the caller closes."""
    fds: list[int] = []
    try:
        start, fds, _, _ = socket.recv_fds(sock, _HEAD.size, most)
        if not start:
            raise Closed
        total, head_size = _HEAD.unpack(start + _read(sock, _HEAD.size - len(start)))
        if total > MAX_FRAME or head_size > total:
            raise Closed
        body = _read(sock, total)
        return Frame(json.loads(body[:head_size]), memoryview(body)[head_size:]), fds
    except BaseException as error:
        for fd in fds:
            os.close(fd)
        if isinstance(error, ConnectionResetError | ValueError | RecursionError):
            raise Closed from error
        raise


def has_small_wire_frame(sock: socket.socket) -> bool:
    """Return True if a complete frame with a small inline blob has arrived; read nothing.

    False for a frame without a blob: handling its shared memory, or the end of the other side, may take time.
    """
    try:
        seen = sock.recv(SMALL, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except OSError:
        return False  # the next read reports the error
    if len(seen) < _HEAD.size:
        return False
    total, head_size = _HEAD.unpack_from(seen)
    return bool(len(seen) >= _HEAD.size + total and head_size < total)


def _read(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = sock.recv(size - len(data), socket.MSG_WAITALL)
        if not part:
            raise Closed
        data += part
    return data


def make_wire_memory() -> int | None:
    """Create a file in shared memory; None if the system does not support it."""
    if not hasattr(os, "memfd_create"):
        return None
    return os.memfd_create("etude-result", _MFD_ALLOW_SEALING | _MFD_CLOEXEC)


def share_wire_memory(data: bytes | memoryview) -> int:
    """Copy bytes to sealed shared memory; raise `OSError` if the system has none or not enough."""
    fd = make_wire_memory()
    if fd is None:
        raise OSError("this system has no shared memory")
    try:
        with open(fd, "wb", buffering=0, closefd=False) as file:
            left = memoryview(data)
            while left:
                left = left[file.write(left) :]
        seal_wire_memory(fd)
    except BaseException:
        os.close(fd)
        raise
    return fd


def share_wire_batches(batches: Iterator[Any]) -> int:
    """Write Arrow batches as one stream into sealed shared memory."""
    import pyarrow as pa

    fd = make_wire_memory()
    if fd is None:
        raise OSError("this system has no shared memory")
    try:
        with open(fd, "wb", buffering=0, closefd=False) as file, pa.PythonFile(file, "w") as out:
            first = next(batches)
            with pa.ipc.new_stream(out, first.schema) as writer:
                writer.write_batch(first)
                for batch in batches:
                    writer.write_batch(batch)
        seal_wire_memory(fd)
    except BaseException:
        os.close(fd)
        raise
    return fd


def lend_wire_memory(size: int) -> int:
    """Create shared memory of a fixed size for another process to fill and seal."""
    fd = make_wire_memory()
    if fd is None:
        raise OSError("this system has no shared memory")
    try:
        os.ftruncate(fd, size)
        fcntl.fcntl(fd, _F_ADD_SEALS, _SEAL_SIZE)
    except BaseException:
        os.close(fd)
        raise
    return fd


def seal_wire_memory(fd: int) -> None:
    """Seal the file against any further change."""
    for _ in range(_SEAL_TRIES - 1):
        try:
            fcntl.fcntl(fd, _F_ADD_SEALS, _SEALS)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            # The kernel holds one of the pages for a moment, for example while it compacts memory.
            time.sleep(_SEAL_PAUSE_S)
        else:
            return
    fcntl.fcntl(fd, _F_ADD_SEALS, _SEALS)


def map_wire_memory(fd: int, size: int, whole: bool = False) -> mmap.mmap:
    """Map sealed shared memory and close `fd`; raise `Closed` if the file is not sealed or too small.

    With `whole`, also raise if the file has holes: they cost the sender nothing, but the reader pays memory for them.
    """
    try:
        # An unsealed file could shrink while it is read, and the kernel would kill this process.
        found = os.fstat(fd)
        if fcntl.fcntl(fd, _F_GET_SEALS) & _SEALS != _SEALS or found.st_size < size or size <= 0:
            raise Closed
        if whole and found.st_blocks * 512 < found.st_size:
            raise Closed
        return mmap.mmap(fd, size, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED)
    finally:
        os.close(fd)


def wire_socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return a connected pair of stream sockets."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)


def inherited_wire_socket(fd: int) -> socket.socket:
    """Return the socket that this process inherited."""
    sock = socket.socket(fileno=fd)
    with contextlib.suppress(OSError):
        os.set_inheritable(fd, False)
    return sock
