"""An outage of the store is logged at its beginning, once a minute and at its end."""

from __future__ import annotations

import logging

import pytest

from etude.agents import outage_log
from etude.agents.outage_log import OutageLog


def test_an_outage_is_logged_once_per_minute(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    outage = OutageLog(logging.getLogger("etude.agents"), "the store")
    outage.succeeded()
    for _ in range(20):
        outage.failed("The store cannot be used.")
    outage.succeeded()
    outage.succeeded()
    assert [r.getMessage() for r in caplog.records] == [
        "The store cannot be used.",
        "the store can be used again, after 0 s",
    ]
    monkeypatch.setattr(outage_log, "EVERY_S", 0.0)
    outage.failed("The store cannot be used.")
    outage.failed("The store cannot be used.")
    assert caplog.records[-1].getMessage() == "The store cannot be used. (for 0 s)"
