"""Artifacts: immutable blobs named by the SHA-256 of their bytes, in a folder or a cloud object store."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import unquote, urlsplit

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)
from obstore.store import LocalStore, MemoryStore, from_url

from etude.entities import Artifact
from etude.errors import Damaged, Invalid, NotFound, Unavailable, disk_full_error, is_disk_full
from etude.ids import new_id
from etude.scratch_folder import ScratchFolder
from etude.store.artifact_folder import (
    CHUNK,
    HASH,
    artifact_chunks,
    artifact_key,
    collect_artifact,
    put_artifact,
    remove_unfinished_artifacts,
    sync_artifact_folder,
    temporary_artifact,
)
from etude.store.base import ROOM, store_free_disk_bytes
from etude.store.file_checksums import LARGE, CheckedFile, FileChecksums, make_checksums, read_file_at_most

SMALL = 8 << 20
"""Up to this size an object is sent in one request, which can be conditional; larger ones in parts."""
CLOUDS = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl")
UNSUPPORTED = (NotSupportedError, NotImplementedError)
PLACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._=-]{0,199}(/[A-Za-z0-9_][A-Za-z0-9._=-]{0,199}){0,15}")
TRASH = "trash"
NOT_NAMED = frozenset({"artifacts", "sums", "probe", TRASH})
"""Top folders whose objects have no names of their own."""
TRASH_S = 3600.0
"""How long a collected artifact of a cloud can be brought back."""
YOUNG_S = 600.0
"""An object of a cloud that is stored again after this time is written again, so that it counts as new."""
UPDATES = 50
"""How often a change is tried against concurrent writers."""


@dataclass(frozen=True)
class Capabilities:
    """Which conditional writes the store honours: `create` if absent, `update` if unchanged."""

    create: bool
    update: bool


@dataclass(frozen=True)
class LentFile:
    """An artifact that is open for another process."""

    fd: int
    """The open file, which the holder closes."""
    sums: FileChecksums | None
    """The sums to check the file by; None if it was checked already."""
    damaged: Damaged
    """The error to raise if the bytes do not match the sums."""


@dataclass(frozen=True)
class _Stored:
    size: int
    modified: datetime

    @property
    def is_old(self) -> bool:
        """Whether it must be stored again to count as new: otherwise it could be collected before it is used."""
        return datetime.now(UTC) - self.modified > timedelta(seconds=YOUNG_S)


class Objects:
    """Artifacts at a URL: a folder, `file://`, `s3://bucket/prefix`, `gs://`, `az://` or `memory://`.

    Options are those of obstore for that cloud, such as `endpoint`, `region`, `access_key_id`; others
    come from the environment (`AWS_*`, `GOOGLE_*`, `AZURE_*`). `allow_http` permits plain HTTP.
    """

    def __init__(self, url: str | Path, **options: str | bool) -> None:
        self.folder = _folder(str(url))
        self.url = str(self.folder) if self.folder else _without_secrets(str(url))
        self._store = self._open(str(url), options)
        self._capabilities: Capabilities | None = None

    def _open(self, url: str, options: dict[str, str | bool]) -> Any:
        if self.folder is not None:
            with self._translated():
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                remove_unfinished_artifacts(self.folder)
                return LocalStore(self.folder, automatic_cleanup=True)
        scheme = urlsplit(url).scheme
        if scheme == "memory":
            return MemoryStore()
        if scheme not in CLOUDS:
            raise Invalid(
                f"`{self.url}` is not a valid location for artifacts.",
                hint="Use a folder, s3://bucket/prefix, gs://bucket/prefix or az://account/container.",
            )
        # Options of the client replace those that obstore would read from the environment.
        plain = str(options.get("allow_http", os.environ.get("AWS_ALLOW_HTTP", ""))).lower()
        allow_http = plain in ("1", "true", "yes", "on")
        client: Any = {"connect_timeout": timedelta(seconds=5), "allow_http": allow_http}
        # The default is to retry for three minutes; callers should get the error sooner.
        retry: Any = {"max_retries": 3, "retry_timeout": timedelta(seconds=15)}
        config: Any = {k: str(v) for k, v in options.items() if k != "allow_http"}
        try:
            return from_url(url, client_options=client, retry_config=retry, **config)
        except UnknownConfigurationKeyError as error:
            raise Invalid(f"An option of `{self.url}` is unknown: {_line(error)}") from error
        except (BaseError, ValueError) as error:
            raise Invalid(f"`{self.url}` with its options is not valid: {_line(error)}") from error

    @contextmanager
    def _translated(self, missing: str = "") -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error) or not missing:
                raise self._trouble("its bucket or folder does not exist") from error
            raise NotFound(f"`{self.url}` has no artifact `{missing}`.") from error
        except (PermissionDeniedError, UnauthenticatedError, PermissionError) as error:
            raise self._trouble("access was denied") from error
        except (BaseError, OSError) as error:
            if is_disk_full(error):
                raise disk_full_error(f"The object store `{self.url}` cannot be written") from error
            plain = "BadScheme" in str(error)
            raise self._trouble("it is plain HTTP without `allow_http`" if plain else _line(error)) from error

    def _trouble(self, reason: str) -> Unavailable:
        return Unavailable(
            f"The object store `{self.url}` cannot be used: {reason}.",
            hint="Check its address, its credentials and that it can be reached and written.",
        )

    # Writing.

    def put(self, data: bytes | Path, media: str) -> Artifact:
        """Store the bytes, or those of the file, and return their artifact; bytes that are already stored stay."""
        if self.folder is not None:
            return self._put_in_folder(self.folder, data, media)
        if isinstance(data, Path) and data.is_file() and data.stat().st_size > SMALL:
            return self._put_in_parts(data, media)
        content = b"".join(artifact_chunks(data))
        digest, size = _measure(content)
        with self._translated():
            found = self._find(digest)
            if found is None:
                self._create(artifact_key(digest), content, media)
            elif found.size != size or found.is_old:
                self._store.put(artifact_key(digest), content, attributes={"Content-Type": media})
        return Artifact(hash=digest, media=media, size=size)

    def _create(self, key: str, content: bytes, media: str) -> None:
        try:
            self._store.put(key, content, attributes={"Content-Type": media}, mode="create")
        except AlreadyExistsError:
            # Another writer stored the same bytes in the meantime.
            return
        except UNSUPPORTED:
            self._store.put(key, content, attributes={"Content-Type": media})

    def _put_in_parts(self, path: Path, media: str) -> Artifact:
        before = path.stat()
        digest, size = _measure(path)
        with self._translated():
            found = self._find(digest)
            if found is None or found.size != size or found.is_old:
                # Parts cannot be conditional, but the same name means the same bytes, so writing twice is harmless.
                self._store.put(artifact_key(digest), path, attributes={"Content-Type": media})
                if _changed(before, path.stat()):
                    self._store.delete(artifact_key(digest))
                    raise Invalid(f"The file `{path}` changed while it was stored.")
        return Artifact(hash=digest, media=media, size=size)

    def _put_in_folder(self, folder: Path, data: bytes | Path, media: str) -> Artifact:
        with self._translated():
            written = put_artifact(folder, data)
        return Artifact(hash=written.hash, media=media, size=written.size)

    def _find(self, digest: str) -> _Stored | None:
        """Return the size and age of the object, None if there is none; a wrong size shows damage."""
        try:
            found = self._store.head(artifact_key(digest))
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise
            return None
        return _Stored(int(found["size"]), found["last_modified"])

    # Reading.

    def get(self, hash: str, run_id: str | None = None) -> bytes:
        """Return the bytes of an artifact, checked against its name. Errors name the run, if given."""
        with self._translated(missing=hash):
            data = bytes(self._store.get(artifact_key(hash)).bytes())
        if hashlib.sha256(data).hexdigest() != hash:
            raise self._damaged(hash, run_id)
        return data

    def open(self, hash: str, run_id: str | None = None) -> IO[bytes]:
        """Open an artifact as a file for reading, which checks the bytes before it returns them.

        `Damaged` is raised here or by a read. In a large file, only the chunks that are read are checked.
        """
        if self.folder is None:
            return io.BytesIO(self.get(hash, run_id))
        path = self.folder / artifact_key(hash)
        with self._translated(missing=hash):
            if (data := read_file_at_most(path, LARGE)) is not None:
                return io.BytesIO(self._checked(data, hash, run_id))
            opened: Any = self._open_checked(path, hash, run_id)
        return cast("IO[bytes]", opened)

    def lend(self, hash: str, run_id: str | None, scratch: Path) -> LentFile:
        """Open an artifact for another process, which checks the bytes that it reads by the sums.

        An artifact of a cloud is downloaded to `scratch` first.
        """
        if self.folder is None:
            scratch.mkdir(parents=True, exist_ok=True)
            folder = ScratchFolder("etude-result-", scratch)
            try:
                path = folder.path / "artifact"
                self.download(hash, path)
                return LentFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC), None, self._damaged(hash, run_id))
            finally:
                folder.remove()
        path = self._file(self.folder, hash)
        with self._translated(missing=hash):
            if path.stat().st_size <= LARGE:
                self._read_small(path, hash, run_id)
                return LentFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC), None, self._damaged(hash, run_id))
            sums = FileChecksums.read(path, hash) or make_checksums(path, hash)
            if sums is None:
                raise self._damaged(hash, run_id)
            return LentFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC), sums, self._damaged(hash, run_id))

    def _read_small(self, path: Path, hash: str, run_id: str | None) -> bytes:
        return self._checked(path.read_bytes(), hash, run_id)

    def _checked(self, data: bytes, hash: str, run_id: str | None) -> bytes:
        if hashlib.sha256(data).hexdigest() != hash:
            raise self._damaged(hash, run_id)
        return data

    def _open_checked(self, path: Path, hash: str, run_id: str | None) -> CheckedFile:
        sums = FileChecksums.read(path, hash) or make_checksums(path, hash)
        if sums is None:
            raise self._damaged(hash, run_id)
        return CheckedFile(path, sums, lambda: self._damaged(hash, run_id))

    def check_artifact(self, hash: str, run_id: str | None = None) -> None:
        """Check every byte of an artifact; raise `Damaged` or `NotFound`."""
        if self.folder is None:
            self.get(hash, run_id)
        else:
            with self._translated(missing=hash):
                self._check_file(self._file(self.folder, hash), hash, run_id)

    def _check_file(self, path: Path, hash: str, run_id: str | None = None) -> None:
        if path.stat().st_size <= LARGE:
            self._read_small(path, hash, run_id)
            return
        with self._open_checked(path, hash, run_id) as file:
            file.check()

    def download(self, hash: str, path: Path) -> None:
        """Write an artifact to a file, which appears only when it is complete and checked."""
        digest = hashlib.sha256()
        try:
            with temporary_artifact(Path(path).parent) as (file, temporary):
                for chunk in self._stream(hash):
                    digest.update(chunk)
                    file.write(chunk)
                if digest.hexdigest() != hash:
                    raise self._damaged(hash, None)
                file.flush()
                os.replace(temporary, path)
        except OSError as error:
            raise Invalid(f"The file `{path}` cannot be written: {error.strerror}.") from error

    def _stream(self, hash: str) -> Iterator[bytes]:
        with self._translated(missing=hash):
            chunks = iter(self._store.get(artifact_key(hash)).stream(min_chunk_size=CHUNK))
        while True:
            with self._translated(missing=hash):
                chunk = next(chunks, None)
            if chunk is None:
                return
            yield chunk

    def _damaged(self, hash: str, run_id: str | None) -> Damaged:
        file = f"{self.url}/{artifact_key(hash)}"
        whose = f"of run `{run_id}` " if run_id else ""
        again = f"`etude runs repair {run_id}` runs its query again, or restore" if run_id else "Restore"
        return Damaged(
            f"The file `{file}` {whose}is damaged: its bytes do not match the hash in its name.",
            hint=f"{again} the file from a backup.",
            run_id=run_id,
            artifact=hash,
            file=file,
        )

    def local_path(self, hash: str) -> Path | None:
        """Return the file of an artifact, unchecked; None if the store is not a folder."""
        return self._file(self.folder, hash) if self.folder is not None else None

    def _file(self, folder: Path, hash: str) -> Path:
        path = folder / artifact_key(hash)
        if not path.is_file():
            raise NotFound(f"`{self.url}` has no artifact `{hash}`.")
        return path

    def discard_damaged(self, hash: str) -> None:
        """Remove an artifact if it is damaged, so that `put` writes it again."""
        try:
            self.check_artifact(hash)
        except Damaged:
            with self._translated(missing=hash):
                self._store.delete(artifact_key(hash))

    def size(self, hash: str) -> int | None:
        """Return the size of an artifact, None if there is none; its bytes are not checked."""
        with self._translated():
            found = self._find(hash)
        return None if found is None else found.size

    def exists(self, hash: str) -> bool:
        """Return whether the artifact exists."""
        key = artifact_key(hash)
        try:
            with self._translated(missing=hash):
                self._store.head(key)
        except NotFound:
            return False
        return True

    # Collection of artifacts that no run refers to.

    def collect(self, hash: str, before: datetime) -> int | None:
        """Remove an artifact that no run refers to, if it was last stored before a time; return its size.

        Return None if it stays, because it was stored again since then: a run that is about to refer to it is at work.
        In a cloud it goes to `trash/`, because no request can check the time and delete at once.
        """
        with self._translated():
            if self.folder is not None:
                return collect_artifact(self.folder, hash, before.timestamp())
            found = self._find(hash)
            if found is None:
                return 0
            if found.modified >= before:
                return None
            self._store.copy(artifact_key(hash), f"{TRASH}/{hash}")
            self._store.delete(artifact_key(hash))
            return found.size

    def empty_trash(self, is_used: Callable[[str], bool]) -> int:
        """Delete what was collected a while ago; bring back what a run refers to. Return how many were deleted."""
        if self.folder is not None:
            return 0
        deleted = 0
        oldest = datetime.now(UTC) - timedelta(seconds=TRASH_S)
        with self._translated():
            for part in self._store.list(TRASH, chunk_size=1000):
                for found in part:
                    hash = found["path"].rpartition("/")[2]
                    if found["last_modified"] >= oldest or not HASH.fullmatch(hash):
                        continue
                    if is_used(hash) and self._find(hash) is None:
                        self._store.copy(found["path"], artifact_key(hash))
                    self._store.delete(found["path"])
                    deleted += 1
        return deleted

    def artifacts(self) -> Iterator[str]:
        """Yield the hashes of all artifacts."""
        for name in self.names("artifacts"):
            hash = name.rpartition("/")[2]
            if HASH.fullmatch(hash):
                yield hash

    # Objects that are addressed by name, not by content.

    def read(self, name: str) -> bytes:
        """Return the bytes under a name; raise `NotFound` if there are none."""
        with self._translated(missing=check_object_name(name)):
            return bytes(self._store.get(name).bytes())

    def write(self, name: str, data: bytes, media: str) -> None:
        """Write bytes under a name, atomically."""
        with self._translated():
            if self.folder is not None:
                _write_file(self.folder / check_object_name(name), data)
            else:
                self._store.put(check_object_name(name), data, attributes={"Content-Type": media})

    def write_file(self, name: str, path: Path, media: str) -> None:
        """Move a file of this machine into the store under a name, atomically; its folder loses it or keeps it."""
        with self._translated():
            if self.folder is not None:
                _move_file(path, self.folder / check_object_name(name))
            else:
                self._store.put(check_object_name(name), path, attributes={"Content-Type": media})

    def copy_file(self, name: str, hash: str, path: Path) -> None:
        """Write the bytes under a name to a file, which appears only when it is complete and has that hash."""
        with self._translated(missing=check_object_name(name)):
            chunks = self._store.get(name).stream(min_chunk_size=CHUNK)
            digest = hashlib.sha256()
            with temporary_artifact(path.parent) as (file, temporary):
                for chunk in chunks:
                    digest.update(chunk)
                    file.write(chunk)
                file.flush()
                if digest.hexdigest() != hash:
                    raise Damaged(f"`{name}` in `{self.url}` is damaged.", hint="Upload it again.")
                os.replace(temporary, path)

    def file_path(self, name: str) -> Path | None:
        """Return the file under a name; None if the store is not a folder of this machine."""
        return self.folder / check_object_name(name) if self.folder is not None else None

    def update(self, name: str, change: Callable[[bytes | None], bytes | None], media: str) -> None:
        """Replace the bytes under a name by `change(bytes)`: it gets None if there are none, and may return None.

        None leaves the object unchanged. If another writer was faster, `change` is called again. A store
        that ignores conditions keeps the last write.
        """
        if self.folder is not None:
            with self._translated(), _locked(self.folder):
                path = self.folder / check_object_name(name)
                data = change(path.read_bytes() if path.is_file() else None)
                if data is not None:
                    _write_file(path, data)
            return
        for _ in range(UPDATES):
            with self._translated():
                data, mode = self._changed(check_object_name(name), change)
                if data is None or self._put_where(name, data, media, mode):
                    return
        raise Unavailable(f"`{name}` in `{self.url}` has too many concurrent writers.", hint="Try again.")

    def _changed(self, name: str, change: Callable[[bytes | None], bytes | None]) -> tuple[bytes | None, Any]:
        """Return what to write, and the condition that the bytes it was made from are unchanged."""
        try:
            found = self._store.get(name)
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise
            return change(None), "create"
        version = _version({"e_tag": found.meta.get("e_tag"), "version": found.meta.get("version")})
        return change(bytes(found.bytes())), version

    def _put_where(self, name: str, data: bytes, media: str, mode: Any) -> bool:
        try:
            self._store.put(name, data, attributes={"Content-Type": media}, mode=mode)
        except (AlreadyExistsError, PreconditionError):
            return False
        except UNSUPPORTED:
            self._store.put(name, data, attributes={"Content-Type": media})
        return True

    def names(self, prefix: str, after: str = "") -> Iterator[str]:
        """Yield the names below a prefix, in order and after another one; they are requested lazily."""
        with self._translated():
            if self.folder is not None:
                yield from _files(self.folder / check_object_name(prefix), prefix, after)
                return
            for part in self._store.list(check_object_name(prefix), offset=after or None, chunk_size=1000):
                # A server may not support offsets, and return all names.
                yield from (found["path"] for found in part if found["path"] > after)

    def folders(self) -> list[str]:
        """Return the top folders of objects that are addressed by name."""
        with self._translated():
            if self.folder is not None:
                found = [entry.name for entry in os.scandir(self.folder) if entry.is_dir()]
            else:
                found = [str(prefix) for prefix in self._store.list_with_delimiter()["common_prefixes"]]
        return sorted(name for name in found if name not in NOT_NAMED and PLACE.fullmatch(name))

    def remove(self, name: str) -> None:
        """Remove the object under a name, if there is one."""
        try:
            with self._translated(missing=check_object_name(name)):
                self._store.delete(name)
        except NotFound:
            return

    # Health.

    def probe(self) -> Capabilities:
        """Try, once, which conditional writes the store honours: some accept a condition and ignore it."""
        if self._capabilities is None:
            key = f"probe/{new_id('probe')}"
            with self._translated():
                stale = _version(self._store.put(key, b"1"))
                try:
                    create = self._refuses(key, "create", AlreadyExistsError)
                    current = _version(self._store.put(key, b"22"))
                    update = self._refuses(key, stale, PreconditionError)
                    # A server that refuses every condition honours none.
                    update = update and not self._refuses(key, current, PreconditionError)
                finally:
                    self._store.delete(key)
            self._capabilities = Capabilities(create, update)
        return self._capabilities

    def _refuses(self, key: str, mode: Any, refusal: type[Exception]) -> bool:
        try:
            self._store.put(key, b"333", mode=mode)
        except refusal:
            return True
        except UNSUPPORTED:
            return False
        return False

    def check(self) -> dict[str, Any]:
        """Check that the store answers; return its location and which conditional writes it honours."""
        can = self.probe()
        self.exists("0" * 64)
        if self.folder is not None:
            with self._translated():
                if store_free_disk_bytes(self.folder) < ROOM:
                    raise disk_full_error(f"The object store `{self.url}` cannot be written")
                # The probe ran only once; the folder may have lost its permissions since.
                with temporary_artifact(self.folder / "artifacts") as (file, _):
                    file.write(b"1")
        return {"url": self.url, "create": can.create, "update": can.update}


def _version(written: Any) -> Any:
    return {name: value for name, value in written.items() if value is not None}


def check_object_name(name: str) -> str:
    """Return the name of an object; raise `Invalid` unless it has plain parts with `/` between, none of them `..`."""
    if not PLACE.fullmatch(name):
        raise Invalid(
            f"`{name[:80]}` is not a valid name in an object store.",
            hint="Use letters, digits, `.`, `_`, `=` and `-`, with `/` between the parts.",
        )
    return name


def write_object_file(path: Path, data: bytes) -> None:
    """Write a file atomically."""
    try:
        _write_file(path, data)
    except OSError as error:
        raise Invalid(f"The file `{path}` cannot be written: {error.strerror}.", hint="Check the folder.") from None


def _write_file(path: Path, data: bytes) -> None:
    with temporary_artifact(path.parent) as (file, temporary):
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_artifact_folder(path.parent)


def _move_file(path: Path, target: Path) -> None:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with path.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(path, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        with temporary_artifact(target.parent) as (file, temporary):
            for chunk in artifact_chunks(path):
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
            os.replace(temporary, target)
    sync_artifact_folder(target.parent)


def _files(folder: Path, prefix: str, after: str) -> Iterator[str]:
    """Yield the files below a folder by name, in order; folders whose files all come before are skipped."""
    try:
        entries = sorted(os.scandir(folder), key=lambda e: e.name + "/" * e.is_dir())
    except FileNotFoundError:
        return
    for entry in entries:
        name = f"{prefix}/{entry.name}"
        if not PLACE.fullmatch(name):
            continue  # a file that is still being written
        if entry.is_dir():
            if f"{name}/\U0010ffff" > after:
                yield from _files(folder / entry.name, name, after)
        elif name > after:
            yield name


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes from changing names in this folder while the block runs."""
    import fcntl

    with (folder / ".lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _measure(data: bytes | Path) -> tuple[str, int]:
    """Return the hash and size of the bytes."""
    digest = hashlib.sha256()
    size = 0
    for chunk in artifact_chunks(data):
        digest.update(chunk)
        size += len(chunk)
    return digest.hexdigest(), size


def _changed(before: os.stat_result, after: os.stat_result) -> bool:
    return (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns)


def _folder(url: str) -> Path | None:
    parts = urlsplit(url)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    # A drive letter is not a scheme.
    return Path(url).expanduser().absolute() if "://" not in url else None


def _without_secrets(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _line(error: Exception) -> str:
    # Later lines may hold a server's full answer, with names of keys in it.
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return first.rpartition(" - ")[2].partition("<")[0].strip(" .:")[:200]
