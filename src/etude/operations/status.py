"""How an installation is: store, objects, disk, queue, workers, servers, last errors; and what is wrong.

`etude status` prints it, `GET /api/status` returns it, and `/metrics` shows its numbers.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from etude import __version__
from etude.entities import Entity, Run, RunFilter
from etude.errors import EtudeError
from etude.store.agents import AgentStore, DeliveryState
from etude.store.base import StorageUse
from etude.store.processes import RUN_AGENTS, Processes, ProcessInfo, ProcessState, Role
from etude.store.queue import Queue

if TYPE_CHECKING:
    from etude.app import App
    from etude.store.base import Store
    from etude.telemetry import Measures

LATE_S = 60.0
"""An action that waits longer than this for a worker is a problem."""
CLOCK_OFF_S = 5.0
"""A clock that differs more than this from the clock of the store is a problem."""
DELIVERY_FAILURES = 3
"""Deliveries are a problem after this many failed attempts, or `LATE_S` after the first one."""
DAY_S = 86_400.0
LOW_SHARE = 0.05
LOW_BYTES = 5 << 30
"""A disk with less than a twentieth free, and less than this, is nearly full."""
NEARLY = 0.9
"""A tenant that uses more than this share of its storage is near its limit."""
ERRORS = 5
ASK_S = 10.0
FAILED_ACTIONS = """SELECT a.id, g.id, a.last_error, a.processed_at
    FROM actions a JOIN agents g ON g.no = a.agent WHERE a.state = 'failed' ORDER BY a.seq DESC LIMIT ?"""


RETRIED_ACTIONS = "SELECT count(*) FROM actions WHERE state = 'delayed' AND last_error IS NOT NULL"
MODEL_ERRORS = frozenset({"model_error", "model_unavailable"})
OUTSIDE_ERRORS = MODEL_ERRORS | {"source_unavailable", "source_error", "source_missing", "source_locked"}
"""Codes of errors whose cause is outside etude: a model's provider, or a source."""


class PartState(Entity):
    """A part of the installation: whether it can be used, and what it is or what is wrong."""

    ok: bool
    detail: str


class DiskUse(Entity):
    """A file system."""

    path: str
    free_bytes: int
    total_bytes: int


class TenantStorage(Entity):
    """The bytes of a tenant that count toward its storage quota."""

    bytes: int
    """All of them."""
    files: int
    """Results and files."""
    records: int
    """Records in the store: runs, messages, steps of agents."""
    limit: int
    """0 means no limit."""


class QueueState(Entity):
    """The queue of agents."""

    ready: int
    delayed: int
    running: int
    failed_today: int
    oldest_s: float
    agents: dict[str, int]


class LastError(Entity):
    """Something that failed."""

    what: str
    error: str
    at: datetime
    code: str = ""
    """The code of the error of a run."""


