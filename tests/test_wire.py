"""Shared memory that travels between processes."""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
import struct
import threading
from pathlib import Path

import pytest

from etude import wire


def test_what_was_shared_is_read_and_can_no_longer_be_changed() -> None:
    fd = wire.share_wire_memory(b"hello")
    with pytest.raises(PermissionError):
        os.write(fd, b"x")
    assert bytes(wire.map_wire_memory(fd, 5)) == b"hello"


def test_memory_that_is_held_for_a_moment_is_sealed_when_it_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "_SEAL_TRIES", 2000)  # the moment may be long on a slow machine
    fd = wire.make_wire_memory()
    assert fd is not None
    os.write(fd, b"hello")
    held = mmap.mmap(fd, 5)
    waiting = threading.Timer(0.2, held.close)
    waiting.start()
    wire.seal_wire_memory(fd)
    waiting.join()
    assert bytes(wire.map_wire_memory(fd, 5)) == b"hello"


@pytest.mark.parametrize(
    "head",
    [b"{", b"[]", b"[" * 100_000, b"\xff", b"", b'{"size":"x"}'],
    ids=["half", "list", "deep", "bytes", "none", "size"],
)
def test_a_head_that_is_none_is_the_end_and_its_descriptor_is_closed(head: bytes, tmp_path: Path) -> None:
    ours, theirs = wire.wire_socket_pair()
    with ours, theirs, open(tmp_path / "sent", "wb") as file:
        socket.send_fds(theirs, [struct.pack("!II", len(head), len(head)) + head], [file.fileno()])
        with pytest.raises(wire.Closed):
            wire.receive_wire_frame(ours)
        assert count_open(tmp_path / "sent") == 1, "the file alone"


def count_open(path: Path) -> int:
    """How many descriptors of this process lead to a file."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # another thread, or the collector, closed it meanwhile
            found += os.readlink(f"/proc/self/fd/{name}") == str(path)
    return found


def test_memory_with_holes_is_not_read_where_its_maker_is_not_trusted() -> None:
    fd = wire.make_wire_memory()
    assert fd is not None
    os.write(fd, b"hello")
    os.ftruncate(fd, 1 << 20)
    wire.seal_wire_memory(fd)
    assert len(wire.map_wire_memory(os.dup(fd), 1 << 20)) == 1 << 20
    with pytest.raises(wire.Closed):
        wire.map_wire_memory(fd, 5, whole=True)
    assert bytes(wire.map_wire_memory(wire.share_wire_memory(b"hello"), 5, whole=True)) == b"hello"


def test_memory_that_could_still_change_is_not_read() -> None:
    fd = wire.make_wire_memory()
    assert fd is not None
    os.write(fd, b"hello")
    with pytest.raises(wire.Closed):
        wire.map_wire_memory(fd, 5)
