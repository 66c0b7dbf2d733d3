"""The shape of OpenAI's API, thin: text in, text out, so that its SDKs and chat programs attach.

A model is called `etude`, or `etude/DATASET`; a system message cannot change what etude's agent is told.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from etude.api.call import AnalystCall, ReaderCall
from etude.api.chat import answer_of, begin_answer, chat_events, wait_for
from etude.api.shapes import TEXT, Answered
from etude.api.streams import SCHEMA, EventStream
from etude.errors import Invalid

if TYPE_CHECKING:
    from etude.api.call import Call

MODEL = "etude"
router = APIRouter(prefix="/v1", tags=["openai"])


class _Open(BaseModel):
    """Fields that we do not know are ignored, for SDKs send many."""

    model_config = ConfigDict(extra="ignore", strict=True)


class TextPart(_Open):
    """A part of a message."""

    type: str
    text: str = ""


class ChatTurn(_Open):
    """A message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None

    @property
    def said(self) -> str:
        """Its text."""
        return self.content if isinstance(self.content, str) else "".join(p.text for p in self.content or ())


class CompletionRequest(_Open):
    """A conversation to go on with."""

    model: str = Field(max_length=300)
    messages: Annotated[list[ChatTurn], Field(min_length=1, max_length=500)]
    stream: bool | None = None


class ResponseRequest(_Open):
    """Input to answer; `previous_response_id` goes on with the thread of that answer."""

    model: str = Field(max_length=300)
    input: str | Annotated[list[ChatTurn], Field(min_length=1, max_length=500)]
    previous_response_id: str | None = Field(default=None, max_length=100)
    stream: bool | None = None


class CompletionMessage(_Open):
    """What the model said."""

    role: Literal["assistant"] = "assistant"
    content: str


class Choice(_Open):
    """The one answer."""

    index: int = 0
    message: CompletionMessage
    finish_reason: Literal["stop"] = "stop"


class CompletionUsage(_Open):
    """Tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Completion(_Open):
    """An answer in the shape of chat completions; `id` is the run's."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[Choice]
    usage: CompletionUsage


class OutputText(_Open):
    """Text of an answer."""

    type: Literal["output_text"] = "output_text"
    text: str
    annotations: list[Any] = []


class OutputMessage(_Open):
    """A message of an answer."""

    type: Literal["message"] = "message"
    id: str
    role: Literal["assistant"] = "assistant"
    status: Literal["completed"] = "completed"
    content: list[OutputText]


class ResponseUsage(_Open):
    """Tokens."""

    input_tokens: int
    output_tokens: int
    total_tokens: int


class Responded(_Open):
    """An answer in the shape of responses; `id` is the run's."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Literal["completed"] = "completed"
    model: str
    output: list[OutputMessage]
    usage: ResponseUsage
    previous_response_id: str | None = None


class ModelEntry(_Open):
    """A model that can be named."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "etude"


class ModelList(_Open):
    """The models that can be named."""

    object: Literal["list"] = "list"
    data: list[ModelEntry]


@router.get("/models", response_model=ModelList)
async def list_models(call: ReaderCall) -> ModelList:
    """`etude`, and one for each dataset."""
    names = await call.look(lambda: [MODEL, *(f"{MODEL}/{name}" for name in call.app.sources())])
    return ModelList(data=[ModelEntry(id=name) for name in names])


_STREAMED: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {"schema": SCHEMA}}}}


@router.post("/chat/completions", response_model=Completion, responses=_STREAMED)
async def complete(call: AnalystCall, body: CompletionRequest) -> Any:
    """Go on with a conversation."""
    run_id = await _begin(call, body.model, body.messages, None)
    if body.stream:
        return EventStream(call, _stream_completion(call, body.model, run_id))
    return to_completion(body.model, await _wait(call, run_id))


@router.post("/responses", response_model=Responded, responses=_STREAMED)
async def respond(call: AnalystCall, body: ResponseRequest) -> Any:
    """Answer an input."""
    turns = [ChatTurn(role="user", content=body.input)] if isinstance(body.input, str) else body.input
    thread_id = None
    if body.previous_response_id is not None:
        thread_id = (await call.look(call.app.store.run, body.previous_response_id)).thread_id
    run_id = await _begin(call, body.model, turns, thread_id)
    if body.stream:
        return EventStream(call, _stream_response(call, body, run_id))
    return to_response(body, await _wait(call, run_id))


async def _begin(call: Call, model: str, turns: list[ChatTurn], thread_id: str | None) -> str:
    name, _, dataset = model.partition("/")
    if name != MODEL:
        raise Invalid(f"There is no model `{model[:100]}`.", hint="GET /v1/models lists them.")
    asked = turns[-1].said.strip()
    if turns[-1].role != "user" or not 0 < len(asked) <= TEXT:
        raise Invalid("The last message must be the user's, with text.", hint="End with what you want to know.")
    if thread_id is None and len(turns) > 1:
        thread_id = await call.do(_recall, call, dataset or None, turns[:-1])
    return await begin_answer(call, dataset or None, asked, thread_id, None)


