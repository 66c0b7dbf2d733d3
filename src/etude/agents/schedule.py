"""When an agent does what it does again: after an interval, or when a clock says."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Self
from zoneinfo import ZoneInfo, available_timezones

from pydantic import Field, model_validator

from etude.entities import Entity


class Schedule(Entity):
    """The part of a configuration that says when."""

    every_s: float | None = Field(default=None, gt=0)
    """Seconds between two times ..."""
    cron: str = ""
    """... or when, such as `0 7 * * mon-fri`."""
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
        """Seconds from now until the next time."""
        if self.every_s is not None:
            return self.every_s
        # By time stamps: the difference of two times of one zone leaves out that its clocks are changed.
        return max(0.0, _next_time(self.cron, self.timezone).timestamp() - datetime.now(UTC).timestamp())


def _next_time(cron: str, timezone: str) -> datetime:
    from cronsim import CronSim, CronSimError

    try:
        return next(CronSim(cron, datetime.now(ZoneInfo(timezone))))
    except (CronSimError, StopIteration):
        raise ValueError(f"{cron!r} is no time that a clock will show") from None
