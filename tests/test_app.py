"""App: every query is a run, whatever comes of it; limits and budgets hold; sources are kept by name."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pytest

from etude import __version__
from etude.app import App
from etude.entities import Limits, Run, RunFilter, SourceSpec
from etude.errors import (
    Cancelled,
    Conflict,
    Damaged,
    EtudeError,
    Invalid,
    InvalidQuery,
    LimitExceeded,
    NotFound,
    Refused,
    SourceError,
    UnknownTable,
)

ENDLESS = "SELECT count(*) FROM range(10000000) a(i), range(10000000) b(i) WHERE a.i + b.i = 7"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "shop.duckdb"
    with duckdb.connect(path) as db:
        db.execute("CREATE TABLE orders AS SELECT i AS id, i % 3 AS customer, i * 1.5 AS amount FROM range(1000) r(i)")
        db.execute("CREATE TABLE hidden AS SELECT 'secret' AS word")
    return path


@pytest.fixture(scope="module")
def crm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "crm.duckdb"
    with duckdb.connect(path) as db:
        db.execute("CREATE TABLE customers AS FROM (VALUES (0, 'Ann'), (1, 'Bob'), (2, 'Cy')) v(id, name)")
    return path


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """One for all tests that look at their own runs only."""
    with App(home=tmp_path_factory.mktemp("home")) as opened:
        yield opened


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[App]:
    """One without runs and named sources."""
    with App(home=tmp_path / "home") as opened:
        yield opened


def last_run(app: App) -> Run:
    return app.store.run(app.store.runs(limit=1).items[0].id)


# -- runs


def test_a_query_is_recorded_with_all_that_is_needed_to_run_it_again(app: App, shop: Path) -> None:
    result = app.sql(str(shop), "SELECT sum(id) AS n FROM orders")
    run = app.store.run(str(result.run_id))
    assert (run.kind, run.status, run.source) == ("sql", "succeeded", "shop")
    assert run.text == "SELECT sum(id) AS n FROM orders"
    types = [e.event.type for e in app.store.entries(run.id)]
    assert types == [
        "run.queued",
        "run.started",
        "step.started",
        "artifact.created",
        "step.finished",
        "run.finished",
    ]
    (step,) = run.steps
    assert step.code == run.text and step.outcome == "ok"
    assert step.limits is not None and step.limits.rows == app.settings.limits.rows
    assert step.versions == {"etude": __version__, "duckdb": duckdb.__version__}
    assert step.estimate is not None and step.estimate.scan_rows == 1000
    assert step.schema_fingerprint == app.catalog(str(shop)).fingerprint
    (read,) = step.reads
    assert (read.source, read.table) == ("shop", "orders") and read.fingerprint
    assert step.artifact == run.result_artifact == run.artifacts[0]
    assert run.result is not None and run.result.row_count == 1
    assert app.result(run.id).rows() == result.rows() == [(499500,)]
    assert app.result(run.id[:20]).rows() == [(499500,)]


def test_what_was_read_has_a_new_fingerprint_once_the_file_changed(app: App, tmp_path: Path) -> None:
    path = tmp_path / "live.duckdb"
    with duckdb.connect(path) as db:
        db.execute("CREATE TABLE t AS SELECT 1 AS n")
    first = app.sql(str(path), "SELECT n FROM t")
    os.replace(path, tmp_path / "old.duckdb")
    with duckdb.connect(path) as db:
        db.execute("CREATE TABLE t AS SELECT 2 AS n, 'new' AS name")
    second = app.sql(str(path), "SELECT n, name FROM t")
    assert (first.rows(), second.rows()) == ([(1,)], [(2, "new")])
    steps = [app.store.run(str(r.run_id)).steps[0] for r in (first, second)]
    assert steps[0].reads[0].fingerprint != steps[1].reads[0].fingerprint
    assert steps[0].schema_fingerprint != steps[1].schema_fingerprint
    assert [c.name for c in app.catalog(str(path)).tables[0].columns] == ["n", "name"]


@pytest.mark.parametrize(
    ("query", "error", "outcome", "code"),
    [
        ("DROP TABLE orders", Refused, "refused", "refused"),
        ("SELECT * FROM ordrs", UnknownTable, "refused", "unknown_table"),
        ("SELEC 1", InvalidQuery, "error", "invalid_query"),
        ("SELECT amuont FROM orders", InvalidQuery, "error", "invalid_query"),
        ("SELECT ('y' || id)::INTEGER FROM orders", InvalidQuery, "error", "invalid_query"),
    ],
)
def test_a_query_that_fails_is_recorded_with_its_error(
    app: App, shop: Path, query: str, error: type[EtudeError], outcome: str, code: str
) -> None:
    with pytest.raises(error) as caught:
        app.sql(str(shop), query)
    run = last_run(app)
    assert caught.value.details["run_id"] == run.id
    assert run.status == "failed" and run.error is not None and run.error["code"] == code
    assert run.error["detail"] == caught.value.message
    (step,) = run.steps
    assert step.outcome == outcome and step.error == run.error
    assert step.error_key is not None and step.error_key.startswith(f"{code}: ")
    with pytest.raises(NotFound, match="is failed and has no result"):
        app.result(run.id)


def test_failures_of_one_kind_have_one_key(fresh: App, shop: Path) -> None:
    for name in ("ordrs", "custmers"):
        with pytest.raises(UnknownTable):
            fresh.sql(str(shop), f"SELECT * FROM {name}")
    keys = {fresh.store.run(r.id).steps[0].error_key for r in fresh.store.runs().items}
    assert keys == {"unknown_table: ? is not a table of this source."}


def test_a_query_past_its_time_is_stopped_and_recorded(app: App, shop: Path) -> None:
    with pytest.raises(LimitExceeded, match=r"exceeded its time limit of 0\.5 s"):
        app.sql(str(shop), ENDLESS, limits=Limits(timeout_s=0.5))
    run = last_run(app)
    assert run.status == "failed" and run.steps[0].outcome == "limit"
    assert run.error is not None and run.error["limit"] == "timeout_s"
    assert app.sql(str(shop), "SELECT 1 AS a").rows() == [(1,)]


def test_a_query_that_ctrl_c_stops_is_recorded_as_cancelled(app: App, shop: Path) -> None:
    at_work = threading.Event()

    def press_ctrl_c() -> None:
        at_work.wait()
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press_ctrl_c)
    thread.start()
    with pytest.raises((Cancelled, KeyboardInterrupt)):
        app.sql(str(shop), ENDLESS, limits=Limits(timeout_s=600), on_progress=lambda _: at_work.set())
    thread.join()
    run = last_run(app)
    assert run.status == "cancelled" and run.steps[0].outcome == "cancelled"
    assert app.sql(str(shop), "SELECT 1 AS a").rows() == [(1,)]


def test_a_query_with_more_rows_than_its_limit_fails(app: App, shop: Path) -> None:
    with pytest.raises(LimitExceeded, match="more than 10 rows") as caught:
        app.sql(str(shop), "FROM orders ORDER BY id", limits=Limits(rows=10))
    assert caught.value.details["limit"] == "rows" and "`limits.rows`" in caught.value.hint
    run = last_run(app)
    assert (run.status, run.steps[0].outcome, run.result) == ("failed", "limit", None)
    whole = app.sql(str(shop), "FROM orders LIMIT 10", limits=Limits(rows=10))
    assert not whole.truncated and whole.notes == ()


def test_the_first_rows_are_had_on_request_and_it_is_said(app: App, shop: Path) -> None:
    result = app.sql(str(shop), "FROM orders ORDER BY id", limits=Limits(limit=10))
    assert result.truncated and result.row_count == 10 and len(result.rows()) == 10
    assert result.notes == ("Only the first 10 rows, because of `limit`; there are more.",)
    run = app.store.run(str(result.run_id))
    assert run.notes == result.notes and run.result is not None and run.result.truncated
    assert app.result(run.id).truncated
    whole = app.sql(str(shop), "FROM orders LIMIT 10", limits=Limits(limit=10))
    assert not whole.truncated and whole.notes == ()


def test_a_query_with_more_bytes_than_its_limit_fails_and_the_hint_exports(app: App, shop: Path) -> None:
    with pytest.raises(LimitExceeded, match="more than 50,000 bytes") as caught:
        app.sql(str(shop), "SELECT repeat('x', 1000) AS x FROM orders", limits=Limits(bytes=50_000))
    assert "--output FILE.parquet" in caught.value.hint


def test_a_budget_refuses_before_the_query_starts(app: App, shop: Path) -> None:
    with pytest.raises(LimitExceeded, match="would read about 1,000 rows; the budget is 10") as caught:
        app.sql(str(shop), "SELECT sum(amount) FROM orders", limits=Limits(scan_rows=10))
    assert "limits.scan_rows" in caught.value.hint
    step = last_run(app).steps[0]
    assert step.outcome == "limit" and step.estimate is not None and step.estimate.scan_rows == 1000
    with pytest.raises(LimitExceeded, match="bytes; the budget is"):
        app.sql(str(shop), "SELECT sum(amount) FROM orders", limits=Limits(scan_bytes=10), record=False)


def test_without_record_there_is_no_run(fresh: App, shop: Path, tmp_path: Path) -> None:
    result = fresh.sql(str(shop), "SELECT 1 AS a", record=False)
    assert result.run_id is None and result.rows() == [(1,)]
    with pytest.raises(Refused):
        fresh.sql(str(shop), "DROP TABLE orders", record=False)
    assert fresh.store.runs().items == []
    with App(home=tmp_path / "other", record=False) as silent:
        silent.sql(str(shop), "SELECT 1 AS a")
        assert silent.store.runs().items == []


def test_the_same_result_is_kept_once(app: App, shop: Path) -> None:
    results = [app.sql(str(shop), "SELECT 42 AS answer") for _ in range(3)]
    artifacts = {app.store.run(str(r.run_id)).result_artifact for r in results}
    assert len(artifacts) == 1


def damage(app: App, run_id: str) -> Path:
    """Flip one bit in the file of a run's result."""
    artifact = app.store.run(run_id).result_artifact
    assert artifact is not None
    path = app.objects.local_path(artifact.hash)
    assert path is not None
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return path


