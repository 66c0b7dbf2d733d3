"""The kinds of agents: how one is loaded, described, and its config checked."""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import sys
import textwrap
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from etude import plugins
from etude.agents.base import Kind
from etude.entities import Entity
from etude.errors import EtudeError, Forbidden, Invalid
from etude.store.identity import Role
from etude.validation import explain_validation

if TYPE_CHECKING:
    from etude.agents.agent_app import AgentApp

MAX_CONFIG = 200_000
"""The most characters of a configuration: every step reads it."""


def load_agent_kind(name: str) -> type[Kind[Any]]:
    """Return the kind of agent with this name: a built-in one, or one of an installed package."""
    try:
        found = plugins.load_plugin("agent", name)
    except EtudeError as error:
        raise Invalid(f"There is no kind of agent `{name}`.", hint=error.hint) from None
    except Exception as error:  # importing a package may raise anything
        raise Invalid(
            f"The kind of agent `{name}` cannot be loaded: {type(error).__name__}: {error}.",
            hint="Fix the package that adds it, or its entry point in `etude.agent`.",
        ) from error
    if not (isinstance(found, type) and issubclass(found, Kind)) or inspect.isabstract(found):
        raise Invalid(
            f"`{name}` is not a kind of agent: its entry point names `{getattr(found, '__name__', found)}`.",
            hint="Name a class that derives from `etude.agents.base.Kind` and has a `step` method.",
        )
    if not (isinstance(found.Config, type) and issubclass(found.Config, Entity)):
        raise Invalid(
            f"The `Config` of the kind of agent `{name}` is not a configuration.",
            hint="Use a class that derives from `etude.entities.Entity`.",
        )
    return found


class KindInfo(Entity):
    """A kind of agent: what it does, and the JSON Schema of its configuration."""

    kind: str
    description: str
    admin: bool
    """Whether only administrators may create it."""
    local: bool
    """Whether only the operator of the host may create it."""
    config: dict[str, Any]


@cache
def describe_agent_kinds() -> list[KindInfo]:
    """Return the kinds of agents that can be loaded: built-in ones, and those of installed packages."""
    found = []
    for name in plugins.plugin_names("agent"):
        try:
            kind = load_agent_kind(name)
        except Invalid:
            continue  # its package is damaged or lacks another; creating such an agent says so
        about = sys.modules[kind.__module__].__doc__ or kind.__doc__ or ""
        found.append(
            KindInfo(
                kind=name,
                description=about.strip().partition("\n")[0],
                admin=kind.admin,
                local=kind.local,
                config=_config_schema(kind.Config),
            )
        )
    return found


def _config_schema(config: type[Entity]) -> dict[str, Any]:
    """Return the JSON Schema of a configuration; the texts below its fields are their descriptions."""
    schema = config.model_json_schema()
    for each in reversed(config.__mro__[:-1]):
        for name, text in _field_texts(each).items():
            if name in schema.get("properties", {}):
                schema["properties"][name].setdefault("description", text)
    return schema


def _field_texts(config: type) -> dict[str, str]:
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(config))).body[0]
    except (OSError, TypeError, SyntaxError):
        return {}
    texts = {}
    for field, after in itertools.pairwise(getattr(body, "body", ())):
        match field, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                texts[name] = " ".join(text.split())
    return texts


def check_agent_config(kind: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Check the configuration of a kind of agent, and return it with defaults filled in."""
    checked: dict[str, Any] = parse_agent_config(kind, load_agent_kind(kind), config).model_dump(mode="json")
    try:
        size = len(json.dumps(checked, allow_nan=False))
    except ValueError:
        raise Invalid(
            f"The configuration of a `{kind}` agent contains NaN or infinity.", hint="Give finite numbers."
        ) from None
    if size > MAX_CONFIG:
        raise Invalid(
            f"The configuration of a `{kind}` agent has {size:,} characters as JSON.",
            hint=f"Use at most {MAX_CONFIG:,}.",
        )
    return checked


def parse_agent_config(name: str, kind: type[Kind[Any]], config: Mapping[str, Any] | str) -> Entity:
    """Read a configuration, given as a mapping or as JSON, into the kind's `Config`."""
    try:
        if isinstance(config, str):
            return kind.Config.model_validate_json(config)
        return kind.Config.model_validate(dict(config))
    except ValidationError as error:
        raise explain_validation(
            error,
            f"the configuration of a `{name}` agent",
            model=kind.Config,
            hint=f"Its fields are: {', '.join(f'`{field}`' for field in kind.Config.model_fields)}.",
        ) from None


def check_agent_rights(app: AgentApp, kind: str, config: Mapping[str, Any], require: Callable[[Role], None]) -> None:
    """Refuse what only local users may use: a path as the source, models not offered, kinds reserved to administrators.

    `require` raises if the caller does not have the role.
    """
    found = load_agent_kind(kind)
    require("admin" if found.admin else "analyst")
    if found.local:
        raise Forbidden(
            f"A `{kind}` agent works on folders of the host.",
            hint="Have the operator create or change it with `etude agents`.",
        )
    source, model = config.get("source"), config.get("model")
    if source is not None:
        app.source_name(str(source))
    if model is not None:
        app.check_model(str(model))
    for field, value in config.items():
        # A secret by reference is a file or a variable of the host; only its operator may choose which.
        if isinstance(value, str) and value.startswith(("file:", "env:")):
            raise Forbidden(
                f"The field `{field}` refers to a file or a variable of the host.",
                hint="Give the value itself, or have the operator create the agent with `etude agents create`.",
            )
