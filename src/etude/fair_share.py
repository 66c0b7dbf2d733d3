"""Fair shares: a number of slots divided among tenants, so that no tenant waits for the work of another."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import count

CHECK_S = 0.1
"""How often a thread that waits for a slot checks whether it should stop."""


@dataclass(eq=False)
class Ticket:
    """A place in the queue for a slot."""

    tenant: str
    number: int
    """Tickets with lower numbers have waited longer."""
    on_granted: Callable[[], None]
    granted: bool = False


class FairShare:
    """Divides slots among tenants. Not thread-safe.

    The next free slot goes to the tenant that holds the fewest; among equals, to the one that has waited longest. A
    tenant that holds less than its fair share, or none, does not wait for the others: up to `size` further slots are
    made for such tenants.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.held: Counter[str] = Counter()
        """The slots that each tenant holds."""
        self._waiting: dict[str, deque[Ticket]] = {}
        self._numbers = count()

    @property
    def taken(self) -> int:
        """The number of slots that are held."""
        return self.held.total()

    def waiting(self) -> Iterator[Ticket]:
        """Yield the tickets that wait for a slot."""
        for tickets in self._waiting.values():
            yield from tickets

    def ask(self, tenant: str, on_granted: Callable[[], None]) -> Ticket:
        """Ask for a slot. It may be granted at once; otherwise `on_granted` is called later."""
        ticket = Ticket(tenant, next(self._numbers), on_granted)
        self._waiting.setdefault(tenant, deque()).append(ticket)
        self._grant()
        return ticket

    def take(self, tenant: str) -> bool:
        """Take a slot if that needs no waiting, and return whether it did."""
        if tenant in self._waiting or not self._may_take(tenant):
            return False
        self.held[tenant] += 1
        return True

    def release(self, tenant: str) -> None:
        """Give a slot back."""
        self.held[tenant] -= 1
        if not self.held[tenant]:
            del self.held[tenant]
        self._grant()

    def withdraw(self, ticket: Ticket) -> None:
        """Leave the queue, or give the slot back if it was granted."""
        if ticket.granted:
            self.release(ticket.tenant)
            return
        tickets = self._waiting[ticket.tenant]
        tickets.remove(ticket)
        if not tickets:
            del self._waiting[ticket.tenant]

    def _may_take(self, tenant: str) -> bool:
        if self.taken < self.size:
            return True
        fair = self.size // len({*self.held, *self._waiting, tenant})
        return self.held[tenant] < max(fair, 1) and self.taken < 2 * self.size

    def _grant(self) -> None:
        while self._waiting:
            tenant = min(self._waiting, key=lambda name: (self.held[name], self._waiting[name][0].number))
            if not self._may_take(tenant):
                return
            ticket = self._waiting[tenant].popleft()
            if not self._waiting[tenant]:
                del self._waiting[tenant]
            self.held[tenant] += 1
            ticket.granted = True
            ticket.on_granted()


@asynccontextmanager
async def hold_fair_slot(shares: FairShare, tenant: str) -> AsyncIterator[None]:
    """Wait for a slot, and hold it while the block runs."""
    import asyncio  # slow to load, and only servers wait this way

    granted = asyncio.Event()
    ticket = shares.ask(tenant, granted.set)
    try:
        await granted.wait()
        yield
    finally:
        shares.withdraw(ticket)


class ThreadFairShare:
    """A `FairShare` for threads."""

    def __init__(self, size: int) -> None:
        self._share = FairShare(size)
        self._lock = threading.Lock()

    @contextmanager
    def hold(self, tenant: str, check: Callable[[], None]) -> Iterator[None]:
        """Wait for a slot, and hold it while the block runs. `check` may raise while it waits."""
        granted = threading.Event()
        with self._lock:
            ticket = self._share.ask(tenant, granted.set)
        try:
            while not granted.wait(CHECK_S):
                check()
            yield
        finally:
            with self._lock:
                self._share.withdraw(ticket)
