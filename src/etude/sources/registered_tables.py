"""Tables that a program registers: DataFrames, Arrow tables, results or rows, as a source of Parquet files."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from etude.entities import Catalog, SourceSpec
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


class RegisteredTables(Source):
    """The registered tables of one connection or session. Their files go away with it."""

    def __init__(self, pool: EnginePool, cache: Path, scratch: Path, tenant: str = MAIN) -> None:
        # It is created with the first table: most connections register none.
        self._scratch, self._name = scratch.resolve(), uuid.uuid4().hex
        self._folder = self._scratch / f"{PREFIX}{self._name}"
        self._held: ScratchFolder | None = None
        super().__init__(NAME, SourceSpec(url=str(self._folder), kind="files"), pool, cache, tenant=tenant)
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

    def register_parquet(self, name: str, data: bytes) -> None:
        """Add a table from the bytes of a Parquet file; only an engine reads them."""
        check_arrow_table_name(name)
        path = self._new_path()
        path.write_bytes(data)
        self._add(name, path)

    def _new_path(self) -> Path:
        if self._held is None:
            self._held = ScratchFolder(PREFIX, self._scratch, self._name)
        # A new file each time: an engine may still read the one before.
        return self._folder / f"{uuid.uuid4().hex}.parquet"

    def _add(self, name: str, path: Path) -> None:
        same = next((n for n in self._files if n.lower() == name.lower()), name)
        before = self._files.pop(same, None)
        if before is not None:
            oldest = self._replaced.get(name.lower())
            self._replaced[name.lower()] = Path(before["paths"][0])
            if oldest is not None:
                oldest.unlink(missing_ok=True)
        self._files[name] = {"table": name, "paths": [str(path)], "fingerprint": path.stem, "notes": ()}

    def close(self) -> None:
        """Delete the files."""
        if self._held is not None:
            self._held.remove()
            self._held = None


def add_registered_tables(catalog: Catalog, frames: RegisteredTables) -> Catalog:
    """Return the catalog of a source together with the tables that were registered beside it."""
    if not frames.names:
        return catalog
    return catalog.model_copy(update={"tables": (*catalog.tables, *frames.catalog().tables)})
