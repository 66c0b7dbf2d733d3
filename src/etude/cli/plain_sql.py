"""The fast path of `etude sql`: a database file, no settings, no other source.

Most commands are of this kind, and the pydantic models of settings and events take longer to load than their queries.
The engine is the same, with the same guard and the same limits, and so are the recorded run and its result. Whatever
needs more - a setting, a limit of the command line, a registered source - takes the full path, through `App`.
"""

from __future__ import annotations

import argparse
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from etude import plugins
from etude.cli.options import database_file_path
from etude.defaults import (
    ENGINE_SCRATCH,
    OBJECTS,
    RESULT_BYTES,
    ROW_BYTES,
    STORE,
    TIMEOUT_S,
    default_memory,
    default_threads,
    home_by_default,
)
from etude.runtime.plain_run import PlainRecord, run_plain_query
from etude.sources.base import Mount
from etude.sources.engine_client import EngineClient, EngineLimits
from etude.sources.source_url import source_kind, source_name_from_url

if TYPE_CHECKING:
    from etude.result import Result
    from etude.sources.engine_client import ResultStream
    from etude.store.base import Store

LIMITS = {
    "timeout_s": TIMEOUT_S,
    "rows": 0,
    "bytes": RESULT_BYTES,
    "row_bytes": ROW_BYTES,
    "limit": 0,
    "scan_rows": 0,
    "scan_bytes": 0,
}
"""`entities.Limits` by default."""


def run_plain_sql(
    options: argparse.Namespace, query: str, engine: EngineClient, on_progress: Callable[[float], None]
) -> Result | None:
    """Return the result of the query; None, with nothing done yet, if the query needs the full path."""
    home, path = home_by_default(os.environ), database_file_path(options.source)
    if home is None or not path or options.timeout is not None or options.limit_rows is not None:
        return None
    if _has_profile(home, path):
        return None
    name, kind = source_name_from_url(path), source_kind(path)
    store: Store | None = None
    try:
        if not options.no_record or ("." in query and home.exists()):
            store = plugins.load_plugin("store", "sqlite")(home / STORE)
            store.recover()
            # A query with a dot may name a table of a registered source.
            if "." in query and store.has_sources():
                return None
        engine.limits = EngineLimits(default_memory(), ENGINE_SCRATCH, default_threads())

        def start_query(describe: bool) -> ResultStream:
            engine.open((Mount(name, kind, path),))
            return engine.query(query, LIMITS, describe, on_progress)

        record = PlainRecord(store, home / OBJECTS) if store is not None and not options.no_record else None
        return run_plain_query(query, name, os.path.abspath(path), LIMITS, start_query, record, home / "scratch")
    finally:
        if store is not None:
            store.close()


def _has_profile(home: Path, path: str) -> bool:
    """Return whether a profile of this file is stored; its table sizes correct the estimate."""
    mark = hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return any((home / "profiles").glob(f"*/*-{mark}"))
