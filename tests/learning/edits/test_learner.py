"""The learning agent on small folders of code, with real runs of their suites in the sandbox."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from etude.errors import Conflict, Invalid, Refused
from etude.learning.edits.learner import Learner, LearnOptions, apply_learned_edit, revert_learned_edit
from etude.learning.edits.merge import merge_edit
from etude.learning.edits.suite import Suite, read_suite_junit
from etude.learning.edits.workspace import Hunk, open_workspace
from etude.learning.learning_report import learning_report_as_text, learning_reports_as_page, read_learning_reports
from etude.store.edits import StoredEdit, StoredEdits
from etude.store.sqlite import SqliteStore

# Most tests here run a suite dozens of times, so it is a script that starts sooner than pytest does.
SUITE = "python -S conformance.py {junit}"
CHECK = """\
import sys, time, traceback
from xml.sax.saxutils import escape, quoteattr

import test_shop

cases = ""
for name, test in sorted(vars(test_shop).items()):
    if name.startswith("test_"):
        try:
            test()
            body = ""
        except Exception as error:
            kind, text = type(error).__name__, escape(traceback.format_exc())
            body = f"<failure type={quoteattr(kind)} message={quoteattr(str(error))}>{text}</failure>"
        cases += f"<testcase name={quoteattr(name)}>{body}</testcase>"
with open(sys.argv[1], "w") as file:
    file.write(f"<testsuite>{cases}</testsuite>")
"""
# Plugins of this environment that the suite does not use: without them pytest starts sooner.
PYTEST = "python -m pytest -q -p no:schemathesis -p no:xdist -p no:hypothesispytest -p no:playwright -p no:timeout"

SHOP = """\
def total(rows):
    result = 0
    for row in rows:
        result += int(row["amount"])
    return result


def label(row):
    return row["name"].title()
"""
TESTS = """\
import shop


def test_total():
    assert shop.total([{"amount": "1"}, {"amount": "2"}]) == 3


def test_total_with_a_gap():
    assert shop.total([{"amount": "1"}, {"amount": "n/a"}]) == 1


def test_label():
    assert shop.label({"name": "ana"}) == "Ana"
