"""Symbolic links in a repository: the host never follows them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from etude.errors import Conflict, Refused
from etude.learning.edits.merge import commit_merge_on_branch, merge_backup_folder, merge_edit, revert_merged_edit
from etude.learning.edits.program_sandbox import Program, run_program_in_sandbox
from etude.learning.edits.workspace import Hunk, Workspace, open_workspace

SECRET = "PASSWORD = 'hunter2'\n"


@pytest.fixture
def private(tmp_path: Path) -> Path:
    place = tmp_path / "private"
    place.mkdir()
    for name in ("settings.py", "conftest.py", "shop.py"):
        (place / name).write_text(SECRET)
    return place


@pytest.fixture(params=["folder", "git"])
def repo(tmp_path: Path, private: Path, request: pytest.FixtureRequest) -> Path:
    folder = tmp_path / "repo"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "shop.py").write_text("A = 1\n")
    (folder / "src" / "conftest.py").write_text("\n")
    (folder / "leak.py").symlink_to(private / "settings.py")
    (folder / "conftest.py").symlink_to(private / "conftest.py")
    (folder / "linked").symlink_to(private)
    (folder / "near.py").symlink_to("src/shop.py")
    if request.param == "git":
        for arguments in (
            ["init", "-q"],
            ["add", "."],
            ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"],
        ):
            subprocess.run(["git", "-C", str(folder), *arguments], check=True)
    return folder


def replace_folder_by_link(repo: Path, private: Path) -> None:
    """Have the path of a known file go through a link."""
    for name in ("shop.py", "conftest.py"):
        (repo / "src" / name).unlink()
    (repo / "src").rmdir()
    (repo / "src").symlink_to(private)


def test_links_are_not_files_or_sources(repo: Path) -> None:
    workspace = open_workspace(repo)
    assert workspace.sources() == ["src/shop.py"]
    assert sorted(workspace.links) == ["conftest.py", "leak.py", "linked", "near.py"]
    with pytest.raises(Refused, match=r"`leak\.py` is a symbolic link"):
        workspace.read("leak.py")
    with pytest.raises(Refused, match=r"`leak\.py` is a symbolic link"):
        workspace.apply([Hunk(path="leak.py", old="hunter2", new="x")])
    with pytest.raises(Refused, match="not a file of"):
        workspace.read("linked/settings.py")


def test_files_behind_a_linked_folder_are_not_listed(repo: Path, private: Path) -> None:
    replace_folder_by_link(repo, private)
    assert not [f for f in open_workspace(repo).files if f.startswith("src")]


def test_a_file_that_becomes_a_link_is_not_read(repo: Path, private: Path, tmp_path: Path) -> None:
    before = open_workspace(repo)
    clean = before.fingerprint()
    after = before.apply([Hunk(path="src/shop.py", old="A = 1", new="A = 2")])
    replace_folder_by_link(repo, private)
    with pytest.raises(Refused, match="not a text file"):
        before.read("src/shop.py")
    (private / "conftest.py").write_text("\n")
    assert before.fingerprint() != clean
    assert "hunter2" not in content_of(before.copy_to(tmp_path / "copy"))
    with pytest.raises(Conflict, match="symbolic link"):
        merge_edit(tmp_path / "home", "edit_1", before, after, "An edit")
    assert "hunter2" not in content_of(merge_backup_folder(tmp_path / "home", "edit_1"))
    with pytest.raises(Conflict, match="symbolic link"):
        revert_merged_edit(tmp_path / "home", "edit_1", repo, None, [Hunk(path="src/shop.py", old="x", new="PASSWORD")])
    assert (private / "shop.py").read_text() == SECRET


def test_a_commit_does_not_write_through_a_link(tmp_path: Path, private: Path) -> None:
    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / "src").symlink_to(private)
    for arguments in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"],
    ):
        subprocess.run(["git", "-C", str(repo), *arguments], check=True)
    (repo / "src").unlink()
    (repo / "src").mkdir()
    with pytest.raises(Conflict):
        commit_merge_on_branch(repo, "edit_1", {"src/shop.py": "A = 2\n"}, "An edit")
    assert (private / "shop.py").read_text() == SECRET


def content_of(folder: Path) -> str:
    files = [Path(place, name) for place, _, names in os.walk(folder) for name in names]
    return "".join(f.read_text() for f in files if not f.is_symlink())


def test_a_copy_keeps_links_which_lead_nowhere_in_the_sandbox(repo: Path, private: Path, tmp_path: Path) -> None:
    workspace: Workspace = open_workspace(repo)
    copy = workspace.copy_to(tmp_path / "copy")
    assert os.readlink(copy / "leak.py") == str(private / "settings.py")
    tmp_path.chmod(0o755)
    script = "cat near.py; cat leak.py conftest.py linked/settings.py; ls linked/"
    mounts = workspace.protected_mounts(copy)
    assert list(mounts) == [f"{repo}/src/conftest.py"]
    ended = run_program_in_sandbox(Program(["sh", "-c", script], copy, str(repo), mounts=mounts))
    assert "A = 1" in ended.output
    assert "hunter2" not in ended.output
    assert "shop.py\n" not in ended.output
