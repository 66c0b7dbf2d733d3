"""Drafts of playbooks: what several successes of the same kind have in common, and what made a failure a success.

A draft is shown to no one yet.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from etude.errors import Unavailable
from etude.learning.observer.operations import Operation
from etude.learning.playbooks.playbook_library import DRAFTS
from etude.playbook import read_playbooks
from etude.tools.table_ranking import ranking_words

ENOUGH = 3
"""Successes of the same kind that make a draft."""
_LITERAL = re.compile(r"'[^']*'|\b\d[\d.]*\b")
_NAME = re.compile(r"[^a-z0-9]+")
_TABLE = re.compile(r"\b(?:from|join)\s+([a-z_][\w.]*)", re.IGNORECASE)
OVERLAP = 8
"""Words in a row that a draft may share with a playbook: nothing is learned again from text that a model was shown."""
TRIGGERS = 6
"""The most words that a draft is triggered by."""


@dataclass(frozen=True)
class PlaybookDraft:
    """A draft of a playbook, with the operations it comes from."""

    name: str
    source: str
    shape: str
    """The code that worked, with its values masked; or the error that it overcame."""
    examples: tuple[str, ...]
    runs: tuple[str, ...]
    trigger: tuple[str, ...] = ()
    """Words that the questions of its runs share, or the tables of its queries."""
    error: str = ""
    """The key of the error that the examples overcame; empty if they worked at once."""

    def as_skill(self) -> str:
        """Return the draft as a SKILL.md."""
        runs = ", ".join(self.runs)
        examples = "\n".join(f"```sql\n{text}\n```" for text in self.examples)
        on = self.source or "any source"
        if self.error:
            description = f"How queries on {on} overcame an error {len(self.runs)} times."
            text = f"A query failed with `{self.error}`. These worked instead:"
        else:
            description = f"A query on {on} that worked {len(self.runs)} times."
            text = "These queries worked:"
        return (
            f"---\nname: {self.name}\ndescription: {description}\n"
            f"metadata:\n  state: draft\n  source: {self.source!r}\n  trigger: {json.dumps(self.trigger)}\n"
            f"  runs: [{runs}]\n---\n\n{text}\n\n{examples}\n"
        )


def find_playbook_drafts(operations: Iterable[Operation]) -> list[PlaybookDraft]:
    """Return the drafts of these operations: queries that worked, and queries that overcame an error.

    A shape of query is drafted if it worked in at least three runs and failed in none; an error, if in at least three
    runs the next query after it worked.
    """
    known = list(operations)
    asked = {o.run_id: o.input for o in known if o.kind == "ask" and o.run_id}
    steps = [o for o in known if o.kind in ("sql", "plan") and o.run_id and o.input]
    return [*_find_successes(steps, asked), *_find_fixes(steps, asked)]


def _find_successes(steps: Sequence[Operation], asked: Mapping[str, str]) -> Iterator[PlaybookDraft]:
    worked: dict[tuple[str, str], list[Operation]] = defaultdict(list)
    failed: set[tuple[str, str]] = set()
    for step in steps:
        key = step.source, _shape(step.input)
        if step.outcome == "ok":
            worked[key].append(step)
        else:
            failed.add(key)
    for (source, shape), group in sorted(worked.items()):
        if (source, shape) not in failed:
            yield from _draft(source, shape, group, asked)


def _find_fixes(steps: Sequence[Operation], asked: Mapping[str, str]) -> Iterator[PlaybookDraft]:
    """Yield a draft for each error after which the next query of the run worked."""
    fixes: dict[tuple[str, str], list[Operation]] = defaultdict(list)
    failed: dict[str, Operation] = {}
    for step in steps:
        before = failed.pop(step.run_id, None)
        if step.outcome == "failed" and step.error_key:
            failed[step.run_id] = step
        elif step.outcome == "ok" and before is not None and _shape(before.input) != _shape(step.input):
            fixes[before.source, before.error_key].append(step)
    for (source, key), group in sorted(fixes.items()):
        yield from _draft(source, key, group, asked, key)


def _draft(
    source: str, shape: str, group: Sequence[Operation], asked: Mapping[str, str], error: str = ""
) -> Iterator[PlaybookDraft]:
    runs = tuple(dict.fromkeys(o.run_id for o in group))
    examples = tuple(dict.fromkeys(o.input for o in group))[:2]
    if len(runs) >= ENOUGH and "```" not in "".join(examples):
        trigger = _triggers([asked[run] for run in runs if run in asked], group)
        overcame = " ".join(error.replace("`", "'").split())
        yield PlaybookDraft(_name(source, shape), source, shape, examples, runs[-10:], trigger, overcame)


def _triggers(questions: Sequence[str], group: Sequence[Operation]) -> tuple[str, ...]:
    """Return the words that all questions share; without any, the tables of the queries."""
    shared = set.intersection(*(set(ranking_words(q)) for q in questions)) if questions else set[str]()
    tables = {name.rpartition(".")[2].lower() for o in group for name in _TABLE.findall(o.input)}
    safe = (word for word in sorted(shared or tables) if _NAME.sub("", word) == word and len(word) > 2)
    return tuple(safe)[:TRIGGERS]


def _shape(code: str) -> str:
    return " ".join(_LITERAL.sub("?", code).lower().split())


def _name(source: str, shape: str) -> str:
    import hashlib

    words = _NAME.sub("-", f"{source} {' '.join(shape.split()[:8])}".lower()).strip("-")
    return f"{words[:50].rstrip('-')}-{hashlib.sha256(f'{source} {shape}'.encode()).hexdigest()[:6]}"


def write_playbook_drafts(home: Path, tenant: str, drafts: Iterable[PlaybookDraft]) -> list[Path]:
    """Write new drafts beside the playbooks, where nothing reads them as playbooks; one that is there stays.

    A draft that repeats a playbook is not written.
    """
    folder = home / "playbooks" / tenant
    told = {gram for playbook in read_playbooks(home, tenant) for gram in _grams(playbook.text)}
    written = []
    for draft in drafts:
        place = folder / DRAFTS / draft.name / "SKILL.md"
        repeats = any(not told.isdisjoint(_grams(example)) for example in draft.examples)
        if not place.exists() and not repeats:
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(draft.as_skill(), encoding="utf-8")
            except OSError as error:
                raise Unavailable(
                    f"The draft `{place}` cannot be written: {error.strerror}.", hint="Make that folder writable."
                ) from None
            written.append(place)
    return written


def _grams(text: str) -> Iterator[tuple[str, ...]]:
    said = re.findall(r"\w+", text.lower())
    return (tuple(said[n : n + OVERLAP]) for n in range(len(said) - OVERLAP + 1))
