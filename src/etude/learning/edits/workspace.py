"""The code that an edit is tried on: a snapshot of a folder, of which each run of a suite gets a fresh copy."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from etude.entities import Entity
from etude.errors import LimitExceeded, NotFound, Refused
from etude.learning.edits.git import is_git_folder, run_git
from etude.learning.edits.workspace_files import (
    find_workspace_file_kind,
    read_workspace_file_bytes,
    read_workspace_file_link,
    read_workspace_file_status,
    read_workspace_file_text,
)
from etude.sessions import isolation

LARGEST = 512 << 20
"""The most bytes of a folder that are copied for each run."""
LEFT_OUT = frozenset({".git", ".venv", "venv", "node_modules", "__pycache__", ".tox", ".mypy_cache", ".pytest_cache"})
RESULT_FILE = ".etude-junit.xml"
"""The file that a suite writes its outcomes to; one that is already in the folder is not copied."""
PROTECTED = (
    *("test_*.py", "*_test.py", "conftest.py", "tests/*", "test/*", "testing/*", "*.test.*", "*.spec.*"),
    *("pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml", "setup.py", "noxfile.py", "Makefile", ".coveragerc"),
    *("*.pth", "sitecustomize.py", "usercustomize.py", ".etude/*", ".github/*", "etude/learning/*", "bench/*"),
)
"""Tests, their settings, and the code that decides about edits: out of reach of every edit."""


class Hunk(Entity):
    """A replacement in one file: `old` must be in it exactly once."""

    path: str
    old: str
    new: str


def is_protected_workspace_path(path: str, more: Sequence[str] = ()) -> bool:
    """Return whether an edit may not touch this file: a test, the evaluator, or a file of the suite's command."""
    parts = PurePosixPath(path).parts
    if path in more:
        return True
    for pattern in PROTECTED:
        if pattern.endswith("/*"):
            folder = PurePosixPath(pattern[:-2]).parts
            if any(parts[n : n + len(folder)] == folder for n in range(len(parts) - len(folder))):
                return True
        elif fnmatchcase(parts[-1], pattern):
            return True
    return False


