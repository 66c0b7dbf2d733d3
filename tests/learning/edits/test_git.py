"""Repositories whose own settings try to start programs, or to lead git elsewhere."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from etude.errors import Refused, Unavailable
from etude.learning.edits.git import run_git
from etude.learning.edits.merge import merge_edit, require_clean_repository_for_merge, revert_merged_edit
from etude.learning.edits.workspace import Hunk, open_workspace

HUNKS = [Hunk(path="shop.py", old="A = 1", new="A = 2")]


def plain_git(folder: Path, *arguments: str) -> str:
    """Run git as the author of the repository does."""
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"]
    done = subprocess.run(["git", *who, "-C", str(folder), *arguments], check=True, capture_output=True, text=True)
    return done.stdout


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "shop.py").write_text("A = 1\n")
    (folder / ".gitattributes").write_text("other.py filter=evil diff=evil merge=evil\n")
    (folder / "other.py").write_text("B = 1\n")
    plain_git(folder, "init", "-q")
    plain_git(folder, "add", ".")
    plain_git(folder, "commit", "-qm", "a")
    (folder / "other.py").touch()  # so that git must look at the content again
    return folder


def use_all_of_git(home: Path, folder: Path) -> None:
    """Do with a repository all that learning does with it."""
    before = open_workspace(folder)
    require_clean_repository_for_merge(folder)
    commit = merge_edit(home, "edit_1", before, before.apply(HUNKS), "An edit")
    (folder / "other.py").touch()
    revert_merged_edit(home, "edit_1", folder, commit, HUNKS)


@pytest.mark.parametrize(
    "key",
    [
        *("filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "merge.evil.driver"),
        *("diff.external", "diff.evil.command", "diff.evil.textconv", "hook.evil.command", "trailer.evil.command"),
        *("trailer.evil.cmd", "gc.recentObjectsHook", "includeIf.gitdir:**/worktrees/**.path"),
    ],
)
def test_a_setting_that_starts_a_program_is_refused_by_name(tmp_path: Path, repo: Path, key: str) -> None:
    plain_git(repo, "config", key, f"touch {tmp_path}/started; cat")
    with pytest.raises(Refused, match=f"(?i){re.escape(key)}") as refused:
        use_all_of_git(tmp_path, repo)
    assert "git config --unset" in str(refused.value.hint)
    assert not (tmp_path / "started").exists()


def test_a_refused_setting_is_found_in_included_files_and_in_the_worktree(tmp_path: Path, repo: Path) -> None:
    (tmp_path / "more").write_text(f'[filter "Evil"]\n\tclean = touch {tmp_path}/started\n')
    plain_git(repo, "config", "include.path", str(tmp_path / "more"))
    with pytest.raises(Refused, match=r"filter\.Evil\.clean"):
        open_workspace(repo)
    plain_git(repo, "config", "--unset", "include.path")
    plain_git(repo, "config", "extensions.worktreeConfig", "true")
    plain_git(repo, "config", "--worktree", "filter.evil.clean", f"touch {tmp_path}/started")
    with pytest.raises(Refused, match=r"filter\.evil\.clean"):
        open_workspace(repo)
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    "settings",
    [
        {"core.fsmonitor": "{program}"},
        {"core.editor": "{program}", "sequence.editor": "{program}", "core.pager": "{program}"},
        {"pager.status": "{program}", "pager.revert": "{program}", "alias.status": "!{program}"},
        {"commit.gpgSign": "true", "gpg.program": "{program}", "user.signingKey": "a"},
        {"merge.verifySignatures": "true", "log.showSignature": "true", "gpg.program": "{program}"},
        {"commit.gpgSign": "true", "gpg.format": "ssh", "gpg.ssh.defaultKeyCommand": "{program}"},
        {"core.sshCommand": "{program}", "core.askPass": "{program}", "credential.helper": "!{program}"},
        {"gc.auto": "1", "maintenance.auto": "true", "submodule.recurse": "true"},
        {"submodule.x.update": "!{program}", "submodule.x.active": "true", "status.submoduleSummary": "true"},
    ],
)
def test_settings_that_learning_does_not_need_start_nothing(
    tmp_path: Path, repo: Path, settings: dict[str, str]
) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    program.chmod(0o755)
    for key, value in settings.items():
        plain_git(repo, "config", key, value.format(program=program))
    use_all_of_git(tmp_path, repo)
    assert not (tmp_path / "started").exists()
    assert (repo / "shop.py").read_text() == "A = 1\n"
    assert len(plain_git(repo, "--no-pager", "rev-list", "HEAD").split()) == 3


@pytest.mark.parametrize("hook", ["post-checkout", "pre-commit", "post-merge", "reference-transaction"])
def test_hooks_do_not_run(tmp_path: Path, repo: Path, hook: str) -> None:
    place = repo / ".git" / "hooks" / hook
    place.parent.mkdir(exist_ok=True)
    place.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    place.chmod(0o755)
    use_all_of_git(tmp_path, repo)
    assert not (tmp_path / "started").exists()


def test_the_settings_of_a_submodule_start_nothing(tmp_path: Path, repo: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    plain_git(inner, "init", "-q")
    (inner / "a.txt").write_text("a\n")
    plain_git(inner, "add", ".")
    plain_git(inner, "commit", "-qm", "a")
    plain_git(repo, "submodule", "--quiet", "add", str(inner), "inner")
    plain_git(repo, "commit", "-qm", "b")
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    program.chmod(0o755)
    plain_git(repo / "inner", "config", "core.fsmonitor", str(program))
    plain_git(repo, "config", "submodule.inner.ignore", "none")
    use_all_of_git(tmp_path, repo)
    assert not (tmp_path / "started").exists()


def test_an_object_that_is_missing_is_not_fetched(tmp_path: Path, repo: Path) -> None:
    blob = plain_git(repo, "rev-parse", "HEAD:shop.py").strip()
    (repo / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    for key, value in {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.url": str(repo),
        "remote.origin.promisor": "true",
        "remote.origin.uploadpack": f"touch {tmp_path}/started; false",
        "protocol.file.allow": "always",
    }.items():
        plain_git(repo, "config", key, value)
    with pytest.raises(Exception, match="failed in"):
        use_all_of_git(tmp_path, repo)
    assert not (tmp_path / "started").exists()


def test_programs_of_the_operators_own_settings_do_not_run(
    tmp_path: Path, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "gitconfig"
    own.write_text(
        f'[filter "evil"]\n\tclean = touch {tmp_path}/started; cat\n[core]\n\texcludesFile = {tmp_path}/no\n'
    )
    (tmp_path / "no").write_text("private.txt\n")
    (repo / "private.txt").write_text("not for the sandbox\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(own))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", f"touch {tmp_path}/started")
    use_all_of_git(tmp_path, repo)
    assert not (tmp_path / "started").exists()
    assert "private.txt" not in open_workspace(repo).files


def test_a_file_with_a_filter_is_not_committed_without_it(tmp_path: Path, repo: Path) -> None:
    before = open_workspace(repo)
    after = before.apply([Hunk(path="other.py", old="B = 1", new="B = 2")])
    with pytest.raises(Refused, match="filter `evil`"):
        merge_edit(tmp_path, "edit_1", before, after, "An edit")
    assert (repo / "other.py").read_text() == "B = 1\n"


def test_git_stays_in_the_folder(tmp_path: Path, repo: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "shop.py").write_text("A = 1\n")
    plain_git(repo, "config", "core.worktree", str(other))
    use_all_of_git(tmp_path, repo)
    assert run_git(repo, "rev-parse", "--show-toplevel").strip() == str(repo)
    assert sorted(p.name for p in other.iterdir()) == ["shop.py"]


def test_a_machine_without_git_is_told_so(tmp_path: Path, repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="`git` was not found"):
        run_git(repo, "status")
