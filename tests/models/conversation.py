"""A short conversation with tools, for tests of models."""

from __future__ import annotations

from etude.cancellation import Cancellation
from etude.models.base import (
    AssistantMessage,
    ConversationMessage,
    Model,
    ModelReply,
    ModelRequest,
    SystemMessage,
    ToolResult,
    ToolSpec,
    Turn,
    UserMessage,
)

SQL = ToolSpec(
    "execute_sql",
    "Run a query.",
    {"type": "object", "properties": {"sql": {"type": "string"}}, "required": ["sql"]},
)


class Heard:
    """What a caller of a model hears: `text` is what a user sees at the end, `pieces` is how it came."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.restarts: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def restart(self) -> None:
        self.restarts.append(self.text)
        self.pieces.clear()


def asked(text: str = "How many orders?") -> list[ConversationMessage]:
    return [SystemMessage(text="You answer questions on data."), UserMessage(text=text)]


def after(turn: Turn, *results: str) -> list[ConversationMessage]:
    """The model's turn and what came of its calls."""
    returned = [ToolResult(call_id=c.id, name=c.name, text=r) for c, r in zip(turn.calls, results, strict=True)]
    return [AssistantMessage(turn=turn), *returned]


def respond(
    model: Model,
    conversation: list[ConversationMessage],
    heard: Heard | None = None,
    *,
    cancel: Cancellation | None = None,
    can_restart: bool = False,
    tools: tuple[ToolSpec, ...] = (SQL,),
) -> ModelReply:
    heard = heard or Heard()
    request = ModelRequest(conversation, tools, on_restart=heard.restart if can_restart else None)
    return model.respond(request, heard.pieces.append, cancel or Cancellation())
