"""Runs over HTTP: begun in the background, looked at, steered, and their results read in any form."""

from __future__ import annotations

import base64
import io
import threading
import time
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient

from etude.api.results import name_result_download
from etude.app import App
from etude.models import scripted


def begin(client: TestClient, kind: str, text: str, **more: Any) -> dict[str, Any]:
    answer = client.post("/api/runs", json={"kind": kind, "text": text} | more)
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"] == f"/api/runs/{answer.json()['id']}"
    return dict(answer.json())


def ended(client: TestClient, run_id: str, *statuses: str) -> dict[str, Any]:
    """The run once it is in one of the statuses, or has ended."""
    wanted = statuses or ("succeeded", "failed", "cancelled")
    give_up = time.monotonic() + 120
    while time.monotonic() < give_up:
        state = client.get(f"/api/runs/{run_id}/status").json()
        if state["status"] in wanted:
            return dict(client.get(f"/api/runs/{run_id}").json())
        time.sleep(0.02)
    raise AssertionError(state)


@pytest.fixture(scope="module")
def orders(client: TestClient) -> str:
    """The id of a run whose result has every order."""
    return str(client.post("/api/sql", json={"query": "SELECT * FROM orders", "limit": 1}).json()["run_id"])


def test_each_kind_of_run(client: TestClient) -> None:
    plan = '{"from": "orders", "aggregate": [{"fn": "count", "as": "n"}]}'
    for kind, text in (("sql", "SELECT count(*) AS n FROM orders"), ("plan", plan)):
        run = ended(client, begin(client, kind, text)["id"])
        assert (run["status"], run["kind"]) == ("succeeded", kind)
        assert client.get(f"/api/runs/{run['id']}/result").json()["rows"] == [[3704]]
    cell = ended(client, begin(client, "python", "6 * 7")["id"])
    assert (cell["status"], cell["answer"]) == ("succeeded", "42")
    answer = ended(client, begin(client, "ask", "how many orders?")["id"])
    assert (answer["status"], answer["answer"]) == ("succeeded", "There are 3,704 orders.")


def test_a_query_of_a_category_and_a_number_has_a_chart(client: TestClient) -> None:
    run = ended(client, begin(client, "ask", "SQL: SELECT status, count(*) AS n FROM orders GROUP BY status")["id"])
    assert (run["kind"], run["chart"]["mark"]["type"]) == ("sql", "bar")
    assert ended(client, begin(client, "sql", "SELECT count(*) AS n FROM orders")["id"])["chart"] is None


def test_files_are_named_after_the_question(client: TestClient) -> None:
    asked = ended(client, begin(client, "ask", "How many orders are there for each status?")["id"])
    saved = client.get(f"/api/runs/{asked['id']}/result", headers={"accept": "text/csv"})
    name = "how-many-orders-are-there-for-each-status.csv"
    assert saved.headers["content-disposition"] == f'attachment; filename="{name}"'
    assert name_result_download("fälle.csv") == "attachment; filename=\"falle.csv\"; filename*=UTF-8''f%C3%A4lle.csv"
    run = ended(client, begin(client, "sql", "SELECT 1 AS n")["id"])
    saved = client.get(f"/api/runs/{run['id']}/result", headers={"accept": "text/csv"})
    assert saved.headers["content-disposition"] == f'attachment; filename="{run["source"]}-{run["id"][-6:]}.csv"'


def test_work_is_counted_without_keys(client: TestClient) -> None:
    before = client.get("/api/spending").json()["seconds"]
    ended(client, begin(client, "ask", "how many orders?")["id"])
    give_up = time.monotonic() + 60
    while client.get("/api/spending").json()["seconds"] <= before:
        assert time.monotonic() < give_up
        time.sleep(0.05)


def test_runs_are_listed_by_page_and_filter(client: TestClient, app: App) -> None:
    for number in range(3):
        client.post("/sql", json={"query": f"SELECT {number} AS listed"})
    first = client.get("/api/runs", params={"text": "AS listed", "limit": 2}).json()
    rest = client.get("/api/runs", params={"text": "AS listed", "limit": 2, "cursor": first["next"]}).json()
    texts = [r["text"] for r in first["items"] + rest["items"]]
    assert texts == ["SELECT 2 AS listed", "SELECT 1 AS listed", "SELECT 0 AS listed"]
    assert rest["next"] is None
    assert client.get("/api/runs", params={"status": "failed", "text": "AS listed"}).json()["items"] == []
    for cursor in ("x", base64.urlsafe_b64encode(b"[" * 6000).decode(), base64.urlsafe_b64encode(b"[" * 600).decode()):
        assert client.get("/api/runs", params={"cursor": cursor}).status_code == 422


