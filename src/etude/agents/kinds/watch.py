"""An agent that asks the same question again and again, and tells when the answer has changed."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, model_validator

from etude.agents.base import InboxItem, Kind, Next, StepContext, StepResult
from etude.agents.question import ask_aside, require
from etude.agents.schedule import Schedule
from etude.errors import LimitExceeded
from etude.limits import lower_limits
from etude.result import Result, to_json

MOST_ROWS = 1000


class WatchConfig(Schedule):
    """What to ask, when, and what counts as a change."""

    source: str
    question: str = ""
    """In words, ..."""
    sql: str = ""
    """... or in SQL, ..."""
    plan: dict[str, Any] | None = None
    """... or as a plan."""
    model: str = "offline"
    """Who answers a question in words."""
    threshold: float = Field(default=0.0, ge=0)
    """A number that differs by no more than this has not changed."""
    relative: float = Field(default=0.0, ge=0)
    """Nor has one that differs by no more than this part of what it was."""

    @model_validator(mode="after")
    def _asks_one_thing(self) -> Self:
        if bool(self.question) + bool(self.sql) + (self.plan is not None) != 1:
            raise ValueError("give `question`, `sql` or `plan`")
        return self


class WatchAgent(Kind[WatchConfig]):
    """Remembers the answer it told last; a step towards a change counts, however small the steps are."""

    Config = WatchConfig

    def step(self, ctx: StepContext, state: dict[str, Any], inbox: list[InboxItem]) -> StepResult:
        """Look once."""
        answer = self._ask(ctx)
        told = state.get("told")
        changed = told is not None and self._differs(told, answer)
        output = {"answer": answer, "changed": changed} | ({"was": told} if changed else {})
        return StepResult(
            state={"told": answer if told is None or changed else told, "looks": state.get("looks", 0) + 1},
            output=output,
            next=Next(after=self.config.wait()),
            events=(("watch.changed", {"was": told, "now": answer}),) if changed else (),
        )

    def _ask(self, ctx: StepContext) -> Any:
        limits = lower_limits(ctx.app.settings.limits, {"rows": MOST_ROWS})
        how: dict[str, Any] = {"limits": limits, "on_progress": lambda _: ctx.check()}
        result: Result | None
        if self.config.question:
            answer = require(ask_aside(ctx, self.config.source, self.config.question, self.config.model))
            result = answer.result
            if result is None:
                return answer.text
        elif self.config.sql:
            result = ctx.app.sql(self.config.source, self.config.sql, **how)
        else:
            result = ctx.app.plan(self.config.source, self.config.plan or {}, **how)
        ctx.check()
        if result.truncated or result.row_count > limits.rows:
            raise LimitExceeded(
                f"An answer of more than {limits.rows:,} rows cannot be watched.", hint="Ask for a summary."
            )
        return to_json(result)["rows"]

    def _differs(self, was: Any, now: Any) -> bool:
        if isinstance(was, list) and isinstance(now, list):
            return len(was) != len(now) or any(self._differs(a, b) for a, b in zip(was, now))
        if _is_number(was) and _is_number(now):
            return bool(abs(now - was) > max(self.config.threshold, self.config.relative * abs(was)))
        return bool(was != now)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
