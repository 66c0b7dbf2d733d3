"""`execute_python`: run a cell in the session of the thread."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from etude.entities import Entity
from etude.tools.base import Tool, ToolContext
from etude.tools.result_text import cell_result_text_for_model


class Arguments(Entity):
    """The code to run."""

    code: str = Field()


class ExecutePython(Tool):
    """Runs Python in a sandbox that keeps its variables."""

    name = "execute_python"
    description = (
        "Run Python in a sandbox without network or files; variables are kept. `db.sql('SELECT ...').df()` returns a "
        "DataFrame. A DataFrame as the last value becomes a result, a Vega-Lite dict the chart, a figure an image."
    )
    arguments = Arguments

    def use(self, context: ToolContext, arguments: Any) -> str:
        """Return what the cell printed and its value, shortened."""
        return cell_result_text_for_model(context.python(arguments.code), context)
