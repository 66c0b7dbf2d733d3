"""The observer on a real store: operations as facts, failures grouped and explained, drafts from successes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.patience import wait_until

from etude.app import App
from etude.errors import EtudeError, Unavailable
from etude.learning.observer.findings import explain_finding_error, find_failure_findings
from etude.learning.observer.model_diagnosis import diagnose_with_model
from etude.learning.observer.observer import OperationObserver, observe_once, observing
from etude.learning.observer.operations import Operation, read_operations
from etude.learning.observer.playbook_drafts import find_playbook_drafts, write_playbook_drafts
from etude.learning.playbooks.playbook_library import read_library_lesson
from etude.models.base import Model
from etude.playbook import parse_playbook, read_playbooks
from etude.sample import write_shop
from etude.store.diagnoses import StoredDiagnoses
from etude.store.identity import Identity
from etude.store.sqlite import SqliteStore


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    write_shop(tmp_path / "shop")
    with App(home=tmp_path / "home") as opened:
        yield opened


def failed(key: str, number: int, kind: str = "sql") -> Operation:
    at = datetime(2026, 1, 1, 0, number, tzinfo=UTC)
    return Operation(f"op_{number}", at, kind, "failed", "SELECT 1", "no", key, "shop", f"run_{number}")


def test_operations_can_be_queried_like_any_source(app: App, tmp_path: Path) -> None:
    app.sql(str(tmp_path / "shop"), "SELECT count(*) AS n FROM orders")
    for name in ("nowhere", "elsewhere", "neverland"):
        with pytest.raises(EtudeError):
            app.sql(str(tmp_path / "shop"), f"SELECT * FROM {name}")
    Identity(app.store).add_report("main", {"text": "joins count twice", "outcome": "failed"})
    rows = app.sql("@ops", "SELECT kind, outcome, count(*) AS n FROM operations GROUP BY ALL ORDER BY ALL").rows()
    found = {(row[0], row[1]): row[2] for row in rows}
    assert found["report", "failed"] == 1
    assert found["sql", "failed"] >= 3
    assert found["sql", "ok"] >= 1
    rows = app.sql("@ops", "SELECT count, diagnosis, evidence FROM findings").rows()
    assert rows[0][0] == 3
    assert "a table or a column that the source does not have" in rows[0][1]
    assert len(rows[0][2]) == 3


def test_failures_with_the_same_key_are_one_finding_with_evidence() -> None:
    operations = [failed("timeout: passed ? s", n) for n in range(7)] + [failed("rare", 8), failed("rare", 9)]
    (finding,) = find_failure_findings(operations)
    assert (finding.count, finding.of, finding.sources) == (7, 9, ("shop",))
    assert finding.evidence == ("run_6", "run_5", "run_4", "run_3", "run_2")
    assert "longer than its limit" in finding.diagnosis
    assert find_failure_findings(operations) == find_failure_findings(operations)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        ("unknown_table: There is no table ?", "does not have"),
        ("source_unavailable: connection refused", "does not answer"),
        ("KeyError: ?", "does not expect"),
        ("what is this", "No rule knows"),
    ],
)
def test_rules_explain_errors(error: str, says: str) -> None:
    assert says in explain_finding_error(error)[0]


def test_a_finding_is_told_once_and_again_only_when_it_doubles(tmp_path: Path) -> None:
    operations = [failed("locked", n) for n in range(3)]
    observer = OperationObserver(lambda: operations, tmp_path)
    assert [len(observer.cycle()), len(observer.cycle())] == [1, 0]
    operations += [failed("locked", n) for n in range(3, 6)]
    assert len(observer.cycle()) == 1


def test_three_successes_become_a_draft_in_the_fifth_cycle_that_nobody_is_shown(app: App, tmp_path: Path) -> None:
    for year in (2022, 2023, 2024):
        app.sql(str(tmp_path / "shop"), f"SELECT count(*) AS n FROM orders WHERE order_id > {year}")
    observer = observe_once(app.store, app.settings.home)
    drafts = app.settings.home / "playbooks" / "main" / ".drafts"
    for _ in range(4):
        observer.cycle()
    assert not drafts.exists()
    observer.cycle()
    (file,) = drafts.glob("*/SKILL.md")
    assert "order_id > 2022" in parse_playbook(file.read_text()).text
    assert read_playbooks(app.settings.home, "main") == []
    file.write_text("mine")
    for _ in range(5):
        observer.cycle()
    assert file.read_text() == "mine"


def test_a_shape_that_also_failed_is_not_drafted() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    worked = [Operation(f"o{n}", at, "sql", "ok", f"SELECT {n}", run_id=f"r{n}") for n in range(3)]
    assert len(find_playbook_drafts(worked)) == 1
    assert find_playbook_drafts([*worked, Operation("o9", at, "sql", "failed", "SELECT 9", run_id="r9")]) == []


def test_without_a_store_operations_go_on_and_nothing_is_raised(
    app: App, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gone = SqliteStore(tmp_path / "gone.db")
    gone.close()
    with observing(gone, tmp_path, every_s=0.01):
        wait_until(lambda: sum("the observer could not read" in r.message for r in caplog.records) >= 3)
        assert app.sql(str(tmp_path / "shop"), "SELECT 1 AS a").rows() == [(1,)]
    assert not any(t.name == "etude-observer" for t in threading.enumerate())


def test_a_tenant_whose_operations_cannot_be_read_stops_no_other(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for tenant in ("bad", "usual"):
        app.scoped(tenant).sql(str(tmp_path / "shop"), "SELECT 1 AS a", record=True)
    seen = []

    def cycle(self: OperationObserver) -> list[Any]:
        seen.append(self._tenant)
        if self._tenant == "bad":
            raise RuntimeError("no")
        return []

    monkeypatch.setattr(OperationObserver, "cycle", cycle)
    with observing(app.store, tmp_path, every_s=0.01):
        wait_until(lambda: {"bad", "usual"} <= set(seen) and seen.count("bad") > 2)
    assert "tenant bad: the observer could not read operations: no" in caplog.text


def test_an_error_that_the_next_query_overcame_three_times_becomes_a_draft(tmp_path: Path) -> None:
    operations = []
    for n in range(3):
        at = datetime(2026, 1, 1, 0, n, tzinfo=UTC)
        run_id = f"run_{n}"
        where = {"source": "shop", "run_id": run_id}
        operations += [
            Operation(
                f"a{n}", at, "sql", "failed", f"SELECT total FROM orders -- {n}", "no", "Column ? not found", **where
            ),
            Operation(f"b{n}", at, "sql", "ok", f"SELECT net_total FROM orders WHERE id > {n}", **where),
            Operation(run_id, at, "ask", "ok", f"What was the revenue in {2020 + n}?", **where),
        ]
    (fix,) = [draft for draft in find_playbook_drafts(operations) if draft.error]
    assert (fix.error, fix.runs, fix.trigger) == ("Column ? not found", ("run_0", "run_1", "run_2"), ("revenue",))
    (file,) = write_playbook_drafts(tmp_path, "main", [fix])
    lesson = read_library_lesson(file)
    assert (lesson.trigger, lesson.source) == (("revenue",), "shop")
    assert "A query failed with `Column ? not found`. These worked instead:" in lesson.playbook.text


def test_text_that_a_playbook_told_a_model_is_not_learned_from_it_again(tmp_path: Path) -> None:
    query = "SELECT region, sum(net_total) FROM orders WHERE status = 'paid' GROUP BY region"
    told = tmp_path / "playbooks" / "main" / "paid" / "SKILL.md"
    told.parent.mkdir(parents=True)
    told.write_text(f"---\nname: paid\ndescription: x\n---\nWrite {query}.\n")
    at = datetime(2026, 1, 1, tzinfo=UTC)
    drafts = find_playbook_drafts([Operation(f"o{n}", at, "sql", "ok", query, run_id=f"r{n}") for n in range(3)])
    assert len(drafts) == 1
    assert write_playbook_drafts(tmp_path, "main", drafts) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "playbooks" / "main").mkdir(parents=True)
    (tmp_path / "playbooks" / "main" / ".drafts").write_text("in the way")
    at = datetime(2026, 1, 1, tzinfo=UTC)
    drafts = find_playbook_drafts([Operation(f"o{n}", at, "sql", "ok", "SELECT 1", run_id=f"r{n}") for n in range(3)])
    with pytest.raises(Unavailable, match=r"\.drafts.* cannot be written: Not a directory"):
        write_playbook_drafts(tmp_path, "main", drafts)


def test_a_model_explains_failures_that_no_rule_knows_and_is_asked_once(app: App, tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    reply = {"diagnosis": "The moon is full.", "suggestion": "Wait a day."}
    script.write_text(
        json.dumps([{"asked": "failed several times", "turns": [{"text": f"Sure: {json.dumps(reply)}"}]}])
    )
    opened = []

    def open_model() -> Model:
        opened.append(1)
        return app.open_model(f"scripted:{script}")

    known, unknown = [failed("timeout: ?", n) for n in range(3)], [failed("lunacy", n) for n in range(3)]
    store = app.store
    told = StoredDiagnoses(store).all
    observer = OperationObserver(
        lambda: [*known, *unknown], tmp_path, "main", told, diagnose_with_model(open_model, store)
    )
    found = {f.error_key: (f.diagnosis, f.suggestion) for f in observer.cycle()}
    assert found["lunacy"] == ("The moon is full.", "Wait a day.")
    assert "longer than its limit" in found["timeout: ?"][0]
    observer.cycle()
    assert len(opened) == 1
    # It stays when the model is gone.
    assert find_failure_findings(unknown, told())[0].diagnosis == "The moon is full."


@pytest.mark.parametrize("reply", ["I do not know.", "{not json}", '{"suggestion": "x"}'])
def test_a_reply_of_a_model_that_is_no_diagnosis_changes_nothing(app: App, tmp_path: Path, reply: str) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"asked": "failed several times", "turns": [{"text": reply}]}]))
    diagnose = diagnose_with_model(lambda: app.open_model(f"scripted:{script}"), app.store)
    diagnose(find_failure_findings([failed("lunacy", n) for n in range(3)]))
    diagnose_with_model(lambda: app.open_model("scripted:/nowhere.json"), app.store)(
        find_failure_findings([failed("lunacy", n) for n in range(3)])
    )
    assert StoredDiagnoses(app.store).all() == {}


def test_secrets_are_kept_out_of_facts(app: App, tmp_path: Path) -> None:
    Identity(app.store).add_report("main", {"text": "use postgresql://ana:hunter2@db/x", "outcome": "note"})
    assert not any("hunter2" in o.input for o in read_operations(app.store))
