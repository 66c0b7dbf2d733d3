"""The log of a run while it works: events are added, committed, and read again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import UnionType

from etude.entities import Run
from etude.errors import Cancelled, Conflict, EtudeError, problem
from etude.events import (
    Entry,
    Event,
    Guided,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunRequested,
    RunResumed,
    RunStarted,
)
from etude.ids import new_id
from etude.store.base import Store
from etude.store.objects import Objects


@dataclass(frozen=True)
class RunStorage:
    """Where runs are recorded."""

    store: Store
    objects: Objects


class RunLog:
    """Writes the events of one run. `commit` writes the added ones together, in one transaction."""

    def __init__(
        self, storage: RunStorage, run: Run | None = None, on_entry: Callable[[Entry], None] | None = None
    ) -> None:
        self.run_id = run.id if run else new_id("run")
        self.objects = storage.objects
        self._store = storage.store
        self._seq = run.seq if run else 0
        self._on_entry = on_entry
        # Listeners of a run that has not begun get its first event too.
        self._notified = self._seq if run and run.status != "queued" else 0
        self._pending: list[Event] = []
        self._worker: str | None = None

    def claim(self, event: RunStarted | RunResumed) -> None:
        """Begin to work on the run. From now on, `run` raises `Conflict` if another worker takes it over."""
        self.add(event)
        self._worker = event.worker

    @property
    def run(self) -> Run:
        """The run as it is on record now. Raises `Conflict` if another worker has taken it over."""
        run = self._store.run(self.run_id)
        if self._worker is not None and not self._pending and (run.status, run.worker) != ("running", self._worker):
            raise Conflict(
                f"Run `{self.run_id}` was taken over: it is {run.status}.", hint="Another worker continues it."
            )
        self._seq = run.seq
        return run

    @property
    def seq(self) -> int:
        """The last entry of the run's log that is known here."""
        return self._seq

    def add(self, *events: Event) -> None:
        """Add events; the next commit writes them."""
        self._pending += events

    def commit(self) -> None:
        """Write the added events."""
        self._write(RunRequested | Guided)

    def finish(self, end: RunFinished) -> bool:
        """Write the end of the run. Return False if guidance came meanwhile that the answer does not consider."""
        self.add(end)
        try:
            self._write(RunRequested)
        except Conflict:
            if any(not isinstance(e.event, RunRequested | Guided) for e in self._since()):
                raise
            return False
        return True

    def _since(self) -> list[Entry]:
        """Return the entries that others wrote after the last one known here."""
        return self._store.entries(self.run_id, after=self._seq)

    def _write(self, welcome: UnionType | type[RunRequested]) -> None:
        pending, self._pending = self._pending, []
        while True:
            try:
                self._seq = self._store.append(self.run_id, *pending, expect=self._seq)
                break
            except Conflict:
                # Others may request a pause or give guidance at any time; anything else is a conflict.
                added = self._since()
                if not added or not all(isinstance(e.event, welcome) for e in added):
                    raise
                self._seq = added[-1].seq
        if self._on_entry is not None:
            for entry in self._store.entries(self.run_id, after=self._notified):
                self._notified = entry.seq
                self._notify(entry)

    def _notify(self, entry: Entry) -> None:
        listener, self._on_entry = self._on_entry, None
        if listener is not None:
            listener(entry)
        # If the listener raises, the run ends; it must not be called again for that.
        self._on_entry = listener

    @property
    def pending(self) -> bool:
        """Whether there are added events that are not written yet."""
        return bool(self._pending)

    @property
    def ended(self) -> Run:
        """The run after this worker has stopped working on it."""
        return self._store.run(self.run_id)

    @contextlib.contextmanager
    def closing(self) -> Iterator[None]:
        """Commit the run's end: the events that the body added, or the error that it raised."""
        try:
            yield
        except BaseException as error:
            if not self._seq and not self._pending:
                raise  # the store refused the run itself, so there is nothing to end
            known = as_run_error(error)
            self.add(RunCancelled() if isinstance(known, Cancelled) else RunFailed(error=problem(known)))
            self.commit()
            if isinstance(error, EtudeError):
                error.details["run_id"] = self.run_id
            raise
        self.commit()


def as_run_error(error: BaseException) -> BaseException:
    """Return the error to record: Ctrl+C is a cancelled query."""
    return Cancelled("The query was cancelled.") if isinstance(error, KeyboardInterrupt) else error
