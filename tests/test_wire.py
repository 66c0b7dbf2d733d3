"""Shared memory that travels between processes."""

from __future__ import annotations

import mmap
import os
import threading

import pytest

from etude import wire


def test_what_was_shared_is_read_and_can_no_longer_be_changed() -> None:
    fd = wire.share(b"hello")
    with pytest.raises(PermissionError):
        os.write(fd, b"x")
    assert bytes(wire.map_sealed(fd, 5)) == b"hello"


def test_memory_that_is_held_for_a_moment_is_sealed_when_it_is_let_go() -> None:
    fd = wire.shared_file()
    assert fd is not None
    os.write(fd, b"hello")
    held = mmap.mmap(fd, 5)
    waiting = threading.Timer(0.2, held.close)
    waiting.start()
    wire.seal(fd)
    waiting.join()
    assert bytes(wire.map_sealed(fd, 5)) == b"hello"


def test_memory_that_could_still_change_is_not_read() -> None:
    fd = wire.shared_file()
    assert fd is not None
    os.write(fd, b"hello")
    with pytest.raises(wire.Closed):
        wire.map_sealed(fd, 5)
