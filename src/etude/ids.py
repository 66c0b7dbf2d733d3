"""Ids that sort by time: a prefix that names the noun, then 26 characters of Crockford base 32."""

from __future__ import annotations

import os
import threading
import time
from datetime import datetime

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_lock = threading.Lock()
_last = 0


def new_id(noun: str) -> str:
    """A new id such as `run_01k...`: 48 bits of milliseconds, then 80 random bits; strictly rising per process."""
    global _last  # noqa: PLW0603 - ids must rise within a process, for all callers, so the last one is process-wide
    value = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10), "big")
    with _lock:
        if value <= _last:
            value = _last + 1
        _last = value
    return _written(noun, value)


def first_id(noun: str, at: datetime) -> str:
    """Return an id that sorts before all that are made at this time or later."""
    return _written(noun, int(at.timestamp() * 1000) << 80)


def _written(noun: str, value: int) -> str:
    digits = [_ALPHABET[(value >> shift) & 31] for shift in range(125, -1, -5)]
    return f"{noun}_{''.join(digits)}"
