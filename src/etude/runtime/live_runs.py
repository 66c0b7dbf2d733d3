"""The runs that this process is working on, and the requests of other processes that must reach them."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from etude.errors import Conflict, EtudeError
from etude.events import RunRequested
from etude.runtime.run_control import RunControl
from etude.store.base import Store

POLL_S = 0.25
"""How often the store is polled for requests of other processes."""
MORE_S = 0.05
"""How often a thread is added for runs that wait to be worked on."""
CLOSE_S = 5.0
"""How long `close` waits for each run to stop."""


@dataclass
class _Live:
    control: RunControl
    on_close: Callable[[], None]
    seen: int
    """The last entry of the run's log that was read."""
    done: threading.Event = field(default_factory=threading.Event)


class LiveRuns:
    """A registry of live runs. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._live: dict[str, _Live] = {}
        self._starting: set[str] = set()
        self._poller: threading.Thread | None = None
        self._closed = threading.Event()

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._starting or run_id in self._live

    def control(self, run_id: str) -> RunControl | None:
        """Return the control of a live run, or None if the run is not live here."""
        live = self._live.get(run_id)
        return live.control if live is not None else None

    def start(self, run_id: str, work: Callable[[], object]) -> None:
        """Work on a run in a thread of its own."""
        self.start_all({run_id: work}, 1)

    def start_all(self, work: Mapping[str, Callable[[], object]], at_once: int) -> None:
        """Work on runs in `at_once` threads, and in one more after each `MORE_S`, so that no run waits long for others.

        Errors are recorded with the runs, not raised.
        """
        pending = deque(work.items())
        with self._lock:
            self._starting.update(work)

        def run() -> None:
            while True:
                try:
                    run_id, act = pending.popleft()
                except IndexError:
                    return
                try:
                    with contextlib.suppress(EtudeError):
                        act()
                finally:
                    self._starting.discard(run_id)

        def start_more() -> None:
            while pending and not self._closed.wait(MORE_S):
                threading.Thread(target=run, name="etude-recovered", daemon=True).start()

        for run_id in itertools.islice(work, at_once):
            threading.Thread(target=run, name=run_id, daemon=True).start()
        if len(work) > at_once:
            threading.Thread(target=start_more, name="etude-recovery", daemon=True).start()

    @contextlib.contextmanager
    def working(
        self, run_id: str, seq: int, control: RunControl, on_close: Callable[[], None] | None = None
    ) -> Iterator[None]:
        """Register a run as live while the block runs: requests made after `seq` reach its `control`.

        `on_close` is called if the app closes meanwhile; by default the run is paused at once.
        """
        live = _Live(control, on_close or (lambda: control.pause(now=True, by="shutdown")), seq)
        with self._lock:
            if self._closed.is_set():
                raise Conflict("This app is closed.", hint="Open another app.")
            if run_id in self._live:
                raise Conflict(f"Run `{run_id}` is already being worked on.")
            self._live[run_id] = live
            if self._poller is None:
                self._poller = threading.Thread(target=self._poll, name="etude-requests", daemon=True)
                self._poller.start()
        try:
            yield
        finally:
            with self._lock:
                del self._live[run_id]
            live.done.set()

    def _poll(self) -> None:
        """Pass requests of other processes on to the runs, as long as any run is live."""
        while not self._closed.wait(POLL_S):
            with self._lock:
                live = dict(self._live)
                if not live:
                    self._poller = None
                    return
            with contextlib.suppress(EtudeError):  # the store may be reachable again at the next poll
                for run_id, seq in self._store.heads(sorted(live)).items():
                    if seq > live[run_id].seen:
                        self._pass_on(run_id, live[run_id])

    def _pass_on(self, run_id: str, live: _Live) -> None:
        for entry in self._store.entries(run_id, after=live.seen):
            live.seen = entry.seq
            match entry.event:
                case RunRequested(what="pause"):
                    live.control.pause()
                case RunRequested(what="cancel"):
                    live.control.cancel()
                case RunRequested(what="interrupt"):
                    live.control.stop_move()

    def close(self) -> None:
        """Stop all live runs, and wait for each of them for up to `CLOSE_S` seconds."""
        with self._lock:
            self._closed.set()
            live = list(self._live.values())
        for each in live:
            each.on_close()
        for each in live:
            each.done.wait(CLOSE_S)
