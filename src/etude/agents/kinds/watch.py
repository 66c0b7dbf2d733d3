"""An agent that asks a question on a schedule and reports when the answer has changed."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, model_validator

from etude.agents.base import InboxItem, Kind, Next, StepContext, StepResult
from etude.agents.schedule import Schedule
from etude.agents.step_question import ask_step_question_in_new_thread, require_step_question_answer
from etude.errors import LimitExceeded
from etude.limits import lower_limits
from etude.result import Result, result_to_json

MAX_ROWS = 1000


class WatchConfig(Schedule):
    """The question, the schedule, and what counts as a change."""

    source: str
    question: str = ""
    """A question in words. Give this, `sql` or `plan`."""
    sql: str = ""
    """A query in SQL."""
    plan: dict[str, Any] | None = None
    """A query as a QueryPlan."""
    model: str = "offline"
    """The model that answers a question in words."""
    threshold: float = Field(default=0.0, ge=0)
    """A number counts as changed only if it differs by more than this ..."""
    relative: float = Field(default=0.0, ge=0)
    """... and by more than this share of its previous value."""

    @model_validator(mode="after")
    def _asks_one_thing(self) -> Self:
        if bool(self.question) + bool(self.sql) + (self.plan is not None) != 1:
            raise ValueError("give `question`, `sql` or `plan`")
        return self


class WatchAgent(Kind[WatchConfig]):
    """Compares each answer with the last one reported, so that small changes add up."""

    Config = WatchConfig

    def step(self, ctx: StepContext, state: dict[str, Any], inbox: list[InboxItem]) -> StepResult:
        """Ask once."""
        answer, replayed = self._ask(ctx)
        reported = state.get("told")
        changed = reported is not None and self._differs(reported, answer)
        output = {"answer": answer, "changed": changed} | ({"was": reported} if changed else {})
        output |= {"replayed": replayed} if replayed else {}
        return StepResult(
            state={"told": answer if reported is None or changed else reported, "looks": state.get("looks", 0) + 1},
            output=output,
            next=Next(after=self.config.wait()),
            events=(("watch.changed", {"was": reported, "now": answer}),) if changed else (),
        )

    def _ask(self, ctx: StepContext) -> tuple[Any, str]:
        """Return the answer, and how it came about if an earlier run was replayed."""
        replayed = ""
        limits = lower_limits(ctx.app.settings.limits, {"limit": MAX_ROWS})
        how: dict[str, Any] = {"limits": limits, "on_progress": lambda _: ctx.check()}
        result: Result | None
        if self.config.question:
            answer = require_step_question_answer(
                ask_step_question_in_new_thread(ctx, self.config.source, self.config.question, self.config.model)
            )
            result, replayed = answer.result, answer.replayed
            if result is None:
                return answer.text, replayed
        elif self.config.sql:
            result = ctx.app.sql(self.config.source, self.config.sql, **how)
        else:
            result = ctx.app.plan(self.config.source, self.config.plan or {}, **how)
        ctx.check()
        if result.truncated or result.row_count > MAX_ROWS:
            raise LimitExceeded(
                f"The answer has more than {MAX_ROWS:,} rows, too many to compare.", hint="Ask for a summary."
            )
        return result_to_json(result)["rows"], replayed

    def _differs(self, was: Any, now: Any) -> bool:
        if isinstance(was, list) and isinstance(now, list):
            return len(was) != len(now) or any(self._differs(a, b) for a, b in zip(was, now))
        if _is_number(was) and _is_number(now):
            return bool(abs(now - was) > max(self.config.threshold, self.config.relative * abs(was)))
        return bool(was != now)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
