"""The host's side of what a session asks for."""

from __future__ import annotations

import base64
import os

from etude.runtime.broker import DataBroker


def save(broker: DataBroker, name: str, data: bytes) -> None:
    content = base64.b64encode(data).decode()
    broker.answer({"method": "save", "name": name, "data": content, "goes_on": False, "more": False}, 1.0)


def load(broker: DataBroker, name: str) -> tuple[int, int, bytes]:
    """Return the descriptor, the memory behind it and its content."""
    head, fd = broker.answer({"method": "load", "name": name}, 1.0)
    assert fd is not None
    return fd, os.fstat(fd).st_ino, os.pread(fd, head["size"], 0)


def test_a_file_is_lent_as_one_memory_however_often_it_is_loaded() -> None:
    broker = DataBroker(None, None)
    save(broker, "x.bin", b"one")
    first = [load(broker, "x.bin") for _ in range(16)]
    assert {content for _, _, content in first} == {b"one"}
    assert len({memory for _, memory, _ in first}) == 1
    save(broker, "x.bin", b"two")
    second = load(broker, "x.bin")
    assert second[2] == b"two" and os.pread(first[0][0], 3, 0) == b"one"
    for fd, _, _ in (*first, second):
        os.close(fd)
