from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from tests.patience import wait_until
from tests.sources.conftest import Shop

from etude.entities import Limits
from etude.errors import Cancelled, EtudeError, LimitExceeded, SourceError, Unavailable
from etude.sources import engine_pool as pool_module
from etude.sources.base import Mount
from etude.sources.engine_client import EngineLimits, ResultStream
from etude.sources.engine_pool import EnginePool

ENDLESS = "SELECT count(*) FROM range(10000000000000) t(i) WHERE i % 7 = 3"
DEAF = "SELECT length(repeat('x', 1000000000)) + length(repeat('y', 1000000000)) + length(repeat('z', 1000000000))"
LIMITS = EngineLimits(memory=2 << 30, scratch_bytes=1 << 30, threads=2)


@pytest.fixture
def mounts(tmp_path: Path) -> tuple[Mount, ...]:
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t AS SELECT i, 'v' || i AS s FROM range(100000) r(i)")
    return (Mount("shop", "duckdb", str(path)),)


@pytest.fixture
def pool() -> Iterator[EnginePool]:
    opened = EnginePool(LIMITS, size=2)
    yield opened
    opened.close()


def ask(
    pool: EnginePool, mounts: tuple[Mount, ...], sql: str, limits: Limits | None = None
) -> tuple[int, list[object]]:
    """The process that answered, and the values of the first column."""
    with pool.lease(("shop",), mounts, False, wait_s=60) as engine:
        answer = engine.query(sql, limits or Limits(), describe=False)
        values = [v for batch in answer.batches for v in batch.column(0).to_pylist()]
        return engine.pid, values


def test_an_engine_is_used_again(pool: EnginePool, mounts: tuple[Mount, ...]) -> None:
    first, values = ask(pool, mounts, "SELECT count(*) FROM t")
    again, _ = ask(pool, mounts, "SELECT 1")
    assert values == [100_000]
    assert first == again


def test_an_engine_of_a_server_does_not_load_pandas_in_its_first_query(pool: EnginePool, postgres_shop: Shop) -> None:
    """Loading it can take longer than a query may: an engine cannot keep what Python compiled."""
    mounts = (Mount("shop", "postgres", postgres_shop.url),)
    with pool.lease(("shop",), mounts, True, wait_s=60) as engine:
        (batch,) = engine.query("SELECT 'a' AS a", Limits(), describe=False).batches
        assert batch.to_pydict() == {"a": ["a"]}
        assert "pandas" not in Path(f"/proc/{engine.pid}/maps").read_text()


INVALIDATES = "SELECT reservoir_quantile(i, 0.5, 2000000000) FROM t"


def test_an_engine_that_reports_a_fatal_error_serves_nobody_else(pool: EnginePool, mounts: tuple[Mount, ...]) -> None:
    first, _ = ask(pool, mounts, "SELECT 1")
    with pytest.raises(SourceError) as caught:
        ask(pool, mounts, INVALIDATES)
    assert "fatal" not in caught.value.details
    again, values = ask(pool, mounts, "SELECT count(*) FROM t")
    assert again != first
    assert values == [100_000]


def test_an_engine_that_fails_after_its_reader_left_serves_nobody_else(
    pool: EnginePool, mounts: tuple[Mount, ...]
) -> None:
    with pool.lease(("shop",), mounts, False, wait_s=60) as engine:
        first, answer = engine.pid, engine.query(INVALIDATES, Limits(), describe=False)
        wait_until(lambda: not engine.ready)
        engine._settle(answer)
    again, values = ask(pool, mounts, "SELECT count(*) FROM t")
    assert again != first
    assert values == [100_000]


def test_an_engine_with_an_unread_answer_serves_nobody_else(pool: EnginePool, mounts: tuple[Mount, ...]) -> None:
    with pool.lease(("shop",), mounts, False, wait_s=60) as engine:
        first = engine.pid
        engine._send({"op": "catalog"})
        wait_until(lambda: not engine.ready)
    again, values = ask(pool, mounts, "SELECT 7")
    assert again != first
    assert values == [7]


def test_a_large_result_comes_whole_and_in_order(pool: EnginePool, mounts: tuple[Mount, ...]) -> None:
    _, values = ask(pool, mounts, "SELECT i FROM range(3000000) r(i)", Limits(rows=0))
    assert values == list(range(3_000_000))


