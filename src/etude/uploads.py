"""Uploaded files as sources of a tenant: kept whole in the object store, or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from etude.catalog.storage.catalog_folder import catalog_folder_by_name, open_catalog_root_folder
from etude.entities import Catalog, Entity, SourceSpec, UploadedFile
from etude.errors import Conflict, EtudeError, Invalid, SourceError
from etude.ids import new_id
from etude.scratch_folder import ScratchFolder
from etude.sources.base import LoadWait
from etude.sources.files.file_cache import LOAD_S
from etude.sources.source_url import check_source_name, source_kind, source_name_from_url
from etude.store.artifact_folder import artifact_chunks

if TYPE_CHECKING:
    from etude.app import App
    from etude.store.base import Store

PLACE = "uploads"
"""The folder of the object store that holds uploaded files."""
SCHEME = "upload://"
LOCAL = "a local user"
"""Who adds a source on a server without keys."""
MEDIA = "application/octet-stream"
MOST_FILES = 100
"""The most files of one upload; more are uploaded as a zip archive."""
MOST_NAMES = 1000
"""How many numbers are tried after a name that is taken."""
DATABASES = ("sqlite", "duckdb")
LONGEST = 150
"""The longest name of a file, in bytes."""


class UploadedColumn(Entity):
    """A column of an uploaded table."""

    name: str
    type: str


class UploadedTable(Entity):
    """A table that was found in an upload."""

    name: str
    rows: int | None
    columns: list[UploadedColumn]


class UploadReport(Entity):
    """What an upload became: its name as a dataset, its tables, and what was assumed or left out."""

    name: str
    kind: str
    bytes: int
    tables: list[UploadedTable]
    notes: list[str]


@dataclass(frozen=True)
class ReceivedFile:
    """A file that has arrived whole, in a scratch folder of this machine."""

    name: str
    """The name that the sender gave it."""
    path: Path


class Uploads:
    """The uploaded sources of one tenant. Thread-safe."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._cache = app.settings.home / "cache" / PLACE

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """Give a folder for files that arrive; it is removed after the block, or when the next process starts."""
        parent = self._app.scratch
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = ScratchFolder("etude-upload-", parent)
        try:
            yield folder.path
        finally:
            folder.remove()

    def add(self, files: Sequence[ReceivedFile], name: str | None, by: str) -> UploadReport:
        """Keep the files as a source of this name, or of one made from theirs; report the tables.

        An engine process reads them before the source is registered. If they cannot be read, nothing of them is kept.
        """
        self._check(files, name)
        self.remove_leftovers()
        kind = _kind_of(files)
        names = _file_names(files)
        upload = new_id("upload")
        place = f"{PLACE}/{self._app.tenant}/{upload}"
        kept = [_measure(f, n, f"{place}/{at}") for at, (f, n) in enumerate(zip(files, names))]
        size = sum(file.size for file in kept)
        self._app.store.check_room(size)
        spec = SourceSpec(url=f"{SCHEME}{upload}", kind=kind, uploaded=tuple(kept), by=by or LOCAL)
        with self._claimed(upload) as keep:
            for file, received in zip(kept, files):
                self._app.objects.write_file(file.place, received.path, MEDIA)
            chosen, catalog = self._register(spec, name, names[0], size)
            keep()
        report = make_upload_report(chosen, catalog, size)
        return report.model_copy(update={"notes": [_own_names(note, spec) for note in report.notes]})

    def _check(self, files: Sequence[ReceivedFile], name: str | None) -> None:
        if not files:
            raise Invalid("The upload holds no file.", hint="Send one or more files in the field `file`.")
        if len(files) > MOST_FILES:
            raise Invalid(
                f"The upload holds {len(files)} files; at most {MOST_FILES} are read.",
                hint="Pack them as a zip archive.",
            )
        for file in files:
            if not file.path.stat().st_size:
                raise Invalid(f"`{_shown(file.name)}` is empty.", hint="Send a file with a table in it.")
        if name is not None and check_source_name(name) in self._app.sources():
            raise _taken(name)

    def _register(self, spec: SourceSpec, name: str | None, file: str, size: int) -> tuple[str, Catalog]:
        """Read the source, then register it under its name, or under the first free one made from the file's name."""
        for chosen in [name] if name else _numbered(source_name_from_url(file)):
            if chosen in self._app.sources():
                continue
            try:
                source = self._app.open_source(chosen, spec)
                source.mount(wait=_RoomWait(self._app.store, self._folder(spec.url.removeprefix(SCHEME)), size))
                catalog = source.catalog(self._app.settings.limits)
            except EtudeError as error:
                raise _named(error, spec) from None
            # An archive may unpack to a thousand times its size, and what is made of it stays on the disk.
            made = _count_made_bytes(self._folder(spec.url.removeprefix(SCHEME)))
            if self._app.store.add_source(chosen, spec, {spec.url: size + made}):
                return chosen, catalog
        raise _taken(name or source_name_from_url(file))

    def remove(self, name: str, spec: SourceSpec) -> None:
        """Remove an uploaded source, its files, its catalogs and its annotations. Runs on it stay."""
        self._app.store.remove_source(name, [spec.url])
        self._discard(spec.url.removeprefix(SCHEME))
        # Another source of this name must not get its descriptions.
        objects, root = open_catalog_root_folder(self._app)
        for each in list(objects.names("/".join(part for part in (root, catalog_folder_by_name(name)) if part))):
            objects.remove(each)

    # The files on this machine.

    def find(self, spec: SourceSpec) -> tuple[Path, Path]:
        """Return the folder for what is made of an upload, and where its files are on this machine.

        The files of a cloud's object store are copied here first.
        """
        folder = self._folder(spec.url.removeprefix(SCHEME))
        data = folder / "data"
        if not all((data / file.name).exists() for file in spec.uploaded):
            self._fetch(spec, folder, data)
        if spec.kind in DATABASES:
            return folder, (data / spec.uploaded[0].name).resolve()
        return folder, data

    def _fetch(self, spec: SourceSpec, folder: Path, data: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        staged = Path(tempfile.mkdtemp(prefix=".data-", dir=folder))
        try:
            for file in spec.uploaded:
                path = self._app.objects.file_path(file.place)
                if path is None:
                    self._app.objects.copy_file(file.place, file.hash, staged / file.name)
                else:
                    (staged / file.name).symlink_to(path)
            with contextlib.suppress(OSError):  # another thread or process has just done the same
                staged.rename(data)
        finally:
            shutil.rmtree(staged, ignore_errors=True)

    def _folder(self, upload: str) -> Path:
        return self._cache / f"{self._app.tenant}.{upload}"

    # Nothing is left behind.

    @contextlib.contextmanager
    def _claimed(self, upload: str) -> Iterator[Keep]:
        """Hold the lock of an upload; remove all of it after the block, unless it is kept."""
        keep, lock = Keep(), _lock_new_folder(self._folder(upload))
        try:
            yield keep
        finally:
            try:
                if not keep.kept:
                    self._discard(upload)
            finally:
                os.close(lock)

    def _discard(self, upload: str) -> None:
        objects = self._app.objects
        for name in list(objects.names(f"{PLACE}/{self._app.tenant}/{upload}")):
            objects.remove(name)
        if objects.folder is not None:
            shutil.rmtree(objects.folder / PLACE / self._app.tenant / upload, ignore_errors=True)
        shutil.rmtree(self._folder(upload), ignore_errors=True)
        vocabularies = self._app.settings.home / "cache" / "vocabulary"
        if vocabularies.is_dir():
            from etude.run_setup import source_origin
            from etude.runtime.offline_model import forget_vocabularies

            forget_vocabularies(vocabularies, source_origin(self._app.tenant, f"{SCHEME}{upload}"))

    def remove_leftovers(self) -> None:
        """Remove what processes that were killed left of uploads, and copies of uploads that were removed elsewhere."""
        _ = self._app.scratch  # the first use in a process removes the scratch folders of dead ones
        for folder in self._cache.glob(f"{self._app.tenant}.*"):
            with contextlib.suppress(OSError):
                lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    upload = folder.name.partition(".")[2]
                    # Read now: the process that held the lock may have registered its upload just before.
                    if f"{SCHEME}{upload}" not in {spec.url for spec in self._app.store.sources().values()}:
                        self._discard(upload)
                finally:
                    os.close(lock)


def _lock_new_folder(folder: Path) -> int:
    """Make a folder and lock it; return the descriptor that holds the lock.

    Until it is locked, `remove_leftovers` of another thread or process takes it for one that a dead process left.
    """
    while True:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(lock, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock), os.stat(folder)):
                    return lock
            os.close(lock)


