"""The open sessions of threads: one for each thread and source, shared by runs and agents."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from etude.errors import Conflict
from etude.runtime.notebook import Notebook
from etude.sessions.processor_time import idle_check
from etude.sources.source import Source

OPEN = 32
"""How many sessions stay open. A session that is closed to make room comes back from its record when it is needed."""
IDLE_BYTES = 4 << 30
"""How much memory idle sessions may hold together, unless the pool is given another limit."""
OpenSession = Callable[..., Notebook]


@dataclass
class _Slot:
    lock: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0
    notebook: Notebook | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


class SessionPool:
    """Lends the sessions of threads to runs and to the steps of agents. Thread-safe.

    Opening a session blocks only the callers that want the same session. Idle sessions that hold too much memory
    together are closed, the largest first, so that small ones stay; also while nobody asks for a session, because
    threads of a session go on after its cell.
    """

    def __init__(self, idle_bytes: int = IDLE_BYTES) -> None:
        self._idle_bytes = idle_bytes
        self._lock = threading.Lock()
        self._slots: OrderedDict[tuple[str, str, str], _Slot] = OrderedDict()

    @contextlib.contextmanager
    def lend(
        self,
        open_session: OpenSession,
        thread_id: str,
        source: Source | None,
        *,
        options: Mapping[str, Any] | None = None,
        keep: bool = True,
    ) -> Iterator[Notebook]:
        """Lend the session of a thread on a source; it is not closed while the block runs.

        It is opened again from its record if cells of the thread ran elsewhere since it was last lent, or if it was
        opened with different options. With `options=None` its options do not matter.
        """
        key = (thread_id, source.name, source.url) if source is not None else (thread_id, "", "")
        with self._lock:
            slot = self._slots.setdefault(key, _Slot())
            slot.users += 1
            self._slots.move_to_end(key)
        try:
            with slot.lock:
                notebook = _open(slot, open_session, thread_id, source, options)
            idle_check.add(self)
            yield notebook
        finally:
            with self._lock:
                slot.users -= 1
                idle = [k for k, s in self._slots.items() if not s.users]
                leaving = idle[: max(len(self._slots) - OPEN, 0)] if keep else [k for k in idle if k == key]
                closing = [self._slots.pop(k) for k in leaving]
                if not slot.users and self._slots.get(key) is not slot and slot not in closing:
                    closing.append(slot)  # dropped while it was lent
            for left in closing:
                _close(left)
            self.check_background()

    def check_background(self) -> None:
        """Close idle sessions that hold too much memory together."""
        with self._lock:
            if not self._slots:
                idle_check.remove(self)
            idle = [(key, slot.notebook) for key, slot in self._slots.items() if not slot.users and slot.notebook]
        sizes = {key: notebook.memory_bytes() for key, notebook in idle}
        held = sum(sizes.values())
        for key in sorted(sizes, key=lambda k: -sizes[k]):
            if held <= self._idle_bytes:
                return
            with self._lock:
                slot = self._slots.get(key)
                if slot is None or slot.users:
                    continue
                del self._slots[key]
            held -= sizes[key]
            _close(slot)

    def counts(self) -> dict[str, int]:
        """Return how many sessions are in use, and how many are open but idle."""
        with self._lock:
            used = sum(1 for slot in self._slots.values() if slot.users)
            return {"busy": used, "idle": len(self._slots) - used}

    def forget(self, thread_id: str) -> None:
        """Close the sessions of a thread; those in use are closed when they are given back."""
        with self._lock:
            slots = [self._slots.pop(k) for k in [k for k in self._slots if k[0] == thread_id]]
            idle = [slot for slot in slots if not slot.users]
        for slot in idle:
            _close(slot)

    def drop(self, thread_id: str) -> None:
        """Close the sessions of a thread, even those in use."""
        with self._lock:
            keys = [k for k in self._slots if k[0] == thread_id]
            closing = [self._slots.pop(k) for k in keys]
        for slot in closing:
            _close(slot)

    def close(self) -> None:
        """Close all sessions."""
        idle_check.remove(self)
        with self._lock:
            slots, self._slots = self._slots, OrderedDict()
        for slot in slots.values():
            _close(slot)


def _open(
    slot: _Slot,
    open_session: OpenSession,
    thread_id: str,
    source: Source | None,
    options: Mapping[str, Any] | None,
) -> Notebook:
    wanted = slot.options if options is None else options
    if slot.notebook is not None:
        if wanted != slot.options and slot.users > 1:
            raise Conflict(
                f"The session of thread `{thread_id}` is in use with other options.", hint="Wait until it is idle."
            )
        if wanted != slot.options or (slot.users == 1 and slot.notebook.is_behind()):
            _close(slot)
    if slot.notebook is None:
        slot.notebook, slot.options = open_session(source, thread_id=thread_id, **wanted), wanted
    return slot.notebook


def _close(slot: _Slot) -> None:
    notebook, slot.notebook = slot.notebook, None
    if notebook is not None:
        notebook.close()
