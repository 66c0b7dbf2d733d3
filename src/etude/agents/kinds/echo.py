"""The smallest agent: it comments on a subject at an interval. Copy this file to write your own."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from etude.agents.base import InboxItem, Kind, Next, StepContext, StepResult
from etude.agents.schedule import Interval
from etude.entities import Entity


class EchoConfig(Entity):
    """The subject and the interval."""

    subject: str = Field(min_length=1)
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
        count = state.get("count", 0) + 1
        return StepResult(
            state={"subject": subject, "count": count},
            output=f"{count}. {subject}: worth another look.",
            next=Next(after=self.config.interval_s),
        )
