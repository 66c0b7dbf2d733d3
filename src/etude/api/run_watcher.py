"""Waiting for runs to go on: woken by this process's appends at once, and by a look each half second for others'."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from etude.entities import STOPPED, Run
from etude.events import Entry
from etude.store.base import Store

POLL_S = 0.5
BATCH = 500
_LAST = frozenset({"run.finished", "run.failed", "run.cancelled"})
Look = Callable[..., Awaitable[Any]]


class RunListener:
    """One who waits: for which runs of which store, and how far it has read."""

    def __init__(self, store: Store, after: dict[str, int]) -> None:
        self.store = store
        self.after = after
        self.woken = asyncio.Event()


class RunWatcher:
    """Wakes listeners. Made and used in one event loop; `tell` may be called from any thread."""

    def __init__(self) -> None:
        self._listeners: dict[str, set[RunListener]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self.closed = False

    @contextlib.asynccontextmanager
    async def running(self, store: Store, look: Look) -> AsyncIterator[None]:
        """Hear of the appends to the store while the block runs."""
        self._loop = asyncio.get_running_loop()
        stop = store.subscribe(self.tell)
        poller = asyncio.create_task(self._poll(look))
        try:
            yield
        finally:
            stop()
            poller.cancel()
            self.close()

    def tell(self, run_id: str, _: int) -> None:
        """A run went on."""
        if run_id in self._listeners and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._wake, run_id)

    def _wake(self, run_id: str) -> None:
        for listener in self._listeners.get(run_id, ()):
            listener.woken.set()

    def close(self) -> None:
        """End every wait: the server is going down."""
        self.closed = True
        for run_id in list(self._listeners):
            self._wake(run_id)

    @property
    def count(self) -> int:
        """How many wait."""
        return len({listener for waiting in self._listeners.values() for listener in waiting})

    @contextlib.contextmanager
    def listening(self, store: Store, after: dict[str, int]) -> Iterator[RunListener]:
        """Be woken when one of the runs goes beyond what was read of it."""
        listener = RunListener(store, after)
        for run_id in after:
            self._listeners.setdefault(run_id, set()).add(listener)
        try:
            yield listener
        finally:
            for run_id in after:
                waiting = self._listeners[run_id]
                waiting.discard(listener)
                if not waiting:
                    del self._listeners[run_id]

    async def _poll(self, look: Look) -> None:
        """Find what other processes appended: one query for each tenant, however many listen."""
        while True:
            await asyncio.sleep(POLL_S)
            by_store: dict[Store, set[str]] = {}
            for run_id, waiting in self._listeners.items():
                for listener in waiting:
                    by_store.setdefault(listener.store, set()).add(run_id)
            for store, run_ids in by_store.items():
                # A store that cannot be reached now may be there again later; whoever reads meets the error.
                with contextlib.suppress(Exception):
                    for run_id, seq in (await look(store.heads, sorted(run_ids))).items():
                        for listener in self._listeners.get(run_id, ()):
                            if seq > listener.after.get(run_id, 0):
                                listener.woken.set()

    async def follow(
        self, store: Store, after: dict[str, int], look: Look, pace_s: float
    ) -> AsyncIterator[list[Entry] | None]:
        """The entries of runs beyond those read, as they come, until all have ended; None where nothing comes."""
        open_runs = set(after)
        with self.listening(store, after) as listener:
            while open_runs and not self.closed:
                listener.woken.clear()
                came = False
                for run_id in sorted(open_runs):
                    entries: list[Entry] = await look(store.entries, run_id, after[run_id], BATCH)
                    if entries:
                        came = True
                        after[run_id] = entries[-1].seq
                        yield entries
                        if entries[-1].event.type in _LAST:
                            open_runs.discard(run_id)
                if came:
                    continue
                try:
                    async with asyncio.timeout(pace_s):
                        await listener.woken.wait()
                except TimeoutError:
                    yield None

    async def stopped(self, store: Store, run_id: str, look: Look, timeout_s: float | None, beyond: int = 0) -> Run:
        """The run once it has ended, waits or is paused; as it is when the time is over.

        A run that is to go on from `beyond` has not stopped before it got further.
        """
        until = None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s
        after = {run_id: 0}
        with self.listening(store, after) as listener:
            while True:
                listener.woken.clear()
                run: Run = await look(store.run, run_id)
                after[run_id] = run.seq
                if self.closed or (run.status in STOPPED and run.seq > beyond):
                    return run
                try:
                    async with asyncio.timeout_at(until):
                        await listener.woken.wait()
                except TimeoutError:
                    return run
