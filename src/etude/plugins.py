"""The registry of implementations by name. Packages add their own by entry point."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from etude.errors import Invalid

BUILT_IN: dict[str, dict[str, str]] = {
    "agent": {
        "analyst": "etude.agents.kinds.analyst:AnalystAgent",
        "catalog": "etude.agents.kinds.catalog:CatalogAgent",
        "echo": "etude.agents.kinds.echo:EchoAgent",
        "index": "etude.agents.kinds.index:IndexAgent",
        "redis": "etude.agents.kinds.redis:RedisAgent",
        "learn": "etude.agents.kinds.learn:LearnAgent",
        "watch": "etude.agents.kinds.watch:WatchAgent",
        "webhook": "etude.agents.kinds.webhook:WebhookAgent",
    },
    "store": {
        "sqlite": "etude.store.sqlite:SqliteStore",
        "postgresql": "etude.store.postgres:PostgresStore",
        "postgres": "etude.store.postgres:PostgresStore",
    },
    "queue": {
        "sqlite": "etude.store.queue_sqlite:SqliteQueueDialect",
        "postgres": "etude.store.queue_postgres:PostgresQueueDialect",
    },
    "sandbox": {
        "local": "etude.sessions.local:LocalProvider",
        "container": "etude.sessions.container:ContainerProvider",
    },
    "embeddings": {
        "wordllama": "etude.search.embeddings.wordllama:WordLlamaEmbeddings",
        "minilm": "etude.search.embeddings.minilm:MiniLmEmbeddings",
        "remote": "etude.search.embeddings.remote:RemoteEmbeddings",
    },
    "model": {
        "scripted": "etude.models.scripted:open_scripted",
        "cassette": "etude.models.cassette:open_cassette",
        "sim": "etude.models.sim:open_sim",
        "local": "etude.models.local:open_local",
    },
    "tool": {
        "list_datasets": "etude.tools.list_datasets:ListDatasets",
        "get_dataset_schema": "etude.tools.get_dataset_schema:GetDatasetSchema",
        "search": "etude.tools.search:SearchDataset",
        "execute_sql": "etude.tools.execute_sql:ExecuteSql",
        "execute_query_plan": "etude.tools.execute_query_plan:ExecuteQueryPlan",
        "execute_python": "etude.tools.execute_python:ExecutePython",
        "ask_user": "etude.tools.ask_user:AskUser",
        "answer": "etude.tools.answer:GiveAnswer",
    },
    "source": {
        "duckdb": "etude.sources.drivers.duckdb:DuckdbDriver",
        "files": "etude.sources.drivers.duckdb:DuckdbDriver",
        "sqlite": "etude.sources.drivers.sqlite:SqliteDriver",
        "postgres": "etude.sources.drivers.postgres:PostgresDriver",
        "mysql": "etude.sources.drivers.mysql:MysqlDriver",
    },
}


def load_plugin(kind: str, name: str) -> Any:
    """Return the class registered as `name` for `kind`: built in, or from the entry-point group `etude.<kind>`."""
    target = BUILT_IN.get(kind, {}).get(name)
    if target is not None:
        module, _, attribute = target.partition(":")
        return getattr(import_module(module), attribute)
    from importlib.metadata import entry_points

    for entry in entry_points(group=f"etude.{kind}", name=name):
        return entry.load()
    known = ", ".join(f"`{n}`" for n in plugin_names(kind))
    raise Invalid(f"There is no {kind} `{name}`.", hint=f"Known: {known}. A package can add one by entry point.")


def plugin_names(kind: str) -> list[str]:
    """Return all names registered for `kind`."""
    from importlib.metadata import entry_points

    return sorted({*BUILT_IN.get(kind, {}), *(e.name for e in entry_points(group=f"etude.{kind}"))})
