"""No garbage collection while many objects are made that all stay."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

_lock = threading.Lock()
_blocks: set[object] = set()
"""The blocks that paused it and have not ended."""


@contextlib.contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Pause the collection of cycles in this block, which must be short.

    A collection visits every object while all threads wait. Making a million objects that stay starts many of them,
    and none finds anything.
    """
    block = object()
    with _lock:
        if _blocks or gc.isenabled():
            _blocks.add(block)
            gc.disable()
    try:
        yield
    finally:
        with _lock:
            if block in _blocks:
                _blocks.remove(block)
                if not _blocks:
                    gc.enable()
