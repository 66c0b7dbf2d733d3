"""Schedules: intervals, and cron expressions across daylight saving changes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

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
def test_a_cron_expression_keeps_its_local_time_across_daylight_saving(
    monkeypatch: pytest.MonkeyPatch, now: str, cron: str, zone: str, hours: float
) -> None:
    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):  # type: ignore[no-untyped-def]
            return datetime.fromisoformat(now).replace(tzinfo=UTC).astimezone(tz)

    monkeypatch.setattr(schedule, "datetime", Clock)
    assert Schedule(cron=cron, timezone=zone).wait() == hours * 3600


def test_the_wait_for_an_interval_is_the_interval() -> None:
    assert Schedule(every_s=60).wait() == 60


@pytest.mark.parametrize("seconds", [1e-6, 0.999, 0, -5, float("nan")])
def test_an_interval_is_at_least_a_second(seconds: float) -> None:
    assert Schedule(every_s=1).wait() == 1
    with pytest.raises(ValidationError, match="an interval must be at least 1 s"):
        Schedule(every_s=seconds)


@pytest.mark.parametrize("cron", ["at dawn", "0 0 30 2 *"])
def test_a_cron_expression_must_fire(cron: str) -> None:
    with pytest.raises(ValidationError, match="is not a cron expression, or it never fires"):
        Schedule(cron=cron)
