"""The sessions of threads: opened when first needed, one for each thread and source; idle ones are let go of first."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from etude.runtime.notebook import Notebook
from etude.sources.source import Source

OPEN = 16
"""Sessions that stay open; one that is let go of comes back from its record."""


@dataclass
class _Place:
    lock: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0
    notebook: Notebook | None = None


class Notebooks:
    """Lends them out. Thread-safe; opening one keeps nobody waiting but those who want the same."""

    def __init__(self, open_notebook: Callable[[str, Source], Notebook]) -> None:
        self._open = open_notebook
        self._lock = threading.Lock()
        self._places: OrderedDict[tuple[str, str, str], _Place] = OrderedDict()

    @contextlib.contextmanager
    def lend(self, thread_id: str, source: Source, keep: bool = True) -> Iterator[Notebook]:
        """The session of a thread on a source; while the block runs nobody lets go of it."""
        key = (thread_id, source.name, source.url)
        with self._lock:
            place = self._places.setdefault(key, _Place())
            place.users += 1
            self._places.move_to_end(key)
        try:
            with place.lock:
                if place.notebook is None:
                    place.notebook = self._open(thread_id, source)
            yield place.notebook
        finally:
            with self._lock:
                place.users -= 1
                idle = [k for k, p in self._places.items() if not p.users]
                leaving = idle[: max(len(self._places) - OPEN, 0)] if keep else [k for k in idle if k == key]
                dropped = [self._places.pop(k) for k in leaving]
            for left in dropped:
                if left.notebook is not None:
                    left.notebook.close()

    def close(self) -> None:
        """End them all."""
        with self._lock:
            places, self._places = self._places, OrderedDict()
        for place in places.values():
            if place.notebook is not None:
                place.notebook.close()
