"""The versions of a store's schema: which migrations there are, and which a database lacks."""

from __future__ import annotations

from importlib import resources
from typing import Any

from etude.errors import Conflict, Unavailable

VERSION = "SELECT max(version) FROM schema_version"
ADD_VERSION = "INSERT INTO schema_version (version, applied_at) VALUES (?, ?)"


def store_schema_version(dialect: str) -> int:
    """Return the newest schema version that this etude knows."""
    return len(store_migrations(dialect))


def pending_store_migrations(dialect: str, found: int) -> list[str]:
    """Return the names of the migrations that a database with schema version `found` lacks."""
    return [step.name.partition(".")[0] for step in store_migrations(dialect)[found:]]


def newer_store_schema_error(found: int, known: int) -> Unavailable:
    """Return the error for a database that a newer etude has used."""
    return Unavailable(
        f"The database has schema version {found}; this etude knows versions up to {known}.",
        hint="Upgrade etude: a newer one has used this database.",
    )


def store_not_empty_error(place: str) -> Conflict:
    """Return the error for a restore into a store that holds something."""
    return Conflict(
        f"The store `{place}` is not empty, and a restore would overwrite it.",
        hint="Restore into a new store (`ETUDE_STORE`), or remove this one first.",
    )


def store_migrations(dialect: str) -> list[Any]:
    """Return the files of all migrations of a database, in order."""
    folder = resources.files("etude.store") / "migrations"
    return sorted((f for f in folder.iterdir() if f.name.endswith(f".{dialect}.sql")), key=lambda f: f.name)
