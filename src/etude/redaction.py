"""Redaction of secrets: which names hold secrets, and how to remove them from URLs and values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

MASK = "***"
DEPTH = 20
"""How many levels of a value are shown; deeper ones are replaced by `...`."""
_SECRET = re.compile(r"secret|password|passwd|token|key|credential|authorization|cookie", re.IGNORECASE)
_URL_SECRET = re.compile(r"(?<=://)([^/@\s]*):([^/@\s]+)@")
_QUERY_SECRET = re.compile(r"([?&](?:[^=&]*(?:secret|password|token|key)[^=&]*)=)[^&\s]+", re.IGNORECASE)


def is_secret(key: str) -> bool:
    """True if a field or setting of this name holds a secret."""
    return bool(_SECRET.search(key.rsplit(".", 1)[-1]))


def holds_secrets(key: str) -> bool:
    """True if a field of this name is a secret, or free-form headers or options, which often contain secrets."""
    return is_secret(key) or key == "headers" or key.endswith("options")


def redact(text: str) -> str:
    """Return the text with passwords and keys in URLs masked."""
    return _QUERY_SECRET.sub(r"\1***", _URL_SECRET.sub(r"\1:***@", text))


def redact_value(value: Any, hides: Callable[[str], bool] = holds_secrets, depth: int = DEPTH) -> Any:
    """Return the value with the values of secret keys and passwords in URLs masked."""
    if isinstance(value, Mapping | list | tuple) and not depth:
        return "..."
    if isinstance(value, Mapping):
        return {str(k): MASK if hides(str(k)) else redact_value(inner, hides, depth - 1) for k, inner in value.items()}
    if isinstance(value, list | tuple):
        return [redact_value(inner, hides, depth - 1) for inner in value]
    return redact(value) if isinstance(value, str) else value
