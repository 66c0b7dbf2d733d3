"""Fingerprints of results: equal for equal columns and rows. Rows have an order only if the query gives them one."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from etude.result import Result

MOST_ROWS = 200_000
"""A larger result has no fingerprint: comparing it would take longer than the query."""
HELD_BYTES = 8 << 20
"""Rows without an order are sorted as text up to this size, and by their hashes beyond it."""
LONG = 1 << 20
"""A longer text or value of bytes is represented by its hash, made in parts of this size: a single call on all of it
would keep all other threads waiting."""
DIGITS = 12
"""Floats are compared by this many digits: sums of the same numbers in another order differ after that."""
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


def result_fingerprint(result: Result, ordered: bool) -> str:
    """Return the fingerprint of a result; empty if it is too large."""
    if result.row_count > MOST_ROWS:
        return ""
    return rows_fingerprint([(c.name, c.type) for c in result.columns], result.iter_rows_in_pieces(), ordered)


def rows_fingerprint(columns: Sequence[tuple[str, str]], rows: Iterable[Sequence[Any]], ordered: bool) -> str:
    """Return the fingerprint of rows; few of them are in memory at a time."""
    mark = hashlib.sha256(repr(list(columns)).encode())
    lines = (repr(tuple(map(_plain, row))).encode(errors="surrogatepass") for row in rows)
    for line in lines if ordered else _sorted_lines(lines):
        mark.update(line)
        mark.update(b"\n")
    return mark.hexdigest()


def _sorted_lines(lines: Iterable[bytes]) -> list[bytes]:
    """Return the lines in an order that depends only on them: sorted, or their sorted hashes if they are large."""
    held: list[bytes] = []
    size, hashed = 0, False
    for line in lines:
        size += len(line)
        if not hashed and size > HELD_BYTES:
            held, hashed = [_line_hash(each) for each in held], True
        held.append(_line_hash(line) if hashed else line)
    return sorted(held)


def _line_hash(line: bytes) -> bytes:
    return hashlib.blake2b(line, digest_size=16).digest()


def output_fingerprint(printed: str, value: str) -> str:
    """Return the fingerprint of what a cell printed and of the text of its value, without addresses of objects."""
    text = _ADDRESS.sub("0x", f"{printed}\0{value}")
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") + 0.0
    if isinstance(value, Decimal):
        return value.normalize()
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    if isinstance(value, dict):
        return tuple((_plain(k), _plain(v)) for k, v in value.items())
    if isinstance(value, str | bytes) and len(value) > LONG:
        return type(value).__name__, len(value), _hash_in_parts(value)
    return value


def _hash_in_parts(value: str | bytes) -> str:
    made = hashlib.sha256()
    for start in range(0, len(value), LONG):
        part = value[start : start + LONG]
        made.update(part.encode(errors="surrogatepass") if isinstance(part, str) else part)
    return made.hexdigest()


def annotations_fingerprint(annotations: Mapping[str, Any]) -> str:
    """Return the fingerprint of the annotations of a source: they change how a question is understood."""
    if not annotations:
        return ""
    return hashlib.sha256(json.dumps(annotations, sort_keys=True, default=str).encode()).hexdigest()[:16]
