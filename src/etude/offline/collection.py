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
    """Pause the collection of cycles in this block, which must end within seconds.

    A collection visits every object while all threads wait. Making a million objects that stay starts many of them,
    and none finds anything. After the block, the objects count as old, so that only a full collection visits them.
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
                    _call_all_old()
                    gc.enable()


def _call_all_old() -> None:
    """Move all objects to the oldest generation. Else the next three collections would visit the new ones."""
    if gc.get_freeze_count() == 0:  # a program that froze its objects wants them to stay frozen
        gc.freeze()
        gc.unfreeze()
