"""Shared memory that a session holds, as the kernel of the system sees it."""

from __future__ import annotations

import mmap
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude import wire
from etude.entities import SessionLimits
from etude.errors import LimitExceeded
from etude.sessions import session as session_module
from etude.sessions.lent_memory import MOST_FILES, LentMemory
from etude.sessions.local import LocalProvider
from etude.sessions.session import Session

KEEP = """
import json, os, socket, struct
def keep(size):
    "Ask for memory as the display of a table does, and keep the descriptor."
    body = json.dumps({"id": -1, "cell": 0, "method": "memory", "size": size}).encode()
    os.write(3, struct.pack("!IB", len(body), ord("C")) + body)
    with socket.socket(fileno=os.dup(3)) as sock:
        data, fds, _, _ = socket.recv_fds(sock, 4096, 1)
    reply = json.loads(data[5:])
    return fds[0] if fds else reply["problem"]["detail"]
kept = []
"""


def share(size: int) -> int:
    return wire.share_wire_memory(bytes(size))


def test_memory_counts_until_it_is_closed_and_unmapped() -> None:
    lent, own = LentMemory(10_000), share(6000)
    sent = lent.lend(own)
    os.close(own)
    mapped = mmap.mmap(sent, 6000, prot=mmap.PROT_READ)
    os.close(sent)
    more = share(6000)
    with pytest.raises(LimitExceeded, match="6,000 bytes in 1 pieces"):
        lent.lend(more)
    mapped.close()
    os.close(lent.lend(more))
    os.close(more)


def test_memory_that_is_lent_twice_counts_once() -> None:
    lent, own = LentMemory(10_000), share(6000)
    sent = [lent.lend(own) for _ in range(3)]
    for fd in (own, *sent):
        os.close(fd)


def test_small_pieces_are_limited_by_their_number() -> None:
    lent = LentMemory(1 << 30)
    sent = []
    for _ in range(MOST_FILES):
        own = share(1)
        sent.append(lent.lend(own))
        os.close(own)
    own = share(1)
    with pytest.raises(LimitExceeded):
        lent.lend(own)
    for fd in (own, *sent):
        os.close(fd)


@given(st.lists(st.one_of(st.integers(1, 5000), st.none()), max_size=20))
def test_what_is_held_never_passes_the_limit(steps: list[int | None]) -> None:
    """A number is a size to lend, None closes the oldest that is held."""
    before = len(os.listdir("/proc/self/fd"))
    lent, held = LentMemory(10_000), []
    for size in steps:
        if size is None:
            if held:
                os.close(held.pop(0)[1])
            continue
        own, fits = share(size), sum(s for s, _ in held) + size <= 10_000
        try:
            held.append((size, lent.lend(own)))
            assert fits
        except LimitExceeded:
            assert not fits
        os.close(own)
    for _, fd in held:
        os.close(fd)
    lent.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_session_that_hoards_descriptors_over_many_cells_gets_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "MAX_SHARED", 50 << 20)
    provider = LocalProvider(ready=0)
    with Session(provider, limits=SessionLimits(memory=64 << 20)) as session:
        assert session.execute(KEEP).ok
        for _ in range(5):
            assert session.execute(f"kept.append(keep({20 << 20})); kept[-1]").value > 3
        assert "they pass the limit of 119,537,664 bytes" in session.execute(f"keep({20 << 20})").value
        session.execute("for fd in kept: os.close(fd)")
        assert session.execute(f"keep({20 << 20})").value > 3
    provider.close()
