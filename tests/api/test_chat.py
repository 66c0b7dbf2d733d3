"""Chat: the answer whole, or as a stream that can break anywhere and be taken up again."""

from __future__ import annotations

import random

import httpx
import pytest
from fastapi.testclient import TestClient
from tests.patience import wait_until

from api.conftest import listening, read_stream
from etude.app import App


def test_an_answer_comes_with_what_it_stands_on(client: TestClient) -> None:
    answer = client.post("/chat", json={"message": "how many orders are there?", "dataset": "shop"}).json()
    assert (answer["status"], answer["text"]) == ("succeeded", "There are 3,704 orders.")
    assert answer["result"]["rows"] == [[3704]]
    assert answer["code"] == "SELECT count(*) AS orders FROM orders"
    assert answer["unverified"] == []
    messages = client.get(f"/threads/{answer['thread_id']}/messages").json()["items"]
    assert [(m["role"], m["text"]) for m in messages] == [
        ("user", "how many orders are there?"),
        ("assistant", "There are 3,704 orders."),
    ]
    assert {m["run_id"] for m in messages} == {answer["run_id"]}


def test_a_thread_goes_on(client: TestClient) -> None:
    first = client.post("/chat", json={"message": "how many orders are there?"}).json()
    second = client.post(
        "/chat", json={"message": "how many orders, once more?", "thread_id": first["thread_id"]}
    ).json()
    assert second["thread_id"] == first["thread_id"]
    assert len(client.get(f"/api/threads/{first['thread_id']}/messages").json()["items"]) == 4
    missing = client.post("/chat", json={"message": "x", "thread_id": "thread_none"})
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")


def test_sql_and_python_run_as_they_are(client: TestClient) -> None:
    answer = client.post("/chat", json={"message": "SQL: SELECT count(*) AS n FROM orders"}).json()
    assert (answer["result"]["rows"], answer["usage"]["model_calls"]) == ([[3704]], 0)
    cell = client.post("/chat", json={"message": "PYTHON: 6 * 7", "thread_id": answer["thread_id"]}).json()
    assert cell["text"] == "42"


def test_a_question_back_waits_for_its_answer(client: TestClient) -> None:
    asked = client.post("/ask", json={"question": "which year?"}).json()
    assert (asked["status"], asked["question"], asked["choices"]) == ("waiting", "Which year?", ["2023", "2024"])
    client.post(f"/runs/{asked['run_id']}/answer", json={"text": "2024"})
    again = client.get(f"/chat/stream/{asked['run_id']}")
    assert read_stream(again.text)[-1][1]["type"] == "done"


def test_a_model_that_fails_is_a_problem_with_the_run(client: TestClient) -> None:
    failed = client.post("/chat", json={"message": "fail"})
    assert failed.headers["content-type"] == "application/problem+json"
    assert (failed.status_code, failed.json()["code"]) == (502, "model_error")
    assert client.get(f"/runs/{failed.json()['run_id']}").json()["status"] == "failed"
    events = [event for _, event in read_stream(client.post("/chat/stream", json={"message": "fail"}).text)]
    assert events[-1]["error"]["code"] == "model_error"


def test_the_stream_tells_all_that_happens(client: TestClient) -> None:
    answer = client.post("/chat/stream", json={"message": "how many orders are there?"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"
    assert answer.text.startswith("retry: 1000\n\n")
    events = [event for _, event in read_stream(answer.text)]
    kinds = [event["type"] for event in events]
    assert kinds[:2] == ["status", "status"] and kinds[-2:] == ["result", "done"]
    assert kinds.index("tool_call") < kinds.index("tool_result") < kinds.index("result")
    tokens = [event["text"] for event in events if event["type"] == "token"]
    assert "".join(tokens) == "Counting.There are 3,704 orders."
    tool = next(event for event in events if event["type"] == "tool_result")
    assert (tool["name"], tool["outcome"], tool["result"]["row_count"]) == ("execute_sql", "ok", 1)
    assert tool["text"].startswith("r1:\n1 row\n") and "\n3704\nnote: " in tool["text"], "without the tags of prompts"
    assert events[-2]["text"] == "There are 3,704 orders."
    assert events[-2]["result"]["elapsed_ms"] > 0 and events[-2]["results"][0]["rows"]["elapsed_ms"] > 0
    assert events[-1] == {"type": "done", "status": "succeeded", "run_id": events[0]["run_id"]}


def test_a_stream_is_taken_up_after_any_event(client: TestClient) -> None:
    whole = read_stream(client.post("/chat/stream", json={"message": "how many orders are there?"}).text)
    run_id = whole[0][1]["run_id"]
    for number, (name, _) in enumerate(whole[:-1], 1):
        rest = client.get(f"/chat/stream/{run_id}", headers={"Last-Event-ID": name})
        assert read_stream(rest.text) == whole[number:]
    assert client.get(f"/chat/stream/{run_id}", headers={"Last-Event-ID": whole[-1][0]}).status_code == 204
    assert client.get(f"/chat/stream/{run_id}", params={"after": whole[2][0]}).text.count("data:") == len(whole) - 3
    assert client.get(f"/chat/stream/{run_id}", params={"after": "x"}).status_code == 422


@pytest.mark.parametrize("wanted", [True, False])
def test_a_client_that_leaves_ends_its_run_only_where_it_said_so(app: App, wanted: bool) -> None:
    body = {"message": "be slow", "cancel_on_disconnect": wanted}
    with listening(app) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        with client.stream("POST", "/chat/stream", json=body) as stream:
            lines = (line for line in stream.iter_lines() if '"token"' in line)
            next(lines)
            run_id = app.store.runs(limit=1).items[0].id
        wait_until(lambda: server.api.state.server.run_watcher.count == 0)
        if wanted:
            wait_until(lambda: app.store.run(run_id).status == "cancelled")
        else:
            seq = app.store.run(run_id).seq
            wait_until(lambda: app.store.run(run_id).seq > seq + 2)
            assert client.post(f"/runs/{run_id}/cancel").status_code == 200
            wait_until(lambda: app.store.run(run_id).status == "cancelled")


def test_a_live_stream_cut_at_random_200_times_loses_nothing(app: App) -> None:
    """Every event once, in order, over a real socket; the run is alive while its streams break."""
    chance = random.Random(7)
    with listening(app) as server, httpx.Client(base_url=server.url, timeout=30) as client:
        cuts = 0
        while cuts < 200:
            run_id = client.post("/runs", json={"kind": "ask", "text": "say much"}).json()["id"]
            seen: list[int] = []
            while True:
                headers = {"Last-Event-ID": str(seen[-1])} if seen else {}
                with client.stream("GET", f"/runs/{run_id}/events", headers=headers) as stream:
                    if stream.status_code == 204:
                        break
                    left = chance.randint(1, 6)
                    for line in stream.iter_lines():
                        if line.startswith("id: "):
                            seen.append(int(line[4:]))
                            left -= 1
                            if not left:
                                cuts += 1
                                break
            assert seen == list(range(1, app.store.run(run_id).seq + 1))
