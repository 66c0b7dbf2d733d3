"""What every model gives: the next turn of a conversation, streamed, with what it cost."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from etude.cancellation import Cancellation
from etude.entities import Entity, ToolCall, Turn, Usage


class SystemMessage(Entity):
    """What the model is told before all else, by etude alone: never text from data or from users."""

    role: Literal["system"] = "system"
    text: str


class UserMessage(Entity):
    """What a person, or etude on its behalf, says."""

    role: Literal["user"] = "user"
    text: str


class AssistantMessage(Entity):
    """An earlier turn of the model itself."""

    role: Literal["assistant"] = "assistant"
    turn: Turn


class ToolResult(Entity):
    """What came of a tool call."""

    role: Literal["tool"] = "tool"
    call_id: str
    name: str
    text: str


ConversationMessage = Annotated[
    SystemMessage | UserMessage | AssistantMessage | ToolResult, Field(discriminator="role")
]


@dataclass(frozen=True)
class ToolSpec:
    """A tool as a model sees it; `parameters` is a JSON schema of an object."""

    name: str
    description: str
    parameters: dict[str, Any]


@dataclass(frozen=True)
class ModelRequest:
    """What a model is asked: a conversation that ends with a user or a tool, and the tools it may call."""

    conversation: Sequence[ConversationMessage]
    tools: Sequence[ToolSpec] = ()
    max_tokens: int = 4096
    on_restart: Callable[[], None] | None = field(default=None, compare=False)
    """Called where a stream broke off after text and the model starts anew: what `on_text` was given is void.

    A caller that cannot take text back leaves it out; then a stream that breaks off after text is an error.
    """


@dataclass(frozen=True)
class ModelReply:
    """The model's turn and what it cost. `usage.cost_usd` is 0 where the price is not known."""

    turn: Turn
    usage: Usage
    price_known: bool = False


class Model(ABC):
    """A model by its name, such as `openai:gpt-5`. Thread-safe: one object serves many runs."""

    name: str

    @abstractmethod
    def respond(self, request: ModelRequest, on_text: Callable[[str], None], cancel: Cancellation) -> ModelReply:
        """The next turn. Text goes to `on_text` as it arrives.

        Raises `ModelError` where the provider fails for good, `Cancelled` soon after `cancel` is asked for.
        """

    def close(self) -> None:  # noqa: B027 - most have nothing to let go of
        """Let go of connections."""


def measure(request: ModelRequest, turn: Turn) -> Usage:
    """The usage of a turn by the length of its texts, for models that do not count: four characters are a token."""
    said = [u.turn.model_dump_json() if isinstance(u, AssistantMessage) else u.text for u in request.conversation]
    told = [t.name + t.description + json.dumps(t.parameters) for t in request.tools]
    read = sum(map(len, said)) + sum(map(len, told))
    written = len(turn.text) + sum(len(c.name) + len(c.arguments) for c in turn.calls)
    return Usage(tokens_in=-(-read // 4), tokens_out=-(-written // 4), model_calls=1)


__all__ = [
    "AssistantMessage",
    "ConversationMessage",
    "Model",
    "ModelReply",
    "ModelRequest",
    "SystemMessage",
    "ToolCall",
    "ToolResult",
    "ToolSpec",
    "Turn",
    "UserMessage",
    "measure",
]
