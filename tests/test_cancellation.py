"""Stopping work from outside."""

from __future__ import annotations

import threading

import pytest

from etude.cancellation import Cancellation
from etude.errors import Cancelled


def test_what_waits_is_broken_off_at_once():
    cancel, stopped = Cancellation(), threading.Event()
    with cancel.stopping(stopped.set):
        threading.Thread(target=cancel.cancel).start()
        assert stopped.wait(60)
    with pytest.raises(Cancelled):
        cancel.check()


def test_what_would_begin_later_does_not():
    cancel = Cancellation()
    cancel.cancel()
    with pytest.raises(Cancelled), cancel.stopping(lambda: None):
        pytest.fail("the block ran")


def test_each_way_to_stop_is_used_once_and_only_while_it_is_needed():
    cancel, calls = Cancellation(), []
    with cancel.stopping(lambda: calls.append("over")):
        pass
    with cancel.stopping(lambda: calls.append("now")):
        cancel.cancel()
        cancel.cancel()
    assert calls == ["now"] and cancel.cancelled
