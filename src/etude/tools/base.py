"""The interface of every tool: typed arguments in, text for the model out."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from pydantic import ValidationError

from etude.entities import Catalog, Entity, Table
from etude.errors import Invalid
from etude.models.base import ToolSpec
from etude.validation import explain_validation

if TYPE_CHECKING:
    from etude.result import Result
    from etude.sessions.base import Cell


ONLY = "if several"
_NEEDLESS = frozenset({"title", "default", "anyOf", "additionalProperties", "maxItems", "minLength", "maxProperties"})


class Waiting(Exception):
    """The run must wait until a person answers."""

    def __init__(self, question: str, choices: tuple[str, ...] = ()) -> None:
        super().__init__(question)
        self.question = question
        self.choices = choices
        self.step_id = ""
        """The step that waits; set by the loop."""


class ToolContext(Protocol):
    """The access of a tool to its run: every call passes the guard and the limits, and is recorded."""

    def sources(self) -> Sequence[str]:
        """Return the names of the sources that the run may use. Models call them datasets."""
        ...

    def catalog(self, source: str) -> Catalog:
        """Return the tables and columns of a source."""
        ...

    def rank(self, source: str, text: str) -> Sequence[Table]:
        """Return the tables of a source, those that fit a text best first."""
        ...

    def search(self, source: str, query: str, kinds: Sequence[str], k: int) -> Sequence[str]:
        """Return what the index of a source finds, one line for each hit."""
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
        """Mark text that comes from data, so that the model does not take it for instructions."""
        ...

    def results(self) -> Mapping[str, Sequence[str]]:
        """Return the columns of the results so far, by their short ids."""
        ...

    def find_figure_errors(self, text: str) -> Sequence[str]:
        """Return why figures of a text cannot be computed from the results so far; empty if all can."""
        ...

    @property
    def question(self) -> str:
        """The question that the run answers."""
        ...

    @property
    def reply(self) -> str | None:
        """The person's answer to the question of this call; None before it was asked."""
        ...


class Tool(ABC):
    """A function that a model may call."""

    name: ClassVar[str]
    description: ClassVar[str]
    arguments: ClassVar[type[Entity]]

    @abstractmethod
    def use(self, context: ToolContext, arguments: Any) -> str:
        """Run the tool and return the text that the model sees. Raises errors that the model can correct."""


@cache
def describe_tool(kind: type[Tool]) -> ToolSpec:
    """Return the tool as a model sees it; cached, because generating a schema is slow."""
    return ToolSpec(kind.name, kind.description, _slim(kind.arguments.model_json_schema()))


def _slim(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without what a model does not need: it is sent with every turn.

    Titles repeat names, defaults are what is meant by leaving a field out, and unknown fields fail anyway.
    """
    properties = {}
    for name, given in schema.get("properties", {}).items():
        field = next((f for f in given.get("anyOf", ()) if f.get("type") != "null"), {}) | given
        properties[name] = {k: v for k, v in field.items() if k not in _NEEDLESS}
        if field.get("type") == "object":
            # Some libraries close an object that does not say that it is open: then only {} would be valid.
            properties[name]["additionalProperties"] = True
    slim = {"type": "object", "properties": properties}
    return slim | ({"required": schema["required"]} if schema.get("required") else {})


def parse_tool_arguments(tool: Tool, text: str) -> Entity:
    """Parse the arguments that a model wrote; raises `Invalid` with what is wrong."""
    try:
        body = json.loads(text or "{}")
    except ValueError as error:
        message = f"The arguments of `{tool.name}` are not valid JSON: {error}."
        raise Invalid(message, hint="Write one JSON object.") from None
    try:
        return tool.arguments.model_validate(body)
    except ValidationError as error:
        known = ", ".join(tool.arguments.model_fields)
        raise explain_validation(
            error,
            f"the arguments of `{tool.name}`",
            model=tool.arguments,
            name=lambda field: f"`{field}` of `{tool.name}`",
            hint=f"Its arguments are: {known}.",
        ) from None
