"""Telemetry: metrics for Prometheus, traces over OpenTelemetry, logs as JSON.

Metrics and traces only read: they subscribe to events and read the runs that ended. All names that external systems
see are in this module.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

from etude import __version__
from etude.entities import ENDED, Run, Step
from etude.errors import EtudeError, Unavailable

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

    from etude.settings import TelemetrySettings
    from etude.store.base import Store

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
MEASURED = (
    ("actions", "etude_actions", "Actions of agents that have not ended.", "gauge", ("state",)),
    ("queue_oldest", "etude_queue_oldest_seconds", "How long the next action has waited.", "gauge", ()),
    ("agents", "etude_agents", "Agents.", "gauge", ("status",)),
    ("claims", "etude_queue_claims", "Claims of actions, by all processes.", "counter", ()),
    ("retries", "etude_queue_retries", "Claims of actions that had failed before, by all processes.", "counter", ()),
    ("reclaimed", "etude_queue_reclaimed", "Actions taken over from lost workers, by all processes.", "counter", ()),
    ("ended", "etude_actions_ended", "Actions that ended, in all processes.", "counter", ("end",)),
    ("processes", "etude_processes", "Processes of the store.", "gauge", ("role", "state")),
    ("clock_skew", "etude_clock_skew_seconds", "How far the worst clock is ahead of the store's.", "gauge", ("role",)),
    (
        "deliveries_failing",
        "etude_deliveries_failing_seconds",
        "How long the deliveries of an agent have failed; 0 if they arrive.",
        "gauge",
        ("tenant", "agent"),
    ),
    (
        "deliveries_lost",
        "etude_deliveries_lost",
        "Events that an agent gave up to deliver.",
        "counter",
        ("tenant", "agent"),
    ),
    ("engines", "etude_engines", "Engines by state, and queries that wait for one.", "gauge", ("state",)),
    ("engines_killed", "etude_engines_killed", "Engines that were killed in use.", "counter", ()),
    ("sessions", "etude_sessions", "Open sessions of threads.", "gauge", ("state",)),
    ("storage", "etude_storage_bytes", "Results, files and records of a tenant.", "gauge", ("tenant",)),
    ("storage_limit", "etude_storage_limit_bytes", "Storage quota of a tenant; 0 means none.", "gauge", ("tenant",)),
    ("store_up", "etude_store_up", "1 if the store can be used.", "gauge", ()),
    ("store", "etude_store_bytes", "The size of the database.", "gauge", ()),
    ("disk_free", "etude_disk_free_bytes", "Free bytes of a file system.", "gauge", ("path",)),
    ("disk_total", "etude_disk_total_bytes", "Size of a file system.", "gauge", ("path",)),
)
"""Metrics that are read when they are asked for: the key of the numbers, name, text, type and labels."""
Measures = Mapping[str, Mapping[tuple[str, ...], float]]
_FACTS = ("request_id", "tenant", "key", "run_id", "thread_id")


class TelemetryMetrics:
    """The metrics of one process, in their own registry."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self._registry = registry = CollectorRegistry()
        self._requests = Histogram(
            "etude_http_request_seconds",
            "HTTP requests.",
            ["method", "route", "status"],
            buckets=SECONDS,
            registry=registry,
        )
        self._runs = Counter("etude_runs_total", "Runs that ended.", ["kind", "status"], registry=registry)
        self._run_seconds = Histogram(
            "etude_run_seconds", "Time from start to end.", ["kind"], buckets=SECONDS, registry=registry
        )
        self._cells = Counter(
            "etude_sandbox_cells_total", "Cells in sandboxes.", ["provider", "outcome"], registry=registry
        )
        self._sessions = Counter(
            "etude_sessions_started_total", "Sessions that ran a first cell.", ["provider"], registry=registry
        )
        self._tokens = Counter("etude_tokens_total", "Tokens of models.", ["direction"], registry=registry)
        self._cost = Counter("etude_cost_usd_total", "Cost of models, if the price is known.", registry=registry)
        self._replays = Counter(
            "etude_replays_total", "Questions by how a script served them.", ["level", "cause"], registry=registry
        )
        self._saved = Counter("etude_replay_tokens_saved_total", "Tokens that replays saved.", registry=registry)
        self._open = Gauge("etude_runs_open", "Runs that have not ended.", ["status"], registry=registry)
        self._streams = Gauge("etude_streams_open", "Event streams.", registry=registry)
        self._measures: Measures = {}
        registry.register(self)
        Gauge("etude_info", "This process.", ["version"], registry=registry).labels(__version__).set(1)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(method, route, str(status)).observe(seconds)

    def run_ended(self, run: Run, provider: str) -> None:
        """Count a run."""
        self._runs.labels(run.kind, run.status).inc()
        if run.started_at and run.ended_at:
            self._run_seconds.labels(run.kind).observe(max((run.ended_at - run.started_at).total_seconds(), 0.0))
        if run.replay is not None:
            self._replays.labels(run.replay.level, run.replay.cause).inc()
            self._saved.inc(run.replay.tokens_saved)
        for step in run.steps:
            # A step with a `run` repeats the usage of that run, which is counted when that run ends.
            if step.kind == "model" and "run" not in step.params:
                self._tokens.labels("in").inc(step.usage.tokens_in)
                self._tokens.labels("out").inc(step.usage.tokens_out)
                self._cost.inc(step.usage.cost_usd)
            elif step.kind == "python":
                self._cells.labels(provider, step.outcome or "open").inc()
                if step.params.get("cell") == 1:
                    self._sessions.labels(provider).inc()

    def collect(self) -> Iterator[Any]:
        """Yield the metrics that are read when they are asked for, as `prometheus_client` wants them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for key, name, text, kind, labels in MEASURED:
            family: Any = (CounterMetricFamily if kind == "counter" else GaugeMetricFamily)(name, text, labels=labels)
            for values, number in self._measures.get(key, {}).items():
                family.add_metric(values, number)
            yield family

    def measure(self, streams: int, runs: dict[str, int], measures: Measures | None = None) -> None:
        """Set the gauges: open streams, open runs by status, and the numbers of `MEASURED` by their keys."""
        self._measures = measures or {}
        self._streams.set(streams)
        for status, count in runs.items():
            self._open.labels(status).set(count)

    def text(self) -> bytes:
        """Return all metrics in Prometheus format."""
        from prometheus_client import generate_latest

        return generate_latest(self._registry)


class TelemetryObserver:
    """Reads each run once it has ended, in its own thread, and passes it to all readers."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._readers: list[Callable[[Run], None]] = []
        self._changed: queue.SimpleQueue[tuple[str, str] | None] = queue.SimpleQueue()
        self._stops: dict[str, Callable[[], None]] = {}
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._thread = threading.Thread(target=self._read, name="etude-observer", daemon=True)
        self._thread.start()
        self.watch(store.tenant)

    def show(self, reader: Callable[[Run], None]) -> None:
        """Call `reader` with every run of a watched tenant that ends from now on."""
        self._readers.append(reader)

    def watch(self, tenant: str) -> None:
        """Also read the runs of a tenant."""
        if tenant not in self._stops:
            # The unscoped store reports the runs of every tenant, a scoped one only those of its tenant.
            view = self._store.scoped(tenant)
            self._stops[tenant] = view.subscribe(lambda run_id, _: self._changed.put((tenant, run_id)))

    def _read(self) -> None:
        while (change := self._changed.get()) is not None:
            tenant, run_id = change
            try:
                run = self._store.scoped(tenant).run(run_id)
                if run.status in ENDED and self._is_new(run_id):
                    for reader in self._readers:
                        reader(run)
            except EtudeError:
                # The run belongs to another tenant, whose own subscription reports it; or the store is unreachable.
                continue
            except Exception:
                logging.getLogger("etude.telemetry").exception("a reader of runs failed")

    def _is_new(self, run_id: str) -> bool:
        """Return True if the run was not passed on yet: a run that has ended may still get a note."""
        new = run_id not in self._seen
        self._seen[run_id] = None
        if len(self._seen) > 10_000:
            self._seen.popitem(last=False)
        return new

    def close(self) -> None:
        """Pass on the pending runs and stop the thread."""
        for stop in self._stops.values():
            stop()
        self._changed.put(None)
        self._thread.join(5)


