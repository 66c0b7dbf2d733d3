"""Redaction of secrets: which names hold secrets, and how to remove them from URLs and values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

MASK = "***"
DEPTH = 20
"""How many levels of a value are shown; deeper ones are replaced by `...`."""
_SECRET = re.compile(
    r"secret|password|passwd|passphrase|pwd|token|key|credential|authorization|signature|cookie", re.IGNORECASE
)
_LOCAL = ("file", "sqlite", "duckdb")
"""Their URLs are paths of this machine, in which `@`, `?` and `#` have no meaning."""
_LOCAL_PARAMETER = re.compile(r"([?&])([^=&?]*)=([^&]+)")
_LOCAL_SECRET = re.compile(r"secret|password|pwd|token|key", re.IGNORECASE)
_WEB = ("http", "https", "s3")
_HARMLESS = ("sslmode", "region", "connect_timeout", "ssl_disabled", "ssl_verify_cert", "ssl_verify_identity")
"""Query parameters whose values are shown; the values of all others are masked, because any name can hold a secret."""
_URL = re.compile(r"([a-z][a-z0-9+.:-]*)://", re.IGNORECASE)
_USER = re.compile(r"[\w.%+-]*")
_PARAMETER = re.compile(r"([\w.\[\]-]{1,60})=(.*[^=].*)", re.DOTALL)
# Texts come from anyone and may be megabytes: each expression must take time in proportion to them. So the scheme of a
# URL is looked for backwards from `://`, and names have a greatest length.
_MARK = re.compile(r"://[^\s\"'`<>]*[^\s\"'`<>.,;:)\]}]")
_SCHEME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.:-")
_NAMED = re.compile(
    r"(?P<name>(?:\b|_)(?:password|passwd|passphrase|pwd|secret\w{0,60}|token|(?:api|access|secret)_?key)\s{0,20}=\s{0,20})"
    r"(?:'(?:[^'\\]|\\.)*(?:'|$)|\"(?:[^\"\\]|\\.)*(?:\"|$)|\{[^}]*(?:\}|$)|(?:\\.|[^\s`\\])+)",
    re.IGNORECASE | re.DOTALL,
)


def is_redacted_name(key: str) -> bool:
    """True if a field or setting of this name holds a secret."""
    return bool(_SECRET.search(key.rsplit(".", 1)[-1]))


def holds_redacted_values(key: str) -> bool:
    """True if a field of this name is a secret, or free-form headers or options, which often contain secrets."""
    return is_redacted_name(key) or key == "headers" or key.endswith("options")


def redact(text: str) -> str:
    """Return the text with the secrets of its URLs and connection strings masked.

    A text that starts as a URL is one URL to its end, because a password may contain spaces and quotes.
    """
    if _URL.match(text):
        return _redact_url(text)
    pieces, end = [], 0
    for start, stop in _find_urls(text):
        if start >= end:
            pieces += [_hide_named(text[end:start]), _redact_url(text[start:stop])]
            end = stop
    return "".join([*pieces, _hide_named(text[end:])])


def _find_urls(text: str) -> Iterator[tuple[int, int]]:
    """Yield where URLs in a text start and end."""
    end = 0
    for found in _MARK.finditer(text):
        start = found.start()
        while start > end and text[start - 1] in _SCHEME:
            start -= 1
        while start < found.start() and not text[start].isalpha():
            start += 1
        end = found.end()
        if start < found.start():
            yield start, end


def _hide_named(text: str) -> str:
    return _NAMED.sub(rf"\g<name>{MASK}", text)


def _redact_url(url: str) -> str:
    scheme, _, rest = url.partition("://")
    kind = scheme.lower().rpartition(":")[2]
    if kind in _LOCAL:
        return _LOCAL_PARAMETER.sub(_redact_local, url)
    if "@" in rest[len(re.split(r"[?#]", rest, maxsplit=1)[0]) :]:
        return f"{scheme}://{MASK}"  # a `?` in a password and an `@` in a query look alike
    user = ""
    if "@" in rest:  # a password may contain `/` and `@`: everything up to the last `@` may be part of it
        given, _, rest = rest.rpartition("@")
        name, colon, _ = given.partition(":")
        shown = name if kind not in _WEB and _USER.fullmatch(name) else MASK
        user = f"{shown}:{MASK}@" if colon and shown != MASK else f"{shown}@"
    rest, hash_mark, fragment = rest.partition("#")
    place, question_mark, query = rest.partition("?")
    parts = [part if part in "&;" else _redact_parameter(part) for part in re.split(r"([&;])", query)]
    return f"{scheme}://{user}{place}{question_mark}{''.join(parts)}{hash_mark}{MASK if fragment else ''}"


def _redact_local(found: re.Match[str]) -> str:
    mark, name, value = found.groups()
    return f"{mark}{name}={MASK if _LOCAL_SECRET.search(name) else value}"


def _redact_parameter(part: str) -> str:
    found = _PARAMETER.fullmatch(part)
    if found is None:
        return MASK
    name, value = found.groups()
    harmless = name.lower() in _HARMLESS and re.fullmatch(r"[\w.-]{1,30}", value)
    return part if harmless else f"{name}={MASK}"


def redact_url_path(url: str) -> str:
    """Return only the scheme and host of an HTTP URL: the path and query of a receiver often hold a token."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        return redact(url)
    where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    return f"{where}/{MASK}" if parts.path.strip("/") or parts.query or parts.fragment else url


def redact_value(value: Any, hides: Callable[[str], bool] = holds_redacted_values, depth: int = DEPTH) -> Any:
    """Return the value with the values of secret keys and passwords in URLs masked."""
    if isinstance(value, Mapping | list | tuple) and not depth:
        return "..."
    if isinstance(value, Mapping):
        return {str(k): MASK if hides(str(k)) else redact_value(inner, hides, depth - 1) for k, inner in value.items()}
    if isinstance(value, list | tuple):
        return [redact_value(inner, hides, depth - 1) for inner in value]
    return redact(value) if isinstance(value, str) else value