def test_a_damaged_result_is_reported_with_its_run_and_file(app: App, shop: Path) -> None:
    run_id = str(app.sql(str(shop), "SELECT id, amount FROM orders").run_id)
    path = damage(app, run_id)
    with pytest.raises(Damaged, match=f"{path.name}.*{run_id}") as caught:
        app.result(run_id).rows()
    assert f"etude runs repair {run_id}" in caught.value.hint
    assert caught.value.details == {"run_id": run_id, "artifact": path.name, "file": str(path)}


def test_a_damaged_result_is_repaired_by_running_its_query_again(app: App, shop: Path) -> None:
    first = app.sql(str(shop), "SELECT id FROM orders ORDER BY id LIMIT 20")
    run_id = str(first.run_id)
    damage(app, run_id)
    repaired = app.repair(run_id, source=str(shop))
    assert [f.outcome for f in repaired.files] == ["repaired"]
    assert app.result(run_id).rows() == first.rows()
    assert app.repair(run_id).files == (), "now all is whole, and no query is run"


def test_a_repair_says_if_the_data_changed(app: App, tmp_path: Path) -> None:
    path = tmp_path / "changing.csv"
    path.write_text("a\n1\n")
    run_id = str(app.sql(str(path), "SELECT * FROM changing").run_id)
    damage(app, run_id)
    path.write_text("a\n2\n")
    repaired = app.repair(run_id, source=str(path)).files[0]
    assert repaired.outcome == "changed"
    assert app.result(str(repaired.new_run_id)).rows() == [(2,)]
    with pytest.raises(Damaged):
        app.result(run_id).rows()