# Traces.


class TelemetryTraces:
    """Sends runs as traces over OTLP, with the names of OpenTelemetry's GenAI conventions; content only if enabled."""

    def __init__(self, settings: TelemetrySettings, provider: TracerProvider | None = None) -> None:
        self._content = settings.content
        self._provider = provider or _open_provider(settings)
        self._tracer = self._provider.get_tracer("etude", __version__)

    def send(self, run: Run, user: str | None = None) -> None:
        """Send a run as a trace: a span for the run, and a child span for each step."""
        from opentelemetry import trace

        start = run.started_at or run.created_at
        attributes = _of_run(run) | (self._said(run) if self._content else {})
        attributes |= {"user.id": user, "mlflow.trace.user": user} if user else {}
        root = self._tracer.start_span(
            _name_of_run(run), context=trace.set_span_in_context(trace.INVALID_SPAN), start_time=_ns(start)
        )
        root.set_attributes(attributes)
        spans = {"": root}
        for step in run.steps:
            # A tool runs after the turn that called it, so both are children of the run.
            above = root if step.kind == "tool" else spans.get(step.parent or "", root)
            span = self._tracer.start_span(
                _name_of_step(step), context=trace.set_span_in_context(above), start_time=_ns(step.started_at)
            )
            span.set_attributes(_of_step(step) | (self._done(step) if self._content else {}))
            if step.error:
                _set_error(span, step.error)
            spans[step.id] = span
        for step in reversed(run.steps):
            spans[step.id].end(_ns(step.ended_at or run.ended_at or start))
        if run.error:
            _set_error(root, run.error)
        root.end(_ns(run.ended_at or start))

    def _said(self, run: Run) -> dict[str, Any]:
        return {"mlflow.spanInputs": json.dumps(run.text), "mlflow.spanOutputs": json.dumps(run.answer or "")}

    def _done(self, step: Step) -> dict[str, Any]:
        shown: dict[str, Any] = {"etude.code": step.code}
        if step.kind == "tool":
            shown |= {"gen_ai.tool.call.arguments": str(step.params.get("arguments", ""))}
        return shown

    def close(self) -> None:
        """Send the pending spans and shut down."""
        self._provider.shutdown()


