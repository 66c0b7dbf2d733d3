"""Playbooks: lessons in SKILL.md form, one folder each, below `playbooks/<tenant>` of etude's home."""

from __future__ import annotations

import re
from pathlib import Path

from etude.entities import Entity

_HEAD = re.compile(r"\A---\n(.*?)\n---\n(.*)\Z", re.DOTALL)
_FIELD = re.compile(r"^(name|description):[ \t]*(.*)$", re.MULTILINE)
LARGEST = 1 << 20


class Playbook(Entity):
    """A lesson: when to use it, and what it says."""

    name: str
    description: str
    text: str


def read_playbooks(home: Path, tenant: str) -> list[Playbook]:
    """The playbooks of a tenant by name; a file that is none is left out."""
    found = []
    for file in sorted((home / "playbooks" / tenant).glob("*/SKILL.md")):
        if file.stat().st_size <= LARGEST:
            parsed = parse_playbook(file.read_text(encoding="utf-8", errors="replace"))
            found += [parsed] if parsed else []
    return found


def parse_playbook(text: str) -> Playbook | None:
    """A SKILL.md: fields between two lines of dashes, then the lesson."""
    parts = _HEAD.match(text.replace("\r\n", "\n"))
    if parts is None:
        return None
    fields = {name: value.strip().strip("\"'") for name, value in _FIELD.findall(parts[1])}
    if not fields.get("name"):
        return None
    return Playbook(name=fields["name"], description=fields.get("description", ""), text=parts[2].strip())
