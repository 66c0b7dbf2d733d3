"""Limits of JSON from outside, checked on its bytes before anything is built from it."""

from __future__ import annotations

import json
import re

from etude.errors import Invalid

MOST_VALUES = 20_000
"""The most values in a body. Each can become an object, or a validation error, on the event loop."""
MOST_DEPTH = 50
"""The deepest nesting of lists and objects in a body."""
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def check_json_body(body: bytes, most: int = MOST_VALUES) -> None:
    """Raise `Invalid` if a body has too many values, is nested too deeply, or contains half a surrogate pair.

    The time is linear in its size. A body that is not valid JSON passes; its parser refuses it.
    """
    try:
        body.decode()  # the parser would also read UTF-16, whose bytes cannot be counted as below
    except UnicodeDecodeError:
        raise _not_unicode() from None
    if b"\0" in body:
        raise _not_unicode()
    outside = _outside_strings(body, most)
    if outside is None or _count_values(outside) > most:
        raise Invalid(f"The body has more than {most:,} values.", hint="Send less at a time.")
    depth = 0
    for bracket in outside.translate(None, _NOT_BRACKETS):
        depth += 1 if bracket in b"[{" else -1
        if depth > MOST_DEPTH:
            raise Invalid(f"The body is nested deeper than {MOST_DEPTH} levels.", hint="Send a flatter one.")
        if depth < 0:
            return  # not valid JSON
    if _SURROGATE.search(body):
        _check_surrogates(body)


def has_more_json_values(body: bytes, most: int) -> bool:
    """Return whether JSON in UTF-8 has more than `most` values, in time linear in its size."""
    outside = _outside_strings(body, most)
    return outside is None or _count_values(outside) > most


def _count_values(outside: bytes) -> int:
    return sum(map(outside.count, (b",", b"[", b"{")))


def _outside_strings(body: bytes, most: int) -> bytes | None:
    """Return the bytes that are not in strings; None if there are too many strings."""
    text = body.replace(rb"\\", b"").replace(rb"\"", b"")
    return None if text.count(b'"') > 4 * most else b"".join(text.split(b'"')[::2])


def _check_surrogates(body: bytes) -> None:
    try:
        json.dumps(json.loads(body), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise _not_unicode() from None
    except ValueError:
        return  # not valid JSON


def _not_unicode() -> Invalid:
    return Invalid("The body is not valid JSON: its text is not Unicode.", hint="Send UTF-8 without lone surrogates.")
