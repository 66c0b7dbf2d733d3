from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from etude.entities import SourceSpec
from etude.errors import Invalid, Unavailable
from etude.events import Note, RunQueued, RunStarted
from etude.ids import new_id
from etude.store import postgres
from etude.store.postgres import PostgresStore


def drop_connections(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as db:
        sql = "SELECT pg_terminate_backend(pid, 90000) FROM pg_stat_activity WHERE application_name = 'etude'"
        sql += " AND datname = current_database()"
        return len(db.execute(sql).fetchall())


def test_a_dropped_connection_is_replaced(postgres_url: str) -> None:
    with PostgresStore(postgres_url) as store:
        run_id = new_id("run")
        store.append(run_id, RunQueued(kind="sql", text="x"), expect=0)
        assert drop_connections(postgres_url) == 1
        assert store.append(run_id, Note(text="y"), expect=1) == 2
        drop_connections(postgres_url)
        assert store.run(run_id).notes == ("y",)


def test_a_worker_that_lost_its_lock_takes_it_again_for_the_next_run(postgres_url: str) -> None:
    with PostgresStore(postgres_url) as store, PostgresStore(postgres_url) as other:
        first, second = new_id("run"), new_id("run")
        worker = store.worker_id
        store.append(first, RunQueued(kind="sql", text="x"), RunStarted(worker=worker), expect=0)
        assert drop_connections(postgres_url) == 3
        store.append(second, RunQueued(kind="sql", text="x"), RunStarted(worker=worker), expect=0)
        assert other.recover() == []
        assert other._dead({worker}) == set()


def test_a_connection_cut_in_a_transaction_writes_nothing(postgres_url: str) -> None:
    with PostgresStore(postgres_url) as store:
        with pytest.raises(Unavailable, match="cannot be used"), store._transaction() as execute:
            execute("INSERT INTO sources VALUES (?, ?)", "a", "{}")
            drop_connections(postgres_url)
            execute("INSERT INTO sources VALUES (?, ?)", "b", "{}")
        assert store.sources() == {}


def test_who_stands_still_in_a_transaction_loses_it_and_others_go_on(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PostgresStore(postgres_url) as store:
        store.put_source("a", SourceSpec(url="a.db"))
        monkeypatch.setattr(postgres, "STILL_S", 0.2)
        with PostgresStore(postgres_url) as frozen:
            with pytest.raises(Unavailable), frozen._transaction() as execute:
                execute("UPDATE sources SET spec = '{}' WHERE name = 'a'")
                store.put_source("a", SourceSpec(url="b.db"))  # waits for the lock
                execute("SELECT 1")
            assert frozen.sources()["a"].url == "b.db"


def test_more_callers_than_connections_wait(postgres_url: str) -> None:
    with PostgresStore(postgres_url) as store:
        with ThreadPoolExecutor(20) as pool:
            list(pool.map(lambda n: store.create_thread(str(n)), range(100)))
        assert len(store.threads(limit=200).items) == 100
        assert len(store._idle) <= postgres.CONNECTIONS


def test_workers_of_another_database_do_not_count(postgres_url: str, postgres_server: object) -> None:
    elsewhere = postgres_server() if callable(postgres_server) else ""
    with PostgresStore(postgres_url) as store, PostgresStore(elsewhere) as other:
        assert store._dead({other.worker_id}) == {other.worker_id}
        assert other._dead({other.worker_id}) == set()


def test_a_server_that_is_not_there_is_named_without_secrets() -> None:
    with pytest.raises(Unavailable, match=r"postgresql://me@127\.0\.0\.1:1/db") as caught:
        PostgresStore("postgresql://me:hush@127.0.0.1:1/db")
    assert "hush" not in str(caught.value)
    assert caught.value.hint


def test_a_url_that_is_none_does_not_show_its_password() -> None:
    with pytest.raises(Invalid) as caught:
        PostgresStore("postgresql://me:hush@host:port:1/x?nonsense=hush")
    assert "hush" not in str(caught.value) + caught.value.hint
    assert caught.value.__cause__ is None


def test_without_psycopg_the_hint_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(Unavailable) as caught:
        PostgresStore("postgresql://x")
    assert caught.value.hint == "pip install 'etude[postgres]'"


def test_two_workers_with_one_key_get_two_names(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keys: dict[str, int] = {}
    # The first two names share a key.
    monkeypatch.setattr(postgres, "_key", lambda worker: keys.setdefault(worker, max(1, len(keys))))
    with PostgresStore(postgres_url) as one, PostgresStore(postgres_url) as two:
        assert one.worker_id != two.worker_id
        assert one._dead({one.worker_id, two.worker_id}) == set()
        assert len(keys) == 3


def test_a_server_that_is_read_only_or_full_fails_the_check(postgres_url: str) -> None:
    with PostgresStore(postgres_url) as store, psycopg.connect(postgres_url, autocommit=True) as db:
        assert store.check()["kind"] == "postgres"
        db.execute(
            "CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'no space left' USING ERRCODE = 'disk_full'; END $$"
        )
        db.execute("CREATE TRIGGER full_disk BEFORE INSERT ON runs EXECUTE FUNCTION fill()")
        run_id = new_id("run")
        with pytest.raises(Unavailable, match="disk is full"):
            store.append(run_id, RunQueued(kind="sql", text="x"), expect=0)
        with pytest.raises(Unavailable, match="disk is full"):
            store.check()
        db.execute("DROP TRIGGER full_disk ON runs")
        store.append(run_id, RunQueued(kind="sql", text="x"), expect=0)
        assert store.check()["kind"] == "postgres"
        name = db.info.dbname
        db.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'.encode())
        drop_connections(postgres_url)
        with pytest.raises(Unavailable, match="read-only"):
            store.check()
