"""Deletes records that are older than the settings keep them, and artifacts that no run refers to any more.

Servers and workers do this every hour, and `etude prune` does it at once. It works in small transactions with pauses in
between, so that others can write. If it is stopped at any point, the next one continues.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from etude.errors import Conflict, EtudeError, Unavailable
from etude.events import Note
from etude.ids import new_id
from etude.store.queue import KeptDays, Queue
from etude.store.retention import BATCH, Kept, OldRun, Retention

if TYPE_CHECKING:
    from etude.agents.agent_app import AgentApp
    from etude.app import App
    from etude.settings import Kept as Kind

log = logging.getLogger("etude.prune")

PRUNE = "prune"
BACKUP = "backup:"
"""The prefix of the leases of backups. While there is one, no artifact is removed."""
IN_FLIGHT_S = 3600.0
"""An artifact that was stored less than this ago may belong to a run that is about to refer to it."""


@dataclass
class TenantPruned:
    """What was deleted of one tenant, or would be."""

    runs: int = 0
    results: int = 0
    """Runs whose files were deleted while the runs stay."""
    threads: int = 0
    actions: int = 0
    events: int = 0
    steps: int = 0
    agents: int = 0
    """Agents that were destroyed long ago."""
    audit: int = 0
    catalogs: int = 0
    indexes: int = 0
    kept: dict[str, int] = field(default_factory=dict)
    """Old runs that stay, by reason."""


@dataclass
class Pruned:
    """What was deleted, or would be."""

    dry_run: bool
    tenants: dict[str, TenantPruned] = field(default_factory=dict)
    artifacts: int = 0
    bytes: int = 0
    waiting: int = 0
    """Artifacts that no run refers to, but that are too new to be removed."""

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


def prune(
    app: AgentApp,
    *,
    dry_run: bool = False,
    tenant: str | None = None,
    orphans: bool = False,
    stop: Callable[[], bool] = lambda: False,
) -> Pruned:
    """Delete what is older than the settings keep it; return what was deleted.

    With `orphans`, also look through all artifacts for some that no run ever referred to, such as those of a process
    that was killed. Raise `Conflict` if another process is pruning.
    """
    retention = Retention(app.store)
    with _leased(retention, dry_run) as renew:
        work = _Pruning(app, dry_run, lambda: renew() or stop())
        tenants = retention.tenants() if tenant is None else [app.store.scoped(tenant).tenant]
        report = Pruned(dry_run)
        failed: EtudeError | None = None
        for name in tenants:
            try:
                report.tenants[name] = work.prune_tenant(name)
            except Unavailable:
                raise
            except EtudeError as error:
                # The records of one tenant must not keep those of all others from being deleted.
                log.warning("pruning tenant %s failed: %s", name, error.message)
                report.tenants[name], failed = TenantPruned(), error
        work.prune_queue(report)
        work.recount_storage(report)
        if not dry_run and not stop():
            prune_artifacts(app, report, orphans, lambda: renew() or stop())
    if failed is not None:
        raise failed
    return report


def prune_quietly(app: AgentApp, stop: Callable[[], bool]) -> None:
    """Prune in the background: if another process is at it, or the store is unreachable, the next time will do."""
    try:
        report = prune(app, stop=stop)
    except Conflict:
        return
    except EtudeError as error:
        log.warning("pruning failed: %s", error.message)
        return
    done = {name: {k: v for k, v in asdict(each).items() if v and k != "kept"} for name, each in report.tenants.items()}
    if report.artifacts or any(done.values()):
        log.info("pruned %s; removed %d artifacts, %d bytes", done, report.artifacts, report.bytes)


@contextmanager
def _leased(retention: Retention, dry_run: bool) -> Iterator[Callable[[], bool]]:
    """Reserve pruning for this process; yield a function that renews that, and returns True if it was lost."""
    if dry_run:
        yield lambda: False
        return
    owner = new_id("prune")
    if not retention.lease(PRUNE, owner):
        raise Conflict("Another process is pruning this store.", hint="Wait until it has finished, then try again.")
    renewed = time.monotonic()

    def renew() -> bool:
        nonlocal renewed
        if time.monotonic() - renewed < 30:
            return False
        renewed = time.monotonic()
        return not retention.lease(PRUNE, owner)

    try:
        yield renew
    finally:
        with suppress(EtudeError):
            retention.release(PRUNE, owner)


class _Pruning:
    def __init__(self, app: AgentApp, dry_run: bool, stop: Callable[[], bool]) -> None:
        self._app = app
        self._settings = app.settings.retention
        self._dry_run = dry_run
        self._stop = stop

    def _before(self, kind: Kind, tenant: str) -> datetime | None:
        days = self._settings.days(kind, tenant)
        return None if math.isinf(days) else datetime.now(UTC) - timedelta(days=days)

    def prune_tenant(self, tenant: str) -> TenantPruned:
        done = TenantPruned()
        retention = Retention(self._app.store.scoped(tenant))
        if before := self._before("runs", tenant):
            done.kept = _reasons(retention.count_kept(before))
            done.runs = retention.count_old(before) if self._dry_run else self._delete_runs(retention, before)
            if not self._dry_run:
                self._repeat(retention.delete_evidence, before)
                self._repeat(retention.delete_scripts, before)
        if before := self._before("results", tenant):
            done.results = (
                retention.count_old(before, files=True) if self._dry_run else self._drop_files(retention, before)
            )
        if before := self._before("threads", tenant):
            done.threads = (
                retention.count_threads(before) if self._dry_run else self._repeat(retention.delete_threads, before)
            )
        if before := self._before("audit", tenant):
            done.audit = (
                retention.count_audit(before) if self._dry_run else self._repeat(retention.delete_audit, before)
            )
        if before := self._before("catalogs", tenant):
            done.catalogs = self._prune_catalogs(tenant, before)
        if before := self._before("indexes", tenant):
            done.indexes = self._prune_indexes(tenant, before)
        return done

    def _delete_runs(self, retention: Retention, before: datetime) -> int:
        deleted, last = 0, None
        while not self._stop() and (batch := retention.old_runs(before, last)):
            started = time.monotonic()
            deleted += retention.delete_runs([run.id for run in batch])
            last = batch[-1]
            _give_way(started)
        return deleted

    def _drop_files(self, retention: Retention, before: datetime) -> int:
        dropped, last = 0, None
        while not self._stop() and (batch := retention.old_runs(before, last, files=True)):
            started = time.monotonic()
            dropped += self._drop_batch(retention, batch)
            last = batch[-1]
            _give_way(started)
        return dropped

    def _drop_batch(self, retention: Retention, batch: list[OldRun]) -> int:
        store = self._app.store.scoped(retention.tenant)
        days = self._settings.days("results", retention.tenant)
        noted = []
        for run in batch:
            # A run that someone changes right now keeps its files until the next time.
            with suppress(Conflict):
                text = f"The files of this run were deleted after {days:g} days (`retention.results`)."
                store.append(run.id, Note(text=text), expect=run.seq)
                noted.append(run.id)
        if noted:
            retention.drop_files(noted)
        return len(noted)

    def _repeat(self, delete: Callable[[datetime], int], before: datetime) -> int:
        deleted = 0
        while not self._stop() and (found := delete(before)):
            deleted += found
        return deleted

    def _prune_catalogs(self, tenant: str, before: datetime) -> int:
        from etude.catalog.storage.catalog_folder import catalog_folder_by_name, open_catalog_root_folder
        from etude.catalog.storage.catalog_store import CatalogStore

        app = self._app.scoped(tenant)
        objects, root = open_catalog_root_folder(cast("App", app))
        stores = [CatalogStore(objects, catalog_folder_by_name(name), root) for name in app.sources()]
        return sum(store.remove_before(before, self._dry_run) for store in stores)

    def _prune_indexes(self, tenant: str, before: datetime) -> int:
        from etude.search.index_publication import remove_published_indexes

        return remove_published_indexes(cast("App", self._app.scoped(tenant)), before, self._dry_run)

    def prune_queue(self, report: Pruned) -> None:
        """Delete the old records of agents; the rows of all tenants are read in one pass."""
        if self._stop():
            return
        queue = Queue(self._app.store)
        actions = queue.prune_actions(self._kept_days("actions", report), self._dry_run)
        events = queue.prune_events(self._kept_days("events", report), self._dry_run)
        for tenant, done in report.tenants.items():
            done.actions, done.events = actions[tenant], events[tenant]
            days = self._settings.days("steps", tenant)
            done.steps = 0 if math.isinf(days) else queue.prune_steps(tenant, days, self._dry_run)
            # Its actions were deleted before: they ended when it was destroyed, at the latest.
            days = max(days, self._settings.days("actions", tenant))
            done.agents = 0 if math.isinf(days) else queue.prune_agents(tenant, days, self._dry_run)
        if not self._dry_run and not math.isinf(days := self._settings.days("actions", "")):
            queue.prune_control(days)

    def recount_storage(self, report: Pruned) -> None:
        """Count the records of each tenant anew that lost some, so that it may store as many bytes again."""
        for tenant, done in report.tenants.items():
            lost = done.runs or done.threads or done.actions or done.events or done.steps or done.agents
            if lost and not self._dry_run and not self._stop():
                self._app.store.scoped(tenant).recount_storage()

    def _kept_days(self, kind: Kind, report: Pruned) -> KeptDays:
        days = {tenant: self._settings.days(kind, tenant) for tenant in report.tenants}
        return KeptDays(lambda tenant: days.get(tenant, math.inf), min(days.values(), default=math.inf))


def _reasons(kept: Kept) -> dict[str, int]:
    found = {
        "not ended": kept.open,
        "pinned": kept.pinned,
        "a script was compiled from it": kept.scripts,
        "its conversation or agent is in use": kept.in_use,
    }
    return {reason: count for reason, count in found.items() if count}


def _give_way(started: float) -> None:
    """Pause as long as the last batch took, so that others get at least half of the store's time."""
    time.sleep(min(time.monotonic() - started, 1.0))


