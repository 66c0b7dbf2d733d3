"""An OpenAI-compatible HTTP server with a script: a real server on a real socket, for tests of models and of the loop.

    with OpenAIServer([call("execute_sql", sql="SELECT 1"), say("One.")]) as server:
        model = server.model()                      # or server.settings(), server.base_url

Answers are given in the order of requests. `by_turn` instead gives them by how many turns of the assistant a request
holds, so that a conversation that goes on in another process gets the answer that is due.
"""

from __future__ import annotations

import json
import re
import select
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from etude.models.base import Model
from etude.models.open import open_model
from etude.settings import Settings, load_settings


@dataclass(frozen=True)
class Answer:
    """What the server sends for one request."""

    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    """Tools to call: name, and arguments as text."""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    """Sent as it is, instead of a completion."""
    content_type: str | None = None
    first_s: float = 0.0
    """Seconds before the first byte."""
    pace_s: float = 0.0
    """Seconds before each chunk after the first word."""
    cut: int | None = None
    """Close the connection in the middle of this chunk."""
    finish: str | None = ""
    """The reason to finish; None to end the stream without one."""
    usage: tuple[int, int] | None = (7, 3)
    choices: bool = True
    """Whether a completion has any choices."""


Script = Sequence[Answer] | Callable[[dict[str, Any]], Answer]


def say(text: str, **more: Any) -> Answer:
    """A turn of text."""
    return Answer(text=text, **more)


def call(name: str, **arguments: Any) -> Answer:
    """A turn that calls one tool."""
    return Answer(calls=((name, json.dumps(arguments)),))


def calls(*each: tuple[str, dict[str, Any] | str], text: str = "") -> Answer:
    """A turn that calls several tools; arguments as text are sent as they are."""
    return Answer(text=text, calls=tuple((n, a if isinstance(a, str) else json.dumps(a)) for n, a in each))


def fail(status: int, message: str = "trouble", *, code: str | None = None, **headers: str) -> Answer:
    """An error as OpenAI words it; `retry_after="1"` becomes the header `Retry-After`."""
    body = {"error": {"message": message, "type": "test_error", "code": code}}
    named = {k.replace("_", "-").title(): v for k, v in headers.items()}
    return Answer(status=status, body=json.dumps(body).encode(), headers=named)


def by_turn(*turns: Answer) -> Callable[[dict[str, Any]], Answer]:
    """The answer by how many turns of the assistant the request holds."""
    return lambda body: turns[_turn(body)]