def _open_provider(settings: TelemetrySettings) -> TracerProvider:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise Unavailable("OpenTelemetry is not installed.", hint="pip install 'etude[otel]'") from None
    resource = Resource.create({"service.name": "etude", "service.version": __version__})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    # A variable of the environment cannot have a hyphen in its name, and no receiver wants an underscore in a header.
    headers = {name.replace("_", "-").lower(): value for name, value in settings.headers.items()}
    exporter = OTLPSpanExporter(settings.otlp, headers=headers)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _name_of_run(run: Run) -> str:
    return "invoke_agent etude" if run.kind == "ask" else f"etude {run.kind}"


def _of_run(run: Run) -> dict[str, Any]:
    known: dict[str, Any] = {"etude.run.id": run.id, "etude.run.kind": run.kind, "etude.run.status": run.status}
    if run.kind == "ask":
        known |= {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "etude", "mlflow.spanType": "AGENT"}
        known |= {
            "gen_ai.usage.input_tokens": run.usage.tokens_in,
            "gen_ai.usage.output_tokens": run.usage.tokens_out,
        }
    if run.thread_id:
        known |= {"gen_ai.conversation.id": run.thread_id, "mlflow.trace.session": run.thread_id}
    if run.source:
        known |= {"gen_ai.data_source.id": run.source}
    return known


def _name_of_step(step: Step) -> str:
    match step.kind:
        case "model":
            return f"chat {step.code}"
        case "tool":
            return f"execute_tool {step.code}"
        case kind:
            return f"etude {kind}"


def _of_step(step: Step) -> dict[str, Any]:
    known: dict[str, Any] = {"etude.step.id": step.id, "etude.step.outcome": step.outcome or "open"}
    match step.kind:
        case "model":
            provider, _, model = step.code.rpartition(":")
            known |= {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": provider or "etude",
                "gen_ai.request.model": model,
                "gen_ai.usage.input_tokens": step.usage.tokens_in,
                "gen_ai.usage.output_tokens": step.usage.tokens_out,
                "mlflow.spanType": "CHAT_MODEL",
            }
        case "tool":
            known |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": step.code, "mlflow.spanType": "TOOL"}
        case "sql":
            known |= {"db.system.name": step.dialect or "", "db.namespace": step.source or ""}
        case _:
            pass
    return known


def _set_error(span: Any, error: dict[str, Any]) -> None:
    from opentelemetry.trace import Status, StatusCode

    # The detail may quote data; the code does not.
    span.set_attribute("error.type", str(error.get("code", "internal")))
    span.set_status(Status(StatusCode.ERROR, str(error.get("title", ""))))


def _ns(moment: datetime) -> int:
    return int(moment.timestamp() * 1e9)


# Logs.


class TelemetryLogLines(logging.Formatter):
    """Formats log records as JSON lines, with the ids of their request, thread and run."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON."""
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: getattr(record, name) for name in _FACTS if getattr(record, name, None) is not None}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TelemetryAccessLog:
    """A JSON line for each request. Lines are buffered and written a few times per second."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lines: list[str] = []

    def add(self, message: str, status: int, seconds: float, facts: dict[str, str]) -> None:
        """Buffer the line of a request."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        level = "info" if status < 500 else "error" if status == 500 else "warning"
        known = "".join(f', "{name}": {json.dumps(value)}' for name, value in facts.items())
        self._lines.append(
            f'{{"at": "{at}", "level": "{level}", "logger": "etude.http", "message": {json.dumps(message)}, '
            f'"status": {status}, "ms": {seconds * 1000:.2f}{known}}}\n'
        )

    def write(self) -> None:
        """Write the buffered lines."""
        lines, self._lines = self._lines, []
        if lines:
            self._out.write("".join(lines))
            self._out.flush()


def configure_telemetry_logs(level: int = logging.INFO) -> None:
    """Write the log to standard error, one line of JSON per record."""
    handler = logging.StreamHandler()
    handler.setFormatter(TelemetryLogLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for noisy in ("mcp", "httpx", "opentelemetry"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
