from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.errors import Cancelled
from etude.fair_share import FairShare, ThreadFairShare, Ticket
from patience import wait_until

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


def test_a_tenant_is_not_behind_the_queues_of_two_others() -> None:
    queue = Queue(1)
    for tenant in ("a", "b") * 20 + ("c",):
        queue.ask(tenant)
    assert queue.served == ["a", "b"]
    for tenant in ("a", "b", "a"):
        queue.share.release(tenant)
    assert queue.served == ["a", "b", "a", "b", "c"]


def test_a_ticket_that_is_withdrawn_leaves_its_place_to_the_next_of_its_tenant() -> None:
    share, served = FairShare(1, most=1), list[str]()
    assert share.take("a")
    first = share.ask("b", lambda: served.append("b"))
    for tenant in ("b", "c"):
        share.ask(tenant, lambda tenant=tenant: served.append(tenant))  # type: ignore[misc]
    share.withdraw(first)
    share.release("a")
    assert served == ["b"]


def test_work_that_gives_way_lets_new_work_of_its_tenant_go_first_and_is_then_before_later_work() -> None:
    share, served = FairShare(1, most=1), list[str]()

    def ask(name: str, before: Ticket | None = None) -> Ticket:
        return share.ask("a", lambda: served.append(name), before)

    def again(name: str, ticket: Ticket) -> Ticket:
        share.withdraw(ticket)
        return ask(name, ticket)

    one = ask("one")
    two = ask("two")
    assert share.is_wanted(one)
    one = again("one again", one)
    assert share.is_wanted(two), "it came later, and both have had a slot"
    two = again("two again", two)
    assert not share.is_wanted(one)
    share.withdraw(one)
    assert served == ["one", "two", "one again", "two again"]
    assert not share.is_wanted(two)
    share.ask("b", lambda: served.append("b"))
    assert share.is_wanted(two)


def test_no_slots_are_made_beyond_the_most() -> None:
    share, served = FairShare(1, most=1), list[str]()
    for tenant in "aba":
        share.ask(tenant, lambda tenant=tenant: served.append(tenant))  # type: ignore[misc]
    assert served == ["a"]
    share.release("a")
    assert served == ["a", "b"]


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


def test_a_thread_lends_its_slot_to_those_who_wait_and_gets_it_back() -> None:
    share, order = ThreadFairShare(1, most=1), list[str]()

    def other() -> None:
        with share.hold("b", lambda: None):
            order.append("b")

    thread = threading.Thread(target=other)
    with share.hold("a", lambda: None) as slot:
        assert not slot.wanted
        thread.start()
        wait_until(lambda: slot.wanted)
        order.append("a")
        with slot.lent():
            thread.join(10)
        order.append("a")
    assert order == ["a", "b", "a"]


def test_a_thread_that_is_stopped_while_it_waits_for_its_slot_again_holds_none() -> None:
    share, stopped = ThreadFairShare(1, most=1), threading.Event()

    def stop() -> None:
        raise Cancelled("enough")

    def other() -> None:
        with share.hold("b", lambda: None):
            stopped.wait(10)

    thread = threading.Thread(target=other)
    with pytest.raises(Cancelled), share.hold("a", stop) as slot, slot.lent():
        thread.start()
        wait_until(lambda: share._share.held["b"] == 1)
    stopped.set()
    thread.join(10)
    assert share._share.taken == 0
