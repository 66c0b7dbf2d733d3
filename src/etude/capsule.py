"""A capsule: a run as a self-contained zip file. Equal runs give equal bytes."""

from __future__ import annotations

import json
import shutil
import zipfile
from typing import IO, TYPE_CHECKING

from etude.events import fold

if TYPE_CHECKING:
    from etude.store.base import Store
    from etude.store.objects import Objects

CHUNK = 1 << 20
_EPOCH = (1980, 1, 1, 0, 0, 0)
_CODE_ENDINGS = {"sql": "sql", "python": "py", "model": "txt", "tool": "json"}


def write_capsule(store: Store, objects: Objects, run_id: str, file: IO[bytes]) -> None:
    """Write the run's state, its events, the code of each step and every artifact."""
    entries = store.entries(run_id)
    run = fold(entries)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, "run.json", run.model_dump_json(indent=2).encode())
        lines = "".join(e.model_dump_json() + "\n" for e in entries)
        _add(archive, "events.jsonl", lines.encode())
        for number, step in enumerate(run.steps, 1):
            _add(archive, f"steps/{number:03}.{_CODE_ENDINGS[step.kind]}", step.code.encode())
            if step.plan is not None:
                _add(archive, f"steps/{number:03}.plan.json", json.dumps(step.plan, indent=2).encode())
        for artifact in {a.hash: a for a in run.artifacts}.values():
            ending = "parquet" if "parquet" in artifact.media else "bin"
            name = f"artifacts/{artifact.hash}.{ending}"
            with (
                objects.open(artifact.hash, run_id) as kept,
                archive.open(_info(name), "w", force_zip64=True) as target,
            ):
                shutil.copyfileobj(kept, target, CHUNK)


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    archive.writestr(_info(name), data)


def _info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _EPOCH)
    info.compress_type = zipfile.ZIP_DEFLATED
    return info
