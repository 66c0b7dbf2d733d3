"""`execute_sql`: run one query in the dataset's own SQL dialect."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from etude.entities import Entity
from etude.tools.base import Tool, ToolContext
from etude.tools.result_text import show_result


class Arguments(Entity):
    """The query to run."""

    dataset: str
    query: str = Field(description="one SELECT in the dialect of the dataset")


class ExecuteSql(Tool):
    """Runs a query through the guard."""

    name = "execute_sql"
    description = "Run one read-only SQL query on a dataset and see its columns, row count and first rows."
    arguments = Arguments

    def use(self, context: ToolContext, arguments: Any) -> str:
        """Return the shape of the result and its first rows."""
        return show_result(context.sql(arguments.dataset, arguments.query), context)
