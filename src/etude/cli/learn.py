"""`etude learn once|watch|completed|report|revert`."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from etude.cli.printable import printable
from etude.errors import Invalid

if TYPE_CHECKING:
    from etude.app import App
    from etude.learning.edits.learner import Learned, Learner
    from etude.store.edits import StoredEdit

EXAMPLES = (
    'etude learn once --repo . --suite "pytest -q"',
    'etude learn once --repo . --suite "pytest -q" --propose-only',
    'etude learn watch --repo . --suite "pytest -q" --every 3600 --runs 2000',
    "etude learn completed results.xml --repo .",
    "etude learn report --page learned.html",
    "etude learn revert edit_01k",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    once = verbs.add_parser("once", help="find an edit of the code that makes its tests pass more often, and keep it")
    watch = verbs.add_parser("watch", help="run the tests again and again; learn if they fail, revert what turns bad")
    for each in (once, watch):
        each.add_argument("--repo", required=True, metavar="PATH", help="the folder of the code")
        each.add_argument("--suite", required=True, metavar="COMMAND", help="the command that runs its tests")
        each.add_argument("--propose-only", action="store_true", help="leave the edit as a branch and a patch")
        each.add_argument("--edits", type=int, default=3, metavar="N", help="keep at most N edits (3)")
        each.add_argument("--proposers", metavar="A,B", help="only these proposers; all by default")
        each.add_argument("--model", help="a model that proposes edits as well; none by default")
        each.add_argument("--seed", type=int, default=0, metavar="N", help="where the seeds of runs start (0)")
        each.add_argument("--timeout", type=float, default=600.0, metavar="S", help="seconds of one run (600)")
        each.add_argument("--json", action="store_true", help="print JSON")
    once.add_argument("--runs", type=int, default=300, metavar="N", help="run the suite at most N times (300)")
    watch.add_argument("--runs", type=int, default=2000, metavar="N", help="end after N runs of the suite (2000)")
    watch.add_argument("--every", type=float, default=600.0, metavar="S", help="seconds between two looks (600)")
    completed = verbs.add_parser("completed", help="tell agents that tests were run; a low pass rate wakes them")
    completed.add_argument("results", metavar="JUNIT.xml", help="the results as JUnit XML")
    completed.add_argument("--repo", required=True, metavar="PATH", help="the folder of the code")
    report = verbs.add_parser("report", help="print every edit with its reason, evidence, scores and cost")
    report.add_argument("--repo", metavar="PATH", help="only this folder")
    report.add_argument("--page", metavar="FILE", help="also write one HTML page with plots")
    report.add_argument("--json", action="store_true", help="print JSON")
    revert = verbs.add_parser("revert", help="take a merged edit back")
    revert.add_argument("edit", help="its id, or how it begins")


def run(options: argparse.Namespace) -> int | None:
    """Run the verb."""
    from etude.app import App

    with App() as app:
        verbs = {"once": _once, "watch": _watch, "completed": _completed, "report": _report, "revert": _revert}
        return verbs[options.verb](app, options)


def _learner(app: App, options: argparse.Namespace, runs: int, seed: int) -> Learner:
    from etude.cancellation import Cancellation
    from etude.learning.edits.learner import Learner, LearnOptions, load_learner_proposers
    from etude.learning.edits.program_sandbox import ProgramLimits
    from etude.learning.edits.suite import Suite

    chosen = tuple(p.strip() for p in (options.proposers or "").split(",") if p.strip())
    proposers = load_learner_proposers()
    if options.model:
        from etude.learning.edits.proposers.model_proposer import NAME, propose_with_model

        proposers[NAME] = propose_with_model(app.open_model(options.model), Cancellation())
    return Learner(
        app.store,
        app.settings.home,
        Path(options.repo),
        Suite(options.suite, ProgramLimits(wall_s=options.timeout)),
        LearnOptions(options.propose_only, runs, options.edits, chosen, seed),
        proposers=proposers,
        say=_say,
    )


def _say(text: str) -> None:
    sys.stderr.write(printable(text) + "\n")
    sys.stderr.flush()


def _once(app: App, options: argparse.Namespace) -> None:
    learned = _learner(app, options, options.runs, options.seed).once()
    _print_learned(learned, options.json)


def _print_learned(learned: Learned, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(_as_json(learned)) + "\n")
        return
    before, after = (learned.passed_before, learned.total_before), (learned.passed_after, learned.total_after)
    print(f"before: {before[0]} of {before[1]} tests passed; after: {after[0]} of {after[1]}")
    for edit in learned.kept:
        print(printable(f"{edit.status} {edit.id}: {edit.body['rationale']}"))
        for name in ("commit", "branch", "patch"):
            if edit.body.get(name):
                print(printable(f"  {name}: {edit.body[name]}"))
    print(f"{len(learned.dropped)} proposals were dropped; {learned.runs} runs, {learned.seconds:.0f} s")
    print(printable(learned.reason + "."))


def _as_json(learned: Learned) -> dict[str, object]:
    """Return the result of a learning run as JSON."""

    def short(edit: StoredEdit) -> dict[str, object]:
        return {"id": edit.id, "status": edit.status, "proposer": edit.proposer, **edit.body}

    return {
        "repo": learned.repo,
        "before": {"passed": learned.passed_before, "total": learned.total_before},
        "after": {"passed": learned.passed_after, "total": learned.total_after},
        "kept": [short(edit) for edit in learned.kept],
        "dropped": len(learned.dropped),
        "runs": learned.runs,
        "seconds": round(learned.seconds, 1),
        "reason": learned.reason,
    }


def _watch(app: App, options: argparse.Namespace) -> None:
    from etude.store.processes import Processes

    with Processes(app.store).entered("learner"):
        _watch_tests(app, options)


def _watch_tests(app: App, options: argparse.Namespace) -> None:
    from etude.errors import LimitExceeded
    from etude.learning.edits.learner import WATCHED
    from etude.learning.edits.tests_completed import (
        CompletedTestsHistory,
        publish_tests_completed,
        summarise_completed_tests,
    )
    from etude.store.edits import StoredEdits

    left, seed, history = options.runs, options.seed, CompletedTestsHistory()
    while True:
        learner = _learner(app, options, left, seed)
        try:
            outcomes = learner.look()
        except LimitExceeded:
            print(f"The budget of {options.runs} runs is spent.")
            return
        event = summarise_completed_tests(learner.repo, outcomes, options.suite)
        publish_tests_completed(app.store, event)
        history, reason = history.add(event)
        if reason:
            _say(reason)
            _print_learned(learner.once(), options.json)
        with contextlib.suppress(LimitExceeded):
            for edit in StoredEdits(app.store).list(learner.repo):
                if edit.status == "merged" and edit.body.get("watch", {"runs": 0})["runs"] < WATCHED:
                    learner.watch(edit.id, 10)
        left, seed = left - learner.used, seed + 10
        if left <= 0:
            print(f"The budget of {options.runs} runs is spent.")
            return
        time.sleep(options.every)


def _completed(app: App, options: argparse.Namespace) -> None:
    from etude.learning.edits.suite import read_suite_junit
    from etude.learning.edits.tests_completed import publish_tests_completed, summarise_completed_tests

    try:
        text = Path(options.results).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise Invalid(f"`{options.results}` cannot be read: {error.strerror}.", hint="Check the path.") from None
    repo = str(Path(options.repo).expanduser().resolve())
    event = summarise_completed_tests(repo, read_suite_junit(text).values())
    publish_tests_completed(app.store, event)
    wakes = "wakes agents" if event.wakes else "wakes agents only if an error or the time is new to them"
    print(f"{event.passed} of {event.total} tests passed; this {wakes}.")


def _report(app: App, options: argparse.Namespace) -> None:
    from etude.learning.learning_report import (
        learning_report_as_json,
        learning_report_as_text,
        learning_reports_as_page,
        read_learning_reports,
        read_reported_playbooks,
        reported_playbook_as_json,
        reported_playbooks_as_text,
    )
    from etude.store.edits import StoredEdits

    repo = str(Path(options.repo).expanduser().resolve()) if options.repo else None
    reports = read_learning_reports(StoredEdits(app.store), repo)
    # Playbooks belong to no folder of code.
    playbooks = read_reported_playbooks(app.playbooks) if repo is None else []
    if options.page:
        try:
            Path(options.page).write_text(learning_reports_as_page(reports, playbooks), encoding="utf-8")
        except OSError as error:
            raise Invalid(f"`{options.page}` cannot be written: {error.strerror}.", hint="Check the path.") from None
    if options.json:
        told = {
            "edits": [learning_report_as_json(r) for r in reports],
            "playbooks": [reported_playbook_as_json(p) for p in playbooks],
        }
        sys.stdout.write(json.dumps(told) + "\n")
    elif not playbooks and not any(r.edits or r.runs for r in reports):
        print("Nothing has been learned yet.")
    else:
        for text in [*map(learning_report_as_text, reports), reported_playbooks_as_text(playbooks)]:
            print("\n".join(map(printable, text.splitlines())))
    if options.page:
        _say(f"wrote {options.page}")


def _revert(app: App, options: argparse.Namespace) -> None:
    from etude.learning.edits.learner import revert_learned_edit
    from etude.store.edits import StoredEdits

    edit = revert_learned_edit(StoredEdits(app.store), app.settings.home, options.edit, "somebody asked for it")
    print(printable(f"reverted {edit.id}: {edit.body['rationale']}"))
