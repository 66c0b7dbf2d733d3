"""One row that is very wide: it is refused where it enters the host, and up to the limit it keeps no thread waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from etude.app import App
from etude.entities import Limits
from etude.errors import LimitExceeded
from etude.offered_script import offer_script
from etude.replays.fingerprint import rows_fingerprint
from etude.replays.proof import load_run_for_proof, make_proof
from etude.sample import write_shop
from etude.sources import engine_client

ROW = 64 << 20


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    with App(home=tmp_path_factory.mktemp("home")) as app:
        yield app


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "shop"
    write_shop(folder)
    return folder


@contextmanager
def short_pauses(most_s: float) -> Iterator[None]:
    """Fail if another thread could not run for longer than this."""
    worst, done = [0.0], threading.Event()

    def beat() -> None:
        last = time.perf_counter()
        while not done.is_set():
            time.sleep(0.005)
            now = time.perf_counter()
            worst[0], last = max(worst[0], now - last), now

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    assert worst[0] < most_s


@pytest.mark.parametrize(
    "wide",
    [
        f"repeat('x', {ROW + 1})",
        f"repeat('x', {ROW + 1})::BLOB",
        f"[repeat('x', {ROW // 4})] || [repeat('y', {ROW})]",
        f"{{'a': repeat('x', {ROW + 1})}}",
        f"map {{'a': repeat('x', {ROW + 1})}}",
        f"repeat('x', {ROW // 2}), repeat('y', {ROW // 2})",
    ],
)
def test_a_wide_row_does_not_enter_the_host(app: App, shop: Path, wide: str) -> None:
    with pytest.raises(LimitExceeded, match=r"of the result has .* bytes; 67,108,864 are allowed in one row") as caught:
        app.sql(str(shop), f"SELECT {wide}", record=True)
    assert caught.value.details["limit"] == "row_bytes"
    assert "limits.row_bytes" in str(caught.value.hint)


def test_the_row_is_named(app: App, shop: Path) -> None:
    query = "SELECT repeat('x', CASE i WHEN 29999 THEN 90000000 ELSE 10 END) AS x FROM range(30000) t(i)"
    with pytest.raises(LimitExceeded, match=r"Row 30,000 of the result has 90,000,\d\d\d bytes"):
        app.sql(str(shop), query)


def test_an_owner_can_allow_wider_rows_and_a_caller_fewer(app: App, shop: Path) -> None:
    query = f"SELECT repeat('x', {ROW + 1}) AS x"
    ((value,),) = app.sql(str(shop), query, limits=Limits(row_bytes=0), record=False).rows()
    assert len(value) == ROW + 1
    with pytest.raises(LimitExceeded, match="1,000 are allowed in one row"):
        app.sql(str(shop), "SELECT repeat('x', 2000) AS x", limits=Limits(row_bytes=1000))


def test_the_host_checks_rows_itself(app: App, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the engine, which runs the query, were compromised."""
    send = engine_client.EngineClient._send
    monkeypatch.setattr(engine_client.EngineClient, "_send", lambda self, head: send(self, head | {"row_bytes": 0}))
    with pytest.raises(LimitExceeded, match="are allowed in one row"):
        app.sql(str(shop), f"SELECT repeat('x', {ROW + 1}) AS x")


@pytest.mark.slow
@pytest.mark.parametrize("wide", ["repeat(chr(1), 60000000)", "repeat('é', 30000000)"])
def test_replaying_a_wide_row_keeps_no_thread_waiting(app: App, shop: Path, wide: str) -> None:
    run_id = app.sql(str(shop), f"SELECT {wide} AS x", record=True).run_id
    assert run_id is not None
    with short_pauses(1.0):
        proof = make_proof(app, load_run_for_proof(app, run_id))
        assert [step.outcome for step in proof.steps] == ["same"]
        offer_script(app, app.store.run(run_id))


def test_long_texts_are_compared_in_parts() -> None:
    long = "x" * 3_000_000
    marks = {
        rows_fingerprint([("x", "VARCHAR")], [(value,)], ordered=True)
        for value in (
            long,
            long[:-1] + "y",
            "y" + long[1:],
            long + "x",
            long.encode(),
            [long],
            {"a": long},
            {long: "a"},
        )
    }
    assert len(marks) == 8
    with short_pauses(0.5):
        rows_fingerprint([("x", "VARCHAR")], [("\1" * 60_000_000,)], ordered=False)
