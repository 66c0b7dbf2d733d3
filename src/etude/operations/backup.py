"""Backup and restore: the store, the objects that it refers to, catalogs and playbooks, in a folder or a bucket.

The database is copied first, at one moment; then the objects that this copy refers to, which exist because a run refers
to an object only after it was stored. While a backup runs, no object is removed. Everything is named by its hash, so a
second backup to the same place copies only what is new. The manifest is written last: a backup without one is not one.
"""

from __future__ import annotations

import io
import json
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from etude import __version__, plugins
from etude.entities import Entity
from etude.errors import Damaged, EtudeError, Invalid, NotFound, Unavailable
from etude.ids import new_id
from etude.operations.prune import BACKUP
from etude.store.base import DumpedFile
from etude.store.objects import Objects
from etude.store.retention import Retention
from etude.store.schema import newer_store_schema_error, store_schema_version

if TYPE_CHECKING:
    from etude.app import App
    from etude.settings import Settings

MANIFESTS = "backups"
FORMATS = (1, 2)
"""The formats that can be read; 2 has catalogs in a store of their own."""
JSON = "application/json"
BYTES = "application/octet-stream"
AT_ONCE = 8
RENEW_S = 60.0
PLAYBOOKS = "playbooks"
WHOLE = 4 << 20
"""Up to this size an object is copied in memory."""


class CopiedFile(Entity):
    """A file of a backup, stored under its hash."""

    hash: str
    size: int
    table: str = ""
    columns: tuple[str, ...] = ()


class BackupManifest(Entity):
    """What a backup holds."""

    format: int = 1
    id: str
    created_at: datetime
    version: str
    kind: str
    """The kind of the store: `sqlite` or `postgres`."""
    schema_version: int
    store: tuple[CopiedFile, ...]
    artifacts: CopiedFile
    """The list of the hashes of all artifacts, one per line."""
    artifact_count: int
    artifact_bytes: int
    objects: dict[str, CopiedFile] = {}
    """Objects with names, such as catalogs."""
    catalogs: dict[str, CopiedFile] = {}
    """Catalogs in a store of their own (`catalog.store`)."""
    playbooks: CopiedFile | None = None
    missing: tuple[str, ...] = ()
    """Artifacts that the store refers to, but that are damaged or lost."""


class BackedUp(Entity):
    """A finished backup."""

    manifest: BackupManifest
    copied: int
    """Artifacts that the place did not have yet."""
    copied_bytes: int
    seconds: float


class Restored(Entity):
    """A finished restore."""

    manifest: BackupManifest
    artifacts: int
    objects: int
    seconds: float


Progress = Callable[[str], object]


def open_backup_place(settings: Settings, place: str, options: Mapping[str, str] | None = None) -> Objects:
    """Open the folder or bucket of backups; a bucket of the same kind as the object store has its options too."""
    own = settings.objects_options if place.partition("://")[0] == settings.objects_url.partition("://")[0] else {}
    opened = Objects(place, **({**own, **(options or {})} if "://" in place else {}))
    objects = settings.objects_url
    if (
        opened.folder is not None
        and "://" not in objects
        and Path(objects).absolute()
        in (
            opened.folder,
            *opened.folder.parents,
        )
    ):
        raise Invalid(f"`{place}` is inside the object store.", hint="Choose a place of its own, on another disk.")
    return opened


# Backup.


def make_backup(app: App, place: Objects, on_progress: Progress = lambda _: None) -> BackedUp:
    """Copy everything to a place; others go on working meanwhile."""
    began, backup_id = time.monotonic(), new_id("backup")
    with _holding_objects(app, backup_id) as renew, tempfile.TemporaryDirectory(prefix="etude-backup-") as folder:
        on_progress("copying the store")
        dump = app.store.dump(Path(folder))
        renew()
        files = [CopiedFile(**_keep(place, file.path), table=file.table, columns=file.columns) for file in dump.files]
        for file in dump.files:
            file.path.unlink()
        on_progress(f"copying {len(dump.hashes):,} artifacts")
        copied = _copy_artifacts(app.objects, place, dump.hashes, Path(folder), renew)
        on_progress("copying catalogs and playbooks")
        own_catalogs = _open_catalogs(app.settings)
        catalogs = _copy_named(own_catalogs, place) if own_catalogs is not None else {}
        manifest = BackupManifest(
            format=2 if catalogs else 1,
            id=backup_id,
            created_at=datetime.now(UTC),
            version=__version__,
            kind=dump.kind,
            schema_version=dump.schema,
            store=tuple(files),
            artifacts=_keep_bytes(place, "".join(f"{hash}\n" for hash in copied.hashes).encode()),
            artifact_count=len(copied.hashes),
            artifact_bytes=copied.bytes,
            objects=_copy_named(app.objects, place),
            catalogs=catalogs,
            playbooks=_copy_playbooks(app.settings.home / PLAYBOOKS, place),
            missing=tuple(copied.missing),
        )
        place.write(f"{MANIFESTS}/{backup_id}.json", manifest.model_dump_json().encode(), JSON)
    seconds = time.monotonic() - began
    return BackedUp(manifest=manifest, copied=copied.new, copied_bytes=copied.new_bytes, seconds=round(seconds, 3))


