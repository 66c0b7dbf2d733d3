"""What was learned, over HTTP: edits with the way back, drafts that a person accepts or refuses, findings."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from etude.api.server import create_app
from etude.app import App
from etude.catalog.storage.annotations import Annotations
from etude.entities import SourceSpec
from etude.errors import EtudeError
from etude.learning.edits.merge import merge_edit
from etude.learning.edits.workspace import Hunk, Workspace
from etude.learning.observer.operations import read_operations
from etude.learning.observer.playbook_drafts import find_playbook_drafts, write_playbook_drafts
from etude.store.base import Store
from etude.store.diagnoses import StoredDiagnoses
from etude.store.edits import StoredEdit, StoredEdits, StoredSuiteRun


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    with App(home=str(tmp_path / "home")) as opened:
        (tmp_path / "sales.csv").write_text("region,amount\nnorth,10\nsouth,32\n")
        opened.add_source("sales", SourceSpec(url=str(tmp_path / "sales.csv")))
        yield opened


@pytest.fixture
def client(app: App) -> Iterator[TestClient]:
    with TestClient(create_app(app), base_url="http://localhost") as opened:
        yield opened


# Edits.


def add_merged_edit(app: App, repo: Path) -> str:
    """An edit that was merged into a folder that is not a repository of git."""
    repo.mkdir()
    (repo / "price.py").write_text("TAX = 0.07\n")
    hunk = Hunk(path="price.py", old="0.07", new="0.19")
    before = Workspace(repo, ("price.py",))
    assert merge_edit(app.settings.home, "edit_one", before, before.apply([hunk]), "Use 19%") is None
    body = {
        "rationale": "The tests expect 19%.",
        "reason": "it helps",
        "hunks": [hunk.model_dump()],
        "score_before": 0.5,
        "score_after": 1.0,
        "wins": 8,
        "losses": 0,
        "log_e": 4.0,
    }
    edits = StoredEdits(app.store)
    edits.put(StoredEdit("edit_one", str(repo), "constants", "merged", datetime.now(UTC), body))
    edits.add_run(StoredSuiteRun(str(repo), "pytest", "base", 0, 4, 8, 1.0))
    edits.add_run(StoredSuiteRun(str(repo), "pytest", "judge", 0, 8, 8, 1.0, edit_id="edit_one"))
    return "edit_one"


def test_an_edit_is_shown_with_its_evidence_and_taken_back(app: App, client: TestClient, tmp_path: Path) -> None:
    edit = add_merged_edit(app, tmp_path / "code")
    [listed] = client.get("/api/learning/edits").json()["items"]
    assert listed == client.get(f"/api/learning/edits/{edit}").json()
    assert (listed["status"], listed["wins"], listed["losses"]) == ("merged", 8, 0)
    assert (listed["score_before"], listed["score_after"], round(listed["e_value"])) == (0.5, 1.0, 55)
    assert listed["hunks"] == [{"path": "price.py", "old": "0.07", "new": "0.19"}]
    back = client.post(f"/api/learning/edits/{edit}/revert", json={"reason": "the tests were wrong"}).json()
    assert (back["status"], back["facts"]["reverted"]) == ("reverted", "the tests were wrong")
    assert (tmp_path / "code" / "price.py").read_text() == "TAX = 0.07\n"
    assert client.post(f"/api/learning/edits/{edit}/revert").status_code == 409
    assert client.get("/api/learning/edits", params={"status": "merged"}).json()["items"] == []
    assert client.get("/api/learning/edits/edit_none").status_code == 404


def test_the_learning_curve_has_intervals(app: App, client: TestClient, tmp_path: Path) -> None:
    add_merged_edit(app, tmp_path / "code")
    points = client.get("/api/learning/curve").json()["items"]
    assert [(p["passed"], p["total"], p["edit_id"]) for p in points] == [(4, 8, None), (8, 8, "edit_one")]
    assert all(p["interval"][0] <= p["passed"] / p["total"] <= p["interval"][1] for p in points)


# Drafts.


def draft(app: App) -> str:
    for number in range(3):
        app.sql("sales", f"SELECT count(*) FROM sales WHERE amount > {number}")
    [path] = write_playbook_drafts(app.settings.home, "main", find_playbook_drafts(read_operations(app.store)))
    return path.parent.name


def test_a_draft_becomes_a_playbook(app: App, client: TestClient) -> None:
    name = draft(app)
    [listed] = client.get("/api/learning/drafts").json()["items"]
    assert (listed["name"], listed["state"]) == (name, "draft")
    assert "SELECT count(*)" in listed["text"]
    made = client.post(f"/api/learning/drafts/{name}/accept")
    assert (made.status_code, made.json()["name"], made.json()["state"]) == (201, name, "active")
    assert client.get("/api/learning/drafts").json()["items"] == []
    assert name in [p["name"] for p in client.get("/api/playbooks").json()["items"]]
    assert write_playbook_drafts(app.settings.home, "main", find_playbook_drafts(read_operations(app.store))) == []
    assert client.post(f"/api/learning/drafts/{name}/accept").status_code == 404


def test_a_refused_draft_is_not_proposed_again(app: App, client: TestClient) -> None:
    name = draft(app)
    assert client.post(f"/api/learning/drafts/{name}/refuse", json={"reason": "trivial"}).status_code == 204
    assert client.get("/api/learning/drafts").json()["items"] == []
    assert client.get("/api/learning/drafts", params={"refused": True}).json()["items"][0]["state"] == "refused"
    assert write_playbook_drafts(app.settings.home, "main", find_playbook_drafts(read_operations(app.store))) == []
    assert name not in [p["name"] for p in client.get("/api/playbooks").json()["items"]]


def test_failures_of_the_same_cause_are_a_finding(app: App, client: TestClient) -> None:
    for _ in range(3):
        with pytest.raises(EtudeError):
            app.sql("sales", "SELECT nowhere FROM sales")
    [found] = client.get("/api/learning/findings").json()["items"]
    assert (found["count"], found["kind"]) == (3, "sql")
    assert found["diagnosis"]
    assert len(found["evidence"]) == 3


def test_findings_read_only_the_beginnings_of_long_texts(
    app: App, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        with pytest.raises(EtudeError):
            app.sql("sales", f"SELECT nowhere FROM sales -- {number} " + "x" * 150_000)
    sizes = []
    kind = next(kind for kind in type(app.store).__mro__ if "_read" in vars(kind))
    read = kind._read

    def measure(store: Store, sql: str, *values: object) -> Any:
        rows = read(store, sql, *values)
        if "step.finished" in sql:  # other threads read as well
            sizes.append(sum(len(value) for row in rows for value in row if isinstance(value, str)))
        return rows

    with monkeypatch.context() as patched:
        patched.setattr(kind, "_read", measure)
        [found] = client.get("/api/learning/findings").json()["items"]
    assert found["count"] == 4
    assert sizes and max(sizes) < 150_000  # the observer may read the same rows meanwhile


def test_findings_are_computed_once_for_all_who_wait(
    app: App, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft(app)
    computed = []

    def compute(diagnoses: StoredDiagnoses) -> dict[tuple[str, str], tuple[str, str]]:
        computed.append(time.monotonic())
        time.sleep(0.5)
        return {}

    monkeypatch.setattr(StoredDiagnoses, "all", compute)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: client.get("/api/learning/findings").json(), range(8)))
    assert all(answer == answers[0] for answer in answers)
    # A request that comes after the end of a computation starts the next one.
    assert len(computed) < 4


# Kinds, questions, descriptions.


def test_each_kind_of_agent_describes_its_configuration(client: TestClient) -> None:
    kinds = {k["kind"]: k for k in client.get("/api/agents/kinds").json()["items"]}
    assert {"analyst", "catalog", "echo", "watch", "webhook"} <= set(kinds)
    watch = kinds["watch"]["config"]
    assert watch["properties"]["sql"]["description"] == "A query in SQL."
    assert "source" in watch["required"]
    assert watch["additionalProperties"] is False
    assert (kinds["learn"]["local"], kinds["watch"]["local"]) == (True, False)


@pytest.mark.parametrize("dataset", ["sales", "shop"])
def test_suggested_questions_are_answered(app: App, client: TestClient, shop: Path, dataset: str) -> None:
    app.add_source("shop", SourceSpec(url=str(shop)))
    questions = client.get(f"/api/datasets/{dataset}/questions").json()["questions"]
    assert len(questions) == 3
    for question in questions:
        answer = client.post("/api/ask", json={"question": question, "dataset": dataset, "model": "offline"}).json()
        assert answer["status"] == "succeeded", (question, answer)
        assert answer["result"]["rows"], question
    assert client.get(f"/api/datasets/{dataset}/questions", params={"limit": 1}).json()["questions"] == questions[:1]


def test_suggested_questions_name_rows_without_the_year_of_the_file(
    app: App, client: TestClient, tmp_path: Path
) -> None:
    rows = "".join(f"2024-0{1 + n % 9}-01,{('north', 'south')[n % 2]},{n}\n" for n in range(40))
    (tmp_path / "gym_visits_2024.csv").write_text("day,branch,minutes\n" + rows)
    app.add_source("gym", SourceSpec(url=str(tmp_path / "gym_visits_2024.csv")))
    assert client.get("/api/datasets/gym/questions").json()["questions"] == [
        "What are the total minutes by branch?",
        "How many gym visits are there for each branch?",
        "How many gym visits are there per month?",
    ]


def test_a_description_keeps_its_author(app: App, client: TestClient) -> None:
    body = {"tables": {"sales": {"description": "Orders.", "by": "someone else", "columns": {"amount": "In euros."}}}}
    assert client.patch("/api/datasets/sales/annotations", json=body).status_code == 200
    told = client.get("/api/datasets/sales/annotations").json()["tables"]["sales"]
    assert (told["description"], told["by"]) == ("Orders.", "a local user")
    assert (told["columns"]["amount"]["description"], told["columns"]["amount"]["by"]) == ("In euros.", "a local user")
    profile = client.get("/api/datasets/sales/profile").json()["tables"][0]
    assert profile["description"] == "Orders."
    # A text that another way of writing gives has no author, or its own, but never the one before.
    app.annotate("sales", Annotations.model_validate({"tables": {"sales": {"description": "Orders of 2024."}}}))
    assert app.annotations("sales")["tables"]["sales"] | {"columns": {}} == {
        "description": "Orders of 2024.",
        "by": None,
        "columns": {},
    }