def test_runs_can_be_listed_and_filtered(fresh: App, shop: Path) -> None:
    fresh.sql(str(shop), "SELECT 1 AS first")
    fresh.sql(str(shop), "SELECT 2 AS second")
    with pytest.raises(Refused):
        fresh.sql(str(shop), "DROP TABLE orders")
    assert [r.status for r in fresh.store.runs().items] == ["failed", "succeeded", "succeeded"]
    assert [r.text for r in fresh.store.runs(RunFilter(text="SECOND")).items] == ["SELECT 2 AS second"]
    with pytest.raises(NotFound):
        fresh.result("run_nope")


# -- sources


def test_a_source_is_added_listed_and_removed(fresh: App, shop: Path) -> None:
    catalog = fresh.add_source("sales", SourceSpec(url=str(shop)))
    assert [t.name for t in catalog.tables] == ["hidden", "orders"]
    assert fresh.sources() == {"sales": SourceSpec(url=str(shop), kind="duckdb")}
    assert fresh.sql("sales", "SELECT count(*) FROM sales.orders").rows() == [(1000,)]
    with pytest.raises(Conflict, match="There is a source `sales` already"):
        fresh.add_source("sales", SourceSpec(url=str(shop)))
    fresh.remove_source("sales")
    assert fresh.sources() == {}
    with pytest.raises(NotFound):
        fresh.remove_source("sales")
    assert shop.exists()


