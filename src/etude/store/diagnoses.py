"""What models said about failures of a tenant, by the key of the failure, so that each is asked about once."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from etude.store.base import Store

PUT = """INSERT INTO diagnoses (tenant, kind, error_key, diagnosis, suggestion, model, at) VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (tenant, kind, error_key) DO UPDATE SET diagnosis = excluded.diagnosis,
    suggestion = excluded.suggestion, model = excluded.model, at = excluded.at"""
ALL = "SELECT kind, error_key, diagnosis, suggestion FROM diagnoses WHERE tenant = ?"


class StoredDiagnoses:
    """The diagnoses of one tenant."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def put(self, kind: str, error_key: str, diagnosis: str, suggestion: str, model: str) -> None:
        """Keep the diagnosis of a failure, in place of an earlier one."""
        with self._store._transaction() as execute:
            execute(PUT, self._store.tenant, kind, error_key, diagnosis, suggestion, model, datetime.now(UTC))

    def all(self) -> dict[tuple[str, str], tuple[str, str]]:
        """Return diagnosis and suggestion by kind of operation and error key."""
        rows = self._store._read(ALL, self._store.tenant)
        return {(kind, key): (diagnosis, suggestion) for kind, key, diagnosis, suggestion in rows}
