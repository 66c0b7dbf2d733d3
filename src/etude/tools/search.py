"""`search`: find tables, values, rows, documents and earlier questions by words and by meaning."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from etude.entities import Entity
from etude.tools.base import ONLY, Tool, ToolContext

K = 8


class Arguments(Entity):
    """What to search for."""

    query: str = Field(description="words")
    dataset: str = Field(default="", description=ONLY)
    kinds: tuple[Literal["row", "value", "table", "column", "file", "playbook", "run"], ...] = Field(
        default=(), description="only these"
    )


class SearchDataset(Tool):
    """Looks into the index of a dataset."""

    name = "search"
    description = (
        "Find tables, columns, how a value is spelt, rows, documents and earlier questions by meaning. Results are "
        "hints: compute numbers with a query."
    )
    arguments = Arguments

    def use(self, context: ToolContext, arguments: Any) -> str:
        """Return the best hits, one on each line."""
        found = context.search(arguments.dataset, arguments.query, arguments.kinds, K)
        return context.quote("\n".join(found) or "Nothing was found.")
