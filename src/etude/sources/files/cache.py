"""Files converted to Parquet once, in a folder named by the file's key."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from etude.errors import EtudeError
from etude.sources.base import Json, LoadWait
from etude.sources.files.discover import FileTable, unique_names
from etude.sources.pool import MAIN, OnProgress, Pool

LOAD_S = 3600.0
"""How long files may be read if no query waits for them."""
INDEX = "tables.json"


def load_files(
    files: Iterable[FileTable],
    folder: Path,
    pool: Pool,
    tenant: str = MAIN,
    on_progress: OnProgress | None = None,
    wait: LoadWait | None = None,
) -> tuple[list[Json], list[str], bool]:
    """Return the tables of all files in the form of `Mount.files`, notes on files that could not be loaded, and whether
    a file had to be read for that.

    A file that fails is noted and the others are loaded; if none could be loaded, the first error is raised. The
    reading stops with the query that waits for it.
    """
    known = {f: _read_index(folder / f.key) for f in files}
    missing = [f for f, tables in known.items() if tables is None]
    wait = wait or LoadWait(LOAD_S)
    failed = _convert(missing, folder, pool, tenant, on_progress or pool.on_load, wait) if missing else {}
    if failed and len(failed) == len(known):
        raise next(iter(failed.values()))
    entries = []
    for file, tables in known.items():
        if tables is None:
            tables = _read_index(folder / file.key) or []  # noqa: PLW2901 - what was missing is there now
        entries += [dict(t, fingerprint=file.key) for t in tables]
    for entry, name in zip(entries, unique_names(e["table"] for e in entries), strict=True):
        entry["table"] = name
    notes = [f"`{Path(f.paths[0]).name}` was not loaded: {e.message}" for f, e in failed.items()]
    return entries, notes, bool(missing)


def _read_index(folder: Path) -> list[Json] | None:
    try:
        tables: list[Json] = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    # Parquet is read in place, so the file may have been removed since.
    return tables if all(os.path.exists(p) for t in tables for p in t["paths"]) else None


def _convert(
    files: list[FileTable], folder: Path, pool: Pool, tenant: str, on_progress: OnProgress | None, wait: LoadWait
) -> dict[FileTable, EtudeError]:
    failed: dict[FileTable, EtudeError] = {}
    left = list(files)
    while left:
        jobs = [{"file": asdict(f), "out_dir": str(folder / f.key)} for f in left]
        for job in jobs:
            os.makedirs(str(job["out_dir"]), exist_ok=True)
        done = 0
        with pool.borrow(network=False, wait_s=min(60, wait.left_s), tenant=tenant) as engine:
            pool.warm()  # the engine that will query the files starts while this one reads them
            for file, outcome in zip(left, engine.load(jobs, wait, on_progress), strict=False):
                done += 1
                if isinstance(outcome, EtudeError):
                    failed[file] = outcome
                else:
                    _write_index(folder / file.key, outcome)
        # A file that ended its engine gets the error; a new engine loads the next ones.
        left = left[done:] if done else []
    return failed


def _write_index(folder: Path, tables: list[Json]) -> None:
    temporary = folder / f".{INDEX}.{os.getpid()}.{threading.get_ident()}"
    temporary.write_text(json.dumps(tables), encoding="utf-8")
    os.replace(temporary, folder / INDEX)
