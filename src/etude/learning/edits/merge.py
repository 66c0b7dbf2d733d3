"""Writing an accepted edit to its folder, and taking it back: by git if it is a repository, always with backups."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from etude.errors import Conflict, NotFound
from etude.learning.edits.git import is_git_folder, require_no_git_filter, run_git
from etude.learning.edits.workspace import Hunk, Workspace
from etude.learning.edits.workspace_files import (
    read_workspace_file_status,
    read_workspace_file_text,
    replace_workspace_file_text,
)


def require_clean_repository_for_merge(folder: Path) -> None:
    """Raise `Conflict` if a git repository has uncommitted changes, or is in the middle of something."""
    if not is_git_folder(folder):
        return
    changed = run_git(folder, "status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all").strip()
    if changed:
        raise Conflict(
            f"`{folder}` has uncommitted changes: {changed.splitlines()[0].strip()}.",
            hint="Commit or stash them first, so that an edit is never mixed with your work.",
        )


def write_merge_patch(home: Path, edit_id: str, before: Workspace, after: Workspace) -> Path:
    """Write an edit as a patch file, and return its path."""
    import difflib

    lines: list[str] = []
    for path, new in sorted(after.changes.items()):
        old = before.read(path).splitlines(keepends=True)
        lines += difflib.unified_diff(old, new.splitlines(keepends=True), f"a/{path}", f"b/{path}")
    text = "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    place = _folder(home, edit_id) / "edit.patch"
    place.write_text(text, encoding="utf-8")
    return place


def commit_merge_on_branch(folder: Path, edit_id: str, changes: Mapping[str, str], message: str) -> str:
    """Commit an edit on a branch of its own, in a worktree of its own; return the commit."""
    require_no_git_filter(folder, list(changes))
    head = run_git(folder, "rev-parse", "HEAD").strip()
    with tempfile.TemporaryDirectory(prefix="etude-edit-") as name:
        place = Path(name, "tree")
        run_git(folder, "worktree", "add", "--detach", "--quiet", str(place), head)
        try:
            _write(place, changes)
            run_git(place, "add", "--", *changes)
            run_git(place, "commit", "--quiet", "--no-verify", "-m", message)
            commit = run_git(place, "rev-parse", "HEAD").strip()
        finally:
            run_git(folder, "worktree", "remove", "--force", str(place))
    run_git(folder, "branch", "--force", merge_branch_name(edit_id), commit)
    return commit


def merge_branch_name(edit_id: str) -> str:
    """Return the branch of an edit."""
    return f"etude/{edit_id}"


def merge_edit(home: Path, edit_id: str, before: Workspace, after: Workspace, message: str) -> str | None:
    """Write an edit to its folder; return its commit, or None if the folder is not a git repository.

    The files must still be as they were when the edit was tried.
    """
    folder = before.folder
    _back_up(home, edit_id, before, after.changes)
    for path in after.changes:
        if _read(folder, path) != before.read(path):
            raise Conflict(f"`{path}` changed while the edit was tried.", hint="Run `etude learn once` again.")
    if not is_git_folder(folder):
        _write(folder, after.changes)
        return None
    require_clean_repository_for_merge(folder)
    commit = commit_merge_on_branch(folder, edit_id, after.changes, message)
    run_git(folder, "merge", "--ff-only", "--quiet", "--no-stat", "--no-verify-signatures", commit)
    run_git(folder, "branch", "-D", merge_branch_name(edit_id))
    return commit


def revert_merged_edit(home: Path, edit_id: str, folder: Path, commit: str | None, hunks: Sequence[Hunk]) -> None:
    """Take a merged edit back. Raise `Conflict` if the same lines were changed since."""
    if commit is not None and is_git_folder(folder):
        require_clean_repository_for_merge(folder)
        try:
            run_git(folder, "revert", "--no-edit", commit)
        except Conflict:
            run_git(folder, "revert", "--abort")
            raise Conflict(
                f"Edit `{edit_id}` cannot be reverted: the same lines were changed since.",
                hint=f"Its patch and the files before it are in `{_folder(home, edit_id)}`.",
            ) from None
        return
    changes: dict[str, str] = {}
    for hunk in reversed(hunks):
        text = changes.get(hunk.path) or _read(folder, hunk.path)
        if text.count(hunk.new) != 1:
            raise Conflict(
                f"Edit `{edit_id}` cannot be reverted: `{hunk.path}` was changed since.",
                hint=f"The file before the edit is in `{_folder(home, edit_id)}`.",
            )
        changes[hunk.path] = text.replace(hunk.new, hunk.old)
    _write(folder, changes)


def merge_backup_folder(home: Path, edit_id: str) -> Path:
    """Return the folder with the files as they were before an edit."""
    place = _folder(home, edit_id) / "before"
    if not place.is_dir():
        raise NotFound(f"There is no backup of edit `{edit_id}`.", hint=f"Backups are in `{home / 'learning'}`.")
    return place


def _back_up(home: Path, edit_id: str, before: Workspace, changes: Mapping[str, str]) -> None:
    place = _folder(home, edit_id) / "before"
    for path in changes:
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(_read(before.folder, path), encoding="utf-8", newline="")
        (place / path).chmod(read_workspace_file_status(before.folder, path).st_mode & 0o7777)


def _folder(home: Path, edit_id: str) -> Path:
    place = home / "learning" / edit_id
    place.mkdir(parents=True, exist_ok=True)
    return place


def _read(folder: Path, path: str) -> str:
    try:
        return read_workspace_file_text(folder, path)
    except (OSError, UnicodeDecodeError):
        raise _not_a_file(path) from None


def _write(folder: Path, changes: Mapping[str, str]) -> None:
    """Replace files, each at once, keeping their modes."""
    for path, text in changes.items():
        try:
            replace_workspace_file_text(folder, path, text)
        except OSError:
            raise _not_a_file(path) from None


def _not_a_file(path: str) -> Conflict:
    return Conflict(
        f"`{path}` is not a text file, or a symbolic link leads to it.",
        hint="Edits change only files within the folder.",
    )
