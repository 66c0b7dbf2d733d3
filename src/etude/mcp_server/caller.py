"""The caller of an MCP tool, and the arguments that several tools share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from mcp.server.mcpserver import Context
from pydantic import Field

from etude.entities import Entity
from etude.limits import MOST_TEXT
from etude.store.identity import Report, Role

if TYPE_CHECKING:
    from etude.app import App


ROWS = 100
TEXT = MOST_TEXT
Dataset = Annotated[str | None, Field(description="A name from list_datasets; may be omitted if there is only one.")]


@dataclass(frozen=True)
class McpCaller:
    """The caller of a tool: the app of its tenant, and its rights."""

    app: App
    report: Callable[[dict[str, Any]], Report]
    """Store the caller's report of its work."""
    require: Callable[[Role], None] = lambda _: None
    check_capacity: Callable[[], None] = lambda: None
    """Raise if no more work may start."""
    charge_run: Callable[[str], None] = lambda _: None
    """Charge a run to the caller's key once the run ends."""
    key_id: str | None = None
    """The key whose daily quota counts the usage of the caller's agents."""


FindCaller = Callable[[Context[Any, Any]], McpCaller]


Tool = tuple[Callable[..., Entity], Role, bool]
"""A tool, the role that it needs, and whether it only reads."""
