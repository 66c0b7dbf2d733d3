"""The host's side of what a session asks for."""

from __future__ import annotations

import base64
import errno
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from etude import wire
from etude.entities import Catalog, Limits
from etude.errors import EtudeError, Invalid, LimitExceeded
from etude.limits import MOST_TEXT
from etude.runtime import broker as brokers
from etude.runtime.broker import DataBroker, SourceAccess
from etude.sources.engine_client import EngineLimits, ResultStream
from etude.sources.engine_pool import EnginePool
from etude.sources.query_parameters import Encoded
from etude.sources.registered_tables import RegisteredTables


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


@pytest.mark.parametrize("method", ["save", "register"])
def test_pieces_are_on_disk_from_the_first_on_and_go_with_their_cell(tmp_path: Path, method: str) -> None:
    pool = EnginePool(EngineLimits(memory=2 << 30, scratch_bytes=1 << 30, threads=1), size=1)
    frames = RegisteredTables(pool, tmp_path / "cache", tmp_path / "frames")
    access = SourceAccess("shop", None, Catalog, Limits(), scratch=tmp_path / "scratch", frames=frames)  # type: ignore[arg-type]
    broker = DataBroker(access, None)

    def sizes() -> list[int]:
        return sorted(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())

    piece = {"method": method, "name": "t", "data": base64.b64encode(bytes(1 << 20)).decode()}
    tracemalloc.start()
    try:
        for number in range(32):
            broker.answer(piece | {"goes_on": number > 0, "more": True}, 1.0)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
        assert sizes() == [32 << 20]
        broker.answer(piece | {"goes_on": False, "more": True}, 1.0)  # a first piece starts over
        assert sizes() == [1 << 20]
        broker.settle(None)
        assert sizes() == []
        for more in (True, False):
            broker.answer(piece | {"goes_on": not more, "more": more}, 1.0)
        broker.settle(None)
        assert sizes() == [2 << 20]
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
        broker.close()
        frames.close()
        pool.close()
    assert sizes() == []


def test_tables_that_were_only_begun_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers, "FILES", 3)
    pool = EnginePool(EngineLimits(memory=2 << 30, scratch_bytes=1 << 30, threads=1), size=1)
    frames = RegisteredTables(pool, tmp_path / "cache", tmp_path / "frames")
    access = SourceAccess("shop", None, Catalog, Limits(), scratch=tmp_path / "scratch", frames=frames)  # type: ignore[arg-type]
    broker = DataBroker(access, None)
    for name in "abc":
        broker.answer({"method": "register", "name": name, "data": "", "more": True}, 1.0)
    with pytest.raises(LimitExceeded, match="3 tables"):
        broker.answer({"method": "register", "name": "d", "data": "", "more": True}, 1.0)
    broker.close()
    pool.close()


def test_a_file_that_does_not_fit_on_the_disk_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    broker = DataBroker(None, None)
    broker.answer({"method": "save", "name": "x", "data": "", "more": True}, 1.0)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", fail)
        with pytest.raises(EtudeError, match="`x` cannot be saved"):
            broker.answer({"method": "save", "name": "x", "data": "", "goes_on": True}, 1.0)
    with pytest.raises(Invalid, match="beginning of `x`"):
        broker.answer({"method": "save", "name": "x", "data": "", "goes_on": True}, 1.0)
    broker.close()


def failing() -> tuple[DataBroker, list[str]]:
    """Return a broker whose source refuses every query, and the texts that reached the source."""
    sent: list[str] = []

    def start(sql: str, limits: Limits, params: Encoded | None) -> ResultStream:
        sent.append(sql)
        raise Invalid("No." * 10)

    return DataBroker(SourceAccess("shop", start, Catalog, Limits()), None), sent


def ask(broker: DataBroker, sql: str, params: object = None) -> None:
    broker.answer({"method": "sql", "query": sql, "params": params}, 1.0)


