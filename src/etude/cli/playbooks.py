"""`etude playbooks list|show|add|pin|retire|history|effect|drafts|accept|refuse`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude.cli.output import print_table
from etude.cli.table import printable

if TYPE_CHECKING:
    from etude.learning.playbooks.library import LessonEntry, PlaybookLibrary

EXAMPLES = (
    "etude playbooks list",
    "etude playbooks add revenue/SKILL.md --pin",
    "etude playbooks effect revenue",
    "etude playbooks retire revenue",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    listing = verbs.add_parser("list", help="list playbooks with their states and effects")
    show = verbs.add_parser("show", help="show a playbook, and why it is in its state")
    add = verbs.add_parser("add", help="add a playbook: a SKILL.md, or a folder that has one")
    add.add_argument("path", metavar="PATH", help="the file or the folder")
    add.add_argument("--pin", action="store_true", help="always show it if it matches, without a coin")
    pin = verbs.add_parser("pin", help="always show a playbook if it matches, without a coin")
    retire = verbs.add_parser("retire", help="never show this version of a playbook again")
    history = verbs.add_parser("history", help="list the versions and changes of a playbook")
    effect = verbs.add_parser("effect", help="show the runs with and without a playbook, and the difference")
    drafts = verbs.add_parser("drafts", help="list the playbooks that the observer drafted from queries that worked")
    accept = verbs.add_parser("accept", help="make a playbook of a draft")
    refuse = verbs.add_parser("refuse", help="refuse a draft, which is not proposed again")
    refuse.add_argument("--reason", default="", help="why, for the record")
    for each in (show, pin, retire, history, effect, accept, refuse):
        each.add_argument("name", help="its name")
    for each in (listing, show, add, pin, retire, history, effect, drafts, accept, refuse):
        each.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> None:
    """Run the verb."""
    from etude.app import App

    with App() as app:
        _VERBS[options.verb](app.playbooks, options)


def describe(entry: LessonEntry) -> dict[str, Any]:
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
        "file": str(lesson.folder / "SKILL.md"),
    }


def _print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")


def _effect_text(entry: LessonEntry) -> str:
    standing = entry.standing
    if not (standing.shown.runs and standing.withheld.runs):
        return "not measured yet"
    effect, low, high = standing.effect
    return f"{effect:+.0%} ({low:+.0%} to {high:+.0%})"


def _list(library: PlaybookLibrary, options: argparse.Namespace) -> None:
    entries = library.entries()
    if options.json:
        _print_json([describe(entry) for entry in entries])
    elif not entries:
        print("No playbooks yet; `etude playbooks add` adds one.")
    else:
        rows = [(e.lesson.name, e.state, str(e.eligible), str(e.shown), _effect_text(e)) for e in entries]
        print_table(("name", "state", "matched", "shown", "effect"), rows, sys.stdout)


def _show(library: PlaybookLibrary, options: argparse.Namespace) -> None:
    entry = library.entry(options.name)
    if options.json:
        _print_json(describe(entry) | {"text": entry.lesson.playbook.text})
        return
    print(printable(f"{entry.lesson.name} ({entry.state}: {entry.standing.reason})"))
    print(printable(entry.lesson.playbook.description))
    print(printable(f"effect: {_effect_text(entry)}; file: {entry.lesson.folder / 'SKILL.md'}"))
    print()
    print("\n".join(map(printable, entry.lesson.playbook.text.splitlines())))


def _add(library: PlaybookLibrary, options: argparse.Namespace) -> None:
    lesson = library.add(Path(options.path).expanduser(), options.pin)
    _report(library.entry(lesson.name), options)


def _pin(library: PlaybookLibrary, options: argparse.Namespace) -> None:
    _report(library.pin(options.name), options)


def _retire(library: PlaybookLibrary, options: argparse.Namespace) -> None:
    _report(library.retire(options.name), options)


def _report(entry: LessonEntry, options: argparse.Namespace) -> None:
    if options.json:
        _print_json(describe(entry))
    else:
        print(printable(f"{entry.lesson.name} is {entry.state}"))


def _history(library: PlaybookLibrary, options: argparse.Namespace) -> None:
    changes = library.history(options.name)
    if options.json:
        _print_json(
            [{"version": c.version, "change": c.change, "reason": c.reason, "at": c.at.isoformat()} for c in changes]
        )
        return
    rows = [(f"{c.at:%Y-%m-%d %H:%M}", c.version, c.change, c.reason) for c in changes]
    print_table(("at", "version", "change", "reason"), rows, sys.stdout)


def _effect(library: PlaybookLibrary, options: argparse.Namespace) -> None:
    entry = library.entry(options.name)
    if options.json:
        _print_json(describe(entry))
        return
    shown, withheld = entry.standing.shown, entry.standing.withheld
    print(f"shown:    {shown.successes} of {shown.runs} runs succeeded")
    print(f"withheld: {withheld.successes} of {withheld.runs} runs succeeded")
    print(f"effect:   {_effect_text(entry)}")
    print(printable(f"state:    {entry.state}: {entry.standing.reason}"))


def _drafts(library: PlaybookLibrary, options: argparse.Namespace) -> None:
    drafts = [draft for draft in library.drafts() if not draft.refused]
    if options.json:
        _print_json([{"name": d.name, "description": d.description, "text": d.text} for d in drafts])
    elif not drafts:
        print("No drafts; `etude observe` writes one if similar queries work several times.")
    else:
        print_table(("name", "description"), [(d.name, d.description) for d in drafts], sys.stdout)


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