@dataclass(frozen=True)
class Workspace:
    """The files of a folder with the changes of edits, not yet written to it."""

    folder: Path
    files: tuple[str, ...]
    """The files of the folder that belong to the code, by relative path. None of them is a symbolic link."""
    links: tuple[str, ...] = ()
    """The symbolic links: a copy has them too, but the host never follows them."""
    changes: Mapping[str, str] = field(default_factory=dict)
    """The new text of files that edits change."""
    suite_files: tuple[str, ...] = ()
    """Files that the suite's command names, which no edit may touch."""
    origin: Path | None = None
    """Where the files are read from, if not from the folder itself."""

    def read(self, path: str) -> str:
        """Return the text of a file, with the changes."""
        if path in self.changes:
            return self.changes[path]
        if path in self.links:
            raise Refused(f"`{path}` is a symbolic link.", hint="Edit the file that it leads to.")
        if path not in self.files:
            raise Refused(f"`{path}` is not a file of `{self.folder}`.", hint="An edit changes files that exist.")
        try:
            return read_workspace_file_text(self._place, path)
        except (OSError, UnicodeDecodeError):
            raise Refused(f"`{path}` is not a text file.", hint="Edit files of text.") from None

    @property
    def _place(self) -> Path:
        return self.origin or self.folder

    @property
    def readable(self) -> list[str]:
        """Folders that runs may read besides the copy: a virtual environment in the folder."""
        found = [self.folder / name for name in (".venv", "venv", "node_modules")]
        return [str(p) for p in found if p.is_dir() and not p.is_symlink()]

    def sources(self) -> list[str]:
        """Return the Python files that edits may touch."""
        return [p for p in self.files if p.endswith(".py") and not is_protected_workspace_path(p, self.suite_files)]

    def apply(self, hunks: Sequence[Hunk]) -> Workspace:
        """Return the workspace with an edit. Raise `Refused` if it touches protected files or does not match once."""
        if not hunks:
            raise Refused("The edit changes nothing.", hint="Give at least one replacement.")
        changes = dict(self.changes)
        changed = replace(self, changes=changes)
        for hunk in hunks:
            path = PurePosixPath(hunk.path)
            if path.is_absolute() or ".." in path.parts or str(path) != hunk.path:
                raise Refused(f"`{hunk.path}` is not a path within the folder.", hint="Give a relative path.")
            if is_protected_workspace_path(hunk.path, self.suite_files):
                raise Refused(f"`{hunk.path}` is out of reach of edits.", hint="Edit the code, not its tests.")
            text = changed.read(hunk.path)
            count = text.count(hunk.old) if hunk.old else 0
            if count != 1:
                raise Refused(
                    f"The text to replace is in `{hunk.path}` {count} times.", hint="Give text that is in it once."
                )
            if hunk.old == hunk.new:
                raise Refused(f"The edit leaves `{hunk.path}` as it is.", hint="Give another text.")
            changes[hunk.path] = text.replace(hunk.old, hunk.new)
        return changed

    def copy_to(self, target: Path) -> Path:
        """Write the files with the changes to a new folder, and return it."""
        target.mkdir(mode=0o755)
        for name in self.files:
            at = target / name
            try:
                changed = self.changes.get(name)
                content = read_workspace_file_bytes(self._place, name) if changed is None else changed.encode()
                status = read_workspace_file_status(self._place, name)
            except OSError:
                continue  # it was removed, or became a link
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_bytes(content)
            at.chmod(status.st_mode & 0o7777)
            os.utime(at, ns=(status.st_atime_ns, status.st_mtime_ns))
        for name in self.links:
            # Links come last, so that no file is written through one. In the sandbox they lead to no file of the host.
            at = target / name
            with contextlib.suppress(OSError):
                at.parent.mkdir(parents=True, exist_ok=True)
                at.symlink_to(read_workspace_file_link(self._place, name))
        if os.getuid() == 0:
            # The sandbox does not run as root.
            for folder, folders, names in os.walk(target):
                for each in ("", *folders, *names):
                    os.chown(Path(folder, each), isolation.NOBODY, isolation.NOBODY, follow_symlinks=False)
        return target

    def protected_mounts(self, copy: Path) -> dict[str, str]:
        """Return the protected files of a copy, to mount read-only where the copy is seen."""
        found = [p for p in self.files if is_protected_workspace_path(p, self.suite_files)]
        return {f"{self.folder}/{p}": str(copy / p) for p in found if find_workspace_file_kind(copy, p) == "file"}

    def fingerprint(self) -> str:
        """Return a hash of all protected files: the suite that scores belong to."""
        digest = hashlib.sha256()
        for name in sorted(p for p in self.files if is_protected_workspace_path(p, self.suite_files)):
            content = b""
            with contextlib.suppress(OSError):
                content = read_workspace_file_bytes(self._place, name)
            digest.update(name.encode() + b"\0" + content + b"\0")
        return digest.hexdigest()


def open_workspace(folder: Path, command: Sequence[str] = ()) -> Workspace:
    """Return the workspace of a folder: the files that git knows or would add, or all but those of tools."""
    folder = folder.expanduser().resolve()
    if not folder.is_dir():
        raise NotFound(f"`{folder}` is not a folder.", hint="Give the folder of the code with `--repo`.")
    kinds = {
        f: find_workspace_file_kind(folder, f)
        for f in (_git_files(folder) if is_git_folder(folder) else _all_files(folder))
    }
    kinds.pop(RESULT_FILE, None)
    files = [f for f, kind in kinds.items() if kind == "file"]
    size = sum((folder / f).lstat().st_size for f in files)
    if size > LARGEST:
        raise LimitExceeded(
            f"The files of `{folder}` have {size:,} bytes; at most {LARGEST:,} are copied for a run.",
            hint="List large files in `.gitignore`.",
        )
    named = {os.path.normpath(word.partition("::")[0]) for word in command}
    inside = tuple(f for f in files if f in named or any(f.startswith(f"{n}/") for n in named if n not in (".", "")))
    links = tuple(f for f, kind in kinds.items() if kind == "link")
    return Workspace(folder, tuple(files), links, suite_files=inside)


def _all_files(folder: Path) -> list[str]:
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if f not in LEFT_OUT and not f.endswith(".egg-info"))
        linked = [f for f in folders if Path(place, f).is_symlink()]
        found += [
            str(Path(place, name).relative_to(folder)) for name in sorted(names + linked) if not name.endswith(".pyc")
        ]
    return found


def _git_files(folder: Path) -> list[str]:
    listed = run_git(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    return sorted({f for f in listed if f and LEFT_OUT.isdisjoint(PurePosixPath(f).parts)})