class OpenAIServer:
    """Serves the script until the block ends."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[dict[str, Any]] = []
        """The bodies of the requests to chat completions, in order."""
        self.headers: list[dict[str, str]] = []
        self.arrived = threading.Semaphore(0)
        """Released once for each request, before it is answered."""
        self.left = threading.Event()
        """Set where a client closed its connection before it had its answer."""
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.owner = self
        self.base_url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> OpenAIServer:
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def settings(self, **more: Any) -> Settings:
        """Settings whose provider `openai` is this server; retries wait for next to nothing."""
        models = {"openai": {"base_url": self.base_url, "api_key": "sk-test-key", "tries": 4, "wait_s": 5} | more}
        return load_settings({}, model="openai:test-model", models=models)

    def model(self, **more: Any) -> Model:
        """A model of this server."""
        return open_model("openai:test-model", self.settings(**more))

    def next_answer(self, body: dict[str, Any], headers: dict[str, str]) -> Answer:
        """The answer that is due; the last of a list is given again and again."""
        with self._lock:
            self.requests.append(body)
            self.headers.append(headers)
            number = len(self.requests) - 1
        self.arrived.release()
        if callable(self.script):
            return self.script(body)
        return self.script[min(number, len(self.script) - 1)]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    owner: OpenAIServer

    def handle_error(self, *_: object) -> None:
        """A client that goes away is what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._send(Answer(body=json.dumps({"object": "list", "data": [{"id": "test-model"}]}).encode()))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.path.endswith("/chat/completions"):
            self._send(fail(404, f"no such path {self.path}"))
            return
        answer = self.server.owner.next_answer(body, {k.lower(): v for k, v in self.headers.items()})
        self._pause(answer.first_s)
        if answer.body is not None:
            self._send(answer)
        elif body.get("stream"):
            self._stream(answer, body)
        else:
            content = json.dumps(_completion(answer, body)).encode()
            self._send(replace(answer, body=content))

    def _send(self, answer: Answer) -> None:
        assert answer.body is not None
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type or "application/json")
        self.send_header("Content-Length", str(len(answer.body)))
        for key, value in answer.headers.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(answer.body)

    def _stream(self, answer: Answer, body: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", answer.content_type or "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number, event in enumerate(_events(answer, body)):
            self._pause(answer.pace_s if number > 1 else 0)
            data = f"data: {event}\n\n".encode()
            chunk = f"{len(data):x}\r\n".encode() + data + b"\r\n"
            if number == answer.cut:
                self.wfile.write(chunk[: len(chunk) // 2])
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return
            try:
                self.wfile.write(chunk)
            except OSError:
                self.server.owner.left.set()
                raise
        self.wfile.write(b"0\r\n\r\n")

    def _pause(self, seconds: float) -> None:
        """Wait, but notice at once where the client goes away."""
        if not seconds:
            return
        readable, _, _ = select.select([self.connection], [], [], seconds)
        if readable:
            self.server.owner.left.set()
            self.close_connection = True
            raise ConnectionAbortedError


def _turn(body: dict[str, Any]) -> int:
    return sum(m["role"] == "assistant" for m in body["messages"])


def _finish(answer: Answer) -> str | None:
    return ("tool_calls" if answer.calls else "stop") if answer.finish == "" else answer.finish


def _usage(answer: Answer) -> dict[str, int] | None:
    if answer.usage is None:
        return None
    read, written = answer.usage
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _frame(kind: str, body: dict[str, Any]) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": 1_700_000_000, "model": body["model"]}


def _completion(answer: Answer, body: dict[str, Any]) -> dict[str, Any]:
    turn = _turn(body)
    tools = [
        {"id": f"call_{turn}_{n}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for n, (name, arguments) in enumerate(answer.calls)
    ]
    message = {"role": "assistant", "content": answer.text or None} | ({"tool_calls": tools} if tools else {})
    choice = {"index": 0, "message": message, "finish_reason": _finish(answer)}
    return _frame("chat.completion", body) | {"choices": [choice] if answer.choices else [], "usage": _usage(answer)}


def _events(answer: Answer, body: dict[str, Any]) -> Iterator[str]:
    """The chunks of a stream: words of the text, then each call in pieces, then the finish, usage and the end."""
    turn = _turn(body)
    with_usage = (body.get("stream_options") or {}).get("include_usage", False)
    frame = _frame("chat.completion.chunk", body)

    def chunk(delta: dict[str, Any], finish: str | None = None) -> str:
        return json.dumps(frame | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    if not answer.choices:
        yield json.dumps(frame | {"choices": []})
        yield "[DONE]"
        return
    yield chunk({"role": "assistant", "content": ""})
    for word in re.findall(r"\S+\s*|\s+", answer.text):
        yield chunk({"content": word})
    for n, (name, arguments) in enumerate(answer.calls):
        opening = {
            "index": n,
            "id": f"call_{turn}_{n}",
            "type": "function",
            "function": {"name": name, "arguments": ""},
        }
        yield chunk({"tool_calls": [opening]})
        half = len(arguments) // 2
        for piece in (arguments[:half], arguments[half:]):
            yield chunk({"tool_calls": [{"index": n, "function": {"arguments": piece}}]})
    if _finish(answer) is not None:
        yield chunk({}, _finish(answer))
        if with_usage and answer.usage is not None:
            yield json.dumps(frame | {"choices": [], "usage": _usage(answer)})
        yield "[DONE]"
