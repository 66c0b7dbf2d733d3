"""A catalog that somebody wants to stop: it is told where it cannot be paused, and nothing of it stays."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from tests.patience import wait_until

from etude.agents.agent_control import AgentControl
from etude.agents.worker import Worker
from etude.app import App
from etude.entities import RunFilter, RunSummary
from etude.errors import Cancelled, Conflict
from etude.runtime.run_control import RunControl
from etude.store.queue import Queue


def write(path: Path, *statements: str) -> str:
    with duckdb.connect(path) as db:
        for statement in statements:
            db.execute(statement)
    return str(path)


def last_run(app: App) -> RunSummary:
    return app.store.runs(RunFilter(kind="catalog"), limit=1).items[0]


def test_a_pause_ends_it_before_the_next_table_and_leaves_nothing(tmp_path: Path) -> None:
    url = write(
        tmp_path / "shop.duckdb", *(f"CREATE TABLE t{n} AS SELECT range AS id FROM range(50)" for n in range(9))
    )
    with App(home=tmp_path / "home") as app:
        control, told = RunControl(), list[str]()

        def pause_at_third(line: str) -> None:
            told.append(line)
            if line.startswith("2/9"):
                control.pause()

        with pytest.raises(Cancelled, match="nothing of it is stored"):
            app.cataloger.run(url, store=str(tmp_path / "shelf"), on_progress=pause_at_third, control=control)
        assert last_run(app).status == "cancelled"
        assert not any(line.startswith("9/9") for line in told)
        assert not list((tmp_path / "shelf").rglob("*.*")) and app.known_profile(url) is None
        # Made again, it is whole.
        made = app.cataloger.run(url, store=str(tmp_path / "shelf"))
        assert len(made.profile.tables) == 9


def test_one_in_the_background_cannot_be_paused_and_says_so(tmp_path: Path) -> None:
    url = write(tmp_path / "slow.duckdb", "CREATE VIEW slow AS SELECT count(*) AS n FROM range(100000000000000)")
    with App(home=tmp_path / "home") as app:
        run_id = app.cataloger.start(url)
        refused = ""
        for entry in app.runs.follow(run_id):
            if entry.event.type == "step.started" and entry.event.kind == "sql":
                with pytest.raises(Conflict) as caught:
                    app.runs.pause(run_id)
                refused = f"{caught.value.message} {caught.value.hint}"
                assert app.store.run(run_id).status == "running"
                app.runs.cancel(run_id)
        assert "cannot be paused" in refused and "Cancel it instead" in refused
        assert app.store.run(run_id).status == "cancelled"


def test_an_agent_that_is_paused_makes_it_anew(tmp_path: Path) -> None:
    path = tmp_path / "slow.duckdb"
    write(path, "CREATE VIEW slow AS SELECT count(*) AS n FROM range(100000000000000)")
    with App(home=tmp_path / "home") as app:
        queue = Queue(app.store)
        agents = AgentControl(app.store, queue)
        with Worker(app, queue):
            agents.create("catalog", {"source": str(path), "every_s": 3600}, id="c")
            wait_until(lambda: any(s.kind == "sql" for r in runs(app) for s in app.store.run(r.id).steps))
            agents.pause("c", "now")
            wait_until(lambda: last_run(app).status == "cancelled")
            wait_until(lambda: agents.get("c").status == "paused" and agents.get("c").activity != "running")
            assert app.known_profile(str(path)) is None and "made" not in agents.state("c")
            path.unlink()
            write(path, "CREATE TABLE quick AS SELECT 1 AS n")
            agents.resume("c")
            wait_until(lambda: agents.state("c").get("made") == 1)
            assert agents.get("c").last_output["tables"] == 1 and len(runs(app)) == 2
        queue.close()


def runs(app: App) -> list[RunSummary]:
    return list(app.store.runs(RunFilter(kind="catalog"), limit=10).items)
