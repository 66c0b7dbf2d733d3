"""Results over HTTP: whole or an error, read by other processes, and never with damaged bytes."""

from __future__ import annotations

import itertools
import os
import random
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pyarrow as pa
import pytest
from fastapi.testclient import TestClient
from tests.patience import wait_until

from api.conftest import listening
from etude.api import result_reader
from etude.api.result_reader import ResultSortOrders
from etude.api.server import create_app
from etude.app import App
from etude.entities import Limits, SourceSpec

CSV, ARROW, PARQUET = "text/csv", "application/vnd.apache.arrow.stream", "application/vnd.apache.parquet"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    folder = tmp_path_factory.mktemp("results")
    (folder / "data").mkdir()
    (folder / "data" / "t.csv").write_text("a\n1\n")
    sources = {"data": SourceSpec(url=str(folder / "data"))}
    with App(home=folder / "home", limits=Limits(rows=0, timeout_s=600), sources=sources) as opened:
        yield opened


@pytest.fixture(scope="module")
def client(app: App) -> Iterator[TestClient]:
    with TestClient(create_app(app), base_url="http://localhost") as opened:
        yield opened


def run(app: App, sql: str, **limits: Any) -> str:
    given = Limits(**{"rows": 0, "timeout_s": 600} | limits)
    return f"/api/runs/{app.sql('data', sql, limits=given).run_id}/result"


def test_a_download_of_millions_of_rows_is_complete(client: TestClient, app: App) -> None:
    path = run(app, "SELECT range AS n FROM range(3000000)")
    assert client.get(path).json()["row_count"] == 3_000_000
    with client.stream("GET", path, headers={"accept": CSV}) as answer:
        lines = sum(piece.count(b"\n") for piece in answer.iter_raw())
    assert lines == 3_000_001
    assert "x-result-truncated" not in answer.headers
    with client.stream("GET", path, headers={"accept": ARROW}) as answer:
        assert pa.ipc.open_stream(answer.read()).read_all().num_rows == 3_000_000


def test_a_result_that_a_limit_cut_says_so_in_every_form(client: TestClient, app: App) -> None:
    path = run(app, "SELECT range AS n FROM range(100)", limit=10)
    for media in (CSV, ARROW, PARQUET, "application/json"):
        assert client.get(path, headers={"accept": media}).headers["x-result-truncated"] == "true"
    named = client.get(path, headers={"accept": CSV}).headers["content-disposition"]
    assert named.endswith('.first-10-rows.csv"')


def test_a_page_of_large_values_ends_early_and_the_next_goes_on(client: TestClient, app: App) -> None:
    path = run(app, "SELECT range AS n, repeat('x', 1000000) AS s FROM range(40)")
    seen, offset = [], 0
    while offset is not None:
        page = client.get(path, params={"offset": offset}).json()
        assert 0 < len(page["rows"]) < 40
        seen += [row[0] for row in page["rows"]]
        offset = page["next"]
    assert seen == list(range(40))


def test_bytes_are_filtered_by_the_hex_that_pages_show(client: TestClient, app: App) -> None:
    path = run(app, "SELECT unhex(h) AS b FROM (VALUES ('aa'), ('ab00'), ('4141')) v(h)")
    for written, found in (("eq:aa", ["aa"]), ("eq:AB00", ["ab00"]), ("ne:aa", ["ab00", "4141"]), ("gt:aa", ["ab00"])):
        assert [row[0] for row in client.get(path, params={"filter": f"b:{written}"}).json()["rows"]] == found
    wrong = client.get(path, params={"filter": "b:eq:xyz"})
    assert wrong.status_code == 422 and "hex" in wrong.json()["hint"]


def test_whole_decimals_of_a_column_are_written_alike(client: TestClient, app: App) -> None:
    path = run(app, "SELECT CAST(x AS DECIMAL(38, 0)) AS d FROM (VALUES ('1'), ('12345678901234567890')) v(x)")
    assert "[1], [12345678901234567890]" in re.sub(r"\],\s*\[", "], [", client.get(path).text)


def test_the_answer_to_a_query_ends_early_too(client: TestClient) -> None:
    body = {"dataset": "data", "query": "SELECT repeat('x', 1000000) AS s FROM range(40)", "limit": 40}
    page = client.post("/sql", json=body).json()
    assert 0 < len(page["rows"]) < 40
    assert page["next"] == len(page["rows"])


def test_a_row_too_large_for_json_is_refused(client: TestClient, app: App) -> None:
    path = run(app, "SELECT repeat('x', 70000000) AS s", row_bytes=0)
    refused = client.get(path)
    assert (refused.json()["code"], refused.json()["limit"]) == ("limit_exceeded", "bytes")
    assert "Parquet" in refused.json()["hint"]
    assert len(client.get(path, headers={"accept": CSV}).content) == 70_000_005


