"""Temporary folders with a lock, by which the next process finds those of processes that were killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import weakref
from pathlib import Path


class ScratchFolder:
    """A temporary folder, which is removed by `remove`, at the latest when this process ends.

    Its name is new, unless the caller knows one that is.
    """

    def __init__(self, prefix: str, parent: Path | None = None, name: str | None = None) -> None:
        while True:
            if name is None or parent is None:
                self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            else:
                self.path = parent / f"{prefix}{name}"
                self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Another process may have removed the new folder as an orphan before it was locked.
            with contextlib.suppress(FileNotFoundError):
                lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                fcntl.flock(lock, fcntl.LOCK_EX)
                if self.path.is_dir():
                    break
                os.close(lock)
        self._finalizer = weakref.finalize(self, _remove, self.path, lock, os.getpid())

    def remove(self) -> None:
        """Remove the folder and what is in it; may be called twice."""
        self._finalizer()


def _remove(path: Path, lock: int, owner: int) -> None:
    if os.getpid() != owner:
        return  # a fork of the owner ends
    shutil.rmtree(path, ignore_errors=True)
    os.close(lock)


def remove_orphaned_folders(prefix: str, parent: Path) -> None:
    """Remove the folders of processes that were killed: those without a lock."""
    for path in parent.glob(f"{prefix}*"):
        # Folders of other users stay; another process may be removing the same folder now.
        with contextlib.suppress(OSError):
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)
