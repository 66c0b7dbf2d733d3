"""When a clock says: also in the night in which it is changed."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from etude.agents import schedule
from etude.agents.schedule import Schedule


@pytest.mark.parametrize(
    ("now", "cron", "zone", "hours"),
    [
        ("2026-03-28T20:00", "0 7 * * *", "Europe/Berlin", 9.0),  # the night is an hour shorter
        ("2026-10-24T20:00", "0 7 * * *", "Europe/Berlin", 10.0),  # and longer
        ("2026-10-24T20:00", "0 7 * * *", "UTC", 11.0),
        ("2026-11-01T05:30", "0 7 * * *", "America/New_York", 6.5),
        ("2026-06-01T20:00", "0 7 * * *", "Europe/Berlin", 9.0),
    ],
)
def test_a_change_of_the_clock_moves_nothing(
    monkeypatch: pytest.MonkeyPatch, now: str, cron: str, zone: str, hours: float
) -> None:
    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):  # type: ignore[no-untyped-def]
            return datetime.fromisoformat(now).replace(tzinfo=UTC).astimezone(tz)

    monkeypatch.setattr(schedule, "datetime", Clock)
    assert Schedule(cron=cron, timezone=zone).wait() == hours * 3600


def test_an_interval_is_an_interval() -> None:
    assert Schedule(every_s=60).wait() == 60
