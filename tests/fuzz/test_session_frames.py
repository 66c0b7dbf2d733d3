"""Fuzz tests of the bytes that the host reads from sessions and engines: it must not hang, crash or use up memory.

Each target runs for a few seconds, or for FUZZ_SECONDS. The corpus holds valid inputs, from which mutation starts, and
inputs that once failed. A failing input is printed in hex: add it to the corpus. If the environment variable FUZZ_INPUT
names a file, each input is written there first, so that an input that crashes the process is not lost.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from etude import wire
from etude.errors import EtudeError
from etude.sessions import kernel
from etude.sessions.session import SessionFrames, _read_table, _Run
from etude.sources.engine_client import _decode

CORPUS = Path(__file__).parent / "corpus"
SECONDS = float(os.environ.get("FUZZ_SECONDS", "3"))
ONE_S = 30.0
"""The limit for one input, generous enough for slow machines."""
GROWTH = 600 << 20
"""The most memory that the host may use for one input."""
pytestmark = pytest.mark.timeout(SECONDS * 2 + 300)
NUMBERS = (0, 1, 2, 4, 5, 127, 128, 255, 256, 65535, 1 << 16, (1 << 24) - 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)


def seeds(target: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((CORPUS / target).iterdir())]


def mutate(rng: random.Random, inputs: list[bytes]) -> bytes:
    """Return an input with a few bytes changed, deleted, repeated or inserted from another input."""
    data = bytearray(rng.choice(inputs))
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(7):
            case 0 if data:
                data[at % len(data)] ^= 1 << rng.randrange(8)
            case 1 if data:
                data[at % len(data)] = rng.randrange(256)
            case 2:
                data[at : at + 4] = struct.pack(rng.choice("<>") + "I", rng.choice(NUMBERS))
            case 3:
                del data[at : at + rng.choice((1, 4, 8, 100))]
            case 4:
                data[at:at] = rng.randbytes(rng.choice((1, 4, 8, 64)))
            case 5:
                other = rng.choice(inputs)
                start = rng.randrange(len(other) + 1)
                data[at:at] = other[start : start + rng.randrange(1, 200)]
            case _:
                data[at:at] = bytes(data[at : at + rng.randrange(1, 200)])
    return bytes(data)


def fuzz(target: str, run: Callable[[bytes], None]) -> None:
    """Run a target on its corpus, then on mutations of it until the time is up."""
    inputs = seeds(target)
    rng = random.Random(int.from_bytes(os.urandom(8)) if "FUZZ_SECONDS" in os.environ else 1)
    held, peak = len(os.listdir("/proc/self/fd")), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    until, count = time.monotonic() + SECONDS, 0
    waiting = list(inputs)
    while waiting or time.monotonic() < until:
        data = waiting.pop() if waiting else mutate(rng, inputs)
        started = time.monotonic()
        if "FUZZ_INPUT" in os.environ:
            Path(os.environ["FUZZ_INPUT"]).write_bytes(data)
        try:
            run(data)
        except BaseException as error:
            pytest.fail(f"{type(error).__name__}: {error} for {data.hex()}")
        count += 1
        assert time.monotonic() - started < ONE_S, data.hex()
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - peak
        assert grown < GROWTH, f"{grown >> 20} MiB more for {data.hex()}"
    assert len(os.listdir("/proc/self/fd")) <= held
    print(f"{target}: {count} inputs")


@contextlib.contextmanager
def sent(data: bytes) -> Iterator[socket.socket]:
    """Yield a socket that receives these bytes and then the end of the stream."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender = threading.Thread(target=_send_all, args=(theirs, data))
        sender.start()
        try:
            yield ours
        finally:
            ours.close()
            sender.join()


def _send_all(sock: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)


def take_frames(data: bytes) -> None:
    """Read frames as the host does while a cell runs."""
    run = _Run(1, "", 1 << 20, None)
    with sent(data) as sock, contextlib.suppress(wire.Closed), contextlib.closing(run):
        frames = SessionFrames(sock)
        while (frame := frames.next(time.monotonic() + 10)) is not None:
            kind, payload = frame
            if kind == b"C"[0]:
                with contextlib.suppress(ValueError, RecursionError, EtudeError):
                    request = json.loads(payload)
                    if isinstance(request, dict) and request.get("method") == "memory":
                        os.close(run.lend(request.get("size"))[1])
            elif run.take(kind, payload):
                break
    cell = run.cell("ok" if run.end.get("ok") else "killed", 1.0, 60.0)
    json.dumps([cell.stdout, cell.stderr, cell.text, cell.error, cell.notes])


def take_table(data: bytes) -> None:
    """Read a table that a session displays."""
    try:
        table = _read_table(data)
    except Exception:  # any error is a refusal
        return
    assert table.num_rows >= 0
    for batch in table.to_batches():
        with contextlib.suppress(Exception):  # such as a time outside Python's range; only a crash is a failure
            batch.slice(0, 100).to_pylist()


def take_answer(data: bytes) -> None:
    """Read a response of an engine."""
    with sent(data) as sock:
        while True:
            try:
                frame = wire.receive_wire_frame(sock)
                assert isinstance(frame.head, dict)
            except wire.Closed:
                return
            with contextlib.suppress(EtudeError, pa.ArrowException, OSError, ValueError):
                _decode(frame.blob)


@pytest.mark.parametrize(
    ("target", "run"),
    [("session_frames", take_frames), ("session_tables", take_table), ("engine_frames", take_answer)],
)
def test_the_host_takes_any_bytes(target: str, run: Callable[[bytes], None]) -> None:
    fuzz(target, run)


def test_the_corpus_has_inputs_that_are_valid() -> None:
    read = 0
    for data in seeds("session_tables"):
        with contextlib.suppress(Exception):
            read += _read_table(data).num_columns > 0
    assert read >= 5
    ends: list[Any] = []
    for data in seeds("session_frames"):
        run = _Run(1, "", 1 << 20, None)
        with sent(data) as sock, contextlib.suppress(wire.Closed):
            frames = SessionFrames(sock)
            while (frame := frames.next(time.monotonic() + 10)) is not None and not run.take(*frame):
                assert frame[0] in b"OEDXC"
        ends.append(run.end)
    assert any(end.get("ok") for end in ends) and kernel.HEAD.size == 5