class _RoomWait(LoadWait):
    """Waits until an upload is read, and ends that once what is made of it passes what is left of the quota."""

    def __init__(self, store: Store, folder: Path, size: int) -> None:
        super().__init__(LOAD_S)
        self._store = store
        self._folder = folder
        self._size = size
        self._left = store.storage_left()

    def check(self, path: str) -> None:
        """Raise `LimitExceeded` also if the files on the disk are more than the tenant may keep."""
        super().check(path)
        size = self._size + _count_made_bytes(self._folder)
        if self._left is not None and size > self._left:
            self._store.check_room(size)
            self._left = self._store.storage_left()  # another upload was removed meanwhile


class Keep:
    """Whether an upload is registered and stays; call it to say so."""

    kept = False

    def __call__(self) -> None:
        """Say that it stays."""
        self.kept = True


def _measure(file: ReceivedFile, name: str, place: str) -> UploadedFile:
    digest, size = hashlib.sha256(), 0
    for chunk in artifact_chunks(file.path):
        digest.update(chunk)
        size += len(chunk)
    # Its ending stays: readers choose by it between formats that look alike.
    plain = re.sub(r"[^A-Za-z0-9._=-]+", "_", name).lstrip(".") or "file"
    return UploadedFile(name=name, place=f"{place}/{plain}", size=size, hash=digest.hexdigest())