@pytest.mark.parametrize("name", ["Sales", "1st", "a-b", "", "main", "temp", "a.b", "x y", "pg_catalog"])
def test_a_name_must_fit_before_a_dot_in_sql(app: App, shop: Path, name: str) -> None:
    with pytest.raises(Invalid, match="cannot name a source"):
        app.add_source(name, SourceSpec(url=str(shop)))


@pytest.mark.parametrize("url", ["shop.duckdb", "./shop.duckdb", "duckdb:///shop.duckdb", "file:ref.txt"])
def test_an_added_path_means_the_same_in_every_folder(
    fresh: App, shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    (tmp_path / "ref.txt").write_text(str(shop))
    monkeypatch.chdir(tmp_path if "ref" in url else shop.parent)
    fresh.add_source("sales", SourceSpec(url=url))
    monkeypatch.chdir("/")
    assert fresh.sql("sales", "SELECT count(*) FROM orders").rows() == [(1000,)]


def test_a_source_that_does_not_open_is_not_added(fresh: App, tmp_path: Path) -> None:
    broken = tmp_path / "broken.duckdb"
    broken.write_bytes(b"\0" * 8 + b"DUCK" + b"\0" * 5000)
    with pytest.raises(SourceError, match="Cannot open"):
        fresh.add_source("broken", SourceSpec(url=str(broken)))
    with pytest.raises(NotFound):
        fresh.add_source("missing", SourceSpec(url=str(tmp_path / "missing.duckdb"), kind="duckdb"))
    with pytest.raises(Invalid, match="is not a kind of source"):
        fresh.add_source("odd", SourceSpec(url="gopher://hole"))
    assert fresh.sources() == {}


def test_sources_of_the_settings_come_first_and_stay(tmp_path: Path, shop: Path, crm: Path) -> None:
    with App(home=tmp_path, sources={"data": SourceSpec(url=str(shop))}) as app:
        app.add_source("crm", SourceSpec(url=str(crm)))
        assert list(app.sources()) == ["crm", "data"]
        with pytest.raises(Conflict, match="There is a source `data` already"):
            app.add_source("data", SourceSpec(url=str(crm)))
        with pytest.raises(Conflict, match="defined in the settings"):
            app.remove_source("data")


def test_only_granted_tables_are_seen(fresh: App, shop: Path) -> None:
    fresh.add_source("sales", SourceSpec(url=str(shop), tables=("orders",)))
    assert [t.name for t in fresh.catalog("sales").tables] == ["orders"]
    assert fresh.sql("sales", "SELECT count(*) FROM orders").rows() == [(1000,)]
    with pytest.raises(UnknownTable):
        fresh.sql("sales", "SELECT * FROM hidden")


def test_an_unknown_source_gets_a_suggestion(fresh: App, shop: Path) -> None:
    fresh.add_source("sales", SourceSpec(url=str(shop)))
    with pytest.raises(NotFound, match="There is no source, file or folder `slaes`") as caught:
        fresh.sql("slaes", "SELECT 1")
    assert caught.value.hint == "Did you mean `sales`?"
    with pytest.raises(NotFound) as caught:
        fresh.catalog("zzz")
    assert "etude sources list" in caught.value.hint
    with pytest.raises(UnknownTable) as unknown:
        fresh.sql("sales", "SELECT * FROM ordrs")
    assert unknown.value.hint == "Did you mean `orders`?" and unknown.value.details["line"] == 1


def test_named_sources_join(fresh: App, shop: Path, crm: Path) -> None:
    fresh.add_source("sales", SourceSpec(url=str(shop)))
    fresh.add_source("crm", SourceSpec(url=str(crm)))
    query = "SELECT c.name, count(*) AS n FROM orders o JOIN crm.customers c ON c.id = o.customer GROUP BY 1 ORDER BY 1"
    result = fresh.sql("sales", query)
    assert result.rows() == [("Ann", 334), ("Bob", 333), ("Cy", 333)]
    reads = fresh.store.run(str(result.run_id)).steps[0].reads
    assert {r.table for r in reads} == {"orders", "crm.customers"} and all(r.fingerprint for r in reads)


def test_two_sources_of_one_name_are_refused(app: App, shop: Path, crm: Path) -> None:
    with pytest.raises(Invalid, match="Two sources would be called `shop`"):
        app.sql(str(shop), "SELECT * FROM shop.customers", others={"shop": str(crm)})


# -- many at once


def test_eight_threads_share_one_app(fresh: App, shop: Path) -> None:
    fresh.add_source("sales", SourceSpec(url=str(shop)))

    def work(number: int) -> list[tuple[object, ...]]:
        rows = []
        for turn in range(5):
            rows += fresh.sql("sales", f"SELECT {number} AS n, {turn} AS t, count(*) AS c FROM orders").rows()
        with pytest.raises(UnknownTable):
            fresh.sql("sales", f"SELECT * FROM nothing_{number}")
        return rows

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(work, range(8)))
    assert answers == [[(n, t, 1000) for t in range(5)] for n in range(8)]
    runs = fresh.store.runs(limit=100).items
    assert len(runs) == 48 and {r.status for r in runs} == {"succeeded", "failed"}


