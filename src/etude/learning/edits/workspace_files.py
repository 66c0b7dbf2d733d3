"""Files of a folder, read and replaced without following symbolic links, which could lead to other files."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def open_workspace_parent_folder(folder: Path, path: str) -> Iterator[tuple[int, str]]:
    """Open the folder of a file; yield its descriptor and the file's name. Raise `OSError` if a link is on the way."""
    *parents, name = PurePosixPath(path).parts
    if ".." in (*parents, name) or path.startswith("/"):
        raise OSError(f"`{path}` is not a path within the folder")
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parents:
            inner = os.open(part, _FOLDER, dir_fd=at)
            os.close(at)
            at = inner
        yield at, name
    finally:
        os.close(at)


def find_workspace_file_kind(folder: Path, path: str) -> str:
    """Return `file`, `link`, or nothing if it is something else, is missing, or is reached by a link."""
    try:
        with open_workspace_parent_folder(folder, path) as (at, name):
            mode = os.stat(name, dir_fd=at, follow_symlinks=False).st_mode
    except OSError:
        return ""
    return "file" if stat.S_ISREG(mode) else "link" if stat.S_ISLNK(mode) else ""


def read_workspace_file_bytes(folder: Path, path: str, most: int = -1) -> bytes:
    """Return the content of a regular file, or its first `most` bytes. Raise `OSError` if a link leads to it."""
    with open_workspace_parent_folder(folder, path) as (at, name):
        # A pipe must not make this wait.
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"`{path}` is not a file")
        return file.read(most)


def read_workspace_file_text(folder: Path, path: str) -> str:
    """Return the text of a file with its line ends as they are."""
    return read_workspace_file_bytes(folder, path).decode("utf-8")


def read_workspace_file_link(folder: Path, path: str) -> str:
    """Return where a symbolic link leads."""
    with open_workspace_parent_folder(folder, path) as (at, name):
        return os.readlink(name, dir_fd=at)


def read_workspace_file_status(folder: Path, path: str) -> os.stat_result:
    """Return the permissions and times of a file, not of a link's target."""
    with open_workspace_parent_folder(folder, path) as (at, name):
        return os.stat(name, dir_fd=at, follow_symlinks=False)


def replace_workspace_file_text(folder: Path, path: str, text: str) -> None:
    """Replace a regular file at once, keeping its mode. Raise `OSError` if it is a link or is reached by one."""
    with open_workspace_parent_folder(folder, path) as (at, name):
        found = os.stat(name, dir_fd=at, follow_symlinks=False)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"`{path}` is not a file")
        new = f".etude-{secrets.token_hex(8)}"
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=at)
        with open(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            os.fchmod(descriptor, stat.S_IMODE(found.st_mode))
        os.replace(new, name, src_dir_fd=at, dst_dir_fd=at)
