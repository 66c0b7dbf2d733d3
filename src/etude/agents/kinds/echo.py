"""The smallest agent: it comments on a subject at an interval. Copy this file to write your own."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from etude.agents.base import InboxItem, Kind, Next, StepContext, StepResult
from etude.agents.schedule import Interval
from etude.entities import Entity

MAX_SUBJECT = 10_000
"""The most characters of a subject: every step records it. A longer one from a message is cut."""


class EchoConfig(Entity):
    """The subject and the interval."""

    subject: str = Field(min_length=1, max_length=MAX_SUBJECT)
    interval_s: Interval = 60.0


class EchoAgent(Kind[EchoConfig]):
    """Comments on its subject every interval; guidance or a message `{"subject": ...}` changes the subject."""

    Config = EchoConfig

    def step(self, ctx: StepContext, state: dict[str, Any], inbox: list[InboxItem]) -> StepResult:
        """Comment once."""
        subject = state.get("subject", self.config.subject)
        for item in inbox:
            if isinstance(item.body, dict) and isinstance(item.body.get("subject"), str):
                subject = item.body["subject"]
            elif isinstance(item.body, str):
                subject = item.body
        subject, count = subject[:MAX_SUBJECT], state.get("count", 0) + 1
        return StepResult(
            state={"subject": subject, "count": count},
            output=f"{count}. {subject}: worth another look.",
            next=Next(after=self.config.interval_s),
        )
