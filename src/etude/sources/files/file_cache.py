"""Files converted to Parquet once, in a folder named by the file's key.

Converted files are never replaced: an engine may read only the very files that it opened with. If two processes convert
the same file at once, each writes to a folder of its own, and the index of the first to finish counts for both.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from etude.errors import EtudeError
from etude.sources.base import Json, LoadWait
from etude.sources.engine_client import OnProgress
from etude.sources.engine_pool import MAIN, EnginePool
from etude.sources.files.discover import DiscoveredTable
from etude.sources.files.table_names import unique_table_names

LOAD_S = 3600.0
"""How long files may be read if no query waits for them."""
INDEX = "tables.json"


def load_files_through_cache(
    files: Iterable[DiscoveredTable],
    folder: Path,
    pool: EnginePool,
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
    for entry, name in zip(entries, unique_table_names(e["table"] for e in entries), strict=True):
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
    files: list[DiscoveredTable],
    folder: Path,
    pool: EnginePool,
    tenant: str,
    on_progress: OnProgress | None,
    wait: LoadWait,
) -> dict[DiscoveredTable, EtudeError]:
    failed: dict[DiscoveredTable, EtudeError] = {}
    left = list(files)
    while left:
        places: list[Path | None] = [_make_folder(folder / f.key) for f in left]
        jobs = [{"file": asdict(f), "out_dir": str(place)} for f, place in zip(left, places, strict=True)]
        done = 0
        try:
            with pool.borrow(network=False, wait_s=min(60, wait.left_s), tenant=tenant) as engine:
                pool.warm()  # the engine that will query the files starts while this one reads them
                for file, outcome in zip(left, engine.load(jobs, wait, on_progress), strict=False):
                    if isinstance(outcome, EtudeError):
                        failed[file] = outcome
                    elif _write_index(folder / file.key, outcome):
                        places[done] = None
                    done += 1
        finally:
            for place in filter(None, places):
                shutil.rmtree(place, ignore_errors=True)
        # A file that ended its engine gets the error; a new engine loads the next ones.
        left = left[done:] if done else []
    return failed


def _make_folder(parent: Path) -> Path:
    parent.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="made-", dir=parent))


def _write_index(folder: Path, tables: list[Json]) -> bool:
    """Write the index of converted files; return False if another process was first, whose index counts."""
    temporary = folder / f".{INDEX}.{os.getpid()}.{threading.get_ident()}"
    temporary.write_text(json.dumps(tables), encoding="utf-8")
    try:
        os.link(temporary, folder / INDEX)
    except FileExistsError:
        if _read_index(folder) is not None:
            return False
        os.replace(temporary, folder / INDEX)  # files that it names are gone
    except OSError:  # a file system without hard links
        os.replace(temporary, folder / INDEX)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
    return True