@contextmanager
def _holding_objects(app: App, backup_id: str) -> Iterator[Callable[[], None]]:
    """Keep objects from being removed; yield a function to be called now and then."""
    retention, name = Retention(app.store), f"{BACKUP}{backup_id}"
    retention.lease(name, backup_id)
    renewed = time.monotonic()

    def renew() -> None:
        nonlocal renewed
        if time.monotonic() - renewed > RENEW_S:
            renewed = time.monotonic()
            retention.lease(name, backup_id)

    try:
        yield renew
    finally:
        with suppress(EtudeError):
            retention.release(name, backup_id)


def _keep(place: Objects, data: bytes | Path) -> dict[str, Any]:
    artifact = place.put(data, BYTES)
    return {"hash": artifact.hash, "size": artifact.size}


def _keep_bytes(place: Objects, data: bytes) -> CopiedFile:
    return CopiedFile(**_keep(place, data))


class _Copied:
    """The artifacts of a backup so far."""

    def __init__(self) -> None:
        self.hashes: list[str] = []
        self.missing: list[str] = []
        self.bytes = self.new = self.new_bytes = 0


def _copy_artifacts(
    source: Objects, target: Objects, hashes: Iterable[str], folder: Path, renew: Callable[[], None]
) -> _Copied:
    """Copy the artifacts that the target lacks. Each is checked against its hash while it is read."""
    done = _Copied()

    def copy(hash: str) -> tuple[str, int | None, bool]:
        size = source.size(hash)
        if size is None:
            return hash, None, False
        if target.size(hash) == size:
            return hash, size, False
        try:
            _copy_one(source, target, hash, size, folder)
        except (NotFound, Damaged):
            return hash, None, False
        return hash, size, True

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for hash, size, new in pool.map(copy, hashes):
            renew()
            if size is None:
                done.missing.append(hash)
                continue
            done.hashes.append(hash)
            done.bytes += size
            done.new += new
            done.new_bytes += size if new else 0
    return done


def _copy_one(source: Objects, target: Objects, hash: str, size: int, folder: Path) -> None:
    if size <= WHOLE:
        target.put(source.get(hash), BYTES)
        return
    path = folder / f"artifact-{hash}"
    try:
        source.download(hash, path)
        target.put(path, BYTES)
    finally:
        path.unlink(missing_ok=True)


def _open_catalogs(settings: Settings) -> Objects | None:
    """Open the store of catalogs, if they have one of their own."""
    chosen = settings.catalog
    return Objects(chosen.store, **(chosen.store_options or settings.objects_options)) if chosen.store else None


def _copy_named(objects: Objects, place: Objects) -> dict[str, CopiedFile]:
    """Copy the objects with names. Files that name others may change meanwhile, so what they name is listed after."""
    copied = dict[str, CopiedFile]()
    while new := [name for folder in objects.folders() for name in objects.names(folder) if name not in copied]:
        for name in new:
            # It was removed since it was listed.
            with suppress(NotFound):
                path = objects.file_path(name)
                # An uploaded file may be large, so it is copied in parts.
                data = path if path is not None and path.is_file() else objects.read(name)
                copied[name] = CopiedFile(**_keep(place, data))
        if not any(name in copied for name in new):
            break
    return copied


def _copy_playbooks(folder: Path, place: Objects) -> CopiedFile | None:
    if not folder.is_dir():
        return None
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz", compresslevel=1) as archive:
        archive.add(folder, PLAYBOOKS)
    return _keep_bytes(place, data.getvalue())


# Finding.


def list_backups(place: Objects) -> list[BackupManifest]:
    """Return the backups in a place, newest first."""
    found = [_read_manifest(place, name) for name in place.names(MANIFESTS) if name.endswith(".json")]
    return sorted(found, key=lambda manifest: manifest.created_at, reverse=True)


def find_backup(place: Objects, backup_id: str | None = None) -> BackupManifest:
    """Return a backup by its id, or the newest one."""
    known = list_backups(place)
    if not known:
        raise NotFound(f"`{place.url}` has no backup.", hint="`etude backup PLACE` makes one.")
    if backup_id is None:
        return known[0]
    for manifest in known:
        if manifest.id == backup_id:
            return manifest
    raise NotFound(f"`{place.url}` has no backup `{backup_id[:80]}`.", hint="`etude restore PLACE --list` lists them.")


def _read_manifest(place: Objects, name: str) -> BackupManifest:
    data = place.read(name)
    format = _format_of(data)
    if format not in FORMATS:
        raise Unavailable(
            f"The backup `{name}` has format {format}, which this etude does not know.", hint="Upgrade etude."
        )
    try:
        return BackupManifest.model_validate_json(data)
    except ValidationError as error:
        raise Damaged(f"The manifest `{name}` in `{place.url}` cannot be read.", hint="Use another backup.") from error


def _format_of(data: bytes) -> object:
    try:
        return json.loads(data).get("format")
    except (ValueError, AttributeError):
        return 1  # then validation says what is wrong


