"""A model that plays a script: for tests, for demonstrations, and to try out what a bad model could do."""

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
from etude.models.base import AssistantMessage, Model, ModelReply, ModelRequest, UserMessage, estimate_model_usage
from etude.settings import Settings
from etude.validation import explain_validation

_FORM = 'Write a JSON list of turns, such as `[{"text": "Hello"}]`.'
_WORDS = re.compile(r"\s*\S+\s*")


class ScriptedCall(Entity):
    """A tool call of a scripted turn. Arguments given as text are sent unchanged, valid or not."""

    name: str
    arguments: dict[str, Any] | str = Field(default_factory=dict)
    id: str = ""


class Line(Entity):
    """One turn of a script."""

    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    stop: Literal["end", "calls", "length", "refused"] | None = None
    error: str = ""
    """Fail with this message after streaming the text."""
    delay_s: float = Field(default=0.0, ge=0)
    """Seconds before the first word."""
    pace_s: float = Field(default=0.0, ge=0)
    """Seconds between words."""
    expect: tuple[str, ...] = ()
    """Texts that the conversation must contain; if one is missing, the turn fails and names it."""
    usage: Usage | None = None
    """The usage of the turn; by default no cost, and tokens estimated from the length of the texts."""


class Scene(Entity):
    """The turns that answer one question: the last user message that contains `asked`."""

    asked: str
    turns: tuple[Line, ...]


Part = Line | Callable[[ModelRequest], Line]
"""A turn, or a function that makes the turn from the request."""


def open_scripted(name: str, settings: Settings) -> Model:
    """Open the model `scripted:PATH`, a script in a JSON file."""
    return Scripted.from_file(Path(name.removeprefix("scripted:")).expanduser())


class Scripted(Model):
    """Plays turns in order. It is stateless: the conversation shows how many turns were already played.

    Another process can therefore continue where one ended. Turns are counted from the first turn of the run; the turns
    of a scene are counted from its question.
    """

    def __init__(self, script: Sequence[Part] | Sequence[Scene], *, name: str = "scripted") -> None:
        self.name = name
        self.seen: deque[ModelRequest] = deque(maxlen=1000)
        """The latest requests, for tests to inspect."""
        self._scenes = [part for part in script if isinstance(part, Scene)]
        self._turns = [part for part in script if not isinstance(part, Scene)]
        if self._scenes and self._turns:
            raise Invalid("A script contains turns or scenes, not both.", hint="Put the turns into a scene.")

    @classmethod
    def from_file(cls, path: Path) -> Scripted:
        """Read a script from a JSON file: a list of turns or of scenes."""
        try:
            content = json.loads(path.read_bytes())
            scenes = isinstance(content, list) and any(isinstance(c, dict) and "asked" in c for c in content)
            script = TypeAdapter(list[Scene] if scenes else list[Line]).validate_python(content)
        except OSError as error:
            raise Invalid(f"The script `{path}` cannot be read: {error.strerror}.", hint="Check the path.") from None
        except ValidationError as error:
            raise explain_validation(
                error, f"the script `{path}`", model=list[Scene] if scenes else list[Line], hint=_FORM
            ) from None
        except ValueError as error:
            raise Invalid(f"The script `{path}` is not valid JSON: {error}.", hint=_FORM) from None
        return cls(script, name=f"scripted:{path}")

    def respond(self, request: ModelRequest, on_text: Callable[[str], None], cancel: Cancellation) -> ModelReply:
        """Play the next turn of the script."""
        self.seen.append(request)
        number, part = self._find_turn(request)
        line = part(request) if callable(part) else part
        _check_shown(number, line, request)
        _wait(line.delay_s, cancel)
        for n, word in enumerate(_WORDS.findall(line.text)):
            _wait(line.pace_s if n else 0, cancel)
            on_text(word)
        if line.error:
            raise ModelError(line.error, hint="The script asks for this error.", model=self.name)
        turn = _turn(number, line)
        return ModelReply(turn, line.usage or estimate_model_usage(request, turn), price_known=line.usage is not None)

    def _find_turn(self, request: ModelRequest) -> tuple[int, Part]:
        turns, start = self._turns, 0
        if self._scenes:
            turns, start = self._find_scene(request)
        played = sum(isinstance(u, AssistantMessage) and not u.earlier for u in request.conversation[start:])
        if played >= len(turns):
            count = f"{len(turns)} turn{'' if len(turns) == 1 else 's'}"
            message = f"The script has only {count}, but turn {played + 1} was requested."
            raise ModelError(message, hint="Add a turn to the script.", model=self.name)
        return played, turns[played]

    def _find_scene(self, request: ModelRequest) -> tuple[list[Part], int]:
        for n in range(len(request.conversation) - 1, -1, -1):
            message = request.conversation[n]
            if isinstance(message, UserMessage):
                for scene in self._scenes:
                    if scene.asked.lower() in message.text.lower():
                        return list(scene.turns), n
        raise ModelError("No scene of the script matches the question.", hint="Add a scene.", model=self.name)


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
            message = f"Turn {number + 1} of the script expects `{text}` in the conversation, but it is not there."
            raise ModelError(message, hint="Correct the script, or what the model is shown.")


def _wait(seconds: float, cancel: Cancellation) -> None:
    if seconds:
        stopped = threading.Event()
        with cancel.stopping(stopped.set):
            stopped.wait(seconds)
    cancel.check()
