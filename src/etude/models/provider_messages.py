"""Translate conversations and turns between etude and pydantic-ai."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from etude.entities import ToolCall, Turn
from etude.models.base import AssistantMessage, ConversationMessage, SystemMessage, ToolResult, ToolSpec, UserMessage

if TYPE_CHECKING:
    from pydantic_ai import messages
    from pydantic_ai.models import ModelRequestParameters


def to_provider_messages(
    conversation: Sequence[ConversationMessage],
    original: Callable[[Turn], messages.ModelResponse | None],
    caches: bool = False,
) -> list[messages.ModelMessage]:
    """Convert a conversation; `original` returns a turn as the provider sent it, or None if it is no longer known.

    With `caches`, a cache point follows the part that other questions share.
    """
    from pydantic_ai import messages

    written: list[messages.ModelMessage] = []
    for message in conversation:
        if isinstance(message, AssistantMessage):
            written.append(original(message.turn) or messages.ModelResponse(parts=_response_parts(message.turn)))
            continue
        if not written or not isinstance(written[-1], messages.ModelRequest):
            written.append(messages.ModelRequest(parts=[]))
        written[-1].parts = [*written[-1].parts, _request_part(message, caches)]
    return written


def to_provider_tools(tools: Sequence[ToolSpec]) -> ModelRequestParameters:
    """Convert the tools."""
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.tools import ToolDefinition

    definitions = [
        ToolDefinition(name=t.name, description=t.description, parameters_json_schema=t.parameters) for t in tools
    ]
    return ModelRequestParameters(function_tools=definitions)


def from_provider_response(response: messages.ModelResponse) -> Turn:
    """Convert a response to a turn. The arguments of calls stay the text that the model wrote."""
    from pydantic_ai import messages

    text = "".join(p.content for p in response.parts if isinstance(p, messages.TextPart))
    calls = tuple(
        ToolCall(
            id=part.tool_call_id,
            name=part.tool_name,
            arguments=part.args if isinstance(part.args, str) else part.args_as_json_str(),
        )
        for part in response.parts
        if isinstance(part, messages.ToolCallPart)
    )
    match response.finish_reason:
        case "length":
            return Turn(text=text, calls=calls, stop="length")
        case "content_filter":
            return Turn(text=text, calls=calls, stop="refused")
        case _:
            return Turn(text=text, calls=calls, stop="calls" if calls else "end")


def _response_parts(turn: Turn) -> list[messages.ModelResponsePart]:
    from pydantic_ai import messages

    text = [messages.TextPart(turn.text)] if turn.text else []
    return [*text, *(messages.ToolCallPart(c.name, c.arguments, tool_call_id=c.id) for c in turn.calls)]


def _request_part(message: SystemMessage | UserMessage | ToolResult, caches: bool) -> messages.ModelRequestPart:
    from pydantic_ai import messages

    match message:
        case SystemMessage():
            return messages.SystemPromptPart(message.text)
        case UserMessage(shared=True) if caches:
            return messages.UserPromptPart([message.text, messages.CachePoint()])
        case UserMessage():
            return messages.UserPromptPart(message.text)
        case ToolResult():
            return messages.ToolReturnPart(message.name, message.text, tool_call_id=message.call_id)
