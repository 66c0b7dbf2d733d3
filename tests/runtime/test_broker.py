"""The host's side of what a session asks for."""

from __future__ import annotations

import base64
import os

import pytest

from etude.entities import Catalog, Limits
from etude.errors import Invalid, LimitExceeded
from etude.limits import MOST_TEXT
from etude.runtime import broker as brokers
from etude.runtime.broker import DataBroker, SourceAccess
from etude.sources.engine_client import ResultStream
from etude.sources.query_parameters import Encoded


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
