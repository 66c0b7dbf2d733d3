"""`ask_user`: one question to the person; the run waits for the answer, also across restarts."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from etude.entities import Entity
from etude.tools.base import Tool, ToolContext, Waiting


class Arguments(Entity):
    """What to ask."""

    question: str = Field(min_length=1)
    choices: tuple[str, ...] = Field(default=(), description="answers to choose from, where there are few")


class AskUser(Tool):
    """Waits for a person."""

    name = "ask_user"
    description = "Ask the person one precise question when the data cannot decide what is meant. Use it rarely."
    arguments = Arguments

    def use(self, context: ToolContext, arguments: Any) -> str:
        """The answer; where there is none yet, the run waits."""
        if context.reply is None:
            raise Waiting(arguments.question, arguments.choices)
        return context.reply
