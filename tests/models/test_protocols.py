"""The other protocols than chat completions, each spoken by a real server that sends one recorded form of answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from etude.errors import ModelError
from etude.models.base import Model, SystemMessage, UserMessage
from etude.models.open import open_model
from etude.settings import load_settings

from .conversation import Heard, after, asked, respond

pytestmark = [
    pytest.mark.filterwarnings("ignore:invalid escape sequence"),  # in the package of Google
    pytest.mark.filterwarnings("ignore:The model .* is deprecated"),  # the day comes for every model
]


def _anthropic() -> list[dict[str, Any]]:
    def block(n: int, begin: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
        start = {"type": "content_block_start", "index": n, "content_block": begin}
        middle = [{"type": "content_block_delta", "index": n, "delta": d} for d in deltas]
        return [start, *middle, {"type": "content_block_stop", "index": n}]

    usage = {"input_tokens": 25, "output_tokens": 1}
    head = {"id": "m", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": []}
    head |= {"stop_reason": None, "stop_sequence": None, "usage": usage}
    thinking, signature = {"type": "thinking_delta", "thinking": "hm"}, {"type": "signature_delta", "signature": "SIG"}
    tool = {"type": "tool_use", "id": "toolu_1", "name": "execute_sql", "input": {}}
    pieces = [{"type": "input_json_delta", "partial_json": p} for p in ('{"sql": ', '"SELECT 1"}')]
    words = [{"type": "text_delta", "text": t} for t in ("Let me ", "look.")]
    end = {"stop_reason": "tool_use", "stop_sequence": None}
    return [
        {"type": "message_start", "message": head},
        *block(0, {"type": "thinking", "thinking": "", "signature": ""}, thinking, signature),
        *block(1, {"type": "text", "text": ""}, *words),
        *block(2, tool, *pieces),
        {"type": "message_delta", "delta": end, "usage": {"output_tokens": 15}},
        {"type": "message_stop"},
    ]


def _google() -> list[dict[str, Any]]:
    call = {"functionCall": {"name": "execute_sql", "args": {"sql": "SELECT 1"}}}
    usage = {"promptTokenCount": 25, "candidatesTokenCount": 15, "totalTokenCount": 40}
    first = {"content": {"parts": [{"text": "Let me "}], "role": "model"}}
    last = {"content": {"parts": [{"text": "look."}, call], "role": "model"}, "finishReason": "STOP"}
    model = "gemini-2.5-flash"
    return [
        {"candidates": [first], "modelVersion": model},
        {"candidates": [last], "usageMetadata": usage, "modelVersion": model},
    ]


def _responses() -> list[dict[str, Any]]:
    said = [{"type": "output_text", "text": "Let me look.", "annotations": []}]
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": said}
    call = {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "execute_sql", "status": "completed"}
    call |= {"arguments": '{"sql": "SELECT 1"}'}
    usage = {"input_tokens": 25, "output_tokens": 15, "total_tokens": 40}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    whole = {"id": "resp_1", "object": "response", "created_at": 1_700_000_000, "model": "gpt-5", "tools": []}
    whole |= {"parallel_tool_calls": True, "tool_choice": "auto", "usage": usage}
    at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    part = {"type": "output_text", "text": "", "annotations": []}
    events = [
        {"type": "response.created", "response": whole | {"status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": message | {"content": []}},
        {"type": "response.content_part.added", "part": part} | at,
        {"type": "response.output_text.delta", "delta": "Let me ", "logprobs": []} | at,
        {"type": "response.output_text.delta", "delta": "look.", "logprobs": []} | at,
        {"type": "response.output_item.done", "output_index": 0, "item": message},
        {"type": "response.output_item.added", "output_index": 1, "item": call | {"arguments": ""}},
        {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "output_index": 1}
        | {"delta": call["arguments"]},
        {"type": "response.output_item.done", "output_index": 1, "item": call},
        {"type": "response.completed", "response": whole | {"status": "completed", "output": [message, call]}},
    ]
    return [event | {"sequence_number": n} for n, event in enumerate(events)]


EVENTS = {
    "anthropic:claude-sonnet-4-5": _anthropic,
    "google:gemini-2.5-flash": _google,
    "openai-responses:gpt-5": _responses,
}


@contextmanager
def serving(name: str, events: list[dict[str, Any]]) -> Iterator[tuple[Model, list[dict[str, Any]]]]:
    """A model of a server that sends these events to every request, and the requests."""
    requests: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_POST(self) -> None:
            requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for event in events:
                kind = f"event: {event['type']}\n" if "type" in event else ""
                self.wfile.write(f"{kind}data: {json.dumps(event)}\n\n".encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    settings = {"base_url": f"http://127.0.0.1:{server.server_address[1]}", "api_key": "k", "tries": 1}
    model = open_model(name, load_settings({}, models={name.partition(":")[0]: settings}))
    try:
        yield model, requests
    finally:
        model.close()
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("name", EVENTS)
def test_a_turn_with_text_and_a_call(name: str) -> None:
    heard = Heard()
    with serving(name, EVENTS[name]()) as (model, requests):
        reply = respond(model, asked(), heard)
        respond(model, [*asked(), *after(reply.turn, "one row")])
    assert (reply.turn.text, heard.pieces, reply.turn.stop) == ("Let me look.", ["Let me ", "look."], "calls")
    assert json.loads(reply.turn.calls[0].arguments) == {"sql": "SELECT 1"}
    assert (reply.usage.tokens_in, reply.usage.tokens_out) == (25, 15)
    assert reply.price_known
    assert reply.usage.cost_usd > 0
    sent = json.dumps(requests[1])
    for part in ("How many orders?", "Let me look.", "SELECT 1", "one row", "You answer questions on data."):
        assert part in sent


@pytest.mark.parametrize("name", EVENTS)
def test_a_stream_that_ends_before_its_end(name: str) -> None:
    # Anthropic tells why a turn ends in the event before the last.
    events = EVENTS[name]()[: -2 if name.startswith("anthropic") else -1]
    with serving(name, events) as (model, _), pytest.raises(ModelError) as caught:
        respond(model, asked())
    assert caught.value.details["reason"] == "broken_off"


def test_signed_reasoning_goes_back_to_its_provider() -> None:
    with serving("anthropic:claude-sonnet-4-5", _anthropic()) as (model, requests):
        turn = respond(model, asked()).turn
        respond(model, [*asked(), *after(turn, "1")])
    assert {"type": "thinking", "thinking": "hm", "signature": "SIG"} in requests[1]["messages"][1]["content"]


def test_anthropic_is_asked_to_cache_what_questions_share() -> None:
    name = "anthropic:claude-sonnet-4-5"
    shared = UserMessage(text="The schema.", shared=True)
    with serving(name, EVENTS[name]()) as (model, requests):
        respond(model, [SystemMessage(text="The rules."), shared, UserMessage(text="The question.")])
    system, messages = requests[0]["system"], requests[0]["messages"]
    assert system[-1]["cache_control"]["type"] == "ephemeral"
    blocks = messages[0]["content"]
    assert [("cache_control" in block) for block in blocks[:2]] == [True, False] or "cache_control" in requests[0]
    assert blocks[0]["cache_control"]["type"] == "ephemeral"
    assert sum(json.dumps(requests[0]).count(word) for word in ('"cache_control"',)) <= 4
