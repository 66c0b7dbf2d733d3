from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.errors import Cancelled
from etude.fair_share import FairShare, ThreadFairShare, Ticket

STEPS = st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["ask", "release", "withdraw"])), max_size=60)


class Queue:
    """Slots, and the tenants that got one, in order."""

    def __init__(self, size: int) -> None:
        self.share = FairShare(size)
        self.served: list[str] = []
        self.tickets: list[Ticket] = []

    def ask(self, tenant: str) -> None:
        self.tickets.append(self.share.ask(tenant, lambda: self.served.append(tenant)))


def test_a_tenant_alone_may_hold_every_slot() -> None:
    queue = Queue(3)
    for _ in range(5):
        queue.ask("busy")
    assert queue.served == ["busy"] * 3
    queue.share.release("busy")
    assert queue.served == ["busy"] * 4


def test_a_tenant_without_a_slot_does_not_wait_for_the_others() -> None:
    queue = Queue(2)
    for tenant in ("busy", "busy", "busy", "quiet"):
        queue.ask(tenant)
    assert queue.served == ["busy", "busy", "quiet"]


def test_a_free_slot_goes_to_the_tenant_that_holds_the_fewest() -> None:
    queue = Queue(4)
    for tenant in ("busy",) * 40 + ("quiet",) * 40:
        queue.ask(tenant)
    # The quiet tenant gets its fair share at once.
    assert queue.served == ["busy"] * 4 + ["quiet"] * 2
    for _ in range(3):
        queue.share.release("busy")
    assert queue.served[6:] == ["busy"]
    assert queue.share.held == {"busy": 2, "quiet": 2}


def test_among_equals_the_one_that_waited_longest_is_next() -> None:
    queue = Queue(1)
    for tenant in ("a", "b", "d", "c", "d"):
        queue.ask(tenant)
    assert queue.served == ["a", "b"]
    queue.share.release("b")
    assert queue.served == ["a", "b", "d"]
    queue.share.release("a")
    assert queue.served == ["a", "b", "d", "c"]


def test_slots_for_tenants_without_one_are_limited() -> None:
    queue = Queue(2)
    for tenant in ("a", "a", "b", "c", "d"):
        queue.ask(tenant)
    assert queue.served == ["a", "a", "b", "c"]


def test_a_slot_is_not_taken_past_those_who_wait() -> None:
    queue = Queue(1)
    assert queue.share.take("a")
    queue.ask("a")
    assert not queue.share.take("a")
    assert queue.share.take("b")


@given(steps=STEPS, size=st.integers(1, 4))
def test_slots_stay_within_their_number_and_nobody_without_one_is_passed_over(
    steps: list[tuple[str, str]], size: int
) -> None:
    queue = Queue(size)
    for tenant, step in steps:
        mine = [t for t in queue.tickets if t.tenant == tenant]
        match step:
            case "ask":
                queue.ask(tenant)
            case "release" if held := [t for t in mine if t.granted]:
                queue.tickets.remove(held[0])
                queue.share.release(tenant)
            case "withdraw" if mine:
                queue.tickets.remove(mine[0])
                queue.share.withdraw(mine[0])
        granted = [t.tenant for t in queue.tickets if t.granted]
        assert queue.share.taken == len(granted) <= 2 * size
        waiting = {t.tenant for t in queue.share.waiting()}
        assert len(granted) >= size or not waiting
        assert waiting <= set(granted) or len(granted) == 2 * size


def test_a_thread_holds_a_slot_and_others_wait() -> None:
    share, waited = ThreadFairShare(1), threading.Event()

    def stop() -> None:
        waited.set()
        raise Cancelled("enough")

    with share.hold("a", stop):
        with share.hold("b", stop):  # another tenant does not wait
            pass
        with pytest.raises(Cancelled), share.hold("a", stop):
            pass
    assert waited.is_set()
    with share.hold("a", stop):
        pass
