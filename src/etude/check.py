"""The result of one conformance check; each kind of provider ships its own suite of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CheckResult:
    """How one check went; `detail` says what was seen, or what went wrong."""

    name: str
    ok: bool
    detail: str
    ms: float