class Status(Entity):
    """How an installation is; `problems` say in words what is wrong."""

    version: str
    ok: bool
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What an operator may want to know, though nothing is wrong."""
    parts: dict[str, PartState] = {}
    processes: tuple[ProcessInfo, ...] = ()
    queue: QueueState | None = None
    runs: dict[str, int] = {}
    """Runs that have not ended, by status."""
    storage: dict[str, TenantStorage] = {}
    store_bytes: int = 0
    disks: tuple[DiskUse, ...] = ()
    engines: dict[str, int] = {}
    sessions: dict[str, int] = {}
    errors: tuple[LastError, ...] = ()
    retention: dict[str, float] = {}
    """Days that each kind of record is kept, if its tenant has no setting of its own; 0 means for ever."""


def installation_status(app: App, ask_servers: bool = True) -> Status:
    """Look at every part; a part that cannot be used is reported and does not hide the others."""
    kept = app.settings.retention.model_dump(exclude={"tenants"})
    found: dict[str, Any] = {"version": __version__, "retention": kept}
    problems: list[str] = []
    notes: list[str] = []
    parts = {
        "store": _check(lambda: _describe_store(app)),
        "objects": _check(lambda: _describe_objects(app)),
        "model": _check(lambda: app.settings.model),
        "sandbox": _check(lambda: app.settings.sandbox),
    }
    problems += [part.detail for part in parts.values() if not part.ok]
    found["disks"] = disks = _find_disks(app)
    problems += [
        f"The disk of `{disk.path}` is nearly full: {disk.free_bytes:,} of {disk.total_bytes:,} bytes are free. "
        "Free some space, or delete old records: `etude prune --dry-run`."
        for disk in disks
        if disk.free_bytes < min(disk.total_bytes * LOW_SHARE, LOW_BYTES)
    ]
    if parts["store"].ok:
        found |= _look_into_store(app, problems, notes)
        if ask_servers:
            parts |= _ask_servers(found["processes"], problems)
    return Status(**found, parts=parts, ok=not problems, problems=tuple(problems), notes=tuple(notes))


def _check(look: Callable[[], str]) -> PartState:
    try:
        return PartState(ok=True, detail=look())
    except EtudeError as error:
        return PartState(ok=False, detail=" ".join(text for text in (error.message, error.hint) if text))


def _describe_store(app: App) -> str:
    found = app.store.check()
    return f"{found['kind']} {found['version']} at {found['url']}, schema {found['schema']}"


def _describe_objects(app: App) -> str:
    try:
        return str(app.objects.check()["url"])
    except EtudeError as error:
        options = {name.lower(): value for name, value in app.settings.objects_options.items()}
        if str(options.get("endpoint", "")).startswith("http://") and not options.get("allow_http"):
            error.hint = "Its endpoint has no TLS: set `ETUDE_OBJECTS_OPTIONS__ALLOW_HTTP=true`, or use https."
        raise


def _find_disks(app: App) -> tuple[DiskUse, ...]:
    from etude.sources.source_url import source_path

    url = app.settings.store_url
    places = [app.settings.home, *([Path(source_path(url)).parent] if url.startswith("sqlite:") else [])]
    objects = app.settings.objects_url
    places += [Path(objects)] if "://" not in objects else []
    found: dict[int, DiskUse] = {}
    for place in places:
        if place.is_dir():
            use = shutil.disk_usage(place)
            found.setdefault(place.stat().st_dev, DiskUse(path=str(place), free_bytes=use.free, total_bytes=use.total))
    return tuple(found.values())


def _look_into_store(app: App, problems: list[str], notes: list[str]) -> dict[str, Any]:
    store = app.store
    depth = Queue(store).depth()
    processes = Processes(store).list()
    alive = [process for process in processes if process.alive]
    storage = tenant_storage_status(app)
    waiting = depth.ready + depth.delayed + depth.running
    if waiting and not any(process.role in RUN_AGENTS for process in alive):
        problems.append(
            f"No worker runs, and {waiting:,} actions of agents wait: start `etude serve` or `etude worker`."
        )
    elif depth.oldest_s > LATE_S:
        problems.append(f"An action has waited {depth.oldest_s:,.0f} s for a worker: start another `etude worker`.")
    for tenant, use in storage.items():
        if use.limit and use.bytes >= use.limit * NEARLY:
            problems.append(
                f"Tenant `{tenant}` uses {use.bytes:,} of {use.limit:,} bytes: delete runs, or raise "
                "`server.tenant_storage`."
            )
    roles = {process.role for process in alive}
    for process in processes:
        article = "An" if process.role == "observer" else "A"
        if process.state == "hung":
            problems.append(
                f"{article} {process.role} hangs: process {process.pid} on {process.host} wrote its last heartbeat "
                f"{process.seen_s:,.0f} s ago. Others take over its actions. Look at its log, then end it with "
                f"`kill -9 {process.pid}`, and start it again."
            )
        elif process.state == "gone":
            ended = f"{article} {process.role} ended without stopping: process {process.pid} on {process.host}."
            if process.role in roles:
                notes.append(ended)
            else:
                problems.append(f"{ended} No other {process.role} runs: look at its log, and start it again.")
    problems += _clock_problems(processes, Processes(store).clock_skew())
    _look_at_deliveries(AgentStore(Queue(store)).deliveries(), problems, notes)
    if failed := depth.agents.get("error"):
        notes.append(f"{failed:,} agents have the status `error`: `etude agents list --status error`.")
    errors = _last_errors(store)
    notes += _outage_notes(errors)
    if retried := int(Queue(store).read(RETRIED_ACTIONS)[0][0]):
        notes.append(f"{retried:,} actions of agents failed and are tried again: `etude actions list --state delayed`.")
    versions = sorted({process.version for process in alive})
    if len(versions) > 1:
        notes.append(f"Versions {', '.join(versions)} run side by side.")
    return {
        "processes": tuple(processes),
        "queue": QueueState(
            ready=depth.ready,
            delayed=depth.delayed,
            running=depth.running,
            failed_today=depth.failed,
            oldest_s=round(depth.oldest_s, 3),
            agents=depth.agents,
        ),
        "runs": store.count_open(),
        "storage": storage,
        "store_bytes": store.size(),
        "engines": app.pool.counts(),
        "sessions": app.session_pool.counts(),
        "errors": tuple(errors),
    }


def _clock_problems(processes: list[ProcessInfo], here: float) -> list[str]:
    """Say which clocks differ from the clock of the store. `here` is how far that of this machine is ahead."""
    clocks = [("this machine", here)]
    clocks += [
        (f"process {process.pid} ({process.role}) on {process.host}", process.clock_skew_s)
        for process in processes
        if process.state != "gone" and process.clock_skew_s is not None
    ]
    return [
        f"The clock of {whose} is {abs(skew):,.0f} s {'ahead of' if skew > 0 else 'behind'} the store's clock: "
        "set both by NTP (`timedatectl set-ntp true`)."
        for whose, skew in clocks
        if abs(skew) > CLOCK_OFF_S
    ]


def _look_at_deliveries(deliveries: list[DeliveryState], problems: list[str], notes: list[str]) -> None:
    """Say which agents cannot deliver their events, and which have given some up within a day."""
    now = time.time()
    for each in deliveries:
        whose = f"Agent `{each.agent}` of tenant `{each.tenant}`"
        if each.since is not None:
            text = f"{whose} cannot deliver its events, for {max(now - each.since, 0.0):,.0f} s: {each.error}"
            if each.failures >= DELIVERY_FAILURES or now - each.since > LATE_S:
                problems.append(f"{text} Check its receiver; each event is tried again for a day.")
            else:
                notes.append(f"{text} It tries again.")
        if each.lost_at is not None and now - each.lost_at < DAY_S:
            problems.append(
                f"{whose} gave up {each.lost:,} events, which its receiver did not accept for a day. "
                f"`etude events` lists events as long as `retention.events` keeps them."
            )


def tenant_storage_status(app: App) -> dict[str, TenantStorage]:
    """Return the bytes that each tenant uses and may use."""
    server = app.settings.server
    used = app.store.storage_by_tenant()
    names = sorted({*used, *server.tenant_storage})
    found = {name: used.get(name, StorageUse()) for name in names}
    return {
        name: TenantStorage(
            bytes=use.total,
            files=use.files,
            records=use.records,
            limit=server.tenant_storage.get(name, server.storage),
        )
        for name, use in found.items()
    }


def _last_errors(store: Store) -> list[LastError]:
    actions = [
        LastError(what=f"agent {agent}, action {action}", error=error or "", at=datetime.fromtimestamp(at, UTC))
        for action, agent, error, at in Queue(store).read(FAILED_ACTIONS, ERRORS)
    ]
    since = datetime.now(UTC) - timedelta(days=1)
    runs = [
        _run_error(store.run(run.id)) for run in store.runs(RunFilter(status="failed", since=since), limit=ERRORS).items
    ]
    return sorted([*actions, *runs], key=lambda error: error.at, reverse=True)[:ERRORS]


def _run_error(run: Run) -> LastError:
    """Return why a run failed, with the source or the model that it used."""
    error = run.error or {}
    code = str(error.get("code", ""))
    used = (
        f" with model {run.model}" if code in MODEL_ERRORS and run.model else f" on {run.source}" if run.source else ""
    )
    return LastError(
        what=f"run {run.id}{used}",
        error=f"{code}: {error.get('detail', '')}",
        at=run.ended_at or run.created_at,
        code=code,
    )


def _outage_notes(errors: list[LastError]) -> list[str]:
    """Return a note for each of the last errors that a source or a model caused, not the question."""
    return [f"{e.what[:1].upper()}{e.what[1:]} failed: {e.error}" for e in errors if e.code in OUTSIDE_ERRORS]


def _ask_servers(processes: tuple[ProcessInfo, ...], problems: list[str]) -> dict[str, PartState]:
    """Ask every living server whether it is ready."""
    found = {}
    for process in processes:
        if process.role == "server" and process.alive and process.address:
            state = _ask(process.address)
            found[f"server {process.address}"] = state
            if not state.ok:
                problems.append(f"The server at {process.address} is not ready: {state.detail}. Look at its log.")
    return found


def _ask(address: str) -> PartState:
    try:
        with urlopen(Request(f"{address}/readyz"), timeout=ASK_S) as answer:  # noqa: S310 - a server of this store
            body = json.load(answer)
    except HTTPError as error:
        try:
            body = json.load(error)
        except ValueError:
            return PartState(ok=False, detail=f"it answers {error.code}")
    except (URLError, OSError, ValueError) as error:
        return PartState(ok=False, detail=f"it cannot be reached ({getattr(error, 'reason', error)})")
    failed = [f"{name}: {part.get('detail')}" for name, part in body.get("parts", {}).items() if not part.get("ok")]
    return PartState(ok=bool(body.get("ok")), detail="; ".join(failed) or f"version {body.get('version')}")


def status_measures(app: App) -> Measures:
    """Return the numbers of `/metrics` that are read when they are asked for, by the keys of `telemetry.MEASURED`.

    If the store cannot be used, only those of this process are returned, and `store_up` is 0.
    """
    try:
        return _process_measures(app) | _store_measures(app) | {"store_up": {(): 1}}
    except EtudeError:
        return status_measures_without_store(app)


def status_measures_without_store(app: App) -> Measures:
    """Return the numbers of this process alone."""
    return _process_measures(app) | {"store_up": {(): 0}}


def _store_measures(app: App) -> dict[str, Mapping[tuple[str, ...], float]]:
    depth, storage = app.agents.queue.depth(), tenant_storage_status(app)
    listed = Processes(app.store).list()
    # A role without a process is 0, so that an alert can compare it.
    processes: dict[tuple[str, ...], float] = {
        (role, state): 0 for role in get_args(Role) for state in get_args(ProcessState)
    }
    processes |= Counter[tuple[str, ...]]((p.role, p.state) for p in listed)
    clocks: dict[tuple[str, ...], float] = {}
    for process in listed:
        skew = process.clock_skew_s
        if skew is not None and process.state != "gone":
            clocks[(process.role,)] = max(clocks.get((process.role,), 0.0), skew, key=abs)
    totals, deliveries, now = app.agents.queue.totals(), app.agents.agent_store.deliveries(), time.time()
    return {
        "claims": {(): totals["claims"]},
        "retries": {(): totals["retries"]},
        "reclaimed": {(): totals["reclaimed"]},
        "ended": {(end,): totals[end] for end in ("done", "failed", "cancelled")},
        "clock_skew": clocks,
        "deliveries_failing": {
            (each.tenant, each.agent): 0.0 if each.since is None else max(now - each.since, 0.001)
            for each in deliveries
        },
        "deliveries_lost": {(each.tenant, each.agent): each.lost for each in deliveries},
        "actions": {("ready",): depth.ready, ("delayed",): depth.delayed, ("running",): depth.running},
        "queue_oldest": {(): depth.oldest_s},
        "agents": {(status,): count for status, count in depth.agents.items()},
        "processes": processes,
        "storage": {(tenant,): use.bytes for tenant, use in storage.items()},
        "storage_limit": {(tenant,): use.limit for tenant, use in storage.items()},
        "store": {(): app.store.size()},
    }


def _process_measures(app: App) -> dict[str, Mapping[tuple[str, ...], float]]:
    engines, disks = app.pool.counts(), _find_disks(app)
    return {
        "engines": {(state,): engines[state] for state in ("busy", "idle", "waiting")},
        "engines_killed": {(): engines["killed"]},
        "sessions": {(state,): count for state, count in app.session_pool.counts().items()},
        "disk_free": {(disk.path,): disk.free_bytes for disk in disks},
        "disk_total": {(disk.path,): disk.total_bytes for disk in disks},
    }
