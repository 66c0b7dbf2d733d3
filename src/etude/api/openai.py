"""Routes that are compatible with OpenAI's API: text in, text out, so that its SDKs and chat clients work.

The models are `etude` and `etude/DATASET`. System messages are instructions of the caller: the model follows them as
far as the rules of etude's agent allow. If the client disconnects, its run is cancelled, because the answer could not
be fetched in another way.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, model_validator

from etude.api.answer_text import (
    answer_tables_as_text,
    answer_text_with_origin,
    require_answer_text,
    stream_answer_text,
    with_answer_text,
)
from etude.api.api_call import AnalystCall, ReaderCall
from etude.api.chat import begin_chat_answer, cancel_chat_if_client_leaves, cancel_chat_on_leave, wait_for_chat_answer
from etude.api.event_streams import SCHEMA, EventStream
from etude.api.json_route import JsonRoute
from etude.api.schemas import TEXT
from etude.entities import Run
from etude.errors import EtudeError, Invalid, NotFound, problem
from etude.store.base import Role

if TYPE_CHECKING:
    from etude.api.api_call import ApiCall
    from etude.store.base import Store

MODEL = "etude"
Finish = Literal["stop", "length", "content_filter"]
router = APIRouter(prefix="/v1", tags=["openai"], route_class=JsonRoute)


class _LenientModel(BaseModel):
    """A model that ignores unknown fields, because SDKs send many."""

    model_config = ConfigDict(extra="ignore", strict=True)


class TextPart(_LenientModel):
    """A part of a message."""

    type: str
    text: str = ""


class ChatTurn(_LenientModel):
    """A message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[TextPart], Field(max_length=500, fail_fast=True)] | None = None

    @property
    def plain_text(self) -> str:
        """The text of all parts."""
        return self.content if isinstance(self.content, str) else "".join(p.text for p in self.content or ())


class StreamOptions(_LenientModel):
    """What a stream contains besides the text."""

    include_usage: bool | None = None
    """Whether the last chunk reports the tokens used."""


class CompletionRequest(_LenientModel):
    """A conversation to continue."""

    model: str = Field(max_length=300)
    messages: Annotated[list[ChatTurn], Field(min_length=1, max_length=500, fail_fast=True)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    @model_validator(mode="after")
    def _is_storable(self) -> Self:
        _check_lengths("messages", self.messages)
        return self


class ResponseRequest(_LenientModel):
    """Input to answer; `previous_response_id` continues the thread of that response."""

    model: str = Field(max_length=300)
    input: str | Annotated[list[ChatTurn], Field(min_length=1, max_length=500, fail_fast=True)]
    instructions: str | None = Field(default=None, max_length=TEXT)
    """What a system message says."""
    previous_response_id: str | None = Field(default=None, max_length=100)
    stream: bool | None = None

    @model_validator(mode="after")
    def _is_storable(self) -> Self:
        _check_lengths("input", self.input)
        return self


def _check_lengths(field: str, given: str | list[ChatTurn]) -> None:
    """Refuse a text that is longer than texts of other routes may be.

    The fields themselves have no limit: as parts of a union they would be refused with the wrong reason.
    """
    if isinstance(given, str):
        texts = {field: given}
    else:
        texts = {f"{field}.{place}.content": turn.plain_text for place, turn in enumerate(given)}
    for name, text in texts.items():
        if len(text) > TEXT:
            raise ValueError(f"`{name}` has {len(text):,} characters; at most {TEXT:,} are allowed")


class CompletionMessage(_LenientModel):
    """The model's message."""

    role: Literal["assistant"] = "assistant"
    content: str


class CompletionChoice(_LenientModel):
    """The only choice."""

    index: int = 0
    message: CompletionMessage
    finish_reason: Finish = "stop"


class PromptDetails(_LenientModel):
    """The part of the prompt that the provider of the model read from its cache."""

    cached_tokens: int


class CompletionUsage(_LenientModel):
    """Tokens used."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


class Completion(_LenientModel):
    """An answer as a chat completion; `id` is the id of the run."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: CompletionUsage


class OutputText(_LenientModel):
    """The text of a message."""

    type: Literal["output_text"] = "output_text"
    text: str
    annotations: list[Any] = []


class OutputMessage(_LenientModel):
    """A message of an answer."""

    type: Literal["message"] = "message"
    id: str
    role: Literal["assistant"] = "assistant"
    status: Literal["completed", "incomplete"] = "completed"
    content: list[OutputText]


class ResponseUsage(_LenientModel):
    """Tokens used."""

    input_tokens: int
    output_tokens: int
    total_tokens: int


class Incomplete(_LenientModel):
    """Why an answer is incomplete."""

    reason: Literal["max_output_tokens", "content_filter"]


class ResponseObject(_LenientModel):
    """An answer as a response object; `id` is the id of the run."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Literal["completed", "incomplete"] = "completed"
    incomplete_details: Incomplete | None = None
    model: str
    output: list[OutputMessage]
    usage: ResponseUsage
    previous_response_id: str | None = None


class ModelEntry(_LenientModel):
    """An available model."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "etude"


class ModelList(_LenientModel):
    """The available models."""

    object: Literal["list"] = "list"
    data: list[ModelEntry]


@router.get("/models", response_model=ModelList)
async def list_models(call: ReaderCall) -> ModelList:
    """List the models: `etude`, and one for each dataset."""
    names = await call.access_store(lambda: [MODEL, *(f"{MODEL}/{name}" for name in call.app.sources())])
    return ModelList(data=[ModelEntry(id=name) for name in names])


_INSTRUCTIONS = ("system", "developer")
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant"}
_STREAMED: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {"schema": SCHEMA}}}}