def _kind_of(files: Sequence[ReceivedFile]) -> str:
    """Return the kind of the source by the first bytes of its files; their names do not matter."""
    kinds = {source_kind(str(file.path)) for file in files}
    if kinds & set(DATABASES) and len(files) > 1:
        raise Invalid("A database file was uploaded together with other files.", hint="Upload each database by itself.")
    return kinds.pop() if len(files) == 1 else "files"


def _file_names(files: Sequence[ReceivedFile]) -> list[str]:
    """Return a plain name for each file: no folders, no control characters, none twice."""
    names: list[str] = []
    for file in files:
        base = file.name.replace("\\", "/").rsplit("/", 1)[-1].encode("utf-8", "replace").decode()
        short = re.sub(r"[\x00-\x1f\x7f/]+", "_", base).encode()[-LONGEST:].decode("utf-8", "ignore")
        plain = short.strip(" .") or "file"
        stem, dot, endings = plain.partition(".")
        number = 2
        while plain.lower() in {name.lower() for name in names}:
            plain, number = f"{stem}_{number}{dot}{endings}", number + 1
        names.append(plain)
    return names


def _numbered(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}_{number}" for number in range(2, MOST_NAMES))


def _count_made_bytes(folder: Path) -> int:
    """Return the bytes of the files below a folder, without those that links lead to."""
    found = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # an engine that reads an upload removes files, too
            about = path.lstat()
            found += about.st_size if stat.S_ISREG(about.st_mode) else 0
    return found


def make_upload_report(name: str, catalog: Catalog, size: int = 0) -> UploadReport:
    """Return the tables and columns of a new dataset, and the notes on how it was read."""
    tables = [
        UploadedTable(
            name=table.name,
            rows=table.row_count,
            columns=[UploadedColumn(name=column.name, type=column.type) for column in table.columns],
        )
        for table in catalog.tables
    ]
    several = len(catalog.tables) > 1
    notes = [f"{table.name}: {note}" if several else note for table in catalog.tables for note in table.notes]
    return UploadReport(
        name=name, kind=catalog.kind, bytes=size, tables=tables, notes=[*catalog.warnings, *catalog.notes, *notes]
    )


def _named(error: EtudeError, spec: SourceSpec) -> EtudeError:
    """Return the error of a reader with the names of the uploaded files instead of their paths."""
    # A damaged database is a mistake of the sender here, not a failure of a source.
    damaged = isinstance(error, SourceError) and not error.retryable
    kind = Invalid if damaged else type(error)
    return kind(_own_names(error.message, spec), hint=_own_names(error.hint, spec), **error.details)


def _own_names(text: str, spec: SourceSpec) -> str:
    upload = spec.url.removeprefix(SCHEME)
    for file in spec.uploaded:
        for place in (file.place, f"{upload}/data/{file.name}"):
            text = re.sub(rf"[^\s`]*{re.escape(place)}", lambda _, n=file.name: n, text)  # type: ignore[misc]
    return text


def _taken(name: str) -> Conflict:
    return Conflict(f"There is a dataset `{name}` already.", hint="Choose another name, or remove that dataset first.")


def _shown(name: str) -> str:
    return name[-LONGEST:]
