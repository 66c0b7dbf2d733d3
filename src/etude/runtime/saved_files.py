"""Files that a session sends in pieces, on disk: the sessions of many threads stay open, and each may send much."""

from __future__ import annotations

import hashlib
import mmap
import uuid
from collections.abc import Iterator, MutableMapping
from pathlib import Path

from etude import wire
from etude.errors import disk_full_error, is_disk_full
from etude.scratch_folder import ScratchFolder

PREFIX = "etude-saved-"


class ArrivingFile:
    """A file on disk that grows by pieces. Between pieces it is not open: a session may have begun many."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._hash = hashlib.sha256()
        path.touch(mode=0o600)

    def add(self, piece: bytes, name: str) -> None:
        """Append a piece; `name` is for errors. After an error, the file is gone."""
        try:
            with self.path.open("ab") as file:
                file.write(piece)
        except OSError as error:
            self.remove()
            if is_disk_full(error):
                raise disk_full_error(f"`{name}` cannot be saved") from error
            raise
        self.size += len(piece)
        self._hash.update(piece)

    def has_content_of(self, other: ArrivingFile) -> bool:
        """Return whether both files have the same bytes."""
        return self._hash.digest() == other._hash.digest()

    def share(self) -> int:
        """Copy the file to sealed shared memory and return its descriptor; the file must not be empty."""
        with (
            self.path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as content,
        ):
            return wire.share_wire_memory(content)

    def remove(self) -> None:
        """Delete it."""
        self.path.unlink(missing_ok=True)


class SavedFiles(MutableMapping[str, bytes]):
    """The files that a session saved, by name, each read when it is asked for. They go away with the session."""

    def __init__(self, scratch: Path | None) -> None:
        self._scratch = scratch
        self._folder: ScratchFolder | None = None
        """Created with the first file: most sessions save none."""
        self._files: dict[str, ArrivingFile] = {}

    def __getitem__(self, name: str) -> bytes:
        return self._files[name].path.read_bytes()

    def __setitem__(self, name: str, content: bytes) -> None:
        file = self.begin()
        file.add(content, name)
        self.keep(name, file)

    def __delitem__(self, name: str) -> None:
        self._files.pop(name).remove()

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def __contains__(self, name: object) -> bool:
        return name in self._files

    def __eq__(self, other: object) -> bool:
        return dict(self) == other

    __hash__ = None  # type: ignore[assignment]

    def begin(self) -> ArrivingFile:
        """Return an empty file, which has no name here until it is kept."""
        if self._folder is None:
            if self._scratch is not None:
                self._scratch.mkdir(parents=True, exist_ok=True)
            self._folder = ScratchFolder(PREFIX, self._scratch)
        return ArrivingFile(self._folder.path / uuid.uuid4().hex)

    def keep(self, name: str, file: ArrivingFile) -> None:
        """Keep a complete file under a name. The file that had the name is deleted."""
        before = self._files.get(name)
        self._files[name] = file
        if before is not None:
            before.remove()

    def find(self, name: str) -> ArrivingFile | None:
        """Return the file of that name; None if there is none."""
        return self._files.get(name)

    def total_without(self, name: str) -> int:
        """Return the bytes of all files but the one of this name."""
        return sum(file.size for each, file in self._files.items() if each != name)

    def close(self) -> None:
        """Delete the files."""
        self._files.clear()
        if self._folder is not None:
            self._folder.remove()
            self._folder = None
