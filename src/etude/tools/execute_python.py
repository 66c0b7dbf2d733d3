"""`execute_python`: a cell in the session that the thread keeps."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from etude.entities import Entity
from etude.tools.base import Tool, ToolContext
from etude.tools.shown import show_cell


class Arguments(Entity):
    """What to run."""

    code: str = Field(description="Python; the value of the last expression is shown, as in a notebook")


class ExecutePython(Tool):
    """Runs Python in a sandbox that keeps its variables."""

    name = "execute_python"
    description = (
        "Run Python in a persistent sandbox without network or files. Variables stay. `db` is the dataset: "
        "`db.sql('SELECT ...').df()` gives a DataFrame. pandas, numpy, pyarrow and duckdb are there."
    )
    arguments = Arguments

    def use(self, context: ToolContext, arguments: Any) -> str:
        """What the cell printed and returned, cut."""
        return show_cell(context.python(arguments.code), context)