@router.get("/models/{name:path}", response_model=ModelEntry)
async def get_model(call: ReaderCall, name: str) -> ModelEntry:
    """Return one model."""
    names = await call.access_store(lambda: [MODEL, *(f"{MODEL}/{source}" for source in call.app.sources())])
    if name not in names:
        raise NotFound(f"There is no model `{name[:100]}`.", hint="GET /v1/models lists them.")
    return ModelEntry(id=name)


@router.post("/chat/completions", response_model=Completion, responses=_STREAMED)
async def complete(call: AnalystCall, body: CompletionRequest) -> Any:
    """Continue a conversation."""
    run_id = await _begin(call, body.model, body.messages, None)
    if body.stream:
        return EventStream(call, _stream_completion(call, body, run_id), cancel_chat_on_leave(call, run_id))
    run = await _wait(call, run_id)
    return to_openai_completion(body.model, run, await call.run_in_thread(answer_tables_as_text, call, run))


@router.post("/responses", response_model=ResponseObject, responses=_STREAMED)
async def respond(call: AnalystCall, body: ResponseRequest) -> Any:
    """Answer an input."""
    turns = [ChatTurn(role="user", content=body.input)] if isinstance(body.input, str) else body.input
    if body.instructions:
        turns = [ChatTurn(role="system", content=body.instructions), *turns]
    thread_id = None
    if body.previous_response_id is not None:
        thread_id = (await call.access_store(call.app.store.run, body.previous_response_id)).thread_id
    run_id = await _begin(call, body.model, turns, thread_id)
    if body.stream:
        return EventStream(call, _stream_response(call, body, run_id), cancel_chat_on_leave(call, run_id))
    run = await _wait(call, run_id)
    return to_openai_response(body, run, await call.run_in_thread(answer_tables_as_text, call, run))


async def _begin(call: ApiCall, model: str, turns: list[ChatTurn], thread_id: str | None) -> str:
    name, _, dataset = model.partition("/")
    if name != MODEL:
        raise Invalid(f"There is no model `{model[:100]}`.", hint="GET /v1/models lists them.")
    asked = turns[-1].plain_text.strip()
    if turns[-1].role != "user" or not 0 < len(asked) <= TEXT:
        raise Invalid("The last message must be from the user and contain text.", hint="End with your question.")
    instructions = [t for t in turns if t.role in _INSTRUCTIONS]
    await call.run_in_thread(call.app.store.check_storage)
    if thread_id is None and len(turns) > 1:
        thread_id = await call.run_in_thread(_recall, call, dataset or None, turns)
    elif thread_id is not None and instructions:
        await call.run_in_thread(_keep, call.app.store, thread_id, instructions)
    return await begin_chat_answer(call, dataset or None, asked, thread_id, None)


def _recall(call: ApiCall, dataset: str | None, turns: list[ChatTurn]) -> str:
    """Create a thread with all messages but the last, because the caller sends all of them each time."""
    store = call.app.store
    title = next((t.plain_text for t in turns if t.role == "user"), "Conversation")[:80] or "Conversation"
    thread = store.create_thread(title, call.dataset(dataset) if dataset else None)
    _keep(store, thread.id, turns[:-1])
    return thread.id


def _keep(store: Store, thread_id: str, turns: list[ChatTurn]) -> None:
    for turn in turns:
        role: Role | None = "system" if turn.role in _INSTRUCTIONS else _ROLES.get(turn.role)
        if role is not None and (text := turn.plain_text.replace("\0", "")).strip():
            store.add_message(thread_id, role, text)


async def _wait(call: ApiCall, run_id: str) -> Run:
    with cancel_chat_if_client_leaves(call, run_id, True):
        return await with_answer_text(call, require_answer_text(await wait_for_chat_answer(call, run_id)))


def to_openai_completion(model: str, run: Run, tables: str = "") -> Completion:
    """Return the answer of a run as a chat completion; `tables` are the results that it shows, as text."""
    choice = CompletionChoice(message=CompletionMessage(content=_text(run) + tables), finish_reason=_finish(run))
    return Completion(id=run.id, created=int(time.time()), model=model, choices=[choice], usage=_usage(run))


