"""When an agent acts again: after an interval, or at the times of a cron expression.

An interval is counted from the end of a step. If the clock is set back, the queue restarts the interval, so the next
step is late by at most one interval. A cron expression follows the clock and its time zone. If the clock is set back to
before the moment at which a step was scheduled, that step may come early; the next one is on time.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Self
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, model_validator

from etude.entities import Entity

MIN_INTERVAL_S = 1.0


def _check_interval(seconds: float) -> float:
    if not seconds >= MIN_INTERVAL_S:
        raise ValueError(f"an interval must be at least {MIN_INTERVAL_S:g} s")
    return seconds


Interval = Annotated[float, AfterValidator(_check_interval)]
"""Seconds between two steps of an agent."""


class Schedule(Entity):
    """The part of a configuration that says when to act."""

    every_s: Interval | None = None
    """Seconds between two steps. Give this or `cron`."""
    cron: str = ""
    """A cron expression, such as `0 7 * * mon-fri`."""
    timezone: str = "UTC"

    @model_validator(mode="after")
    def _has_a_time(self) -> Self:
        if (self.every_s is None) == (not self.cron):
            raise ValueError("give `every_s` or `cron`")
        if self.timezone not in available_timezones():
            raise ValueError(f"there is no time zone {self.timezone!r}")
        if self.cron:
            _next_time(self.cron, self.timezone)
        return self

    def wait(self) -> float:
        """Return the seconds from now until the next step."""
        if self.every_s is not None:
            return self.every_s
        # Subtract timestamps: the difference of two local times ignores daylight saving changes.
        return max(0.0, _next_time(self.cron, self.timezone).timestamp() - datetime.now(UTC).timestamp())


def _next_time(cron: str, timezone: str) -> datetime:
    from cronsim import CronSim, CronSimError

    try:
        return next(CronSim(cron, datetime.now(ZoneInfo(timezone))))
    except (CronSimError, StopIteration):
        raise ValueError(f"{cron!r} is not a cron expression, or it never fires") from None
