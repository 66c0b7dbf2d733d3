"""`list_datasets`: list the datasets that can be queried."""

from __future__ import annotations

from typing import Any

from etude.entities import Entity
from etude.tools.base import Tool, ToolContext


class Arguments(Entity):
    """No arguments."""


class ListDatasets(Tool):
    """Lists the datasets of a run with their sizes."""

    name = "list_datasets"
    description = "List the datasets that can be queried, with the number of tables in each."
    arguments = Arguments

    def use(self, context: ToolContext, arguments: Any) -> str:
        """Return the names, dialects and table counts."""
        lines = []
        for name in context.sources():
            catalog = context.catalog(name)
            lines.append(f"{name}: {len(catalog.tables)} tables, SQL dialect {catalog.dialect}")
        return context.quote("\n".join(lines)) if lines else "No datasets are available."
