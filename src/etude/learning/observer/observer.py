"""The observer at work: at an interval it reads new operations, reports new findings, and drafts playbooks."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from etude.errors import Unavailable
from etude.learning.observer.findings import Finding, OperationCounts, count_operations, find_findings_of_counts
from etude.learning.observer.model_diagnosis import Diagnose
from etude.learning.observer.operations import Operation, read_operations
from etude.learning.observer.playbook_drafts import find_playbook_drafts, write_playbook_drafts
from etude.learning.observer.recent_operations import RecentOperations
from etude.store.diagnoses import StoredDiagnoses

if TYPE_CHECKING:
    from etude.store.base import Store

EVERY_S = 300.0
DRAFT_EVERY = 5
"""Playbooks are drafted in every fifth cycle."""
_TENANTS = "SELECT DISTINCT tenant FROM runs"


class OperationObserver:
    """Watches the operations of one tenant."""

    def __init__(
        self,
        read: Callable[[], list[Operation]],
        home: Path,
        tenant: str = "main",
        told: Callable[[], Mapping[tuple[str, str], tuple[str, str]]] = dict,
        diagnose: Diagnose | None = None,
        count: Callable[[], OperationCounts] | None = None,
    ) -> None:
        """`read` returns all operations of the last time, `count` those that findings need, at less cost."""
        self._read, self._home, self._tenant = read, home, tenant
        self._count = count or (lambda: count_operations(read()))
        self._diagnosed, self._diagnose = told, diagnose
        self._told: dict[tuple[str, str], int] = {}
        """The findings that were reported, each with its count."""
        self.cycles = 0
        self.drafted: list[str] = []
        """The names of the playbooks that the last cycle drafted."""

    @property
    def found(self) -> bool:
        """True if any cycle had a finding."""
        return bool(self._told)

    def cycle(self) -> list[Finding]:
        """Read operations; return the findings that are new, or twice as frequent as when they were last told."""
        counts = self._count()
        if self._diagnose is not None:
            self._diagnose(find_findings_of_counts(counts, self._diagnosed()))
        new = []
        for finding in find_findings_of_counts(counts, self._diagnosed()):
            key = finding.kind, finding.error_key
            if finding.count >= 2 * self._told.get(key, 0):
                self._told[key] = finding.count
                new.append(finding)
        self.cycles += 1
        self.drafted = []
        if self.cycles % DRAFT_EVERY == 0:
            written = write_playbook_drafts(self._home, self._tenant, find_playbook_drafts(self._read()))
            self.drafted = [file.parent.name for file in written]
        return new


def observe_once(store: Store, home: Path, diagnose: Diagnose | None = None) -> OperationObserver:
    """Return the observer of a store's tenant."""
    told = StoredDiagnoses(store).all
    recent = RecentOperations(store)
    return OperationObserver(lambda: read_operations(store), home, store.tenant, told, diagnose, recent.count)


@contextlib.contextmanager
def observing(
    store: Store,
    home: Path,
    every_s: float = EVERY_S,
    diagnose_for: Callable[[Store], Diagnose | None] = lambda store: None,
) -> Iterator[None]:
    """Observe all tenants of a store in a thread while the block runs; findings go to the log.

    `diagnose_for` returns how failures of a tenant are diagnosed that no rule explains.
    Nothing that fails here reaches those that are watched: it is logged, and the next cycle tries again.
    """
    stop = threading.Event()
    observers: dict[str, OperationObserver] = {}
    log = logging.getLogger("etude")

    def cycle() -> None:
        for (tenant,) in store._read(_TENANTS):
            try:
                observe(tenant)
            except Unavailable:
                raise
            except Exception as error:  # the other tenants are observed all the same
                log.warning("tenant %s: the observer could not read operations: %s", tenant, error)

    def observe(tenant: str) -> None:
        if tenant not in observers:
            scoped = store.scoped(tenant)
            observers[tenant] = observe_once(scoped, home, diagnose_for(scoped))
        for f in observers[tenant].cycle():
            told = (tenant, f.count, f.of, f.kind, f.diagnosis, f.suggestion)
            log.warning("tenant %s: %d of %d operations `%s` failed alike: %s %s", *told)

    def run() -> None:
        while not stop.wait(every_s):
            try:
                cycle()
            except Exception as error:
                log.warning("the observer could not read operations: %s", error)

    thread = threading.Thread(target=run, name="etude-observer", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(10)
