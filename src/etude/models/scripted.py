"""A model that plays a script: for tests, for demonstrations, and to try what a bad model could do."""

from __future__ import annotations

import json
import re
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from etude.cancellation import Cancellation
from etude.entities import Entity, ToolCall, Turn, Usage
from etude.errors import Invalid, ModelError
from etude.models.base import AssistantMessage, Model, ModelReply, ModelRequest, UserMessage, measure
from etude.settings import Settings
from etude.validation import explain

_FORM = 'Write a JSON list of turns, such as `[{"text": "Hello"}]`.'
_WORDS = re.compile(r"\s*\S+\s*")


class ScriptedCall(Entity):
    """A tool that a scripted turn calls; arguments as text are sent as they are, valid or not."""

    name: str
    arguments: dict[str, Any] | str = Field(default_factory=dict)
    id: str = ""


class Line(Entity):
    """One turn of a script."""

    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    stop: Literal["end", "calls", "length", "refused"] | None = None
    error: str = ""
    """Fail with this message, after the text was streamed."""
    delay_s: float = Field(default=0.0, ge=0)
    """Seconds before the first word."""
    pace_s: float = Field(default=0.0, ge=0)
    """Seconds between words."""
    expect: tuple[str, ...] = ()
    """What must stand in the conversation that is shown; where it does not, the turn fails and says so."""
    usage: Usage | None = None
    """What the turn costs; by default no money, and the length of what was read and written."""


class Scene(Entity):
    """The turns that answer one question: the last one asked whose text holds `asked`."""

    asked: str
    turns: tuple[Line, ...]


Part = Line | Callable[[ModelRequest], Line]
"""A turn, or a function that makes it of what the model is shown."""


def open_scripted(name: str, settings: Settings) -> Model:
    """The model `scripted:PATH`, a script in a JSON file."""
    return Scripted.from_file(Path(name.removeprefix("scripted:")).expanduser())


class Scripted(Model):
    """Plays turns in order. It keeps no place: the conversation tells how many turns were played.

    So another process goes on where one ended. A list of turns is counted from the start of the conversation, a
    scene from its question.
    """

    def __init__(self, script: Sequence[Part] | Sequence[Scene], *, name: str = "scripted") -> None:
        self.name = name
        self.seen: deque[ModelRequest] = deque(maxlen=1000)
        """The latest requests, for tests to look at."""
        self._scenes = [part for part in script if isinstance(part, Scene)]
        self._turns = [part for part in script if not isinstance(part, Scene)]
        if self._scenes and self._turns:
            raise Invalid("A script holds turns or scenes, not both.", hint="Put the turns into a scene.")

    @classmethod
    def from_file(cls, path: Path) -> Scripted:
        """The script in a JSON file: a list of turns, or of scenes."""
        try:
            content = json.loads(path.read_bytes())
            scenes = isinstance(content, list) and any(isinstance(c, dict) and "asked" in c for c in content)
            script = TypeAdapter(list[Scene] if scenes else list[Line]).validate_python(content)
        except OSError as error:
            raise Invalid(f"The script `{path}` cannot be read: {error.strerror}.", hint="Check the path.") from None
        except ValidationError as error:
            raise explain(
                error, f"the script `{path}`", model=list[Scene] if scenes else list[Line], hint=_FORM
            ) from None
        except ValueError as error:
            raise Invalid(f"The script `{path}` is no JSON: {error}.", hint=_FORM) from None
        return cls(script, name=f"scripted:{path}")

    def respond(self, request: ModelRequest, on_text: Callable[[str], None], cancel: Cancellation) -> ModelReply:
        """The turn that is due."""
        self.seen.append(request)
        number, part = self._due(request)
        line = part(request) if callable(part) else part
        _check_shown(number, line, request)
        _wait(line.delay_s, cancel)
        for n, word in enumerate(_WORDS.findall(line.text)):
            _wait(line.pace_s if n else 0, cancel)
            on_text(word)
        if line.error:
            raise ModelError(line.error, hint="The script says so.", model=self.name)
        turn = _turn(number, line)
        return ModelReply(turn, line.usage or measure(request, turn), price_known=line.usage is not None)

    def _due(self, request: ModelRequest) -> tuple[int, Part]:
        turns, start = self._turns, 0
        if self._scenes:
            turns, start = self._scene(request)
        played = sum(isinstance(u, AssistantMessage) for u in request.conversation[start:])
        if played >= len(turns):
            message = f"The script has {len(turns)} turns, and turn {played + 1} was asked for."
            raise ModelError(message, hint="Add a turn to the script.", model=self.name)
        return played, turns[played]

    def _scene(self, request: ModelRequest) -> tuple[list[Part], int]:
        for n in range(len(request.conversation) - 1, -1, -1):
            said = request.conversation[n]
            if isinstance(said, UserMessage):
                for scene in self._scenes:
                    if scene.asked.lower() in said.text.lower():
                        return list(scene.turns), n
        raise ModelError("No scene of the script fits what was asked.", hint="Add a scene.", model=self.name)


def _turn(number: int, line: Line) -> Turn:
    calls = tuple(
        ToolCall(
            id=call.id or f"call_{number + 1}_{n + 1}",
            name=call.name,
            arguments=call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments),
        )
        for n, call in enumerate(line.calls)
    )
    return Turn(text=line.text, calls=calls, stop=line.stop or ("calls" if calls else "end"))


def _check_shown(number: int, line: Line, request: ModelRequest) -> None:
    shown = "\n".join(u.turn.text if isinstance(u, AssistantMessage) else u.text for u in request.conversation)
    for text in line.expect:
        if text not in shown:
            message = f"Turn {number + 1} of the script expects to be shown `{text}`, and was not."
            raise ModelError(message, hint="Correct the script, or what is shown to the model.")


def _wait(seconds: float, cancel: Cancellation) -> None:
    if seconds:
        stopped = threading.Event()
        with cancel.stopping(stopped.set):
            stopped.wait(seconds)
    cancel.check()
