"""Operations kept from cycle to cycle: the same findings as those of a full reading, at less cost."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.ids import first_id, new_id
from etude.learning.observer import operations
from etude.learning.observer.findings import find_failure_findings, find_findings_of_counts
from etude.learning.observer.operations import read_operations
from etude.learning.observer.recent_operations import RecentOperations
from etude.store.base import Store
from etude.store.postgres import PostgresStore
from etude.store.sqlite import SqliteStore

ADD_RUN = """INSERT INTO runs (id, kind, text, search, source, status, seq, created_at, updated_at, truncated, usage,
    tenant) VALUES (?, ?, ?, '', ?, ?, ?, ?, ?, {no}, '{{}}', 'main')"""
ADD_EVENT = "INSERT INTO events (run_id, seq, at, type, body) VALUES (?, ?, ?, ?, ?)"
ADD_REQUEST = """INSERT INTO audit (id, at, tenant, action, status, request_id, address)
    VALUES (?, ?, 'main', ?, ?, 'r', '::1')"""
ADD_REPORT = "INSERT INTO reports (id, at, tenant, body) VALUES (?, ?, 'main', ?)"
ADD_AGENT = """INSERT INTO agents (tenant, id, kind, created_at, updated_at) VALUES ('main', 'watcher', 'watch', 0, 0)
    ON CONFLICT DO NOTHING"""
ADD_STEP = """INSERT INTO agent_steps (agent, step_no, action, kind, input, outcome, error, started_at, ended_at,
    tokens, cost_usd) SELECT no, ?, 'a', 'tick', '{}', ?, ?, ?, ?, 0, 0 FROM agents WHERE id = 'watcher'"""
ENDS = {"run.finished": "succeeded", "run.failed": "failed", "run.cancelled": "cancelled"}


@dataclass
class Written:
    """Writes rows as etude does, at any time."""

    store: Store
    open: list[str] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    steps: int = 0

    def run(self, age_s: float, kind: str, outcomes: Sequence[str], end: str) -> None:
        at, run_id = datetime.now(UTC) - timedelta(seconds=age_s), new_id("run")
        no = "false" if isinstance(self.store, PostgresStore) else "0"
        with self.store._transaction() as execute:
            execute(ADD_RUN.format(no=no), run_id, kind, "a question", "shop", "running", 0, at, at)
        self.runs.append(run_id)
        self.append(run_id, outcomes, end)

    def append(self, run_id: str, outcomes: Sequence[str], end: str) -> None:
        at = datetime.now(UTC)
        events: list[tuple[str, dict[str, object]]] = []
        for outcome in outcomes:
            step = new_id("step")
            events.append(("step.started", {"step_id": step, "kind": "sql", "code": "SELECT 1"}))
            error = {"error": {"detail": f"{outcome}!"}, "error_key": outcome} if outcome not in ("ok", "") else {}
            events.append(("step.finished", {"step_id": step, "outcome": outcome, **error}))
        if end:
            failed: dict[str, object] = {"error": {"code": "broken", "detail": "it broke"}}
            events.append((end, failed if end == "run.failed" else {}))
        with self.store._transaction() as execute:
            ((seq,),) = execute("SELECT seq FROM runs WHERE id = ?", run_id)
            for number, (kind, body) in enumerate(events, int(seq) + 1):
                execute(ADD_EVENT, run_id, number, at, kind, json.dumps(body))
            status, last = ENDS.get(end, "running"), int(seq) + len(events)
            execute("UPDATE runs SET status = ?, seq = ? WHERE id = ?", status, last, run_id)
        self.open = [each for each in self.open if each != run_id] + ([] if end else [run_id])

    def request(self, age_s: float, status: int) -> None:
        at = datetime.now(UTC) - timedelta(seconds=age_s)
        request_id = first_id("act", at)[:-16] + new_id("act")[-16:]
        with self.store._transaction() as execute:
            execute(ADD_REQUEST, request_id, at, "POST /api/sql", status)
        self.requests.append(request_id)

    def report(self, outcome: str) -> None:
        with self.store._transaction() as execute:
            body = json.dumps({"text": "it is slow", "outcome": outcome})
            execute(ADD_REPORT, new_id("report"), datetime.now(UTC), body)

    def step(self, age_s: float, outcome: str) -> None:
        self.steps += 1
        ended = datetime.now(UTC).timestamp() - age_s
        error = json.dumps({"detail": "no"}) if outcome == "failed" else None
        with self.store._transaction() as execute:
            execute(ADD_AGENT)
            execute(ADD_STEP, self.steps, outcome, error, ended - 1, ended)

    def delete_run(self, number: int) -> None:
        run_id = self.runs.pop(number % len(self.runs))
        with self.store._transaction() as execute:
            execute("DELETE FROM events WHERE run_id = ?", run_id)
            execute("DELETE FROM runs WHERE id = ?", run_id)
        self.open = [each for each in self.open if each != run_id]

    def delete_request(self, number: int) -> None:
        with self.store._transaction() as execute:
            execute("DELETE FROM audit WHERE id = ?", self.requests.pop(number % len(self.requests)))


def check(store: Store, recent: RecentOperations, least: int = 1) -> None:
    counts, known = recent.count(), read_operations(store)
    assert find_findings_of_counts(counts, least=least) == find_failure_findings(known, least=least)
    assert sum(counts.totals.values()) == len(known)


AGES = st.sampled_from((0.0, 0.0, 1.0, 5.0, 300.0, 90_000.0))
OUTCOMES = st.lists(st.sampled_from(("ok", "timeout: ?", "locked", "cancelled")), max_size=3)
KINDS = st.sampled_from(("sql", "ask"))
NUMBERS = st.integers(0, 1000)
ACTS = st.one_of(
    st.tuples(st.just("run"), AGES, KINDS, OUTCOMES, st.sampled_from((*ENDS, ""))),
    st.tuples(st.just("more"), NUMBERS, OUTCOMES, st.sampled_from((*ENDS, ""))),
    st.tuples(st.just("request"), AGES, st.sampled_from((200, 404, 500))),
    st.tuples(st.just("report"), st.sampled_from(("failed", "note"))),
    st.tuples(st.just("step"), AGES, st.sampled_from(("ok", "failed", "interrupted"))),
    st.tuples(st.just("delete_run"), NUMBERS),
    st.tuples(st.just("delete_request"), NUMBERS),
    st.tuples(st.just("check")),
    st.tuples(st.just("restart")),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(ACTS, max_size=40))
def test_every_cycle_finds_the_same_as_a_full_reading(acts: list[tuple[object, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(operations, "MOST", 15)
        with closing(SqliteStore(Path(folder) / "store.db")) as store:
            written, recent = Written(store), RecentOperations(store)
            for name, *values in acts:
                match name:
                    case "check":
                        check(store, recent)
                    case "restart":
                        recent = RecentOperations(store)
                    case "more":
                        number, outcomes, end = values
                        if written.open:
                            written.append(written.open[number % len(written.open)], outcomes, end)  # type: ignore[operator,arg-type]
                    case "delete_run" | "delete_request":
                        if written.runs if name == "delete_run" else written.requests:
                            getattr(written, name)(*values)
                    case _:
                        getattr(written, str(name))(*values)
            check(store, recent)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_cycle_reads_what_is_new_and_notices_deleted_rows(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = tmp_path / "store.db" if kind == "sqlite" else str(request.getfixturevalue("postgres_url"))
    with closing(SqliteStore(place) if kind == "sqlite" else PostgresStore(str(place))) as store:
        written, recent = Written(store), RecentOperations(store)
        for age in (4000, 3000, 2000):
            written.run(age, "sql", ["timeout: ?"], "run.failed")
            written.request(age, 500)
            written.step(age, "failed")
        written.run(1000, "ask", ["ok"], "")
        written.report("failed")
        check(store, recent)
        written.run(0, "sql", ["ok", "timeout: ?"], "run.failed")
        written.append(written.open[0], ["locked"], "run.failed")
        check(store, recent)
        written.delete_run(0)
        written.delete_request(1)
        check(store, recent)


def test_a_cycle_reads_no_event_twice_unless_it_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(SqliteStore(tmp_path / "store.db")) as store:
        written, recent = Written(store), RecentOperations(store)
        for _ in range(50):
            written.run(60, "sql", ["ok"], "run.finished")
            written.request(60, 200)
        read, rows = store._read, []

        def count(sql: str, *values: object) -> object:
            found = read(sql, *values)
            rows.append(len(found))
            return found

        monkeypatch.setattr(store, "_read", count)
        recent.count()
        assert sum(rows) == 200
        rows.clear()
        written.run(0, "sql", ["ok"], "run.finished")
        recent.count()
        assert sum(rows) < 10