# Artifacts.


def prune_artifacts(
    app: AgentApp, report: Pruned, orphans: bool = False, stop: Callable[[], bool] = lambda: False
) -> None:
    """Remove artifacts that no run refers to; count them in the report.

    A run stores an artifact first and refers to it later, in the transaction that records its step. So an artifact
    stays if it was stored, again or for the first time, within the last hour, or since the oldest run that is being
    worked on began.
    """
    retention = Retention(app.store)
    if retention.leased(BACKUP):
        return
    before = datetime.now(UTC) - timedelta(seconds=IN_FLIGHT_S)
    if (oldest := retention.oldest_at_work()) is not None:
        # The time of a file may be a little behind the clock.
        before = min(before, oldest - timedelta(seconds=1))
    last = ""
    while not stop() and (batch := retention.unused(last)):
        last = batch[-1]
        retention.forget_unused(_collect(app, retention, batch, before, report))
    if orphans:
        _collect_orphans(app, retention, before, report, stop)
    app.objects.empty_trash(lambda hash: bool(retention.used([hash])))


def _collect(app: AgentApp, retention: Retention, hashes: list[str], before: datetime, report: Pruned) -> list[str]:
    """Remove artifacts that no run refers to; return those that are gone or in use again."""
    settled = retention.used(hashes)
    for hash in hashes:
        if hash in settled:
            continue
        size = app.objects.collect(hash, before)
        if size is None:
            report.waiting += 1
        else:
            settled.add(hash)
            report.artifacts += 1
            report.bytes += size
    return sorted(settled)


def _collect_orphans(
    app: AgentApp, retention: Retention, before: datetime, report: Pruned, stop: Callable[[], bool]
) -> None:
    batch: list[str] = []
    for hash in app.objects.artifacts():
        batch.append(hash)
        if len(batch) == BATCH:
            _collect(app, retention, batch, before, report)
            batch = []
            if stop():
                return
    _collect(app, retention, batch, before, report)
