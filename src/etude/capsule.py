"""A capsule: a run as a self-contained zip file. Equal runs give equal bytes."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from etude.events import fold

if TYPE_CHECKING:
    from etude.entities import Artifact, Run
    from etude.store.base import Store
    from etude.store.objects import Objects

CHUNK = 1 << 20
_EPOCH = (1980, 1, 1, 0, 0, 0)
CODE_ENDINGS = {"sql": "sql", "python": "py", "model": "txt", "tool": "json"}


def write_capsule(store: Store, objects: Objects, run_id: str, file: IO[bytes]) -> None:
    """Write the run's state, its events, the code of each step and every artifact."""
    with _zip(_Output(file)) as archive:
        for artifact in _write_record(archive, store, run_id):
            for _ in _copy_artifact(archive, objects, artifact, run_id, None):
                pass


def stream_capsule(store: Store, objects: Objects, run_id: str, scratch: Path) -> Iterator[bytes]:
    """Return the same bytes in pieces, written as they are taken: a slow reader holds no copy of the results.

    Only the record of the run waits in `scratch`. It is complete, and all artifacts were found, when this returns.
    """
    pieces = _stream(store, objects, run_id, scratch)
    next(pieces)
    return pieces


def _stream(store: Store, objects: Objects, run_id: str, scratch: Path) -> Iterator[bytes]:
    scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=scratch) as head, _zip(output := _Output(head)) as archive:
        artifacts = _write_record(archive, store, run_id)
        for artifact in artifacts:
            if not objects.exists(artifact.hash):
                objects.open(artifact.hash, run_id).close()  # which says what is wrong
        head.seek(0)
        output.file = taken = _Taken()
        yield b""
        while piece := head.read(CHUNK):
            yield piece
        head.close()
        for artifact in artifacts:
            with closing(_copy_artifact(archive, objects, artifact, run_id, scratch)) as copied:
                for _ in copied:
                    yield from taken.take()
        archive.close()
        yield from taken.take()


class _Output:
    """A file that cannot seek, so that a zip in it has the same bytes wherever it goes."""

    def __init__(self, file: IO[bytes] | _Taken) -> None:
        self.file = file

    def write(self, data: bytes) -> int:
        return self.file.write(data)

    def flush(self) -> None:
        """Do nothing: zip files flush after every member."""


class _Taken:
    """Collects what is written until it is taken."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def take(self) -> Iterator[bytes]:
        """Yield what was written, if anything was."""
        joined = b"".join(self._parts)
        self._parts.clear()
        if joined:
            yield joined


def _zip(output: _Output) -> zipfile.ZipFile:
    return zipfile.ZipFile(cast("Any", output), "w", zipfile.ZIP_DEFLATED)


def _write_record(archive: zipfile.ZipFile, store: Store, run_id: str) -> list[Artifact]:
    """Write all but the artifacts, and return these."""
    entries = store.entries(run_id)
    run = fold(entries)
    # Piece by piece: as JSON, the texts of a run can have a hundred megabytes.
    _add(archive, "run.json", _describe(run))
    _add(archive, "events.jsonl", (entry.model_dump_json() + "\n" for entry in entries))
    for number, step in enumerate(run.steps, 1):
        _add(archive, f"steps/{number:03}.{CODE_ENDINGS[step.kind]}", (step.code,))
        if step.plan is not None:
            _add(archive, f"steps/{number:03}.plan.json", (json.dumps(step.plan, indent=2),))
    return list({a.hash: a for a in run.artifacts}.values())


def _describe(run: Run) -> Iterator[str]:
    """Yield a run as indented JSON, step by step."""
    yield run.model_dump_json(indent=2, exclude={"steps"}).removesuffix("\n}") + ',\n  "steps": ['
    for position, step in enumerate(run.steps):
        yield ("," if position else "") + "\n    " + step.model_dump_json(indent=2).replace("\n", "\n    ")
    yield "\n  ]\n}"


def _copy_artifact(
    archive: zipfile.ZipFile, objects: Objects, artifact: Artifact, run_id: str, scratch: Path | None
) -> Generator[None, None, None]:
    """Write an artifact, and return after each chunk."""
    ending = "parquet" if "parquet" in artifact.media else "bin"
    name = f"artifacts/{artifact.hash}.{ending}"
    with (
        _open(objects, artifact.hash, run_id, scratch) as kept,
        archive.open(_info(name), "w", force_zip64=True) as target,
    ):
        while chunk := kept.read(CHUNK):
            target.write(chunk)
            yield


def _open(objects: Objects, hash: str, run_id: str, scratch: Path | None) -> IO[bytes]:
    if scratch is None or objects.folder is not None:
        return objects.open(hash, run_id)
    return os.fdopen(objects.lend(hash, run_id, scratch).fd, "rb")  # memory would hold all of it for a slow reader


def _add(archive: zipfile.ZipFile, name: str, texts: Iterable[str]) -> None:
    with archive.open(_info(name), "w", force_zip64=True) as target:
        for text in texts:
            target.write(text.encode())


def _info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _EPOCH)
    info.compress_type = zipfile.ZIP_DEFLATED
    return info
