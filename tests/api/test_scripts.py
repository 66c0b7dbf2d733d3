"""Runs over HTTP, judged: replayed, compared, exported, called wrong; and the scripts that would repeat them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from etude.api.server import create_app
from etude.app import App
from etude.entities import SourceSpec
from etude.store.identity import Identity

BY_REGION = "total amount by region"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    file = tmp_path / "sales.csv"
    file.write_text("region,amount\nnorth,10\nsouth,32\nnorth,8\n")
    return file


@pytest.fixture
def app(tmp_path: Path, data: Path) -> Iterator[App]:
    with App(home=str(tmp_path / "home"), replay="on") as opened:
        opened.add_source("sales", SourceSpec(url=str(data)))
        yield opened


@pytest.fixture
def client(app: App) -> Iterator[TestClient]:
    with TestClient(create_app(app), base_url="http://localhost") as opened:
        yield opened


def ask(app: App, client: TestClient, question: str) -> dict[str, Any]:
    answer = client.post("/api/ask", json={"question": question})
    assert answer.status_code == 200, answer.text
    app.scripts.settle()
    return dict(answer.json())


# Replay, diff, export.


def test_a_run_is_executed_again_and_compared(app: App, client: TestClient, data: Path) -> None:
    run = ask(app, client, BY_REGION)["run_id"]
    same = client.post(f"/api/runs/{run}/replay").json()
    assert (same["same"], [s["outcome"] for s in same["steps"]]) == (True, ["same"])
    data.write_text("region,amount\nnorth,11\nsouth,32\nnorth,8\n")
    other = client.post(f"/api/runs/{run}/replay").json()
    assert not other["same"]
    assert other["steps"][0]["moved"]["added"] == [["north", "19"]]
    assert "1 of 1 step" in other["sentence"]


def test_values_that_were_bound_are_bound_again(app: App, client: TestClient) -> None:
    run = app.sql("sales", "SELECT * FROM sales WHERE region = ?", ["south"]).run_id
    assert client.post(f"/api/runs/{run}/replay").json()["same"]


def test_two_runs_differ_for_a_reason(app: App, client: TestClient, data: Path) -> None:
    first = app.sql("sales", "SELECT sum(amount) AS n FROM sales").run_id
    data.write_text("region,amount\nnorth,11\nsouth,32\nnorth,8\n")
    second = app.sql("sales", "SELECT sum(amount) AS n FROM sales").run_id
    found = client.get(f"/api/runs/{first}/diff/{second}").json()
    assert (found["cause"], found["same_result"]) == ("data", False)
    assert (found["moved"]["lost"], found["moved"]["added"]) == ([["50"]], [["51"]])
    assert client.get(f"/api/runs/{first}/diff/run_none").status_code == 404


def test_an_exported_run_is_checked_elsewhere(app: App, client: TestClient, data: Path, tmp_path: Path) -> None:
    run = ask(app, client, BY_REGION)["run_id"]
    answer = client.get(f"/api/runs/{run}/export")
    assert answer.headers["content-type"] == "application/zip"
    assert f"{run}.etude" in answer.headers["content-disposition"]
    file = tmp_path / "run.etude"
    file.write_bytes(answer.content)
    with App(home=str(tmp_path / "elsewhere")) as other:
        assert other.replay(str(file), str(data)).same
    assert not list((tmp_path / "home" / "scratch").glob("etude-export-*"))
    assert client.get("/api/runs/run_none/export").status_code == 404


def test_a_run_on_a_path_is_not_replayed_for_others(app: App, data: Path) -> None:
    run = app.sql(str(data), "SELECT 1").run_id
    _, secret = Identity(app.store).create_key("ann", "analyst")
    with TestClient(create_app(app, keys_required=True), base_url="https://etude.example") as client:
        answer = client.post(f"/api/runs/{run}/replay", headers={"Authorization": f"Bearer {secret}"})
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")


# Feedback.


def test_a_wrong_answer_suspends_the_script_that_would_repeat_it(app: App, client: TestClient) -> None:
    first = ask(app, client, BY_REGION)
    [script] = client.get("/api/scripts").json()["items"]
    assert (script["state"], script["run_id"]) == ("active", first["run_id"])
    second = ask(app, client, BY_REGION)
    assert second["replay"]["level"] == "replay"
    judged = client.post(f"/api/runs/{second['run_id']}/feedback", json={"verdict": "wrong", "comment": "net of tax"})
    assert (judged.status_code, judged.json()["suspended"]) == (201, [script["id"]])
    kept = client.get(f"/api/runs/{second['run_id']}").json()["feedback"]
    assert kept == {"verdict": "wrong", "comment": "net of tax", "by": "", "suspended": [script["id"]]}
    after = client.get(f"/api/scripts/{script['id']}").json()
    assert after["state"] == "suspended"
    assert "net of tax" in after["reason"]
    # The rules write the same code again, which is known to be wrong.
    third = ask(app, client, BY_REGION)
    assert third["replay"]["level"] != "replay"
    assert {s["state"] for s in client.get("/api/scripts").json()["items"]} == {"suspended"}
    assert ask(app, client, BY_REGION)["replay"]["level"] != "replay"


def test_a_right_answer_suspends_nothing(app: App, client: TestClient) -> None:
    run = ask(app, client, BY_REGION)["run_id"]
    assert client.post(f"/api/runs/{run}/feedback", json={"verdict": "right"}).json()["suspended"] == []
    assert ask(app, client, BY_REGION)["replay"]["level"] == "replay"
    [report] = client.get("/api/log").json()["items"]
    assert (report["run_id"], report["outcome"]) == (run, "worked")


def test_a_verdict_on_the_first_answer_counts_too(app: App, client: TestClient) -> None:
    first = ask(app, client, BY_REGION)["run_id"]
    assert len(client.post(f"/api/runs/{first}/feedback", json={"verdict": "wrong"}).json()["suspended"]) == 1
    assert ask(app, client, BY_REGION)["replay"]["level"] != "replay"


def test_a_verdict_that_comes_before_the_script(app: App, client: TestClient) -> None:
    run = client.post("/api/ask", json={"question": BY_REGION}).json()["run_id"]
    client.post(f"/api/runs/{run}/feedback", json={"verdict": "wrong"})
    app.scripts.settle()
    assert [s["state"] for s in client.get("/api/scripts").json()["items"]] == ["suspended"]


@pytest.mark.parametrize("body", [{}, {"verdict": "perhaps"}, {"verdict": "wrong", "comment": 1}])
def test_a_verdict_is_right_or_wrong(app: App, client: TestClient, body: dict[str, Any]) -> None:
    run = app.sql("sales", "SELECT 1").run_id
    assert client.post(f"/api/runs/{run}/feedback", json=body).status_code == 422


# Scripts.


def test_a_withdrawn_script_lists_its_answers(app: App, client: TestClient) -> None:
    ask(app, client, BY_REGION)
    second = ask(app, client, BY_REGION)["run_id"]
    [script] = client.get("/api/scripts").json()["items"]
    gone = client.post(f"/api/scripts/{script['id']}/withdraw", json={"reason": "old rule"}).json()
    assert (gone["state"], [u["run_id"] for u in gone["uses"]]) == ("withdrawn", [second])
    assert "old rule" in gone["reason"]
    assert ask(app, client, BY_REGION)["replay"]["level"] != "replay"
    assert client.post("/api/scripts/script_none/withdraw").status_code == 404