def remove_backups(place: Objects, keep: int) -> int:
    """Remove all but the newest backups, and the files that only those used; return how many were removed."""
    if keep < 1:
        raise Invalid(f"`--keep {keep}` would keep no backup.", hint="Give 1 or more.")
    known = list_backups(place)
    old = known[keep:]
    if not old:
        return 0
    needed = set().union(*(_hashes_of(place, manifest) for manifest in known[:keep]))
    unneeded = set().union(*(_hashes_of(place, manifest) for manifest in old)) - needed
    for manifest in old:
        place.remove(f"{MANIFESTS}/{manifest.id}.json")
    for hash in sorted(unneeded):
        place.remove(f"artifacts/{hash[:2]}/{hash}")
    return len(old)


def _hashes_of(place: Objects, manifest: BackupManifest) -> set[str]:
    own = [*manifest.store, manifest.artifacts, *manifest.objects.values(), *manifest.catalogs.values()]
    own += [manifest.playbooks] if manifest.playbooks else []
    return {file.hash for file in own} | set(_artifact_list(place, manifest))


def _artifact_list(place: Objects, manifest: BackupManifest) -> list[str]:
    return place.get(manifest.artifacts.hash).decode().split()


def check_backup(place: Objects, manifest: BackupManifest) -> list[str]:
    """Read every file of a backup; return those that are damaged or lost."""

    def check(hash: str) -> str | None:
        try:
            place.check_artifact(hash)
        except (NotFound, Damaged):
            return hash
        return None

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [hash for hash in pool.map(check, sorted(_hashes_of(place, manifest))) if hash is not None]


# Restore.


def restore_backup(
    settings: Settings, place: Objects, manifest: BackupManifest, on_progress: Progress = lambda _: None
) -> Restored:
    """Make a new store from a backup. Raise `Conflict` if there is one already that holds anything.

    Objects come first, so that the store never refers to one that is not there.
    """
    from etude.sources.source_url import source_path

    began = time.monotonic()
    scheme = settings.store_url.partition("://")[0]
    kind = plugins.load_plugin("store", scheme)
    if kind.dialect != manifest.kind:
        raise Invalid(
            f"The backup is one of a {manifest.kind} store; `{scheme}` is configured.",
            hint="Restore it into the same kind of store.",
        )
    if manifest.schema_version > store_schema_version(kind.dialect):
        raise newer_store_schema_error(manifest.schema_version, store_schema_version(kind.dialect))
    own_catalogs = _open_catalogs(settings)
    if manifest.catalogs and own_catalogs is None:
        raise Invalid(
            f"The backup has {len(manifest.catalogs):,} files of catalogs in a store of their own.",
            hint="Set `catalog.store` to the folder or bucket that they go to.",
        )
    target = Path(source_path(settings.store_url)) if scheme == "sqlite" else settings.store_url
    kind.check_free(target)
    with tempfile.TemporaryDirectory(prefix="etude-restore-") as folder:
        on_progress("reading the copy of the store")
        files = []
        for number, file in enumerate(manifest.store):
            path = Path(folder) / str(number)
            place.download(file.hash, path)
            files.append(DumpedFile(path, file.table, file.columns))
        objects = Objects(settings.objects_url, **settings.objects_options)
        hashes = _artifact_list(place, manifest)
        on_progress(f"copying {len(hashes):,} artifacts")
        copied = _copy_artifacts(place, objects, hashes, Path(folder), lambda: None)
        if copied.missing:
            raise Damaged(
                f"{len(copied.missing):,} files of the backup are damaged or lost, such as `{copied.missing[0]}`.",
                hint="Restore another backup: `etude restore PLACE --list` lists them.",
            )
        for files_of, names in ((objects, manifest.objects), (own_catalogs, manifest.catalogs)):
            if files_of is not None:
                for name, named in names.items():
                    files_of.write(name, place.get(named.hash), BYTES)
        if manifest.playbooks is not None:
            _restore_playbooks(settings.home, place.get(manifest.playbooks.hash))
        on_progress("writing the store")
        kind.load(target, manifest.schema_version, files)
    with kind(target) as store:
        store.check()
    seconds = round(time.monotonic() - began, 3)
    named_count = len(manifest.objects) + len(manifest.catalogs)
    return Restored(manifest=manifest, artifacts=len(hashes), objects=named_count, seconds=seconds)


def _restore_playbooks(home: Path, data: bytes) -> None:
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            parts = Path(member.name).parts
            if parts[:1] != (PLAYBOOKS,) or ".." in parts or not (member.isfile() or member.isdir()):
                raise Damaged(
                    f"The playbooks of the backup hold `{member.name[:200]}`, which is not a playbook.",
                    hint="The backup was changed. Restore another one: `etude restore PLACE --list` lists them.",
                )
        # Every member was checked; the filter is a second wall where Python has it (from 3.11.4 on).
        if hasattr(tarfile, "data_filter"):
            archive.extraction_filter = staticmethod(tarfile.data_filter)
        archive.extractall(home)  # noqa: S202
