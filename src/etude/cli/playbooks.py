"""`etude playbooks list|show|add|pin|retire|history|effect|drafts|try|accept|refuse`."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude.cli.output import print_output_table
from etude.cli.printable import printable

if TYPE_CHECKING:
    from etude.app import App
    from etude.entities import SourceSpec
    from etude.learning.playbooks.admission import ReplayedAnswer
    from etude.learning.playbooks.playbook_library import LibraryDraft, LibraryEntry, PlaybookLibrary
    from etude.store.lessons import Exposure

EXAMPLES = (
    "etude playbooks list",
    "etude playbooks add revenue/SKILL.md --pin",
    "etude playbooks effect revenue --runs 20",
    "etude playbooks try shop-select-count-0a1b2c --model ollama:qwen3",
    "etude playbooks retire revenue",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    listing = verbs.add_parser("list", help="list playbooks with their states and effects")
    show = verbs.add_parser("show", help="show a playbook, and why it is in its state")
    add = verbs.add_parser("add", help="add a playbook: a SKILL.md, or a folder that has one")
    add.add_argument("path", metavar="PATH", help="the file or the folder")
    add.add_argument("--pin", action="store_true", help="always show it if it matches, not by chance")
    pin = verbs.add_parser("pin", help="always show a playbook if it matches, not by chance")
    retire = verbs.add_parser("retire", help="never show this version of a playbook again")
    history = verbs.add_parser("history", help="list the versions and changes of a playbook")
    effect = verbs.add_parser("effect", help="show the runs with and without a playbook, and the difference")
    drafts = verbs.add_parser("drafts", help="list the playbooks that the observer drafted from queries that worked")
    trial = verbs.add_parser(
        "try", help="ask earlier questions again with a draft; admit it if it helps and breaks none"
    )
    trial.add_argument("--model", help="the model that is asked; that of the settings by default")
    accept = verbs.add_parser("accept", help="make a playbook of a draft")
    refuse = verbs.add_parser("refuse", help="refuse a draft, which is not proposed again")
    refuse.add_argument("--reason", default="", help="why, for the record")
    effect.add_argument("--runs", type=int, default=5, metavar="N", help="list the latest N of these runs (5)")
    for each in (show, pin, retire, history, effect, trial, accept, refuse):
        each.add_argument("name", help="its name")
    for each in (listing, show, add, pin, retire, history, effect, drafts, trial, accept, refuse):
        each.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> None:
    """Run the verb."""
    from etude.app import App

    with App() as app:
        if options.verb == "try":
            _try(app, options)
        else:
            _VERBS[options.verb](app.playbooks, options)


def playbook_as_json(entry: LibraryEntry) -> dict[str, Any]:
    """Return a playbook as JSON."""
    standing, lesson = entry.standing, entry.lesson
    effect, low, high = standing.effect
    return {
        "name": lesson.name,
        "description": lesson.playbook.description,
        "version": lesson.version,
        "state": entry.state,
        "reason": standing.reason,
        "eligible": entry.eligible,
        "shown": {"runs": standing.shown.runs, "succeeded": standing.shown.successes},
        "withheld": {"runs": standing.withheld.runs, "succeeded": standing.withheld.successes},
        "effect": round(effect, 4),
        "interval": [round(low, 4), round(high, 4)],
        "probability_of_harm": standing.p_harm,
        "e_harm": _e_value(standing.log_e_harm),
        "e_help": _e_value(standing.log_e_help),
        "trigger": list(lesson.trigger),
        "source": lesson.source,
        "definitions": {d.phrase: d.meaning for d in lesson.definitions},
        "file": str(lesson.folder / "SKILL.md"),
    }


def _e_value(log_e: float) -> float:
    return float(f"{math.exp(min(log_e, 300.0)):.4g}")


def _print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")


def _effect_text(entry: LibraryEntry) -> str:
    standing = entry.standing
    if not (standing.shown.runs and standing.withheld.runs):
        return "not measured yet"
    effect, low, high = standing.effect
    return f"{effect:+.0%} ({low:+.0%} to {high:+.0%})"


def _list(library: PlaybookLibrary, options: argparse.Namespace) -> None:
    entries = library.entries()
    if options.json:
        _print_json([playbook_as_json(entry) for entry in entries])
    elif not entries:
        print("No playbooks yet; `etude playbooks add` adds one.")
    else:
        rows = [(e.lesson.name, e.state, str(e.eligible), str(e.shown), _effect_text(e)) for e in entries]
        print_output_table(("name", "state", "matched", "shown", "effect"), rows, sys.stdout)


def _show(library: PlaybookLibrary, options: argparse.Namespace) -> None:
    draft = next((d for d in library.drafts() if d.name == options.name), None)
    if draft is not None and options.name not in {lesson.name for lesson in library.lessons()}:
        _show_draft(draft, options)
        return
    entry = library.entry(options.name)
    if options.json:
        _print_json(playbook_as_json(entry) | {"text": entry.lesson.playbook.text})
        return
    print(printable(f"{entry.lesson.name} ({entry.state}: {entry.standing.reason})"))
    print(printable(" ".join(entry.lesson.playbook.description.split())))
    print(printable(f"shown: {_when(entry)}"))
    if entry.lesson.is_shortened:
        print(_too_long())
    for definition in entry.lesson.definitions:
        print(printable(f"`{definition.phrase}` means: {definition.meaning} (without a model as well)"))
    print(printable(f"effect: {_effect_text(entry)}; file: {entry.lesson.folder / 'SKILL.md'}"))
    print()
    print("\n".join(map(printable, entry.lesson.playbook.text.splitlines())))


def _show_draft(draft: LibraryDraft, options: argparse.Namespace) -> None:
    if options.json:
        _print_json({"name": draft.name, "description": draft.description, "state": "draft", "text": draft.text})
        return
    print(printable(f"{draft.name} (draft: nothing uses it until it is accepted or tried)"))
    print()
    print("\n".join(map(printable, draft.text.splitlines())))


def _too_long() -> str:
    from etude.learning.playbooks.playbook_library import CHARS

    return f"It is too long to be shown to a model as a whole: keep it below {CHARS:,} characters."


def _when(entry: LibraryEntry) -> str:
    """Return for which questions a playbook is shown, and how often."""
    from etude.learning.playbooks.lesson_state import lesson_show_probability

    lesson = entry.lesson
    asked = f"have one of {', '.join(lesson.trigger)}" if lesson.trigger else "share two words with it"
    on = f" on {lesson.source}" if lesson.source else ""
    often = 1.0 if lesson.pinned and entry.state != "retired" else lesson_show_probability(entry.standing)
    return f"to {often:.0%} of questions{on} that {asked}; so far to {entry.shown} of {entry.eligible} runs"


def _add(library: PlaybookLibrary, options: argparse.Namespace) -> None:
    lesson = library.add(Path(options.path).expanduser(), options.pin)
    _report(library.entry(lesson.name), options)


def _pin(library: PlaybookLibrary, options: argparse.Namespace) -> None:
    _report(library.pin(options.name), options)


def _retire(library: PlaybookLibrary, options: argparse.Namespace) -> None:
    _report(library.retire(options.name), options)


def _report(entry: LibraryEntry, options: argparse.Namespace) -> None:
    if options.json:
        _print_json(playbook_as_json(entry))
    else:
        print(printable(f"{entry.lesson.name} is {entry.state}"))
        if entry.lesson.is_shortened:
            sys.stderr.write(f"warning: {_too_long()}\n")


def _history(library: PlaybookLibrary, options: argparse.Namespace) -> None:
    changes = library.history(options.name)
    if options.json:
        _print_json(
            [{"version": c.version, "change": c.change, "reason": c.reason, "at": c.at.isoformat()} for c in changes]
        )
        return
    rows = [(f"{c.at:%Y-%m-%d %H:%M}", c.version, c.change, c.reason) for c in changes]
    print_output_table(("at", "version", "change", "reason"), rows, sys.stdout)


def _effect(library: PlaybookLibrary, options: argparse.Namespace) -> None:
    entry = library.entry(options.name)
    exposures = library.exposures(options.name)[-options.runs :] if options.runs > 0 else []
    if options.json:
        _print_json(playbook_as_json(entry) | {"runs": [_exposure(e) for e in exposures]})
        return
    shown, withheld = entry.standing.shown, entry.standing.withheld
    print(f"shown:    {shown.successes} of {shown.runs} runs succeeded")
    print(f"withheld: {withheld.successes} of {withheld.runs} runs succeeded")
    print(f"effect:   {_effect_text(entry)}")
    standing = entry.standing
    print(f"e-values: harm {_e_value(standing.log_e_harm):g}, help {_e_value(standing.log_e_help):g}; 20 decides")
    print(printable(f"state:    {entry.state}: {standing.reason}"))
    if exposures:
        print()
        rows = [
            (e.run_id, "yes" if e.shown else "no", f"{e.q:g}", "succeeded" if e.success else "failed", e.why)
            for e in exposures
        ]
        print_output_table(("run", "shown", "chance", "outcome", "why"), rows, sys.stdout)


def _exposure(exposure: Exposure) -> dict[str, Any]:
    return {
        "run_id": exposure.run_id,
        "shown": exposure.shown,
        "q": exposure.q,
        "success": exposure.success,
        "why": exposure.why,
        "at": exposure.at.isoformat(),
    }


def _drafts(library: PlaybookLibrary, options: argparse.Namespace) -> None:
    drafts = [draft for draft in library.drafts() if not draft.refused]
    if options.json:
        _print_json([{"name": d.name, "description": d.description, "text": d.text} for d in drafts])
    elif not drafts:
        print("No drafts; `etude observe` writes one if similar queries work several times.")
    else:
        print_output_table(("name", "description"), [(d.name, d.description) for d in drafts], sys.stdout)


def _try(app: App, options: argparse.Namespace) -> None:
    from etude.errors import Invalid
    from etude.learning.playbooks.admission import try_draft_for_admission

    library = app.playbooks
    model = options.model or app.settings.model
    if model == "offline":
        raise Invalid("Rules are not shown playbooks, so there is nothing to try.", hint="Name one: `--model NAME`.")

    def replay(question: str, source: str | None, text: str | None) -> ReplayedAnswer:
        return _ask_again(model, app.sources(), source, question, text)

    found = try_draft_for_admission(app.store, library.draft(options.name), replay, _say)
    if found.refused is None:
        entry = library.admit_draft(options.name, found.evidence)
        reason = found.evidence
    else:
        entry, reason = None, found.refused
    if options.json:
        told = playbook_as_json(entry) if entry is not None else {"name": options.name, "state": "draft"}
        _print_json(told | {"admitted": entry is not None, "reason": reason})
    elif entry is not None:
        print(printable(f"{entry.lesson.name} is {entry.state}: {reason}"))
    else:
        print(printable(f"{options.name} stays a draft: {reason}"))


def _ask_again(
    model: str, sources: Mapping[str, SourceSpec], source: str | None, question: str, text: str | None
) -> ReplayedAnswer:
    """Ask a question in a home of its own, where the draft is the only playbook."""
    import tempfile

    from etude.app import App
    from etude.evaluation import comparable_evaluated_row
    from etude.learning.playbooks.admission import ReplayedAnswer

    with (
        tempfile.TemporaryDirectory(prefix="etude-try-") as name,
        App(home=Path(name), replay="off", sources=dict(sources)) as app,
    ):
        if text is not None:
            app.playbooks.pin(app.playbooks.add_text(text).lesson.name)
        answer = app.ask(source, question, model=model, fresh=True)
        # A text that no query or cell stands behind is not an answer.
        computed = any(step.kind in ("sql", "python") and step.error is None for step in answer.run.steps)
        succeeded = answer.error is None and not answer.question and not answer.unverified and computed
        rows = answer.result.iter_rows() if answer.result is not None else ()
        result = sorted(repr(comparable_evaluated_row(row)) for row in islice(rows, 10_000))
        return ReplayedAnswer(succeeded, len(answer.run.steps), result)


def _say(text: str) -> None:
    sys.stderr.write(printable(text) + "\n")
    sys.stderr.flush()


def _accept(library: PlaybookLibrary, options: argparse.Namespace) -> None:
    _report(library.accept_draft(options.name), options)


def _refuse(library: PlaybookLibrary, options: argparse.Namespace) -> None:
    draft = library.refuse_draft(options.name, options.reason)
    if options.json:
        _print_json({"name": draft.name, "state": draft.decision})
    else:
        print(printable(f"{draft.name} is {draft.decision}"))


_VERBS = {
    "list": _list,
    "show": _show,
    "add": _add,
    "pin": _pin,
    "retire": _retire,
    "history": _history,
    "effect": _effect,
    "drafts": _drafts,
    "accept": _accept,
    "refuse": _refuse,
}
