"""Findings of tenants, computed once for all requests that wait for them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from etude.learning.observer.findings import Finding


@dataclass
class _Shared:
    """The computation of one tenant."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0
    ended: float = 0.0
    found: Sequence[Finding] = ()


class RecentFindings:
    """Computes the findings of a tenant one at a time. Those who ask meanwhile get what that computation finds."""

    def __init__(self) -> None:
        self._shared: dict[str, _Shared] = {}

    async def read(self, tenant: str, compute: Callable[[], Awaitable[Sequence[Finding]]]) -> Sequence[Finding]:
        """Return the findings of a tenant, as they were at most one computation ago."""
        asked = time.monotonic()
        shared = self._shared.setdefault(tenant, _Shared())
        shared.waiting += 1
        try:
            async with shared.lock:
                if shared.ended <= asked:
                    shared.found = await compute()
                    shared.ended = time.monotonic()
                return shared.found
        finally:
            shared.waiting -= 1
            if not shared.waiting:
                self._shared.pop(tenant, None)
