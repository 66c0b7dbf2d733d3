"""An agent that asks the same question again and again, and tells when the answer has changed."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Self
from zoneinfo import ZoneInfo, available_timezones

from pydantic import Field, model_validator

from etude.agents.base import Context, Item, Kind, Next, Step
from etude.entities import Entity, Limits
from etude.errors import LimitExceeded
from etude.result import Result, to_json

MOST_ROWS = 1000


class WatchConfig(Entity):
    """What to ask, when, and what counts as a change."""

    source: str
    sql: str = ""
    plan: dict[str, Any] | None = None
    every_s: float | None = Field(default=None, gt=0)
    """Seconds between two looks ..."""
    cron: str = ""
    """... or when to look, such as `0 7 * * mon-fri`."""
    timezone: str = "UTC"
    threshold: float = Field(default=0.0, ge=0)
    """A number that differs by no more than this has not changed."""
    relative: float = Field(default=0.0, ge=0)
    """Nor has one that differs by no more than this part of what it was."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if bool(self.sql) == (self.plan is not None):
            raise ValueError("give `sql` or `plan`")
        if (self.every_s is None) == (not self.cron):
            raise ValueError("give `every_s` or `cron`")
        if self.timezone not in available_timezones():
            raise ValueError(f"there is no time zone {self.timezone!r}")
        if self.cron:
            _next_time(self.cron, self.timezone)
        return self


class Watch(Kind[WatchConfig]):
    """Remembers the answer it told last; a step towards a change counts, however small the steps are."""

    Config = WatchConfig

    def step(self, ctx: Context, state: dict[str, Any], inbox: list[Item]) -> Step:
        """Look once."""
        answer = self._ask(ctx)
        told = state.get("told")
        changed = told is not None and self._differs(told, answer)
        output = {"answer": answer, "changed": changed} | ({"was": told} if changed else {})
        return Step(
            state={"told": answer if told is None or changed else told, "looks": state.get("looks", 0) + 1},
            output=output,
            next=Next(after=self._wait()),
            events=(("watch.changed", {"was": told, "now": answer}),) if changed else (),
        )

    def _ask(self, ctx: Context) -> list[list[Any]]:
        limits = ctx.app.settings.limits.model_copy(update={"rows": MOST_ROWS})
        how: dict[str, Any] = {"limits": Limits(**limits.model_dump()), "on_progress": lambda _: ctx.check()}
        if self.config.sql:
            result: Result = ctx.app.sql(self.config.source, self.config.sql, **how)
        else:
            result = ctx.app.plan(self.config.source, self.config.plan, **how)
        ctx.check()
        if result.truncated:
            raise LimitExceeded(
                f"An answer of more than {MOST_ROWS:,} rows cannot be watched.", hint="Ask for a summary."
            )
        rows: list[list[Any]] = to_json(result)["rows"]
        return rows

    def _differs(self, was: Any, now: Any) -> bool:
        if isinstance(was, list) and isinstance(now, list):
            return len(was) != len(now) or any(self._differs(a, b) for a, b in zip(was, now))
        if _is_number(was) and _is_number(now):
            return bool(abs(now - was) > max(self.config.threshold, self.config.relative * abs(was)))
        return bool(was != now)

    def _wait(self) -> float:
        if self.config.every_s is not None:
            return self.config.every_s
        zone = ZoneInfo(self.config.timezone)
        return max(0.0, (_next_time(self.config.cron, self.config.timezone) - datetime.now(zone)).total_seconds())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _next_time(cron: str, timezone: str) -> datetime:
    from cronsim import CronSim, CronSimError

    try:
        return next(CronSim(cron, datetime.now(ZoneInfo(timezone))))
    except (CronSimError, StopIteration):
        raise ValueError(f"{cron!r} is no time that a clock will show") from None