@pytest.mark.parametrize("column", ["n", "NULL::INTEGER", "'same'"])
def test_a_whole_download_can_be_sorted(client: TestClient, app: App, column: str) -> None:
    path = run(app, f"SELECT range AS n, {column} AS c FROM range(200000)")
    for view in ({"sort": ["c", "-n"]}, {"sort": "-n"}):
        found = client.get(path, params=view, headers={"accept": ARROW}).content
        numbers = pa.ipc.open_stream(found).read_all().column("n").to_pylist()
        assert numbers == (
            list(range(200_000)) if column == "n" and "c" in view["sort"] else list(range(199_999, -1, -1))
        )


def test_sort_orders_are_kept_up_to_a_number_of_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_reader, "SORTED_BYTES", 100)
    orders = ResultSortOrders(tmp_path)
    for number, size in enumerate((40, 40, 40, 101)):
        with orders.borrow((number,)) as order:
            assert not order.filled
            order.file.write(bytes(size))
            order.file.flush()
            orders.keep((number,), order)
    assert orders.size == 80
    kept = []
    for number in range(4):
        with orders.borrow((number,)) as order:
            kept.append(order.filled)
    assert kept == [False, True, True, False]
    orders.close()
    assert list(tmp_path.iterdir()) == []


def test_sort_orders_are_kept_up_to_a_number_of_open_files(tmp_path: Path) -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    orders, before = ResultSortOrders(tmp_path), count()
    for number in range(3 * result_reader.SORTED):
        with orders.borrow((number,)) as order:
            order.file.write(bytes(8))
            order.file.flush()
            orders.keep((number,), order)
    assert count() - before == result_reader.SORTED
    with orders.borrow((3 * result_reader.SORTED - 1,)) as order:
        assert order.filled
    orders.close()
    for number in range(10):
        with orders.borrow((number,)) as order:
            orders.keep((number,), order)
    assert count() == before  # an order without rows has no second page


