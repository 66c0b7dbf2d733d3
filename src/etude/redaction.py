"""Secrets in text that is shown: which names hold one, and how to take them out of URLs and values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

MASK = "***"
_SECRET = re.compile(r"secret|password|passwd|token|key|credential|authorization|cookie", re.IGNORECASE)
_URL_SECRET = re.compile(r"(?<=://)([^/@\s]*):([^/@\s]+)@")
_QUERY_SECRET = re.compile(r"([?&](?:[^=&]*(?:secret|password|token|key)[^=&]*)=)[^&\s]+", re.IGNORECASE)


def is_secret(key: str) -> bool:
    """True if a field or setting of this name holds a secret."""
    return bool(_SECRET.search(key.rsplit(".", 1)[-1]))


def redact(text: str) -> str:
    """The text without passwords and keys in URLs."""
    return _QUERY_SECRET.sub(r"\1***", _URL_SECRET.sub(r"\1:***@", text))


def redact_value(value: Any, hides: Callable[[str], bool] = is_secret) -> Any:
    """The value without what its secret keys hold, and without passwords in URLs, at any depth."""
    if isinstance(value, Mapping):
        return {key: MASK if hides(str(key)) else redact_value(inner, hides) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [redact_value(inner, hides) for inner in value]
    return redact(value) if isinstance(value, str) else value
