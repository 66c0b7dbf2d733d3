"""A conversation as the library of providers writes it, and its answer as ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from etude.entities import ToolCall, Turn
from etude.models.base import AssistantMessage, ConversationMessage, SystemMessage, ToolResult, ToolSpec, UserMessage

if TYPE_CHECKING:
    from pydantic_ai import messages
    from pydantic_ai.models import ModelRequestParameters


def write_messages(
    conversation: Sequence[ConversationMessage], original: Callable[[Turn], messages.ModelResponse | None]
) -> list[messages.ModelMessage]:
    """The conversation for the library; `original` gives a turn as the provider sent it, where it is still known."""
    from pydantic_ai import messages

    written: list[messages.ModelMessage] = []
    for said in conversation:
        if isinstance(said, AssistantMessage):
            written.append(original(said.turn) or messages.ModelResponse(parts=_said_parts(said.turn)))
            continue
        if not written or not isinstance(written[-1], messages.ModelRequest):
            written.append(messages.ModelRequest(parts=[]))
        written[-1].parts = [*written[-1].parts, _heard_part(said)]
    return written


def write_tools(tools: Sequence[ToolSpec]) -> ModelRequestParameters:
    """The tools for the library."""
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.tools import ToolDefinition

    definitions = [
        ToolDefinition(name=t.name, description=t.description, parameters_json_schema=t.parameters) for t in tools
    ]
    return ModelRequestParameters(function_tools=definitions)


def read_turn(response: messages.ModelResponse) -> Turn:
    """What the model said. Arguments stay the text that it wrote."""
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


def _said_parts(turn: Turn) -> list[messages.ModelResponsePart]:
    from pydantic_ai import messages

    text = [messages.TextPart(turn.text)] if turn.text else []
    return [*text, *(messages.ToolCallPart(c.name, c.arguments, tool_call_id=c.id) for c in turn.calls)]


def _heard_part(said: SystemMessage | UserMessage | ToolResult) -> messages.ModelRequestPart:
    from pydantic_ai import messages

    match said:
        case SystemMessage():
            return messages.SystemPromptPart(said.text)
        case UserMessage():
            return messages.UserPromptPart(said.text)
        case ToolResult():
            return messages.ToolReturnPart(said.name, said.text, tool_call_id=said.call_id)
