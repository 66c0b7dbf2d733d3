"""A stream of a run over the whole way, provider included: again and again, without a hang, a loss or a double."""

from __future__ import annotations

from pathlib import Path

from etude.app import App
from etude.events import StepFinished, TextDelta
from openai_server import OpenAIServer, by_turn, call, fail, say

TEXT = "There are three rows in the table, as the query shows."
TIMES = 200


def test_two_hundred_streams_come_whole_and_in_order(tmp_path: Path):
    (tmp_path / "t.csv").write_text("v\n1\n2\n3\n")
    script = by_turn(call("execute_sql", dataset="t", query="SELECT v FROM t"), say(TEXT))
    with OpenAIServer(script) as server, App(home=tmp_path / "home", **provider(server)) as app:
        for _ in range(TIMES):
            run_id = app.runs.begin("ask", "How many rows?", str(tmp_path / "t.csv"))
            app.runs.start(run_id)
            entries = list(app.runs.follow(run_id, timeout=240))
            assert [e.seq for e in entries] == list(range(1, len(entries) + 1))
            assert entries[0].event.type == "run.queued" and entries[-1].event.type == "run.finished"
            assert "".join(e.event.text for e in entries if isinstance(e.event, TextDelta)) == TEXT


def test_a_stream_that_breaks_off_begins_anew_and_says_so(tmp_path: Path):
    (tmp_path / "t.csv").write_text("v\n1\n")
    with (
        OpenAIServer([say("A broken answer that never ends.", cut=4), fail(500), say("A whole one.")]) as server,
        App(home=tmp_path / "home", **provider(server)) as app,
    ):
        answer = app.ask(str(tmp_path / "t.csv"), "Well?")
        assert answer.text == "A whole one."
        events = [e.event for e in app.store.entries(answer.run_id)]
        written = ""
        for event in events:
            if isinstance(event, TextDelta):
                written = "" if event.restart else written + event.text
        turns = [e.turn for e in events if isinstance(e, StepFinished) and e.turn]
        assert written == turns[-1].text == "A whole one."


def provider(server: OpenAIServer) -> dict[str, object]:
    settings = server.settings()
    return {
        "model": settings.model,
        "models": {k: v.model_dump(exclude_unset=True) for k, v in settings.models.items()},
    }
