"""A simulated model of limited skill: it writes real code, correct if it knows enough, and makes typical mistakes.

It measures the effect of lessons without a provider. The seed decides which facts the model knows, so the true effect
of every lesson is known, and two runs with the same seed differ only by what the model was shown.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from string import Template
from typing import Literal
from urllib.parse import parse_qsl

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from etude.cancellation import Cancellation
from etude.entities import Entity, ToolCall, Turn
from etude.errors import Invalid
from etude.models.base import (
    AssistantMessage,
    Model,
    ModelReply,
    ModelRequest,
    ToolResult,
    UserMessage,
    estimate_model_usage,
)
from etude.settings import Settings
from etude.validation import explain_validation

_ERRORS: dict[str, Callable[[str], str]] = {
    "table": lambda right: f"{right}_table",
    "column": lambda right: f"{right}_value",
    "join": lambda _: "1 = 1",
    "filter": lambda _: "1 = 1",
    "unit": lambda right: right.split("/")[0].split("*")[0].strip(),
    "dialect": lambda right: f"{right.partition('(')[0]}_OF({right.partition('(')[2]}",
    "fault": lambda _: "",
}
"""The mistake for each kind of unknown fact: an invented name, a missing condition, an overlooked unit."""


class Need(Entity):
    """A fact that the model must know to solve a task."""

    name: str
    """The placeholder in the code, written `${name}`."""
    kind: Literal["table", "column", "join", "filter", "unit", "dialect", "fault"]
    fact: str
    """The identity of the fact; tasks that need the same fact share it."""
    right: str
    wrong: tuple[str, ...] = ()
    """What the model writes if it does not know the fact; by default a typical mistake of the kind."""
    told: tuple[str, ...] = ()
    """Texts that teach the fact: one of them in the conversation is enough. By default `right` itself."""
    lures: dict[str, str] = Field(default_factory=dict)
    """Texts of wrong lessons, each with what an obedient model then writes."""


class SimTask(Entity):
    """A question, the code that answers it, and the facts that the code needs."""

    asked: str
    """The part of the question that identifies the task."""
    code: str
    needs: tuple[Need, ...] = ()
    tool: str = "execute_sql"
    argument: str = "sql"

    @model_validator(mode="after")
    def _fits(self) -> SimTask:
        if not Template(self.code).is_valid():
            raise ValueError("a `$` in the code that is not a placeholder must be written `$$`")
        if sorted(set(Template(self.code).get_identifiers())) != sorted(n.name for n in self.needs):
            raise ValueError("the placeholders in the code differ from the needs of the task")
        return self


def open_sim(name: str, settings: Settings) -> Model:
    """Open the model `sim:SKILL?tasks=PATH`, with the optional `&seed=N` and `&obedience=P`."""
    skill, _, rest = name.removeprefix("sim:").partition("?")
    options = dict(parse_qsl(rest))
    path = Path(options.pop("tasks", "")).expanduser()
    unknown = sorted(set(options) - {"seed", "obedience"})
    try:
        if unknown:
            raise ValueError(f"the option `{unknown[0]}` is not known")
        tasks = TypeAdapter(tuple[SimTask, ...]).validate_json(path.read_bytes())
        return SimModel(tasks, float(skill), int(options.get("seed", 0)), float(options.get("obedience", 0.5)))
    except OSError as error:
        raise Invalid(f"The tasks of `{name}` cannot be read: {error.strerror}.", hint=_HINT) from None
    except ValidationError as error:
        raise explain_validation(
            error, f"the tasks `{path}`", model=tuple[SimTask, ...], hint="Correct them."
        ) from None
    except ValueError as error:
        raise Invalid(f"`{name}` cannot be read: {error}.", hint=_HINT) from None


_HINT = "Write `sim:0.5?tasks=PATH`; `&seed=1` and `&obedience=0.5` are optional."


class SimModel(Model):
    """Knows a fact if a hash of seed, label and fact is below its skill; any other fact it must be shown."""

    def __init__(
        self, tasks: Sequence[SimTask], skill: float, seed: int = 0, obedience: float = 0.5, label: str = "sim"
    ) -> None:
        if not (0 <= skill <= 1 and 0 <= obedience <= 1):
            raise ValueError("skill and obedience must be between 0 and 1")
        self.name = f"sim:{skill:g}"
        self._tasks = tasks
        self._skill, self._seed, self._obedience, self._label = skill, seed, obedience, label

    def knows(self, fact: str) -> bool:
        """Return whether the model knows the fact without being shown it."""
        return self._draw("fact", fact) < self._skill

    def respond(self, request: ModelRequest, on_text: Callable[[str], None], cancel: Cancellation) -> ModelReply:
        """Return a call with code for the question, or the last result if that code was already tried."""
        cancel.check()
        turn = self._turn(request)
        if turn.text:
            on_text(turn.text)
        return ModelReply(turn, estimate_model_usage(request, turn))

    def _turn(self, request: ModelRequest) -> Turn:
        task, start = self._find(request)
        if task is None:
            return Turn(text="I do not know.")
        since = request.conversation[start:]
        tried = [c.arguments for u in since if isinstance(u, AssistantMessage) for c in u.turn.calls]
        shown = "\n".join(u.text for u in request.conversation if not isinstance(u, AssistantMessage))
        code = Template(task.code).substitute({n.name: self._write(n, shown) for n in task.needs})
        arguments = json.dumps({task.argument: code})
        if arguments in tried:
            results = [u.text for u in since if isinstance(u, ToolResult)]
            return Turn(text=results[-1] if results else "I do not know.")
        call = ToolCall(id=f"call_{len(tried) + 1}", name=task.tool, arguments=arguments)
        return Turn(calls=(call,), stop="calls")

    def _find(self, request: ModelRequest) -> tuple[SimTask | None, int]:
        for n in range(len(request.conversation) - 1, -1, -1):
            message = request.conversation[n]
            if isinstance(message, UserMessage):
                for task in self._tasks:
                    if task.asked.lower() in message.text.lower():
                        return task, n
        return None, 0

    def _write(self, need: Need, shown: str) -> str:
        for lure, wrong in need.lures.items():
            if lure in shown and self._draw("obey", lure) < self._obedience:
                return wrong
        if self.knows(need.fact) or any(text in shown for text in need.told or (need.right,)):
            return need.right
        errors = need.wrong or (_ERRORS[need.kind](need.right),)
        return errors[int(self._draw("error", need.fact) * len(errors))]

    def _draw(self, *of: str) -> float:
        text = "\0".join((str(self._seed), self._label, *of))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big") / 2**48
