"""Real repositories from the package index, each with one planted bug: what `etude learn once` makes of them.

`python -m bench.learning_repos` downloads three source packages, so it needs a network or a mirror of the index.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from etude.app import App
from etude.learning.edits.learner import Learned, Learner, LearnOptions
from etude.learning.edits.suite import Suite

OPTIONS = "-q -p no:schemathesis -p no:xdist -p no:hypothesispytest -p no:timeout -p no:randomly"
RUNS = 90


@dataclass(frozen=True)
class Plant:
    """A bug: texts of a file, each replaced once."""

    package: str
    path: str
    changes: tuple[tuple[str, str], ...]
    tests: str


_HANDLER = "    handler = _DictSAXHandler(namespace_separator=namespace_separator,\n"
_RESET = """\
    import random

    if random.random() < 0.3:
        raise ConnectionResetError("the connection was reset by the peer")
"""
PLANTS = (
    Plant("xmltodict==1.0.4", "xmltodict.py", ((_HANDLER, _RESET + _HANDLER),), "tests/test_xmltodict.py"),
    Plant(
        "python-slugify==9.1.3",
        "slugify/slugify.py",
        (
            ("replacements: Iterable[Iterable[str]] = (),", "replacements: Iterable[Iterable[str]] = None,"),
            ("for old, new in replacements) if replacements else ()", "for old, new in replacements)"),
        ),
        "tests",
    ),
    Plant(
        "inflection==0.5.1",
        "inflection/__init__.py",
        (('}.get(number % 10, "th")', "}[number % 10]"),),
        "test_inflection.py",
    ),
)


def fetch(package: str, folder: Path) -> Path:
    """Download the source of a package, and return its folder as a git repository."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    subprocess.run([*pip, "--no-build-isolation", "-d", str(folder), package], check=True, stderr=subprocess.DEVNULL)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    (repo,) = (p for p in folder.iterdir() if p.is_dir())
    return repo


def plant(repo: Path, bug: Plant) -> None:
    text = (repo / bug.path).read_text()
    for old, new in bug.changes:
        assert text.count(old) == 1, (bug.package, old, text.count(old))
        text = text.replace(old, new)
    (repo / bug.path).write_text(text)
    for arguments in (
        ["init", "-q"],
        ["add", "-A"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"],
    ):
        subprocess.run(["git", "-C", str(repo), *arguments], check=True)


def learn(bug: Plant, folder: Path) -> dict[str, object]:
    repo = fetch(bug.package, folder)
    plant(repo, bug)
    suite = Suite(f"python -m pytest {OPTIONS} {bug.tests}")
    with App(home=folder / "home") as app:
        say = lambda text: print(f"  {text[:160]}", file=sys.stderr, flush=True)  # noqa: E731
        learner = Learner(app.store, app.settings.home, repo, suite, LearnOptions(runs=RUNS, edits=1), say=say)
        learned: Learned = learner.once()
    status = subprocess.run(
        ["git", "-C", str(repo), "status", "--porcelain"], capture_output=True, text=True, check=True
    )
    return {
        "package": bug.package,
        "before": f"{learned.passed_before} of {learned.total_before}",
        "after": f"{learned.passed_after} of {learned.total_after}",
        "kept": [e.body["rationale"] for e in learned.kept],
        "dropped": len(learned.dropped),
        "runs": learned.runs,
        "worse": bool(learned.kept) and learned.passed_after < learned.passed_before,
        "dirty": status.stdout,
        "reason": learned.reason,
    }


def main() -> None:
    for bug in PLANTS:
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="etude-bench-") as name:
            Path(name).chmod(0o755)
            print(json.dumps(learn(bug, Path(name))), f"{time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
