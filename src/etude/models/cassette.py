"""A model that records the turns of another model and replays them without it."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from etude.cancellation import Cancellation
from etude.entities import Entity, Turn, Usage
from etude.errors import Invalid, ModelError
from etude.models.base import Model, ModelReply, ModelRequest
from etude.settings import Settings


class Recorded(Entity):
    """A line of a cassette. It stores only a digest of the request: no question, no data and no API key."""

    key: str
    model: str
    pieces: tuple[str, ...]
    """The text as it was streamed."""
    turn: Turn
    usage: Usage
    price_known: bool


def open_cassette(name: str, settings: Settings) -> Model:
    """Open `cassette:PATH`, which replays, or `cassette:PATH?model=NAME`, which also records missing turns."""
    from etude.models.open import open_model

    path, _, recorded = name.removeprefix("cassette:").partition("?model=")
    return Cassette(Path(path).expanduser(), open_model(recorded, settings) if recorded else None)


class Cassette(Model):
    """Replays the turn recorded for the same conversation and tools; with a model, asks it for the rest and records."""

    def __init__(self, path: Path, model: Model | None = None) -> None:
        self.name = f"cassette:{path}"
        self._path = path
        self._model = model
        self._lock = threading.Lock()
        if model is None and not path.is_file():
            raise Invalid(f"The cassette `{path}` does not exist.", hint=f"Record one with `{self.name}?model=NAME`.")
        try:
            if model is not None:
                path.open("ab").close()
            self._recorded = _read(path)
        except OSError as error:
            raise Invalid(f"The cassette `{path}` cannot be used: {error.strerror}.", hint="Check the path.") from None

    def respond(self, request: ModelRequest, on_text: Callable[[str], None], cancel: Cancellation) -> ModelReply:
        """Return the recorded turn; raises `ModelError` with the reason `not_recorded` if there is none."""
        cancel.check()
        key = cassette_request_digest(request)
        found = self._recorded.get(key)
        if found is not None:
            for piece in found.pieces:
                on_text(piece)
            return ModelReply(found.turn, found.usage, found.price_known)
        if self._model is None:
            message = f"The cassette `{self._path}` has no recorded turn for this conversation."
            hint = "The conversation or the tools differ from the recording. Record it again with `?model=NAME`."
            raise ModelError(message, hint=hint, model=self.name, reason="not_recorded")
        return self._record(key, self._model, request, on_text, cancel)

    def close(self) -> None:
        """Close the model that is being recorded."""
        if self._model is not None:
            self._model.close()

    def _record(
        self, key: str, model: Model, request: ModelRequest, on_text: Callable[[str], None], cancel: Cancellation
    ) -> ModelReply:
        pieces: list[str] = []

        def listen(text: str) -> None:
            pieces.append(text)
            on_text(text)

        def restart() -> None:
            pieces.clear()
            if request.on_restart is not None:
                request.on_restart()

        recorded = replace(request, on_restart=restart if request.on_restart is not None else None)
        reply = model.respond(recorded, listen, cancel)
        line = Recorded(
            key=key,
            model=model.name,
            pieces=tuple(pieces),
            turn=reply.turn,
            usage=reply.usage,
            price_known=reply.price_known,
        )
        with self._lock, self._path.open("a", encoding="utf-8") as file:
            file.write(line.model_dump_json() + "\n")
            self._recorded[key] = line
        return reply


def cassette_request_digest(request: ModelRequest) -> str:
    """Return the SHA-256 of everything a turn depends on: the conversation, the tools and `max_tokens`."""
    content = {
        "conversation": [u.model_dump() for u in request.conversation],
        "tools": [[t.name, t.description, t.parameters] for t in request.tools],
        "max_tokens": request.max_tokens,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _read(path: Path) -> dict[str, Recorded]:
    recorded = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            entry = Recorded.model_validate_json(line)
        except ValidationError:
            message = f"Line {number} of the cassette `{path}` is not a recorded turn."
            raise Invalid(message, hint="Delete the line, or record the cassette again.") from None
        recorded[entry.key] = entry
    return recorded
