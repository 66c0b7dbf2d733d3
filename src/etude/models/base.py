"""The interface of every model: the next turn of a conversation, streamed, with its usage and cost."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from etude.cancellation import Cancellation
from etude.entities import Entity, ToolCall, Turn, Usage

MAX_TOKENS = 16_384
"""Tokens that a turn may have. A model that reasons spends many of them before its first word."""


class SystemMessage(Entity):
    """The system prompt. etude alone writes it; it never contains text from data or from users."""

    role: Literal["system"] = "system"
    text: str


class UserMessage(Entity):
    """A message from a person, or from etude on a person's behalf."""

    role: Literal["user"] = "user"
    text: str
    shared: bool = False
    """Whether the conversation up to here is the same for other questions, so that a provider should cache it."""


class AssistantMessage(Entity):
    """An earlier turn of the model itself."""

    role: Literal["assistant"] = "assistant"
    turn: Turn
    earlier: bool = False
    """Whether it answered an earlier question of the thread."""


class ToolResult(Entity):
    """The result of a tool call, or its error."""

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
    """One request to a model: a conversation that ends with a user message or a tool result, and the tools it may call.

    If a stream breaks off after some text, the model starts over and calls `on_restart`: the caller must discard the
    text that `on_text` received. Without `on_restart`, a stream that breaks off after some text is an error.
    """

    conversation: Sequence[ConversationMessage]
    tools: Sequence[ToolSpec] = ()
    max_tokens: int = MAX_TOKENS
    on_restart: Callable[[], None] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class ModelReply:
    """The model's turn and its usage. `usage.cost_usd` is 0 if the price is not known."""

    turn: Turn
    usage: Usage
    price_known: bool = False


class Model(ABC):
    """A model with a name such as `openai:gpt-5`. Thread-safe: one object serves many runs."""

    name: str

    @abstractmethod
    def respond(self, request: ModelRequest, on_text: Callable[[str], None], cancel: Cancellation) -> ModelReply:
        """Return the next turn, passing text to `on_text` as it arrives.

        Raises `ModelError` if the provider still fails after all retries, and `Cancelled` soon after a cancel.
        """

    def close(self) -> None:  # noqa: B027 - most models hold nothing to close
        """Close connections."""


def estimate_model_usage(request: ModelRequest, turn: Turn) -> Usage:
    """Estimate the usage of a turn as one token per four characters, for models that report no usage."""
    messages = [m.turn.model_dump_json() if isinstance(m, AssistantMessage) else m.text for m in request.conversation]
    tools = [t.name + t.description + json.dumps(t.parameters) for t in request.tools]
    read = sum(map(len, messages)) + sum(map(len, tools))
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
    "estimate_model_usage",
]
