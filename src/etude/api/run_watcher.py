"""Wait for new events of runs: those of this process at once, those of other processes by polling."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from etude.entities import ENDED, STOPPED, Run
from etude.events import Entry
from etude.store.base import Store

POLL_S = 0.5
BATCH = 500
BATCH_CHARS = 1 << 20
"""About the most characters of entries that are read at once: each of many streams may hold as many."""
_LAST = frozenset({"run.finished", "run.failed", "run.cancelled"})
AccessStore = Callable[..., Awaitable[Any]]


class RunListener:
    """A subscriber: the runs it waits for, their store, and the last entry read of each."""

    def __init__(self, store: Store, after: dict[str, int]) -> None:
        self.store = store
        self.after = after
        self.woken = asyncio.Event()


class RunWatcher:
    """Wakes listeners. Belongs to one event loop; `notify` may be called from any thread."""

    def __init__(self) -> None:
        self._listeners: dict[str, set[RunListener]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self.closed = False

    @contextlib.asynccontextmanager
    async def running(self, store: Store, access_store: AccessStore) -> AsyncIterator[None]:
        """Subscribe to the store and poll it while the block runs."""
        self._loop = asyncio.get_running_loop()
        stop = store.subscribe(self.notify)
        poller = asyncio.create_task(self._poll(access_store))
        try:
            yield
        finally:
            stop()
            poller.cancel()
            self.close()

    def notify(self, run_id: str, _: int) -> None:
        """Wake the listeners of a run, which has a new entry."""
        if run_id in self._listeners and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._wake, run_id)

    def _wake(self, run_id: str) -> None:
        for listener in self._listeners.get(run_id, ()):
            listener.woken.set()

    def close(self) -> None:
        """Wake every listener, because the server is shutting down."""
        self.closed = True
        for run_id in list(self._listeners):
            self._wake(run_id)

    @property
    def count(self) -> int:
        """The number of listeners."""
        return len({listener for waiting in self._listeners.values() for listener in waiting})

    @contextlib.contextmanager
    def listening(self, store: Store, after: dict[str, int]) -> Iterator[RunListener]:
        """Register a listener that is woken when one of the runs has an entry after the last one read."""
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

    async def _poll(self, access_store: AccessStore) -> None:
        """Find the entries that other processes appended, with one query per tenant for all listeners."""
        while True:
            await asyncio.sleep(POLL_S)
            by_store: dict[Store, set[str]] = {}
            for run_id, waiting in self._listeners.items():
                for listener in waiting:
                    by_store.setdefault(listener.store, set()).add(run_id)
            for store, run_ids in by_store.items():
                # The store may be unreachable for a while; the listeners get the error when they read.
                with contextlib.suppress(Exception):
                    for run_id, seq in (await access_store(store.heads, sorted(run_ids))).items():
                        for listener in self._listeners.get(run_id, ()):
                            if seq > listener.after.get(run_id, 0):
                                listener.woken.set()

    async def follow(
        self, store: Store, after: dict[str, int], access_store: AccessStore, pace_s: float
    ) -> AsyncIterator[list[Entry] | None]:
        """Yield new entries of runs until all runs have ended; yield None after `pace_s` seconds without any."""
        open_runs = set(after)
        # The end of a run may be among the entries that the client has already: others can follow it.
        unsure = set(after)
        with self.listening(store, after) as listener:
            while open_runs and not self.closed:
                listener.woken.clear()
                came = False
                for run_id in sorted(open_runs):
                    entries, more = await access_store(store.entry_batch, run_id, after[run_id], BATCH, BATCH_CHARS)
                    if entries:
                        came = True
                        after[run_id] = entries[-1].seq
                        yield entries
                        if any(entry.event.type in _LAST for entry in entries):
                            if not more:
                                open_runs.discard(run_id)
                            unsure.add(run_id)
                    elif run_id in unsure:
                        unsure.discard(run_id)
                        if (await access_store(store.run, run_id)).status in ENDED:
                            open_runs.discard(run_id)
                if came:
                    continue
                try:
                    async with asyncio.timeout(pace_s):
                        await listener.woken.wait()
                except TimeoutError:
                    yield None

    async def wait_until_stopped(
        self, store: Store, run_id: str, access_store: AccessStore, timeout_s: float | None, beyond: int = 0
    ) -> Run:
        """Return the run once it has ended, waits or is paused; after `timeout_s`, return it as it is.

        With `beyond`, a stop counts only if it came after that entry.
        """
        until = None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s
        after = {run_id: 0}
        with self.listening(store, after) as listener:
            while True:
                listener.woken.clear()
                run: Run = await access_store(store.run, run_id)
                after[run_id] = run.seq
                if self.closed or (run.status in STOPPED and run.seq > beyond):
                    return run
                try:
                    async with asyncio.timeout_at(until):
                        await listener.woken.wait()
                except TimeoutError:
                    return run
