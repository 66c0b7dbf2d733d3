"""No garbage collection while many objects are made that all stay."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

_lock = threading.Lock()
_blocks: dict[object, int] = {}
"""The blocks that paused it and have not ended, with their threads."""


@contextlib.contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Pause the collection of cycles in this block, which must end within seconds.

    A collection visits every object while all threads wait. Making a million objects that stay starts many of them,
    and none finds anything. After the block, the objects count as old, so that only a full collection visits them.
    """
    block = object()
    with _lock:
        if _blocks or gc.isenabled():
            _blocks[block] = threading.get_ident()
            gc.disable()
    try:
        yield
    finally:
        with _lock:
            if _blocks.pop(block, None) and not _blocks:
                _call_all_old()
                gc.enable()


@contextlib.contextmanager
def resume_garbage_collection() -> Iterator[None]:
    """Undo the pauses of this thread while the block runs: it waits for others, and that may take long."""
    with _lock:
        mine = {block: thread for block, thread in _blocks.items() if thread == threading.get_ident()}
        for block in mine:
            del _blocks[block]
        if mine and not _blocks:
            _call_all_old()
            gc.enable()
    try:
        yield
    finally:
        if mine:
            with _lock:
                _blocks.update(mine)
                gc.disable()


def _call_all_old() -> None:
    """Move all objects to the oldest generation. Else the next three collections would visit the new ones."""
    if gc.get_freeze_count() == 0:  # a program that froze its objects wants them to stay frozen
        gc.freeze()
        gc.unfreeze()
