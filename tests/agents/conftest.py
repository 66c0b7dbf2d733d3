"""Each test of agents runs over SQLite and over a real Postgres."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import pytest

from etude.agents.agent_control import AgentControl
from etude.agents.base import DONE, InboxItem, Kind, StepContext, StepResult
from etude.agents.worker import Worker
from etude.app import App
from etude.entities import Entity
from etude.store.queue import Queue


class Anything(Entity):
    """A configuration for tests."""

    note: str = ""


class Script(Kind[Anything]):
    """Runs a function of the test: `do` gets the context, the state and the inbox."""

    Config = Anything
    do: ClassVar[Callable[[StepContext, dict[str, Any], list[InboxItem]], StepResult]]

    def step(self, ctx: StepContext, state: dict[str, Any], inbox: list[InboxItem]) -> StepResult:
        return type(self).do(ctx, state, inbox)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow for slow machines: a stall must not look like a lost worker or a step that does not end."""
    monkeypatch.setitem(Worker.__init__.__kwdefaults__, "lease", 300.0)
    monkeypatch.setattr("etude.agents.worker.ENDING_S", 90.0)


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/etude.db"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def open_app(store_url: str, tmp_path: Path) -> Iterator[Callable[[], App]]:
    """Return a function that opens etude as another process would."""
    with ExitStack() as stack:
        # The receivers of webhooks listen on this machine.
        allow = {"reach": ["127.0.0.1"]}
        yield lambda: stack.enter_context(App(home=tmp_path / "home", store=store_url, agents=allow))


@pytest.fixture
def app(open_app: Callable[[], App]) -> App:
    return open_app()


@pytest.fixture
def agents(app: App) -> Iterator[AgentControl]:
    queue = Queue(app.store)
    yield AgentControl(app.store, queue)
    queue.close()


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> type[Script]:
    """A kind of agent for this test, known as `script`."""
    from etude import plugins

    kind = type("ScriptHere", (Script,), {"do": staticmethod(lambda ctx, state, inbox: StepResult(next=DONE))})
    module = f"{kind.__module__}_{id(kind)}"
    import sys
    import types

    made = types.ModuleType(module)
    made.kind = kind  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module, made)
    monkeypatch.setitem(plugins.BUILT_IN["agent"], "script", f"{module}:kind")
    return kind


@pytest.fixture
def work(app: App, agents: AgentControl) -> Iterator[Callable[..., Worker]]:
    """Return a function that starts a worker; all are stopped at the end."""
    with ExitStack() as stack:

        def start(**options: Any) -> Worker:
            return stack.enter_context(Worker(app, agents.queue, **options))

        yield start
