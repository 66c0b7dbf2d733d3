"""The observer at work: at an interval it reads new operations, reports new findings, and drafts playbooks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from etude.learning.observer.drafts import find_drafts, write_drafts
from etude.learning.observer.findings import Finding, find_failures
from etude.learning.observer.operations import Operation, read_operations

if TYPE_CHECKING:
    from etude.store.base import Store

EVERY_S = 300.0
DRAFT_EVERY = 5
"""Playbooks are drafted in every fifth cycle."""


class Observer:
    """Watches one tenant. A cycle that fails, such as without a store, is logged, and the next one tries again."""

    def __init__(
        self,
        read: Callable[[], list[Operation]],
        home: Path,
        tenant: str = "main",
        *,
        every_s: float = EVERY_S,
        tell: Callable[[Finding], None] = lambda finding: None,
    ) -> None:
        self._read, self._home, self._tenant = read, home, tenant
        self._every_s, self._tell = every_s, tell
        self._told: dict[tuple[str, str], int] = {}
        """The findings that were told, each with its count."""
        self.cycles = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def cycle(self) -> list[Finding]:
        """Read operations; return the findings that are new, or twice as frequent as when they were last told."""
        operations = self._read()
        new = []
        for finding in find_failures(operations):
            key = finding.kind, finding.error_key
            if finding.count >= 2 * self._told.get(key, 0):
                self._told[key] = finding.count
                new.append(finding)
                self._tell(finding)
        self.cycles += 1
        if self.cycles % DRAFT_EVERY == 0:
            write_drafts(self._home, self._tenant, find_drafts(operations))
        return new

    def start(self) -> Self:
        """Run cycles in a thread of its own until `stop`."""
        self._thread = threading.Thread(target=self._run, name="etude-observer", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(10)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            try:
                self.cycle()
            except Exception as error:  # whatever it is, it must not reach those that are watched
                logging.getLogger("etude").warning("the observer could not read operations: %s", error)


def observe(store: Store, home: Path, **options: Any) -> Observer:
    """Return the observer of a store's tenant."""
    return Observer(lambda: read_operations(store), home, store.tenant, **options)


def as_json(finding: Finding) -> dict[str, Any]:
    """Return a finding as JSON."""
    return asdict(finding) | {"first_at": finding.first_at.isoformat(), "last_at": finding.last_at.isoformat()}
