"""Telemetry: traces over OTLP to a real receiver, without content unless asked for; logs as JSON; runs counted once."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.patience import wait_until

from api.conftest import open_app
from etude.app import App
from etude.entities import Run
from etude.events import Note
from etude.sample import write_shop
from etude.settings import TelemetrySettings
from etude.telemetry import TelemetryAccessLog, TelemetryLogLines, TelemetryMetrics, TelemetryObserver, TelemetryTraces


class Receiver:
    """An OTLP receiver over HTTP: what it was sent, as spans by name."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.headers: list[dict[str, str]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    import gzip

                    body = gzip.decompress(body)
                request = ExportTraceServiceRequest.FromString(body)
                receiver.headers.append(dict(self.headers))
                for resource in request.resource_spans:
                    for scope in resource.scope_spans:
                        receiver.spans += scope.spans
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                return

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1/traces"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def named(self, name: str) -> Any:
        return next(span for span in self.spans if span.name == name)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    opened = Receiver()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    folder = tmp_path_factory.mktemp("telemetry")
    write_shop(folder / "shop")
    with open_app(folder / "home", folder / "shop") as opened:
        yield opened


@pytest.fixture(scope="module")
def asked(app: App) -> Run:
    return app.ask("shop", "how many orders are there?").run


def attributes(span: Any) -> dict[str, Any]:
    return {a.key: a.value.string_value or a.value.int_value for a in span.attributes}


def test_a_run_is_a_trace_in_the_names_of_the_conventions(receiver: Receiver, asked: Run) -> None:
    traces = TelemetryTraces(TelemetrySettings(otlp=receiver.url, headers={"x_mlflow_experiment_id": "7"}))
    traces.send(asked, "ann")
    traces.close()
    root, chat = receiver.named("invoke_agent etude"), receiver.named(f"chat {asked.model}")
    tool, sql = receiver.named("execute_tool execute_sql"), receiver.named("etude sql")
    assert len({span.trace_id for span in receiver.spans}) == 1
    assert root.parent_span_id == b""
    assert chat.parent_span_id == root.span_id
    assert tool.parent_span_id == root.span_id
    assert sql.parent_span_id == tool.span_id
    known = attributes(root)
    assert known["gen_ai.operation.name"] == "invoke_agent"
    assert known["mlflow.trace.user"] == known["user.id"] == "ann"
    assert known["mlflow.trace.session"] == known["gen_ai.conversation.id"] == asked.thread_id
    assert known["gen_ai.usage.input_tokens"] == asked.usage.tokens_in > 0
    assert attributes(chat)["gen_ai.operation.name"] == "chat"
    assert attributes(tool)["gen_ai.tool.name"] == "execute_sql"
    assert root.start_time_unix_nano <= chat.start_time_unix_nano <= chat.end_time_unix_nano <= root.end_time_unix_nano
    assert receiver.headers[0]["x-mlflow-experiment-id"] == "7"


@pytest.mark.parametrize("content", [False, True])
def test_content_is_sent_only_where_asked_for(receiver: Receiver, asked: Run, content: bool) -> None:
    traces = TelemetryTraces(TelemetrySettings(otlp=receiver.url, content=content))
    traces.send(asked)
    traces.close()
    sent = "".join(str(span) for span in receiver.spans)
    for word in ("how many orders", "SELECT count", "3,704"):
        assert (word in sent) == content, word


def test_a_failure_is_an_error_of_its_span(receiver: Receiver, app: App) -> None:
    failed = app.ask("shop", "fail").run
    traces = TelemetryTraces(TelemetrySettings(otlp=receiver.url))
    traces.send(failed)
    traces.close()
    root = receiver.named("invoke_agent etude")
    assert attributes(root)["error.type"] == "model_error"
    assert "provider is down" not in str(root)


def test_a_receiver_that_is_gone_disturbs_nobody(asked: Run) -> None:
    traces = TelemetryTraces(TelemetrySettings(otlp="http://127.0.0.1:9/v1/traces"))
    traces.send(asked)


def test_the_observer_shows_each_run_once_and_of_every_tenant(app: App) -> None:
    seen: list[str] = []
    observer = TelemetryObserver(app.store)
    observer.watch("ours")
    observer.show(lambda run: seen.append(run.id))
    ours = app.scoped("ours")
    ours.add_source("shop", app.sources()["shop"])
    runs = [str(each.sql("shop", "SELECT 1").run_id) for each in (app, ours, app)]
    app.store.append(runs[0], Note(text="later"), expect=app.store.run(runs[0]).seq)
    wait_until(lambda: len(seen) >= 3)
    observer.close()
    assert seen == runs


def test_what_a_run_of_a_run_used_is_counted_once(asked: Run) -> None:
    metrics = TelemetryMetrics()
    metrics.run_ended(asked, "local")
    thought = next(step for step in asked.steps if step.kind == "model")
    stands_for = thought.model_copy(update={"params": {"run": asked.id}, "usage": asked.usage})
    above = asked.model_copy(update={"id": "run_above", "steps": (stands_for,)})
    metrics.run_ended(above, "local")
    counted = dict(line.rsplit(" ", 1) for line in metrics.text().decode().splitlines() if not line.startswith("#"))
    assert float(counted['etude_tokens_total{direction="in"}']) == asked.usage.tokens_in > 0
    assert float(counted['etude_tokens_total{direction="out"}']) == asked.usage.tokens_out > 0
    assert float(counted['etude_runs_total{kind="ask",status="succeeded"}']) == 2


def test_log_records_are_lines_of_json() -> None:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(TelemetryLogLines())
    logger = logging.getLogger("etude.test")
    logger.addHandler(handler)
    try:
        raise ValueError("a\nb")
    except ValueError:
        logger.exception('said "%s"', "x\ny", extra={"run_id": "run_1", "tenant": "main"})
    finally:
        logger.removeHandler(handler)
    (line,) = out.getvalue().splitlines()
    parsed = json.loads(line)
    assert (parsed["message"], parsed["run_id"], parsed["level"]) == ('said "x\ny"', "run_1", "error")
    assert "ValueError" in parsed["exception"]


def test_the_log_of_requests_is_json_whatever_they_ask_for() -> None:
    out = io.StringIO()
    log = TelemetryAccessLog(out)
    log.add('GET /"\n\x00é', 404, 0.0123, {"request_id": "r", "tenant": "main"})
    log.write()
    log.write()
    (line,) = out.getvalue().splitlines()
    parsed = json.loads(line)
    assert (parsed["message"], parsed["status"], parsed["ms"]) == ('GET /"\n\x00é', 404, 12.3)
