"""The smallest agent: it comments on a subject, again and again. Copy this file to write your own."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from etude.agents.base import InboxItem, Kind, Next, StepContext, StepResult
from etude.entities import Entity


class EchoConfig(Entity):
    """What an echo is made with."""

    subject: str = Field(min_length=1)
    interval_s: float = Field(default=60.0, gt=0)


class EchoAgent(Kind[EchoConfig]):
    """Says something about its subject every interval; guidance or a message `{"subject": ...}` changes it."""

    Config = EchoConfig

    def step(self, ctx: StepContext, state: dict[str, Any], inbox: list[InboxItem]) -> StepResult:
        """Say it once more."""
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