def test_large_and_small_results_take_turns(app: App, shop: Path) -> None:
    for number in range(3):
        large = app.sql(str(shop), f"SELECT i + {number} AS i FROM range(1500000) r(i)", limits=Limits(rows=0))
        small = app.sql(str(shop), f"SELECT {number} AS n")
        assert (large.row_count, small.rows()) == (1_500_000, [(number,)])


def test_a_closed_app_says_so(tmp_path: Path, shop: Path) -> None:
    app = App(home=tmp_path)
    app.close()
    with pytest.raises(EtudeError, match="shut down"):
        app.sql(str(shop), "SELECT 1", record=False)


def test_a_tenant_has_its_own_runs_and_sources(app: App, shop: Path) -> None:
    ours, theirs = app.scoped("ours"), app.scoped("theirs")
    ours.add_source("orders_db", SourceSpec(url=str(shop)))
    run_id = ours.sql("orders_db", "SELECT count(*) FROM orders").run_id
    assert run_id is not None
    assert ours.result(run_id).row_count == 1
    assert ours.scoped("ours") is ours and ours.scoped("main") is app
    for other in (theirs, app):
        assert "orders_db" not in other.sources()
        for attempt in (lambda o=other: o.result(run_id), lambda o=other: o.sql("orders_db", "SELECT 1")):
            with pytest.raises(NotFound):
                attempt()
    ours.close()
    assert ours.sql("orders_db", "SELECT 1").rows() == [(1,)]


def test_a_query_of_a_tenant_cannot_name_another_s_source(app: App, shop: Path) -> None:
    app.add_source("secrets", SourceSpec(url=str(shop)))
    ours = app.scoped("ours")
    ours.add_source("mine", SourceSpec(url=str(shop)))
    assert app.sql("secrets", "SELECT count(*) FROM secrets.orders").row_count == 1
    with pytest.raises(EtudeError):
        ours.sql("mine", "SELECT count(*) FROM secrets.orders")
