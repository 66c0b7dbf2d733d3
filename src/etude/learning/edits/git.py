"""Git without the programs that a repository's settings name: filters, drivers, hooks, editors, signers, transports.

Git runs in the operator's name and outside the sandbox, but the settings in `.git/config` belong to the repository.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from etude.errors import Conflict, Refused, Unavailable

_REFUSED = re.compile(
    r"filter\..+\.(clean|smudge|process)|merge\..+\.driver|diff\.external|diff\..+\.(command|textconv)"
    r"|hook\..+\.command|trailer\..+\.(command|cmd)|gc\.recentobjectshook|includeif\..+\.path"
)
"""Settings that start programs and cannot be switched off without changing what git does.

A conditional include is one of them: it can hold in the worktree that git makes, and not where settings are read.
"""
_OFF = {
    **{"core.hooksPath": "/dev/null", "core.fsmonitor": "false", "core.attributesFile": "/dev/null"},
    **{"commit.gpgSign": "false", "merge.verifySignatures": "false", "log.showSignature": "false"},
    **{f"gpg.{kind}program": "/bin/false" for kind in ("", "openpgp.", "x509.", "ssh.")},
    **{"gpg.ssh.defaultKeyCommand": "/bin/false", "gpg.ssh.revocationFile": "/dev/null"},
    **{"gc.auto": "0", "maintenance.auto": "false", "submodule.recurse": "false", "diff.ignoreSubmodules": "all"},
    **{"status.submoduleSummary": "false", "commit.verbose": "false", "merge.stat": "false", "credential.helper": ""},
}
"""Settings that start programs or other processes, with the values that switch them off."""
_OPERATORS = frozenset({"safe.directory", "core.excludesfile", "core.autocrlf", "core.eol", "core.safecrlf"})
"""The operator's own settings that hold: they say which files there are, and start nothing."""
_PROGRAMS = {
    **{"GIT_EDITOR": ":", "GIT_SEQUENCE_EDITOR": ":", "GIT_PAGER": "cat", "GIT_ASKPASS": "/bin/false"},
    **{"GIT_SSH_COMMAND": "/bin/false", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1"},
    "GIT_ALLOW_PROTOCOL": "none",  # no transport, so that missing objects of a partial clone are not fetched
}
_WHO = {
    f"GIT_{role}_{part}": value
    for role in ("AUTHOR", "COMMITTER")
    for part, value in (("NAME", "etude"), ("EMAIL", "etude@localhost"))
}
_CONFIG_FILES = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")


def is_git_folder(folder: Path) -> bool:
    """Return whether a folder is the top of a git repository."""
    return (folder / ".git").exists()


def run_git(folder: Path, *arguments: str) -> str:
    """Run git in a folder and return its output. No setting of the repository or of the operator starts a program.

    Raise `Refused` if the repository has a setting that would.
    """
    settings = [*_read_settings(folder), *(f"{key}={value}" for key, value in _OFF.items())]
    words = [word for setting in settings for word in ("-c", setting)]
    own = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_WORK_TREE": str(folder)}
    return _run(folder, [*words, *arguments], own, arguments[0])


def require_no_git_filter(folder: Path, paths: list[str]) -> None:
    """Raise `Refused` if one of these files has a filter: it would be committed without it."""
    found = run_git(folder, "check-attr", "-z", "filter", "--", *paths).split("\0")
    for path, value in zip(found[0::3], found[2::3], strict=False):
        if value not in ("unspecified", "unset"):
            raise Refused(
                f"`{path}` has the filter `{value}`, and etude runs no filters.",
                hint="Edit this file by hand.",
            )


def _read_settings(folder: Path) -> list[str]:
    """Return the operator's settings that hold. Raise `Refused` if the repository's start programs."""
    files = {name: os.environ[name] for name in _CONFIG_FILES if name in os.environ}
    listed = _run(folder, ["config", "--list", "--includes", "--show-scope", "-z"], files, "config").split("\0")
    kept: list[str] = []
    for scope, entry in zip(listed[0::2], listed[1::2], strict=False):
        key, _, value = entry.partition("\n")
        if scope in ("system", "global"):
            if key in _OPERATORS:
                kept.append(f"{key}={value}")
        elif value and _REFUSED.fullmatch(key.lower()):
            raise Refused(
                f"The setting `{key}` of the repository `{folder}` can start a program.",
                hint=f"Look at it, then remove it: git config --unset-all {key}. Or use a fresh clone.",
            )
    return kept


def _run(folder: Path, words: list[str], more: dict[str, str], verb: str) -> str:
    # Variables of the caller such as GIT_DIR do not hold, and a repository above the folder is not used.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {**_WHO, **_PROGRAMS, "GIT_CEILING_DIRECTORIES": str(folder.parent), **more}
    try:
        done = subprocess.run(
            ["git", "--no-pager", "-C", str(folder), *words],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            env=environment,
            errors="surrogateescape",
        )
    except FileNotFoundError:
        raise Unavailable("The program `git` was not found.", hint="Install git, or add its folder to PATH.") from None
    if done.returncode:
        text = (done.stderr or done.stdout).strip()
        raise Conflict(f"`git {verb}` failed in `{folder}`: {text[:500]}.", hint="Run it by hand to see why.")
    return done.stdout
