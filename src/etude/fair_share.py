"""Fair shares: a number of slots divided among tenants, so that no tenant waits for the work of another."""

from __future__ import annotations

import threading
from bisect import insort
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import count
from operator import attrgetter

CHECK_S = 0.1
"""How often a thread that waits for a slot checks whether it should stop."""


@dataclass(eq=False)
class Ticket:
    """A place in the queue for a slot."""

    tenant: str
    number: int
    """Among the first tickets of all tenants, the one with the lowest number has waited longest.

    It counts from the moment when the ticket became the first of its tenant: otherwise a tenant with a long queue would
    always have waited longest.
    """
    on_granted: Callable[[], None]
    rank: tuple[bool, int] = (False, 0)
    """The order within the tenant: those who held no slot yet come first, and of two, the one who came first."""
    granted: bool = False


class FairShare:
    """Divides slots among tenants. Not thread-safe.

    The next free slot goes to the tenant that holds the fewest; among equals, to the one that has waited longest. A
    tenant that holds less than its fair share, or none, does not wait for the others: further slots are made for such
    tenants, up to `most` in all, which is twice the `size` unless given.
    """

    def __init__(self, size: int, most: int | None = None) -> None:
        self.size = size
        self.most = 2 * size if most is None else most
        self.held: Counter[str] = Counter()
        """The slots that each tenant holds."""
        self._waiting: dict[str, list[Ticket]] = {}
        self._numbers = count()

    @property
    def taken(self) -> int:
        """The number of slots that are held."""
        return self.held.total()

    def is_wanted(self, ticket: Ticket) -> bool:
        """Return whether a slot would go to another one if the owner of this ticket gave it back and asked again."""
        tickets = self._waiting.get(ticket.tenant, [])
        if len(self._waiting) > bool(tickets):
            return True
        return any(each.rank < (True, ticket.rank[1]) for each in tickets[:1])

    def waiting(self) -> Iterator[Ticket]:
        """Yield the tickets that wait for a slot."""
        for tickets in self._waiting.values():
            yield from tickets

    def ask(self, tenant: str, on_granted: Callable[[], None], before: Ticket | None = None) -> Ticket:
        """Ask for a slot. It may be granted at once; otherwise `on_granted` is called later.

        `before` is the ticket of the slot that the same work held before.
        """
        number = next(self._numbers)
        rank = (False, number) if before is None else (True, before.rank[1])
        ticket = Ticket(tenant, number, on_granted, rank)
        tickets = self._waiting.setdefault(tenant, [])
        if tickets and rank < tickets[0].rank:
            # The place of the tenant among others stays.
            ticket.number = tickets[0].number
        insort(tickets, ticket, key=attrgetter("rank"))
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
        first = tickets[0] is ticket
        tickets.remove(ticket)
        if not tickets:
            del self._waiting[ticket.tenant]
        elif first:
            tickets[0].number = ticket.number

    def _may_take(self, tenant: str) -> bool:
        if self.taken < self.size:
            return True
        fair = self.size // len({*self.held, *self._waiting, tenant})
        return self.held[tenant] < max(fair, 1) and self.taken < self.most

    def _grant(self) -> None:
        while self._waiting:
            tenant = min(self._waiting, key=lambda name: (self.held[name], self._waiting[name][0].number))
            if not self._may_take(tenant):
                return
            tickets = self._waiting[tenant]
            ticket = tickets.pop(0)
            if tickets:
                tickets[0].number = next(self._numbers)
            else:
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

    def __init__(self, size: int, most: int | None = None) -> None:
        self._share = FairShare(size, most)
        self._lock = threading.Lock()

    @contextmanager
    def hold(self, tenant: str, check: Callable[[], None]) -> Iterator[HeldSlot]:
        """Wait for a slot, and hold it while the block runs. `check` may raise while it waits."""
        slot = HeldSlot(self, tenant, check)
        slot.wait()
        try:
            yield slot
        finally:
            slot.leave()


class HeldSlot:
    """A slot that a thread holds, which it may give back for a while."""

    def __init__(self, shares: ThreadFairShare, tenant: str, check: Callable[[], None]) -> None:
        self._shares = shares
        self._tenant = tenant
        self._check = check
        self._ticket: Ticket | None = None
        self._before: Ticket | None = None

    @property
    def wanted(self) -> bool:
        """True if others wait who come before this one."""
        with self._shares._lock:
            return self._ticket is not None and self._shares._share.is_wanted(self._ticket)

    def wait(self) -> None:
        """Wait for a slot. If the check raises meanwhile, none is held."""
        granted = threading.Event()
        with self._shares._lock:
            self._ticket = self._before = self._shares._share.ask(self._tenant, granted.set, self._before)
        try:
            while not granted.wait(CHECK_S):
                self._check()
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        """Give the slot back, if it is held."""
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            with self._shares._lock:
                self._shares._share.withdraw(ticket)

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Let others have the slot while the block runs, for work that needs none."""
        self.leave()
        try:
            yield
        finally:
            self.wait()
