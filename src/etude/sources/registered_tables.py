"""Tables that a program registers: DataFrames, Arrow tables, results or rows, as a source of Parquet files."""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from etude.entities import Catalog, SourceSpec
from etude.errors import LimitExceeded
from etude.scratch_folder import ScratchFolder
from etude.sources.arrow_tables import arrow_table_to_batches, check_arrow_table_name
from etude.sources.base import Json, LoadWait, Mount
from etude.sources.engine_client import OnProgress
from etude.sources.engine_pool import MAIN, EnginePool, Key
from etude.sources.source import Source
from etude.spool import spool_to_parquet

PREFIX = "etude-frames-"
NAME = "frames"
"""The name of the source; queries may leave it out."""


class RegisteredTablesRoom:
    """The bytes of the tables that sessions of this process register, by tenant. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sizes: dict[str, WeakKeyDictionary[RegisteredTables, int]] = {}

    def count(self, tables: RegisteredTables, size: int, left: int | None) -> None:
        """Count what a session holds from now on; raise if its tenant would hold more than is `left` in all."""
        with self._lock:
            sizes = self._sizes.setdefault(tables.tenant, WeakKeyDictionary())
            total = sum(sizes.values()) - sizes.get(tables, 0) + size
            if left is not None and total > left:
                raise LimitExceeded(
                    f"The tables that sessions of tenant `{tables.tenant}` registered would have {total:,} bytes with "
                    f"this one, but only {left:,} of its storage are left.",
                    hint="Register fewer rows, end sessions by deleting their threads, or raise `server.storage` or "
                    "its own limit in `server.tenant_storage`.",
                    limit="storage",
                    used=total,
                    allowed=left,
                )
            sizes[tables] = size


class RegisteredTables(Source):
    """The registered tables of one connection or session. Their files go away with it."""

    def __init__(
        self,
        pool: EnginePool,
        cache: Path,
        scratch: Path,
        tenant: str = MAIN,
        room: RegisteredTablesRoom | None = None,
        storage_left: Callable[[], int | None] = lambda: None,
    ) -> None:
        """`storage_left` returns how many bytes all tables of the tenant in `room` may have; None for no limit."""
        # It is created with the first table: most connections register none.
        self._scratch, self._name = scratch.resolve(), uuid.uuid4().hex
        self._folder = self._scratch / f"{PREFIX}{self._name}"
        self._held: ScratchFolder | None = None
        super().__init__(NAME, SourceSpec(url=str(self._folder), kind="files"), pool, cache, tenant=tenant)
        self._room, self._storage_left = room, storage_left
        self._files: dict[str, Json] = {}
        self._replaced: dict[str, Path] = {}
        """The file that each table had before, by its name in lower case: an engine may still read it."""

    @property
    def names(self) -> frozenset[str]:
        """The names of the tables in lower case."""
        return frozenset(name.lower() for name in self._files)

    def bytes_without(self, name: str) -> int:
        """Return the bytes of all tables but the one of this name."""
        kept = (file for table, file in self._files.items() if table.lower() != name.lower())
        return sum(Path(path).stat().st_size for file in kept for path in file["paths"])

    def mount(self, on_progress: OnProgress | None = None, wait: LoadWait | None = None) -> tuple[Key, Mount]:
        """Return a key that changes with the tables, and how an engine opens them."""
        files = tuple(self._files.values())
        mount = Mount(NAME, "files", str(self._folder), None, {}, files, unqualified=True)
        return (NAME, str(self._folder), tuple(f["fingerprint"] for f in files)), mount

    def register(self, name: str, data: Any) -> None:
        """Add a table, or replace the one of that name."""
        check_arrow_table_name(name)
        schema, batches = arrow_table_to_batches(data, name)
        path = self._new_path()
        spool_to_parquet(path, schema, batches)
        self._add(name, path)

    def register_parquet(self, name: str, file: Path) -> None:
        """Add a table from a Parquet file, which is moved; only an engine reads it."""
        check_arrow_table_name(name)
        path = self._new_path()
        shutil.move(file, path)
        self._add(name, path)

    def _new_path(self) -> Path:
        if self._held is None:
            self._held = ScratchFolder(PREFIX, self._scratch, self._name)
        # A new file each time: an engine may still read the one before.
        return self._folder / f"{uuid.uuid4().hex}.parquet"

    def _add(self, name: str, path: Path) -> None:
        same = next((n for n in self._files if n.lower() == name.lower()), name)
        self._count(same, path)
        before = self._files.pop(same, None)
        if before is not None:
            oldest = self._replaced.get(name.lower())
            self._replaced[name.lower()] = Path(before["paths"][0])
            if oldest is not None:
                oldest.unlink(missing_ok=True)
        self._files[name] = {"table": name, "paths": [str(path)], "fingerprint": path.stem, "notes": ()}

    def _count(self, name: str, added: Path) -> None:
        """Count the files that are kept once this one is added for a table; remove it if that is too much."""
        if self._room is None:
            return
        kept = [Path(path) for file in self._files.values() for path in file["paths"]]
        kept += [path for table, path in self._replaced.items() if table != name.lower()]
        try:
            self._room.count(self, sum(path.stat().st_size for path in [*kept, added]), self._storage_left())
        except LimitExceeded:
            added.unlink(missing_ok=True)
            raise

    def close(self) -> None:
        """Delete the files."""
        if self._room is not None:
            self._room.count(self, 0, None)
        if self._held is not None:
            self._held.remove()
            self._held = None


def add_registered_tables(catalog: Catalog, frames: RegisteredTables) -> Catalog:
    """Return the catalog of a source together with the tables that were registered beside it."""
    if not frames.names:
        return catalog
    return catalog.model_copy(update={"tables": (*catalog.tables, *frames.catalog().tables)})
