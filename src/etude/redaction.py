"""Secrets in text that is shown: which names hold one, and how to take them out of URLs and values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

MASK = "***"
DEPTH = 20
"""Levels of a value that are looked into; deeper ones are left out."""
_SECRET = re.compile(r"secret|password|passwd|token|key|credential|authorization|cookie", re.IGNORECASE)
_URL_SECRET = re.compile(r"(?<=://)([^/@\s]*):([^/@\s]+)@")
_QUERY_SECRET = re.compile(r"([?&](?:[^=&]*(?:secret|password|token|key)[^=&]*)=)[^&\s]+", re.IGNORECASE)


def is_secret(key: str) -> bool:
    """True if a field or setting of this name holds a secret."""
    return bool(_SECRET.search(key.rsplit(".", 1)[-1]))


def holds_secrets(key: str) -> bool:
    """True if a field of this name is a secret or a table of anything that others want, often secrets."""
    return is_secret(key) or key == "headers" or key.endswith("options")


def redact(text: str) -> str:
    """The text without passwords and keys in URLs."""
    return _QUERY_SECRET.sub(r"\1***", _URL_SECRET.sub(r"\1:***@", text))


def redact_value(value: Any, hides: Callable[[str], bool] = holds_secrets, depth: int = DEPTH) -> Any:
    """The value without what its secret keys hold, and without passwords in URLs."""
    if isinstance(value, Mapping | list | tuple) and not depth:
        return "..."
    if isinstance(value, Mapping):
        return {str(k): MASK if hides(str(k)) else redact_value(inner, hides, depth - 1) for k, inner in value.items()}
    if isinstance(value, list | tuple):
        return [redact_value(inner, hides, depth - 1) for inner in value]
    return redact(value) if isinstance(value, str) else value