def to_openai_response(body: ResponseRequest, run: Run, tables: str = "") -> ResponseObject:
    """Return the answer of a run as a response object; `tables` are the results that it shows, as text."""
    used, finish = _usage(run), _finish(run)
    status: Literal["completed", "incomplete"] = "completed" if finish == "stop" else "incomplete"
    message = OutputMessage(id=f"msg_{run.id}", content=[OutputText(text=_text(run) + tables)], status=status)
    why = None
    if finish != "stop":
        why = Incomplete(reason="max_output_tokens" if finish == "length" else "content_filter")
    return ResponseObject(
        id=run.id,
        created_at=int(time.time()),
        status=status,
        incomplete_details=why,
        model=body.model,
        output=[message],
        usage=ResponseUsage(
            input_tokens=used.prompt_tokens, output_tokens=used.completion_tokens, total_tokens=used.total_tokens
        ),
        previous_response_id=body.previous_response_id,
    )


def _text(run: Run) -> str:
    return run.question or "" if run.status == "waiting" else answer_text_with_origin(run)


def _usage(run: Run) -> CompletionUsage:
    read, written = run.usage.tokens_in, run.usage.tokens_out
    cached = PromptDetails(cached_tokens=run.usage.tokens_cached)
    return CompletionUsage(
        prompt_tokens=read, completion_tokens=written, total_tokens=read + written, prompt_tokens_details=cached
    )


def _finish(run: Run) -> Finish:
    """Return why the model ended its last turn."""
    turns = [step.turn for step in run.steps if step.turn is not None]
    stop = turns[-1].stop if turns else "end"
    return "length" if stop == "length" else "content_filter" if stop == "refused" else "stop"


# Streams.


async def _stream_completion(call: ApiCall, body: CompletionRequest, run_id: str) -> AsyncGenerator[bytes, None]:
    counts = body.stream_options is not None and body.stream_options.include_usage
    head: dict[str, Any] = {"id": run_id, "object": "chat.completion.chunk", "created": int(time.time())}
    head |= {"model": body.model} | ({"usage": None} if counts else {})

    def chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
        return _data(head | {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})

    yield chunk({"role": "assistant", "content": ""})
    try:
        async for piece in stream_answer_text(call, run_id):
            match piece:
                case None:
                    yield b": still here\n\n"
                case str():
                    yield chunk({"content": piece})
                case Run():
                    yield chunk({}, _finish(piece))
                    if counts:
                        yield _data(head | {"choices": [], "usage": _usage(piece).model_dump()})
        yield b"data: [DONE]\n\n"
    except EtudeError as error:
        details = problem(error)
        kind = "server_error" if details["status"] >= 500 else "invalid_request_error"
        yield _data({"error": {"message": _explain(details), "type": kind, "param": None, "code": details["code"]}})


async def _stream_response(call: ApiCall, body: ResponseRequest, run_id: str) -> AsyncGenerator[bytes, None]:
    number = 0

    def event(kind: str, **fields: Any) -> bytes:
        nonlocal number
        number += 1
        # The SDK reads the name of the event only from this line.
        return f"event: {kind}\n".encode() + _data({"type": kind, "sequence_number": number - 1} | fields)

    begun = {"id": run_id, "object": "response", "created_at": int(time.time()), "model": body.model, "output": []}
    yield event("response.created", response=begun | {"status": "in_progress"})
    item = {"type": "message", "id": f"msg_{run_id}", "role": "assistant", "status": "in_progress", "content": []}
    yield event("response.output_item.added", output_index=0, item=item)
    position = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    yield event("response.content_part.added", part=OutputText(text="").model_dump(), **position)
    sent = ""
    try:
        async for piece in stream_answer_text(call, run_id):
            match piece:
                case None:
                    yield b": still here\n\n"
                case str():
                    sent += piece
                    yield event("response.output_text.delta", delta=piece, logprobs=[], **position)
                case Run():
                    tables = await call.run_in_thread(answer_tables_as_text, call, piece)
                    made, part = to_openai_response(body, piece, tables), OutputText(text=sent).model_dump()
                    yield event("response.output_text.done", text=sent, logprobs=[], **position)
                    yield event("response.content_part.done", part=part, **position)
                    done = item | {"status": made.status, "content": [part]}
                    yield event("response.output_item.done", output_index=0, item=done)
                    # The text streamed before the answer is not part of the answer.
                    yield event(f"response.{made.status}", response=made.model_dump(mode="json"))
    except EtudeError as error:
        details = problem(error)
        failed = {"status": "failed", "error": {"code": details["code"], "message": _explain(details)}}
        yield event("response.failed", response=begun | failed)


def _explain(details: dict[str, Any]) -> str:
    return f"{details['detail']} {details.get('hint') or ''}".strip()


def _data(body: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(body, ensure_ascii=False)}\n\n".encode("utf-8", "replace")
