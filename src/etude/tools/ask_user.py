"""`ask_user`: ask the person one question; the run waits for the answer, even across restarts."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from etude.entities import Entity
from etude.tools.base import Tool, ToolContext, Waiting


class Arguments(Entity):
    """The question to ask."""

    question: str = Field(min_length=1)
    choices: tuple[str, ...] = Field(default=())


class AskUser(Tool):
    """Waits until a person answers."""

    name = "ask_user"
    description = "Ask the person one precise question."
    arguments = Arguments

    def use(self, context: ToolContext, arguments: Any) -> str:
        """Return the answer; if there is none yet, raise `Waiting`, which suspends the run."""
        if context.reply is None:
            raise Waiting(arguments.question, arguments.choices)
        return context.reply
