"""The session of an agent, as one of its steps uses it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from etude.cancellation import Cancellation

if TYPE_CHECKING:
    from etude.agents.agent_app import AgentApp
    from etude.sessions.base import Cell, Output
    from etude.sources.source import Source


class AgentSession:
    """The session of the agent's thread, which `ctx.app.ask` uses too.

    It is borrowed for each cell, so a cell sees the effects of everything that ran in the thread before it.
    """

    def __init__(
        self,
        app: AgentApp,
        thread_id: str,
        source: Source | None,
        options: Mapping[str, Any] | None,
        cancel: Cancellation,
    ) -> None:
        self._app = app
        self.thread_id = thread_id
        self._source = source
        self._options = options
        self._cancel = cancel

    def execute(
        self, code: str, *, wall_s: float | None = None, on_output: Callable[[Output], None] | None = None
    ) -> Cell:
        """Run a cell. If the step is interrupted, stop the cell and raise `Cancelled`."""
        with self._app.lend_session(self.thread_id, self._source, options=self._options) as notebook:
            cell = notebook.execute(code, wall_s=wall_s, on_output=on_output, cancel=self._cancel)
        self._cancel.check()
        return cell
