"""Drafts of playbooks: what several successes of the same kind have in common. A draft is shown to no one yet."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from etude.learning.observer.operations import Operation
from etude.learning.playbooks.library import DRAFTS

ENOUGH = 3
"""Successes of the same kind that make a draft."""
_LITERAL = re.compile(r"'[^']*'|\b\d[\d.]*\b")
_NAME = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True)
class Draft:
    """A draft of a playbook, with the operations it comes from."""

    name: str
    source: str
    shape: str
    """The code that worked, with its values masked."""
    examples: tuple[str, ...]
    runs: tuple[str, ...]

    def as_skill(self) -> str:
        """Return the draft as a SKILL.md."""
        runs = ", ".join(self.runs)
        examples = "\n".join(f"```sql\n{text}\n```" for text in self.examples)
        return (
            f"---\nname: {self.name}\n"
            f"description: A query on {self.source or 'any source'} that worked {len(self.runs)} times.\n"
            f"metadata:\n  state: draft\n  source: {self.source!r}\n  runs: [{runs}]\n---\n\n"
            f"These queries worked:\n\n{examples}\n"
        )


def find_drafts(operations: Iterable[Operation]) -> list[Draft]:
    """Return a draft for each shape of query that worked in at least three runs, and failed in none."""
    worked: dict[tuple[str, str], list[Operation]] = defaultdict(list)
    failed: set[tuple[str, str]] = set()
    for operation in operations:
        if operation.kind in ("sql", "plan") and operation.run_id and operation.input:
            key = operation.source, _shape(operation.input)
            if operation.outcome == "ok":
                worked[key].append(operation)
            else:
                failed.add(key)
    drafts = []
    for (source, shape), group in sorted(worked.items()):
        runs = tuple(dict.fromkeys(o.run_id for o in group))
        examples = tuple(dict.fromkeys(o.input for o in group))[:2]
        if len(runs) >= ENOUGH and (source, shape) not in failed and "```" not in "".join(examples):
            drafts.append(Draft(_name(source, shape), source, shape, examples, runs[-10:]))
    return drafts


def _shape(code: str) -> str:
    return " ".join(_LITERAL.sub("?", code).lower().split())


def _name(source: str, shape: str) -> str:
    import hashlib

    words = _NAME.sub("-", f"{source} {' '.join(shape.split()[:8])}".lower()).strip("-")
    return f"{words[:50].rstrip('-')}-{hashlib.sha256(f'{source} {shape}'.encode()).hexdigest()[:6]}"


def write_drafts(home: Path, tenant: str, drafts: Iterable[Draft]) -> list[Path]:
    """Write new drafts beside the playbooks, where nothing reads them as playbooks; one that is there stays."""
    written = []
    for draft in drafts:
        place = home / "playbooks" / tenant / DRAFTS / draft.name / "SKILL.md"
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(draft.as_skill(), encoding="utf-8")
            written.append(place)
    return written