def _recall(call: Call, dataset: str | None, turns: list[ChatTurn]) -> str:
    """A thread with what was said before, for the caller sends all of it each time."""
    store = call.app.store
    title = next((t.said for t in turns if t.role == "user"), "Conversation")[:80] or "Conversation"
    thread = store.create_thread(title, call.dataset(dataset) if dataset else None)
    for turn in turns:
        if turn.role in ("user", "assistant") and turn.said:
            store.add_message(thread.id, "user" if turn.role == "user" else "assistant", turn.said)
    return thread.id


async def _wait(call: Call, run_id: str) -> Answered:
    return await call.do(answer_of, call, await wait_for(call, run_id))


def to_completion(model: str, answer: Answered) -> Completion:
    """An answer in the shape of chat completions."""
    used = answer.usage
    usage = CompletionUsage(
        prompt_tokens=used.tokens_in, completion_tokens=used.tokens_out, total_tokens=used.tokens_in + used.tokens_out
    )
    choice = Choice(message=CompletionMessage(content=answer.text))
    return Completion(id=answer.run_id, created=int(time.time()), model=model, choices=[choice], usage=usage)


def to_response(body: ResponseRequest, answer: Answered) -> Responded:
    """An answer in the shape of responses."""
    used = answer.usage
    usage = ResponseUsage(
        input_tokens=used.tokens_in, output_tokens=used.tokens_out, total_tokens=used.tokens_in + used.tokens_out
    )
    message = OutputMessage(id=f"msg_{answer.run_id}", content=[OutputText(text=answer.text)])
    return Responded(
        id=answer.run_id,
        created_at=int(time.time()),
        model=body.model,
        output=[message],
        usage=usage,
        previous_response_id=body.previous_response_id,
    )


async def _texts(call: Call, run_id: str) -> AsyncGenerator[str | dict[str, Any] | None, None]:
    """The answer's text once it is checked, None while nothing comes, and the problem of a run that failed."""
    async for _, event in chat_events(call, run_id):
        match event:
            case None:
                yield None
            case {"type": "result", "text": str(text)}:
                yield text
            case {"type": "status", "status": "waiting", "question": str(question)}:
                yield question
            case {"type": "done", "error": dict(error)}:
                yield error
            case _:
                continue


async def _stream_completion(call: Call, model: str, run_id: str) -> AsyncGenerator[bytes, None]:
    head = {"id": run_id, "object": "chat.completion.chunk", "created": int(time.time()), "model": model}

    def chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
        return _data(head | {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})

    yield chunk({"role": "assistant", "content": ""})
    async for text in _texts(call, run_id):
        match text:
            case None:
                yield b": still here\n\n"
            case dict():
                yield _data({"error": {"message": text.get("detail", ""), "code": text.get("code"), "type": "etude"}})
                return
            case _:
                yield chunk({"content": text})
    yield chunk({}, "stop")
    yield b"data: [DONE]\n\n"


async def _stream_response(call: Call, body: ResponseRequest, run_id: str) -> AsyncGenerator[bytes, None]:
    number = 0

    def event(kind: str, **fields: Any) -> bytes:
        nonlocal number
        number += 1
        # The SDK reads the name of the event here, and only here.
        return f"event: {kind}\n".encode() + _data({"type": kind, "sequence_number": number - 1} | fields)

    begun = {"id": run_id, "object": "response", "created_at": int(time.time()), "model": body.model, "output": []}
    yield event("response.created", response=begun | {"status": "in_progress"})
    item = {"type": "message", "id": f"msg_{run_id}", "role": "assistant", "status": "in_progress", "content": []}
    yield event("response.output_item.added", output_index=0, item=item)
    place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    yield event("response.content_part.added", part=OutputText(text="").model_dump(), **place)
    said = ""
    async for text in _texts(call, run_id):
        match text:
            case None:
                yield b": still here\n\n"
            case dict():
                error = {"code": str(text.get("code")), "message": text.get("detail", "")}
                yield event("response.failed", response=begun | {"status": "failed", "error": error})
                return
            case _:
                said += text
                yield event("response.output_text.delta", delta=text, logprobs=[], **place)
    yield event("response.output_text.done", text=said, logprobs=[], **place)
    part = OutputText(text=said).model_dump()
    yield event("response.content_part.done", part=part, **place)
    yield event("response.output_item.done", output_index=0, item=item | {"status": "completed", "content": [part]})
    answer = await _wait(call, run_id)
    yield event("response.completed", response=to_response(body, answer).model_dump(mode="json"))


def _data(body: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(body, ensure_ascii=False)}\n\n".encode("utf-8", "replace")
