"""The host's side of engine processes: started ahead of time, leased to one query each, killed if stuck."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from etude.errors import Unavailable
from etude.fair_share import FairShare
from etude.scratch_folder import remove_orphaned_folders
from etude.sources.base import Mount
from etude.sources.engine_client import SCRATCH, EngineClient, EngineLimits, OnProgress

IDLE_S = 30.0


Key = tuple[Any, ...]
"""What an engine has open. The last part changes if the files behind it change."""
MAIN = "main"
"""The tenant of callers that name none."""


class EnginePool:
    """Engines by what they have open, shared fairly among tenants. Thread-safe."""

    def __init__(self, limits: EngineLimits, size: int) -> None:
        self._limits = limits
        self._size = size
        self._lock = threading.Lock()
        self._idle: list[tuple[Key, EngineClient, float]] = []
        self._share = FairShare(size)
        self._spare: EngineClient | None = None
        self._closed = False
        self._tidied = False
        self._sweeper: threading.Thread | None = None
        self._killed = 0
        self.on_load: OnProgress | None = None
        """Called with `LoadProgress` while files are read for anything but a query with a callback of its own."""

    def warm(self) -> None:
        """Start an engine before the first query; return at once while the process loads its libraries."""
        with self._lock:
            if self._spare is None and not self._closed:
                self._spare = self._new(network=False)

    def adopt(self, engine: EngineClient) -> None:
        """Use an engine that was started before the pool was made, for the first source."""
        with self._lock:
            engine.limits = self._limits
            self._spare = engine

    @contextlib.contextmanager
    def lease(
        self, key: Key, mounts: tuple[Mount, ...], network: bool, wait_s: float, tenant: str = MAIN
    ) -> Iterator[EngineClient]:
        """An engine that has `mounts` open, for one caller; it is returned to the pool if it is still alive."""
        engine = self._take(key, wait_s, tenant)
        try:
            if engine is None:
                engine = self._start(network)
                engine.open(mounts)
            yield engine
        except BaseException:
            # An engine that failed to open its source is useless to the next caller.
            if engine is not None and not engine.info:
                engine.kill()
            raise
        finally:
            self.give_back(key, engine, tenant)

    def take_idle(self, key: Key, tenant: str = MAIN) -> EngineClient | None:
        """Return an idle engine that has the key's mounts open; the caller must give it back."""
        with self._lock:
            if not any(known == key for known, _, _ in self._idle) or not self._share.take(tenant):
                return None
            engine = self._take_known(key)
            if engine is None:
                self._share.release(tenant)
            return engine

    @contextlib.contextmanager
    def borrow(self, network: bool, wait_s: float, tenant: str = MAIN) -> Iterator[EngineClient]:
        """Lend a blank engine for one job; it ends afterwards."""
        self._take(None, wait_s, tenant)
        engine = None
        try:
            engine = self._start(network)
            yield engine
        finally:
            if engine is not None:
                engine.kill()
            self.give_back((), None, tenant)

    def _start(self, network: bool) -> EngineClient:
        with self._lock:
            spare, self._spare = (self._spare, None) if not network else (None, self._spare)
        if spare is not None and spare.alive:
            return spare
        return self._new(network)

    def _new(self, network: bool) -> EngineClient:
        engine = EngineClient(network, self._limits)
        if not self._tidied:
            # Only once, and while the process loads its libraries, so that the caller does not wait for it.
            self._tidied = True
            remove_orphaned_folders(SCRATCH, Path(tempfile.gettempdir()))
        return engine

    def _take(self, key: Key | None, wait_s: float, tenant: str) -> EngineClient | None:
        """Wait for the tenant's turn; return an idle engine, or None if the caller must start one."""
        granted = threading.Event()
        with self._lock:
            self._check_open()
            ticket = self._share.ask(tenant, granted.set)
        try:
            if not granted.wait(wait_s) and not ticket.granted:
                raise Unavailable(
                    f"All {self._size} engines were busy for {wait_s:g} s.",
                    hint="Try again, or raise `engine.processes`.",
                )
            with self._lock:
                self._check_open()
                known = self._take_known(key)
                if known is None:
                    self._drop_surplus()
                return known
        except BaseException:
            with self._lock:
                self._share.withdraw(ticket)
            raise

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("The engines are shut down.", hint="Open a new connection.")

    def _take_known(self, key: Key | None) -> EngineClient | None:
        # The most recently used one, whose memory is still in the processor's cache.
        for position in range(len(self._idle) - 1, -1, -1):
            known, engine, _ = self._idle[position]
            if known != key:
                continue
            del self._idle[position]
            if engine.ready:
                return engine
            engine.kill()
        return None

    def give_back(self, key: Key, engine: EngineClient | None, tenant: str = MAIN) -> None:
        """End a lease; an engine that still works serves the next caller."""
        with self._lock:
            # An engine that died in the meantime is noticed when the next query takes it.
            if engine is not None and engine.killed:
                self._killed += 1
            if engine is not None and not engine.killed:
                if self._closed:
                    engine.kill()
                else:
                    # A source that changed has a new key: close the engines that have its old state open.
                    self.forget(lambda known: known[:-1] == key[:-1] and known != key)
                    self._idle.append((key, engine, time.monotonic()))
                    self._start_sweeper()
            self._share.release(tenant)
            self._drop_surplus()

    def counts(self) -> dict[str, int]:
        """Return how many engines are busy and idle, how many callers wait, and how many engines were killed in use."""
        with self._lock:
            waiting = sum(1 for _ in self._share.waiting())
            return {"busy": self._share.taken, "idle": len(self._idle), "waiting": waiting, "killed": self._killed}

    def forget(self, unwanted: Callable[[Key], bool]) -> None:
        """End the idle engines whose key is unwanted, so that the files they hold open are free."""
        for item in [i for i in self._idle if unwanted(i[0])]:
            self._idle.remove(item)
            item[1].kill()

    def _drop_surplus(self) -> None:
        """End the engines that have been idle longest, if there are more than the busy ones leave room for."""
        # Half as many may always stay: tenants that are served beyond the size would otherwise start one each time.
        keep = max(self._size - self._share.taken, (self._size + 1) // 2)
        while len(self._idle) > keep:
            self._idle.pop(0)[1].kill()

    def _start_sweeper(self) -> None:
        if self._sweeper is None:
            self._sweeper = threading.Thread(target=self._sweep, name="etude-engine-sweeper", daemon=True)
            self._sweeper.start()

    def _sweep(self) -> None:
        """End engines that were idle for a while: an open database file keeps others from writing to it."""
        while True:
            with self._lock:
                if self._closed or not self._idle:
                    self._sweeper = None
                    return
                old = time.monotonic() - IDLE_S
                for item in [i for i in self._idle if i[2] < old]:
                    self._idle.remove(item)
                    item[1].kill()
            time.sleep(IDLE_S / 6)

    def close(self) -> None:
        """End all engines that are not in use; the others end when they are returned."""
        with self._lock:
            self._closed = True
            self.forget(lambda _: True)
            if self._spare is not None:
                self._spare.kill()
                self._spare = None
            for ticket in self._share.waiting():
                ticket.on_granted()
