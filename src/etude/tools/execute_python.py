"""`execute_python`: run a cell in the session of the thread."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from etude.entities import Entity
from etude.tools.base import Tool, ToolContext
from etude.tools.result_text import show_cell


class Arguments(Entity):
    """The code to run."""

    code: str = Field(description="Python; the value of the last expression is shown, as in a notebook")


class ExecutePython(Tool):
    """Runs Python in a sandbox that keeps its variables."""

    name = "execute_python"
    description = (
        "Run Python in a persistent sandbox without network or files. Variables are kept between calls. `db` is the "
        "dataset: `db.sql('SELECT ...').df()` returns a DataFrame. pandas, numpy, pyarrow and duckdb are installed."
    )
    arguments = Arguments

    def use(self, context: ToolContext, arguments: Any) -> str:
        """Return what the cell printed and its value, shortened."""
        return show_cell(context.python(arguments.code), context)