@pytest.fixture
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that a slow machine holds up is waited for, not replaced."""
    monkeypatch.setattr("etude.sources.engine_client.GRACE_S", 120.0)


@pytest.mark.usefixtures("_patient")
def test_a_slow_query_is_stopped_and_the_engine_stays(pool: EnginePool, mounts: tuple[Mount, ...]) -> None:
    first, _ = ask(pool, mounts, "SELECT 1")
    with pytest.raises(LimitExceeded, match=r"0\.5 s"):
        ask(pool, mounts, ENDLESS, Limits(timeout_s=0.5))
    assert ask(pool, mounts, "SELECT 1")[0] == first


def test_an_engine_that_does_not_listen_is_killed_and_replaced(mounts: tuple[Mount, ...]) -> None:
    roomy = EnginePool(EngineLimits(memory=8 << 30, scratch_bytes=1 << 30, threads=2), size=1)
    first, _ = ask(roomy, mounts, "SELECT 1")
    with pytest.raises(LimitExceeded):
        ask(roomy, mounts, DEAF, Limits(timeout_s=0.3))
    second, values = ask(roomy, mounts, "SELECT 1")
    assert values == [1]
    assert second != first
    roomy.close()


def test_memory_is_bounded_by_the_operating_system(mounts: tuple[Mount, ...]) -> None:
    small = EnginePool(EngineLimits(memory=600 << 20, scratch_bytes=1 << 30, threads=1), size=1)
    with pytest.raises(LimitExceeded) as caught:
        ask(small, mounts, "SELECT length(repeat('x', 2000000000))", Limits(timeout_s=30))
    assert caught.value.details["limit"] == "memory"
    assert ask(small, mounts, "SELECT 1")[1] == [1]
    small.close()


def test_a_query_is_cancelled_from_another_thread(pool: EnginePool, mounts: tuple[Mount, ...]) -> None:
    with pool.lease(("shop",), mounts, False, wait_s=10) as engine:
        answer = engine.query(ENDLESS, Limits(timeout_s=600), describe=False)
        threading.Timer(0.3, answer.cancel).start()
        with pytest.raises(Cancelled):
            list(answer.batches)


def test_a_cancel_before_the_start_counts() -> None:
    answer = ResultStream()
    stopped: list[bool] = []
    answer.cancel()
    answer.started(lambda: stopped.append(True))
    assert stopped == [True]


@pytest.mark.usefixtures("_patient")
def test_a_result_left_early_frees_the_engine(pool: EnginePool, mounts: tuple[Mount, ...]) -> None:
    with pool.lease(("shop",), mounts, False, wait_s=10) as engine:
        first = engine.pid
        answer = engine.query("SELECT i, i::VARCHAR FROM range(50000000) r(i)", Limits(rows=0, bytes=0), describe=False)
        next(answer.batches)
        answer.batches.close()  # type: ignore[attr-defined]
    assert ask(pool, mounts, "SELECT 1") == (first, [1])


def test_an_engine_that_dies_is_replaced(pool: EnginePool, mounts: tuple[Mount, ...]) -> None:
    with pytest.raises(EtudeError), pool.lease(("shop",), mounts, False, wait_s=10) as engine:
        answer = engine.query(ENDLESS, Limits(timeout_s=600), describe=False)
        threading.Timer(0.2, os.kill, (engine.pid, signal.SIGKILL)).start()
        list(answer.batches)
    assert ask(pool, mounts, "SELECT 1")[1] == [1]


def test_a_full_pool_says_so(pool: EnginePool, mounts: tuple[Mount, ...]) -> None:
    lease = [pool.lease(("shop",), mounts, False, wait_s=10) for _ in range(2)]
    with lease[0], lease[1], pytest.raises(Unavailable, match="busy"), pool.lease(("shop",), mounts, False, wait_s=0.2):
        pass


def test_the_engine_has_no_network_and_only_its_files(pool: EnginePool, mounts: tuple[Mount, ...]) -> None:
    with pool.lease(("shop",), mounts, False, wait_s=10) as engine:
        assert engine.info["isolation"] == {"network": True, "files": True}
        assert os.stat(f"/proc/{engine.pid}/ns/net").st_ino != os.stat("/proc/self/ns/net").st_ino
        environment = Path(f"/proc/{engine.pid}/environ").read_bytes()
        assert b"ETUDE_HOME" not in environment


def test_engines_that_nobody_uses_end(mounts: tuple[Mount, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "IDLE_S", 0.3)
    short = EnginePool(LIMITS, size=2)
    pid, _ = ask(short, mounts, "SELECT 1")
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    assert ask(short, mounts, "SELECT 1")[1] == [1]
    short.close()


def test_a_source_that_changed_gets_a_new_engine(pool: EnginePool, mounts: tuple[Mount, ...]) -> None:
    with pool.lease(("shop", 1), mounts, False, wait_s=10) as engine:
        old = engine.pid
    with pool.lease(("shop", 2), mounts, False, wait_s=10) as engine:
        assert engine.pid != old
    assert not Path(f"/proc/{old}").exists()


def test_scratch_folders_go_with_their_engine(mounts: tuple[Mount, ...], tmp_path: Path) -> None:
    own = EnginePool(LIMITS, size=1)
    with own.lease(("shop",), mounts, False, wait_s=10) as engine:
        scratch = engine._scratch.path
        assert scratch.exists()
    own.close()
    assert not scratch.exists()
