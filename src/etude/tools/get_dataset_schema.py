"""`get_dataset_schema`: show the tables of a dataset by name, or those that best match a search."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from etude.entities import Entity
from etude.tools.base import Tool, ToolContext
from etude.tools.result_text import CHARS, show_table
from etude.tools.table_ranking import rank_tables


class Arguments(Entity):
    """The tables to show."""

    dataset: str
    tables: tuple[str, ...] = Field(default=(), description="exact names; all their columns are shown")
    search: str = Field(default="", description="words; the tables that match them best are shown")


class GetDatasetSchema(Tool):
    """Columns, types, keys and comments."""

    name = "get_dataset_schema"
    description = (
        "Show tables of a dataset with columns, types, keys and comments: the tables named in `tables`, "
        "or those that best match the words in `search`."
    )
    arguments = Arguments

    def use(self, context: ToolContext, arguments: Any) -> str:
        """Return as many tables in full as fit, and the names of the others."""
        catalog = context.catalog(arguments.dataset)
        if arguments.tables:
            wanted = [catalog.table(name) for name in arguments.tables]
            missing = [name for name, table in zip(arguments.tables, wanted) if table is None]
            tables = [table for table in wanted if table is not None]
            note = f"\nNot in this dataset: {', '.join(f'`{m}`' for m in missing)}." if missing else ""
        else:
            tables = rank_tables(catalog, f"{arguments.search} {context.question}")
            note = ""
        shown: list[str] = []
        used = 0
        for table in tables:
            text = show_table(table)
            if shown and used + len(text) > CHARS:
                break
            shown.append(text)
            used += len(text)
        rest = [table.name for table in tables[len(shown) :]]
        if rest:
            shown.append(f"and {len(rest)} more: {', '.join(rest)}"[: CHARS // 4])
        return context.quote("\n\n".join(shown)) + note