def test_an_export_that_is_read_slowly_takes_no_room_on_the_disk(app: App) -> None:
    path = run(app, "SELECT md5(i::VARCHAR) || md5((-i)::VARCHAR) AS a FROM range(500000) r(i)")

    def held() -> int:
        """Return the bytes of scratch files, also of those that have no name any more."""
        opened = (Path(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd"))
        unnamed = sum(f.stat().st_size for f in opened if f.exists() and os.readlink(f).startswith(f"{app.scratch}/"))
        return unnamed + sum(f.stat().st_size for f in app.scratch.rglob("*") if f.is_file())

    before = held()  # by earlier tests
    with listening(app) as server, httpx.Client(base_url=server.url, timeout=600) as client:
        with client.stream("GET", path.replace("/result", "/export")) as answer:
            assert answer.status_code == 200
            pieces = answer.iter_raw()
            size = len(next(pieces))
            assert held() - before < 1 << 20
            size += sum(map(len, pieces))
        assert size > 10 << 20
        wait_until(lambda: held() <= before)


def test_a_download_whose_process_dies_breaks_off_and_the_next_succeeds(app: App) -> None:
    path = run(app, "SELECT range AS n FROM range(3000000)")
    with listening(app) as server, httpx.Client(base_url=server.url, timeout=600) as client:
        assert client.get(path).status_code == 200
        (process,) = server.api.state.server.result_reader._idle
        with client.stream("GET", path, headers={"accept": CSV}) as answer:
            pieces = answer.iter_raw()
            next(pieces)
            os.kill(process._process.pid, signal.SIGKILL)
            with pytest.raises(httpx.RemoteProtocolError):
                list(pieces)
        assert client.get(path).json()["row_count"] == 3_000_000


def test_a_result_that_needs_too_much_memory_is_an_error(tmp_path: Path, app: App) -> None:
    settings = app.settings.model_copy(update={"engine": app.settings.engine.model_copy(update={"memory": 300 << 20})})
    path = run(app, "SELECT range AS n, 'text ' || range AS s FROM range(5000000)")
    with App(settings) as small, TestClient(create_app(small), base_url="http://localhost") as client:
        refused = client.get(path, params={"sort": ["-s", "n"]})
        assert refused.json()["limit"] == "memory", refused.text
        assert client.get("/healthz").status_code == 200
        assert client.get(path).json()["row_count"] == 5_000_000


# A server in a process of its own.


@pytest.fixture
def server(app: App) -> Iterator[tuple[httpx.Client, psutil.Process]]:
    environment = os.environ | {"ETUDE_HOME": str(app.settings.home), "ETUDE_LIMITS__TIMEOUT_S": "600"}
    command = [sys.executable, "-m", "etude", "serve", "--port", "0"]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    line = next(line for line in process.stderr if "listens on" in line)
    with httpx.Client(base_url=line.split()[-1].strip(), timeout=600) as client:
        yield client, psutil.Process(process.pid)
    process.terminate()
    process.communicate(timeout=120)


@pytest.mark.slow
def test_small_files_that_stand_for_gigabytes_do_not_fill_the_server(
    app: App, server: tuple[httpx.Client, psutil.Process]
) -> None:
    """300 values of a megabyte are a file of a few hundred bytes; millions of nulls likewise."""
    client, process = server
    large = run(app, "SELECT repeat('x', 1000000) AS s FROM range(300)", bytes=0)
    nulls = run(app, f"SELECT {', '.join(f'NULL AS c{n}' for n in range(20))} FROM range(300000)", bytes=0)
    client.get("/healthz")
    before = process.memory_info().rss
    highest, size = before, 0
    for path, media in itertools.product((large, nulls), (CSV, "application/json")):
        with client.stream("GET", path, headers={"accept": media}) as answer:
            for piece in answer.iter_raw():
                size += len(piece)
                highest = max(highest, process.memory_info().rss)
            assert answer.status_code == 200
    assert size > 300_000_000
    assert highest - before < 200 << 20


@pytest.mark.slow
def test_the_server_answers_while_a_result_is_sorted(app: App, server: tuple[httpx.Client, psutil.Process]) -> None:
    client, process = server
    path = run(app, "SELECT hash(range) AS n FROM range(5000000)")
    before = process.memory_info().rss
    with httpx.Client(base_url=client.base_url, timeout=600) as other:
        done: list[int] = []
        sort = threading.Thread(target=lambda: done.append(other.get(path, params={"sort": "n"}).status_code))
        sort.start()
        asked = 0
        while sort.is_alive():
            assert client.get("/healthz").status_code == 200
            asked += 1
        sort.join()
    assert done == [200]
    assert asked > 1
    assert process.memory_info().rss - before < 100 << 20


# Damaged files.


@pytest.fixture(scope="module")
def stored(app: App) -> dict[str, tuple[str, Path]]:
    """Results of different sizes: the path of each, and its file."""
    found = {}
    for rows in (3, 5_000, 200_000):
        path = run(app, f"SELECT range AS n, hash(range) AS h, 'text ' || range AS s FROM range({rows})")
        artifact = app.store.run(path.split("/")[3]).result_artifact
        assert artifact is not None
        found[str(rows)] = (path, app.objects.local_path(artifact.hash) or Path())
    return found


@pytest.mark.parametrize("rows", ["3", "5000", "200000"])
@pytest.mark.parametrize("kind", ["bit", "cut", "lost"])
def test_a_damaged_file_is_reported_and_never_served(
    client: TestClient, stored: dict[str, tuple[str, Path]], rows: str, kind: str
) -> None:
    path, file = stored[rows]
    whole = file.read_bytes()
    chance = random.Random(f"{rows} {kind}")
    hash = file.name
    right = {media: client.get(path, headers={"accept": media}).content for media in (CSV, ARROW, PARQUET)}
    try:
        for _ in range(8):
            damaged = bytearray(whole)
            if kind == "bit":
                damaged[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
            elif kind == "cut":
                del damaged[chance.randrange(len(whole)) :]
            file.write_bytes(damaged) if kind != "lost" else file.unlink(missing_ok=True)
            for media in right:
                answer = client.get(path, headers={"accept": media})
                assert answer.status_code in (404, 500), (media, answer.status_code)
                assert answer.json()["code"] in ("damaged", "not_found")
            artifact = client.get(path.replace("/result", f"/artifacts/{hash}"))
            assert artifact.status_code in (404, 500)
            # A page checks what it reads: it is right, or an error.
            for view in ({"limit": 50}, {"sort": "-n", "limit": 50}, {"filter": "n:ge:0", "limit": 50}):
                page = client.get(path, params=view)
                assert page.status_code in (404, 500) or page.json()["rows"] == _page(right[ARROW], view)
    finally:
        file.write_bytes(whole)
    assert client.get(path, headers={"accept": CSV}).content == right[CSV]


def _page(arrow: bytes, view: dict[str, Any]) -> list[list[Any]]:
    table = pa.ipc.open_stream(arrow).read_all()
    if "sort" in view:
        table = table.sort_by([("n", "descending")])
    return [list(row.values()) for row in table.slice(0, 50).to_pylist()]


def test_a_full_storage_quota_is_a_problem_that_says_what_to_do(tmp_path: Path, app: App) -> None:
    settings = app.settings.model_copy(
        update={
            "home": tmp_path / "home",
            "server": app.settings.server.model_copy(update={"tenant_storage": {"main": 1000}}),
        }
    )
    body = {"dataset": "data", "query": "SELECT range FROM range(5000)"}
    with App(settings) as full, TestClient(create_app(full), base_url="http://localhost") as client:
        assert client.post("/sql", json=body).status_code == 200
        for path, request in (
            ("/sql", body),
            ("/runs", {"kind": "sql", "text": "SELECT 1", "dataset": "data"}),
            ("/ask", {"question": "PYTHON: 1", "dataset": "data"}),
        ):
            refused = client.post(path, json=request)
            told = refused.json()
            assert (refused.status_code, told["limit"], told["allowed"]) == (429, "storage", 1000), path
            assert told["used"] > 1000
            assert "server.storage" in told["hint"]
        assert client.post("/sql", json=body | {"record": False}).status_code == 200
