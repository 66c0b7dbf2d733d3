"""The sessions of agents that ran here."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from etude.agents.running_step import RunningStep
from etude.cancellation import Cancellation
from etude.errors import EtudeError

if TYPE_CHECKING:
    from etude.runtime.notebook import Notebook

OPEN_SESSIONS = 32


class Sessions:
    """Open sessions of agents that ran here; those not used for long are closed, and revived when needed."""

    def __init__(self) -> None:
        self._open: OrderedDict[int, tuple[Notebook, int]] = OrderedDict()
        self._used: set[int] = set()
        self._lock = threading.Lock()

    def holds(self, agent: int) -> bool:
        """Whether one of this agent is open."""
        return agent in self._open

    def agents(self) -> set[int]:
        """Those of whom one is open."""
        with self._lock:
            return set(self._open)

    def open(
        self,
        app: Any,
        find_thread: Callable[[str | None], str],
        running: RunningStep,
        source: str | None,
        options: dict[str, Any],
    ) -> Notebook:
        """The session of the agent as it was after its last step, wherever that was made."""
        claim = running.claim
        with self._lock:
            kept = self._open.get(claim.agent)
        # Another worker may have made steps meanwhile: what is open here is then behind.
        if kept is not None and kept[1] != claim.step_no:
            self.drop(claim.agent)
            kept = None
        if kept is None:
            kept = (app.open_session(source, thread_id=find_thread(source), **options), claim.step_no)
            with self._lock:
                self._open[claim.agent] = kept
        with self._lock:
            self._used.add(claim.agent)
        notebook = kept[0]
        running.cancel.check()
        return _Stoppable(notebook, running.cancel)  # type: ignore[return-value]

    def keep(self, agent: int, step_no: int) -> None:
        """The step is over, and the session knows what it did; the one used longest ago makes room."""
        with self._lock:
            if agent not in self._used:
                return
            self._used.discard(agent)
            if agent in self._open:
                self._open[agent] = (self._open[agent][0], step_no)
                self._open.move_to_end(agent)
            old = (
                next((a for a in self._open if a not in self._used), None) if len(self._open) > OPEN_SESSIONS else None
            )
        if old is not None:
            self.drop(old)

    def drop(self, agent: int) -> None:
        """Close the one of this agent."""
        with self._lock:
            kept = self._open.pop(agent, None)
        if kept is not None:
            with suppress(EtudeError):
                kept[0].close()

    def close(self) -> None:
        """Close all."""
        for agent in self.agents():
            self.drop(agent)


class _Stoppable:
    """A notebook whose cells stop when the step must end."""

    def __init__(self, notebook: Notebook, cancel: Cancellation) -> None:
        self._notebook = notebook
        self._cancel = cancel

    def __getattr__(self, name: str) -> Any:
        return getattr(self._notebook, name)

    def execute(self, code: str, **options: Any) -> Any:
        ended = threading.Event()

        def insist() -> None:
            # An interrupt that comes just before the cell begins stops nothing, so it is repeated.
            pause = 0.02
            self._notebook.interrupt()
            while not ended.wait(pause):
                self._notebook.interrupt()
                pause = min(2 * pause, 1.0)

        try:
            with self._cancel.stopping(lambda: threading.Thread(target=insist, daemon=True).start()):
                cell = self._notebook.execute(code, **options)
        finally:
            ended.set()
        self._cancel.check()
        return cell
