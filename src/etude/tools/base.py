"""What every tool gives, and what it is given: typed arguments in, text for the model out."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from pydantic import ValidationError

from etude.entities import Catalog, Entity
from etude.errors import Invalid
from etude.models.base import ToolSpec
from etude.validation import explain

if TYPE_CHECKING:
    from etude.result import Result
    from etude.sessions.base import Cell


class Waiting(Exception):
    """The run has to wait until a person answers."""

    def __init__(self, question: str, choices: tuple[str, ...] = ()) -> None:
        super().__init__(question)
        self.question = question
        self.choices = choices
        self.step_id = ""
        """The step that waits; the loop knows it."""


class ToolContext(Protocol):
    """Where a tool works: the datasets of its run, through the guard, the limits and the record."""

    def sources(self) -> Sequence[str]:
        """The names of those that the run may use."""
        ...

    def catalog(self, source: str) -> Catalog:
        """What a dataset holds."""
        ...

    def sql(self, source: str, query: str) -> Result:
        """Run a query as a step of the run."""
        ...

    def plan(self, source: str, plan: dict[str, Any]) -> Result:
        """Run a QueryPlan as a step of the run."""
        ...

    def python(self, code: str) -> Cell:
        """Run a cell in the session of the run's thread, as a step of the run."""
        ...

    def quote(self, text: str) -> str:
        """Text that comes from data, marked so that the model takes it for nothing else."""
        ...

    @property
    def question(self) -> str:
        """What the run is to answer."""
        ...

    @property
    def reply(self) -> str | None:
        """What a person answered to the question of this call; None where none was asked yet."""
        ...


class Tool(ABC):
    """A function that a model may call."""

    name: ClassVar[str]
    description: ClassVar[str]
    arguments: ClassVar[type[Entity]]

    @abstractmethod
    def use(self, context: ToolContext, arguments: Any) -> str:
        """Do it; what the model is shown of it. Errors that the model can mend are raised."""


@cache
def describe_tool(kind: type[Tool]) -> ToolSpec:
    """The tool as a model sees it; made once, for a schema takes its time."""
    return ToolSpec(kind.name, kind.description, kind.arguments.model_json_schema())


def parse_arguments(tool: Tool, text: str) -> Entity:
    """The arguments that a model wrote, or `Invalid` that tells it what is wrong with them."""
    try:
        body = json.loads(text or "{}")
    except ValueError as error:
        message = f"The arguments of `{tool.name}` are no JSON: {error}."
        raise Invalid(message, hint="Write one JSON object.") from None
    try:
        return tool.arguments.model_validate(body)
    except ValidationError as error:
        known = ", ".join(tool.arguments.model_fields)
        raise explain(
            error,
            f"the arguments of `{tool.name}`",
            model=tool.arguments,
            name=lambda field: f"`{field}` of `{tool.name}`",
            hint=f"Its arguments are: {known}.",
        ) from None