def test_a_long_text_is_cut_in_lists_and_says_so(client: TestClient) -> None:
    query = f"SELECT 1 AS long_text -- {'x' * 10_000}"
    run_id = client.post("/sql", json={"query": query}).json()["run_id"]
    listed = client.get("/api/runs", params={"text": "long_text"}).json()["items"][0]
    assert (listed["id"], listed["text"], listed["text_cut"]) == (run_id, query[:2000], True)
    assert client.get(f"/api/runs/{run_id}").json()["text"] == query


def test_a_large_run_comes_whole(client: TestClient) -> None:
    code = "for n in range(20): db.sql(f\"SELECT {n} AS n -- {'x' * 50_000}\")"
    run = ended(client, begin(client, "python", code)["id"])
    answer = client.get(f"/api/runs/{run['id']}")
    assert len(answer.content) > 1_000_000 and answer.headers["etag"] == f'"{run["seq"]}"'
    assert sum("AS n --" in (step["code"] or "") for step in answer.json()["steps"]) >= 20
    same = client.get(f"/api/runs/{run['id']}", headers={"If-None-Match": answer.headers["etag"]})
    assert same.status_code == 304


def test_a_run_that_failed_tells_why(client: TestClient) -> None:
    run = ended(client, begin(client, "sql", "SELECT nothing FROM orders")["id"])
    assert run["status"] == "failed"
    assert run["error"]["code"] == "invalid_query"
    missing = client.get(f"/api/runs/{run['id']}/result")
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")


def test_a_run_is_cancelled(client: TestClient) -> None:
    run_id = begin(client, "ask", "be slow")["id"]
    ended(client, run_id, "running")
    assert client.post(f"/api/runs/{run_id}/cancel").status_code == 200
    assert ended(client, run_id)["status"] == "cancelled"
    again = client.post(f"/api/runs/{run_id}/cancel")
    assert (again.status_code, again.json()["code"]) == (409, "conflict")


