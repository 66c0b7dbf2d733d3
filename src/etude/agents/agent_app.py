"""The interface between agents and the application that runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from etude.catalog.cataloger import Cataloger
    from etude.entities import Budget, Limits, SourceSpec
    from etude.events import Entry
    from etude.models.base import Model
    from etude.result import Result
    from etude.runs import Runs
    from etude.runtime.answer import Answer
    from etude.runtime.notebook import Notebook
    from etude.runtime.run_control import RunControl
    from etude.runtime.session_pool import SessionPool
    from etude.search.indexes import Indexes
    from etude.settings import Settings
    from etude.sources.plan import QueryPlan
    from etude.sources.source import Source
    from etude.store.base import Store
    from etude.store.objects import Objects


class AgentApp(Protocol):
    """The part of `etude.App` that workers, steps and kinds of agents use."""

    settings: Settings

    @property
    def store(self) -> Store: ...  # noqa: D102 - see `etude.App`, here and below

    @property
    def objects(self) -> Objects: ...  # noqa: D102

    @property
    def runs(self) -> Runs: ...  # noqa: D102

    @property
    def cataloger(self) -> Cataloger: ...  # noqa: D102

    @property
    def indexes(self) -> Indexes: ...  # noqa: D102

    @property
    def session_pool(self) -> SessionPool: ...  # noqa: D102

    def scoped(self, tenant: str) -> AgentApp: ...  # noqa: D102

    def change_settings(self, settings: Settings) -> None: ...  # noqa: D102

    def sources(self) -> dict[str, SourceSpec]: ...  # noqa: D102

    def source(self, name_or_url: str | Source) -> Source: ...  # noqa: D102

    def source_name(self, name: str | None) -> str: ...  # noqa: D102

    def open_model(self, name: str) -> Model: ...  # noqa: D102

    def check_model(self, name: str | None) -> str | None: ...  # noqa: D102

    def sql(  # noqa: D102
        self,
        source: str | Source,
        query: str,
        *,
        limits: Limits | None = None,
        record: bool | None = None,
        thread_id: str | None = None,
        on_progress: Callable[[float], None] | None = None,
    ) -> Result: ...

    def plan(  # noqa: D102
        self,
        source: str | Source,
        plan: QueryPlan | Mapping[str, Any] | str,
        *,
        limits: Limits | None = None,
        record: bool | None = None,
        thread_id: str | None = None,
        on_progress: Callable[[float], None] | None = None,
    ) -> Result: ...

    def ask(  # noqa: D102
        self,
        source: str | Source | None,
        question: str,
        *,
        model: str | Model | None = None,
        thread_id: str | None = None,
        budget: Budget | None = None,
        on_entry: Callable[[Entry], None] | None = None,
        control: RunControl | None = None,
    ) -> Answer: ...

    def lend_session(  # noqa: D102
        self, thread_id: str, source: Source | None, *, options: Mapping[str, Any] | None = None, keep: bool = True
    ) -> AbstractContextManager[Notebook]: ...