def test_a_text_or_parameters_beyond_the_limit_are_refused_and_not_kept() -> None:
    broker, sent = failing()
    for sql, params in (
        ("x" * (MOST_TEXT + 1), None),
        ("SELECT ?", ["x" * MOST_TEXT]),
        ("SELECT $a", {"a": "é" * 99_999}),
    ):
        with pytest.raises(LimitExceeded, match="a cell may send 200,000"):
            ask(broker, sql, params)
    assert (sent, broker.settle(None)) == ([], [])
    with pytest.raises(Invalid):
        ask(broker, "x" * MOST_TEXT, ["x" * (MOST_TEXT - 10)])
    assert len(broker.settle(None)) == 1


@pytest.mark.parametrize(("limit", "value", "most"), [("CALLS", 5, 5), ("CALL_BYTES", 2_000, 8)])
def test_the_queries_of_a_cell_are_limited(monkeypatch: pytest.MonkeyPatch, limit: str, value: int, most: int) -> None:
    monkeypatch.setattr(brokers, limit, value)
    broker, sent = failing()
    for _ in range(2):  # each cell begins anew
        sent.clear()
        for number in range(20):
            with pytest.raises(LimitExceeded if number >= most else Invalid) as failed:
                ask(broker, f"{'x' * 99}{number % 10}")
        assert failed.value.details["limit"] == "queries"
        calls = broker.settle(None)
        assert len(sent) == len(calls) == most
    broker.replay_cell(calls)
    for number in range(20):  # and ends alike if it runs again
        with pytest.raises(LimitExceeded if number >= most else Invalid):
            ask(broker, f"{'x' * 99}{number % 10}")


def returning(size: int, parts: int) -> DataBroker:
    """Return a broker whose source answers every query with a result of several parts."""

    def start(sql: str, limits: Limits, params: Encoded | None) -> ResultStream:
        found = ResultStream()
        found.batches, found.types = take_parts(found), ["VARCHAR"]
        found.end = {"row_count": parts, "truncated": False, "bytes": size * parts, "elapsed_ms": 1.0}
        return found

    def take_parts(stream: ResultStream) -> Iterator[pa.RecordBatch]:
        batch = pa.record_batch({"x": ["x" * size]})
        for _ in range(parts):
            assert stream.parts is not None
            stream.parts.append(wire.share_wire_batches(iter([batch])))
            yield batch

    return DataBroker(SourceAccess("shop", start, Catalog, Limits()), None)


@pytest.mark.parametrize(("limit", "value"), [("HELD", 1_000_000), ("OPEN", 30)])
def test_results_that_a_cell_does_not_read_are_not_held(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(brokers, limit, value)
    broker, heads = returning(100_000, 3), []
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        head, fd = broker.answer({"method": "sql", "query": "SELECT 1", "params": None}, 1.0)
        assert fd is not None
        os.close(fd)
        heads.append(head)
    assert broker._held <= (1_000_000 if limit == "HELD" else 10 * 320_000)
    assert len(os.listdir("/proc/self/fd")) - before <= 30
    for index in (1, 2):
        os.close(broker.answer({"method": "part", "result": heads[-1]["result"], "index": index}, 1.0)[1] or -1)
    with pytest.raises(Invalid, match="no such part"):
        broker.answer({"method": "part", "result": heads[0]["result"], "index": 1}, 1.0)
    assert len(broker.settle(None)) == 50
    assert len(os.listdir("/proc/self/fd")) <= before


def test_saved_files_stay_on_disk_and_not_in_memory(tmp_path: Path) -> None:
    def start(sql: str, limits: Limits, params: Encoded | None) -> ResultStream:
        raise Invalid("No.")

    broker = DataBroker(SourceAccess("shop", start, Catalog, Limits(), scratch=tmp_path), None)
    tracemalloc.start()
    save(broker, "x.bin", bytes(3 << 20))
    save(broker, "x.bin", b"1" * (3 << 20))
    assert tracemalloc.get_traced_memory()[0] < 1 << 20
    tracemalloc.stop()
    before = len(os.listdir("/proc/self/fd"))
    fd, _, content = load(broker, "x.bin")
    os.close(fd)
    assert content == b"1" * (3 << 20)
    assert sum(f.stat().st_size for f in tmp_path.rglob("*") if f.is_file()) == 3 << 20
    broker.settle(None)  # the shared memory of what a cell has loaded goes with the cell
    assert len(os.listdir("/proc/self/fd")) == before
    broker.close()
    assert not list(tmp_path.iterdir())