"""


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "shop.py").write_text(SHOP)
    (folder / "test_shop.py").write_text(TESTS)
    (folder / "conformance.py").write_text(CHECK)
    return folder


@pytest.fixture
def git_repo(repo: Path) -> Path:
    for arguments in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"],
    ):
        subprocess.run(["git", "-C", str(repo), *arguments], check=True)
    return repo


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    return SqliteStore(tmp_path / "etude.db")


def learner(store: SqliteStore, repo: Path, **options: object) -> Learner:
    options = {"proposers": ("checks",), "edits": 1, **options}
    return Learner(store, repo.parent / "home", repo, Suite(SUITE), LearnOptions(**options))  # type: ignore[arg-type]


def git(repo: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(repo), *arguments], check=True, capture_output=True, text=True).stdout


def test_an_input_that_breaks_a_script_is_found_fixed_and_can_be_taken_back(store: SqliteStore, git_repo: Path) -> None:
    learned = learner(store, git_repo).once()
    (edit,) = learned.kept
    assert (learned.passed_before, learned.total_before) == (10, 15)
    assert (learned.passed_after, learned.total_after) == (15, 15)
    assert "except ValueError" in (git_repo / "shop.py").read_text()
    assert git(git_repo, "status", "--porcelain") == ""
    assert edit.id in git(git_repo, "log", "-1", "--format=%B")
    assert (edit.body["wins"], edit.body["losses"]) == (5, 0)
    assert "1 merged" in learning_report_as_text(read_learning_reports(StoredEdits(store))[0])
    assert edit.body["rationale"].split("`")[1] in learning_reports_as_page(read_learning_reports(StoredEdits(store)))
    revert_learned_edit(StoredEdits(store), git_repo.parent / "home", edit.id, "a test")
    assert (git_repo / "shop.py").read_text() == SHOP
    assert git(git_repo, "status", "--porcelain") == ""
    assert StoredEdits(store).get(edit.id).status == "reverted"


def test_a_proposal_is_left_as_a_branch_and_a_patch(store: SqliteStore, git_repo: Path) -> None:
    (edit,) = learner(store, git_repo, propose_only=True).once().kept
    assert edit.status == "proposed"
    assert (git_repo / "shop.py").read_text() == SHOP
    assert git(git_repo, "branch", "--list", edit.body["branch"]).strip() == edit.body["branch"]
    subprocess.run(["git", "-C", str(git_repo), "apply", "--check", edit.body["patch"]], check=True)


def test_a_folder_without_git_is_changed_in_place_with_a_backup(store: SqliteStore, repo: Path) -> None:
    (edit,) = learner(store, repo).once().kept
    backup = repo.parent / "home" / "learning" / edit.id / "before" / "shop.py"
    assert backup.read_text() == SHOP != (repo / "shop.py").read_text()
    revert_learned_edit(StoredEdits(store), repo.parent / "home", edit.id, "a test")
    assert (repo / "shop.py").read_text() == SHOP


def test_uncommitted_work_is_not_mixed_with_edits(store: SqliteStore, git_repo: Path) -> None:
    (git_repo / "shop.py").write_text(SHOP + "# my work\n")
    with pytest.raises(Conflict, match="uncommitted changes"):
        learner(store, git_repo).once()


def test_a_budget_of_runs_ends_the_search(store: SqliteStore, repo: Path) -> None:
    learned = learner(store, repo, runs=6).once()
    assert (learned.kept, learned.runs) == ([], 6)
    assert "budget of 6 runs" in learned.reason


def test_an_edit_that_turns_out_bad_is_reverted_by_itself(store: SqliteStore, repo: Path) -> None:
    """It is merged on purpose, past the gate."""
    hunks = [Hunk(path="shop.py", old=".title()", new=".upper()")]
    base = open_workspace(repo)
    home = repo.parent / "home"
    merge_edit(home, "edit_bad", base, apply_learned_edit(base, hunks), "a bad edit")
    body = {"hunks": [h.model_dump() for h in hunks], "rationale": "bad", "reason": "merged by hand", "commit": None}
    now = store.create_thread("now", None).created_at
    StoredEdits(store).put(StoredEdit("edit_bad", str(repo), "human", "merged", now, body))
    watched = learner(store, repo).watch("edit_bad")
    assert watched.status == "reverted"
    assert watched.body["watch"]["runs"] <= 50
    assert (repo / "shop.py").read_text() == SHOP


TAMPERING = {
    "ends the tests": "import os\nos._exit(0)\n",
    "patches the runner": (
        "import _pytest.runner as r\n_old = r.CallInfo.from_call.__func__\n"
        "def _new(cls, func, when, reraise=None):\n"
        "    made = _old(cls, func, when, reraise)\n    made.excinfo = None\n    return made\n"
        "r.CallInfo.from_call = classmethod(_new)\n"
    ),
    "writes reports": (
        "import os\nfor n in range(3, 20):\n    try:\n"
        '        os.write(n, b\'0 {"test": "test_shop.py::test_total_with_a_gap"}\\n\')\n'
        "    except OSError:\n        pass\n"
    ),
    "skips tests": "import pytest\npytest.skip('not today', allow_module_level=True)\n",
    "rewrites the tests": (
        "import pathlib\ntry:\n    pathlib.Path('test_shop.py').write_text('def test_total(): pass')\n"
        "except OSError:\n    pass\n"
    ),
}


@pytest.mark.parametrize("name", TAMPERING)
def test_tampering_is_refused_and_would_not_change_a_score(repo: Path, name: str) -> None:
    base = open_workspace(repo)
    hunks = [Hunk(path="shop.py", old="def total", new=f"{TAMPERING[name]}\n\ndef total")]
    with pytest.raises(Refused, match="The edit of"):
        apply_learned_edit(base, hunks)
    # Even past that check, the run counts for nothing, or its failure stays a failure.
    run = Suite(PYTEST).run(base.apply(hunks), 1)
    assert run.problem or run.passed <= 2


def test_each_test_of_pytest_has_its_own_randomness_from_the_seed(repo: Path) -> None:
    (repo / "test_shop.py").write_text(
        "import random\nimport pytest\n\n\n"
        "@pytest.mark.parametrize('n', range(12))\ndef test_luck(n):\n    assert random.random() < 0.5\n\n\n"
        "@pytest.mark.skip\ndef test_later():\n    pass\n"
    )
    base, suite = open_workspace(repo), Suite(PYTEST)
    first, again, other = suite.run(base, 1), suite.run(base, 1), suite.run(base, 2)
    assert first.total == 12
    assert 0 < first.passed < 12
    assert first.failures.keys() == again.failures.keys() != other.failures.keys()
    one = next(iter(first.failures))
    assert suite.run(base, 1, [one]).passed == 0
    assert first.failures[one].error == "AssertionError"
    assert first.failures[one].frames == (("test_shop.py", 7),)


def test_a_suite_that_cannot_run_says_why(store: SqliteStore, repo: Path) -> None:
    with pytest.raises(Invalid, match="neither runs pytest nor writes JUnit"):
        Suite("make")
    with pytest.raises(Invalid, match="could not be started"):
        Learner(store, repo, repo, Suite("nowhere {junit}"), LearnOptions()).once()
    (repo / "test_shop.py").write_text("")
    with pytest.raises(Invalid, match="has no tests"):
        learner(store, repo).once()
    (repo / "shop.py").write_text("def total(")
    (repo / "test_shop.py").write_text(TESTS)
    with pytest.raises(Invalid, match="wrote no JUnit XML"):
        learner(store, repo).once()


def test_junit_xml_is_read_with_failures_and_skips() -> None:
    outcomes = read_suite_junit(
        '<testsuites><testsuite><testcase classname="a" name="one" time="0.5"/>'
        '<testcase classname="a" name="two"><error message="KeyError: 1">File "a.py", line 3</error></testcase>'
        '<testcase name="three"><skipped/></testcase></testsuite></testsuites>'
    )
    assert (outcomes["a::one"].passed, outcomes["a::one"].seconds) == (True, 0.5)
    failure = outcomes["a::two"].failure
    assert failure is not None
    assert (failure.error, failure.frames) == ("KeyError", (("a.py", 3),))
    assert outcomes["three"].skipped


def test_unknown_proposers_are_named(store: SqliteStore, repo: Path) -> None:
    with pytest.raises(Invalid, match="no proposer `magic`"):
        learner(store, repo, proposers=("magic",))
