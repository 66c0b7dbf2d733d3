"""`execute_sql`: run one query in the dataset's own SQL dialect."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from etude.entities import Entity
from etude.tools.base import ONLY, Tool, ToolContext
from etude.tools.result_text import result_text_for_model


class Arguments(Entity):
    """The query to run."""

    dataset: str = Field(default="", description=ONLY)
    query: str = Field(description="in the dataset's SQL dialect; duckdb also has SUMMARIZE t")


class ExecuteSql(Tool):
    """Runs a query through the guard."""

    name = "execute_sql"
    description = "Run one read-only query and see its row count, columns and first rows."
    arguments = Arguments

    def use(self, context: ToolContext, arguments: Any) -> str:
        """Return the shape of the result and its first rows."""
        return result_text_for_model(context.sql(arguments.dataset, arguments.query), context)