def test_a_run_is_paused_and_goes_on(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    # The model is at its first turn until the pause was asked for.
    asked_for = threading.Event()
    monkeypatch.setattr(scripted, "_wait", lambda *_: asked_for.wait(120))
    run_id = begin(client, "ask", "how many orders?")["id"]
    ended(client, run_id, "running")
    assert client.post(f"/api/runs/{run_id}/pause").status_code == 200
    asked_for.set()
    assert ended(client, run_id, "paused", "succeeded")["status"] == "paused"
    assert client.post(f"/api/runs/{run_id}/resume").status_code == 200
    assert ended(client, run_id, "succeeded")["answer"] == "There are 3,704 orders."
    assert client.post(f"/api/runs/{run_id}/resume").status_code == 409


def test_a_run_that_waits_is_answered(client: TestClient) -> None:
    run_id = begin(client, "ask", "which year?")["id"]
    state = ended(client, run_id, "waiting")
    assert (state["question"], state["choices"]) == ("Which year?", ["2023", "2024"])
    stale = client.post(f"/api/runs/{run_id}/answer", json={"text": "2024"}, headers={"If-Match": '"1"'})
    assert (stale.status_code, stale.json()["code"]) == (412, "stale")
    at = {"If-Match": f'"{state["seq"]}"'}
    assert client.post(f"/api/runs/{run_id}/answer", json={"text": "2024"}, headers=at).status_code == 200
    assert ended(client, run_id)["answer"] == "Then it is that year."
    assert client.post(f"/api/runs/{run_id}/answer", json={"text": "2024"}).status_code == 409


def test_a_run_is_steered_and_interrupted(client: TestClient) -> None:
    run_id = begin(client, "ask", "be slow")["id"]
    ended(client, run_id, "running")
    assert client.post(f"/api/runs/{run_id}/steer", json={"guidance": "only 2025"}).status_code == 200
    # The script's next turn answers what was said last.
    assert client.post(f"/api/runs/{run_id}/interrupt", json={"guidance": "how many orders?"}).status_code == 200
    run = ended(client, run_id)
    assert run["answer"] == "There are 3,704 orders."
    late = client.post(f"/api/runs/{run_id}/steer", json={"guidance": "too late"})
    assert (late.status_code, late.json()["code"]) == (409, "conflict")


def test_a_request_can_wait_for_its_run(client: TestClient) -> None:
    wanted = {"query_type": "plan", "query": {"from": "orders", "aggregate": [{"fn": "count", "as": "n"}]}}
    response = client.post("/api/runs", json=wanted, headers={"Prefer": "respond-async, wait=120"})
    assert (response.status_code, response.headers["preference-applied"]) == (200, "wait=120")
    assert response.json()["status"] == "succeeded"
    assert response.json()["result"]["row_count"] == 1
    slow = client.post("/api/runs", json={"kind": "ask", "text": "be slow"}, headers={"Prefer": "wait=1"})
    assert slow.status_code == 202 and slow.json()["status"] == "running"
    client.post(f"/api/runs/{slow.json()['id']}/cancel")


def test_what_did_not_change_is_not_sent_again(client: TestClient, orders: str) -> None:
    for path in ("", "/status", "/result"):
        seen = client.get(f"/api/runs/{orders}{path}")
        again = client.get(f"/api/runs/{orders}{path}", headers={"If-None-Match": seen.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert client.get(f"/api/runs/{orders}{path}", headers={"If-None-Match": '"other"'}).status_code == 200


def test_a_script_runs_alone(client: TestClient, orders: str) -> None:
    script = client.get(f"/api/runs/{orders}/script").text
    assert "# Executed alone by etude on " in script and "SELECT * FROM orders" in script
    compile(script, "script.py", "exec")
    cell = begin(client, "python", "x = 1\nx")["id"]
    ended(client, cell)
    assert client.get(f"/api/runs/{cell}/script").text.endswith("x = 1\nprint(x)\n")


def test_pages_of_a_result(client: TestClient, orders: str) -> None:
    page = client.get(f"/api/runs/{orders}/result").json()
    assert (len(page["rows"]), page["row_count"], page["next"]) == (200, 3704, 200)
    last = client.get(f"/api/runs/{orders}/result", params={"offset": 3700}).json()
    assert ([row[0] for row in last["rows"]], last["next"]) == ([3701, 3702, 3703, 3704], None)
    beyond = client.get(f"/api/runs/{orders}/result", params={"offset": 99_999}).json()
    assert (beyond["rows"], beyond["next"], beyond["row_count"]) == ([], None, 3704)


def test_sort_and_filter_are_the_engine_s(client: TestClient, orders: str) -> None:
    view = {"sort": ["-amount", "order_id"], "filter": ["status:eq:completed", "amount:ge:100"], "limit": 50}
    page = client.get(f"/api/runs/{orders}/result", params=view).json()
    where = "FROM orders WHERE status = 'completed' AND amount >= 100"
    wanted = client.post("/sql", json={"query": f"SELECT * {where} ORDER BY amount DESC, order_id LIMIT 50"}).json()
    count = client.post("/sql", json={"query": f"SELECT count(*) {where}"}).json()["rows"][0][0]
    assert page["rows"] == wanted["rows"]
    assert page["row_count"] == count
    second = client.get(f"/api/runs/{orders}/result", params=view | {"offset": 50}).json()
    assert not {r[0] for r in second["rows"]} & {r[0] for r in page["rows"]}


@pytest.mark.parametrize(
    ("filter", "condition"),
    [
        ("ordered:lt:2024-02-01", "ordered < '2024-02-01'"),
        ("channel:contains:EB", "channel ILIKE '%eb%'"),
        ("channel:starts:w", "channel LIKE 'w%'"),
        ("discount_percent:ne:0", "discount_percent <> 0"),
        ("amount:null", "amount IS NULL"),
        ("amount:notnull", "amount IS NOT NULL"),
        ("status:eq:a:b", "status = 'a:b'"),
    ],
)
def test_filters(client: TestClient, orders: str, filter: str, condition: str) -> None:
    page = client.get(f"/api/runs/{orders}/result", params={"filter": filter}).json()
    wanted = client.post("/sql", json={"query": f"SELECT count(*) FROM orders WHERE {condition}"}).json()
    assert page["row_count"] == wanted["rows"][0][0]


@pytest.mark.parametrize(
    ("view", "said"),
    [
        ({"sort": "nothing"}, "no column `nothing`"),
        ({"filter": "amount"}, "not a filter"),
        ({"filter": "amount:like:x"}, "not a filter"),
        ({"filter": "amount:gt:x"}, "cannot be compared"),
        ({"filter": "amount:null:x"}, "not a filter"),
        ({"offset": -1}, "offset"),
        ({"limit": 0}, "limit"),
    ],
)
def test_a_view_that_makes_no_sense(client: TestClient, orders: str, view: dict[str, Any], said: str) -> None:
    refused = client.get(f"/api/runs/{orders}/result", params=view)
    assert refused.status_code == 422
    assert said in refused.json()["detail"]


def test_whole_numbers_beyond_64_bits_keep_their_order(client: TestClient) -> None:
    query = "SELECT unnest([9, 10, 170141183460469231731687303715884105727]::HUGEINT[]) AS n"
    run_id = client.post("/sql", json={"query": query}).json()["run_id"]
    page = client.get(f"/api/runs/{run_id}/result", params={"sort": "-n", "filter": "n:gt:9"}).json()
    assert [row[0] for row in page["rows"]] == [170141183460469231731687303715884105727, 10]


def test_the_result_in_every_form(client: TestClient, orders: str) -> None:
    path = f"/api/runs/{orders}/result"
    csv = client.get(path, headers={"accept": "text/csv"})
    assert csv.headers["content-type"].startswith("text/csv")
    assert len(csv.text.splitlines()) == 3705
    parquet = client.get(path, headers={"accept": "application/vnd.apache.parquet"})
    arrow = client.get(path, headers={"accept": "application/vnd.apache.arrow.stream"})
    tables = [pq.read_table(io.BytesIO(parquet.content)), pa.ipc.open_stream(arrow.content).read_all()]
    assert tables[0].num_rows == tables[1].num_rows == 3704
    assert tables[0].to_pylist() == tables[1].to_pylist()
    view = {"sort": "-order_id", "limit": 3}
    for media, read in (
        ("application/vnd.apache.parquet", lambda b: pq.read_table(io.BytesIO(b))),
        ("application/vnd.apache.arrow.stream", lambda b: pa.ipc.open_stream(b).read_all()),
    ):
        some = read(client.get(path, params=view, headers={"accept": media}).content)
        assert some.column("order_id").to_pylist() == [3704, 3703, 3702]
    assert client.get(path, headers={"accept": "image/png"}).status_code == 406


def test_texts_that_a_spreadsheet_would_run_are_escaped_for_browsers(client: TestClient) -> None:
    query = """SELECT '=1+1' AS "=a", '+x' AS b, '-x' AS c, '@x' AS d, chr(9) || 'x' AS e, 'plain' AS f, '' AS g,
        -5 AS n,
        (-123456789012345678901234567890.5)::DECIMAL(38, 1) AS m, NULL AS o"""
    run_id = client.post("/sql", json={"query": query}).json()["run_id"]
    path, accept = f"/api/runs/{run_id}/result", {"accept": "text/csv"}
    raw = '=a,b,c,d,e,f,g,n,m,o\r\n=1+1,+x,-x,@x,"\tx",plain,"",-5,-123456789012345678901234567890.5,\r\n'
    escaped = "'=a,b,c,d,e,f,g,n,m,o\r\n'=1+1,'+x,'-x,'@x,'\tx,plain,\"\",-5,-123456789012345678901234567890.5,\r\n"
    browser = accept | {"sec-fetch-site": "same-origin"}
    assert client.get(path, headers=accept).text == raw
    assert client.get(path, headers=browser).text == escaped
    assert client.get(path, headers=accept, params={"escape_formulas": True}).text == escaped
    assert client.get(path, headers=browser, params={"escape_formulas": False}).text == raw


def test_an_empty_result_has_columns_in_every_form(client: TestClient) -> None:
    run_id = client.post("/sql", json={"query": "SELECT 1 AS a WHERE false"}).json()["run_id"]
    path = f"/api/runs/{run_id}/result"
    assert client.get(path).json()["columns"] == [{"name": "a", "type": "INTEGER"}]
    assert client.get(path, params={"sort": "a"}).json()["rows"] == []
    assert client.get(path, headers={"accept": "text/csv"}).text == "a\r\n"
    arrow = client.get(path, headers={"accept": "application/vnd.apache.arrow.stream"}).content
    assert pa.ipc.open_stream(arrow).read_all().column_names == ["a"]


def test_an_artifact_is_had_through_its_run_alone(client: TestClient, orders: str) -> None:
    hash = client.get(f"/api/runs/{orders}").json()["result_artifact"]["hash"]
    found = client.get(f"/api/runs/{orders}/artifacts/{hash}")
    assert found.headers["content-disposition"].startswith("attachment")
    assert pq.read_table(io.BytesIO(found.content)).num_rows == 3704
    other = client.post("/sql", json={"query": "SELECT 1"}).json()["run_id"]
    assert client.get(f"/api/runs/{other}/artifacts/{hash}").status_code == 404


def test_limits_can_be_lowered_and_never_raised(client: TestClient, app: App) -> None:
    run = ended(client, begin(client, "sql", "SELECT * FROM orders", limits={"limit": 5})["id"])
    assert (run["result"]["row_count"], run["result"]["truncated"]) == (5, True)
    run = ended(client, begin(client, "sql", "SELECT * FROM orders", limits={"rows": 5})["id"])
    assert (run["status"], run["error"]["code"], run["result"]) == ("failed", "limit_exceeded", None)
    more = {"bytes": 1 << 50, "timeout_s": 9e5}
    step = ended(client, begin(client, "sql", "SELECT 1", limits=more)["id"])["steps"][0]
    assert step["limits"]["bytes"] == app.settings.limits.bytes
    assert step["limits"]["timeout_s"] == app.settings.limits.timeout_s
    asked = ended(client, begin(client, "ask", "how many orders?", budget={"steps": 1})["id"])
    assert asked["status"] == "succeeded" and "This answer may be incomplete." in asked["answer"]


def test_a_model_that_was_not_offered_cannot_be_chosen(client: TestClient) -> None:
    for name in ("scripted:/etc/passwd", "openai:gpt-5", ""):
        refused = client.post("/api/runs", json={"kind": "ask", "text": "x", "model": name})
        assert refused.status_code == 422, name
        assert "cannot be chosen" in refused.json()["detail"]


def test_a_run_is_pinned_and_deleted(client: TestClient) -> None:
    run_id = client.post("/api/sql", json={"query": "SELECT 'short-lived' AS word"}).json()["run_id"]
    pinned = client.post(f"/api/runs/{run_id}/pin", json={"reason": "for the audit"})
    assert (pinned.status_code, pinned.json()["reason"]) == (200, "for the audit")
    assert client.get("/api/pins").json()["items"] == [pinned.json()]
    refused = client.delete(f"/api/runs/{run_id}")
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert "is pinned" in refused.json()["detail"]

    assert client.post(f"/api/runs/{run_id}/unpin").status_code == 204
    assert client.post(f"/api/runs/{run_id}/unpin").status_code == 404
    assert client.delete(f"/api/runs/{run_id}", headers={"If-Match": '"1"'}).status_code == 412
    assert client.delete(f"/api/runs/{run_id}", params={"reason": "not needed"}).status_code == 204
    for path in ("", "/events", "/result"):
        assert client.get(f"/api/runs/{run_id}{path}").status_code == 404
    assert client.delete(f"/api/runs/{run_id}").status_code == 404


def test_deleting_a_thread_closes_its_session(client: TestClient, app: App) -> None:
    thread = client.post("/api/threads", json={"title": "x", "dataset": "shop"}).json()["id"]
    run = begin(client, "python", "x = 1", thread_id=thread)
    assert ended(client, run["id"])["status"] == "succeeded"
    open_before = app.session_pool.counts()
    assert client.delete(f"/api/threads/{thread}").status_code == 204
    assert sum(app.session_pool.counts().values()) == sum(open_before.values()) - 1
