"""Playbooks: lessons in SKILL.md form, one folder each, below `playbooks/<tenant>` of etude's home."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

from etude.entities import Entity
from etude.errors import Invalid
from etude.untrusted_yaml import parse_yaml

_PARTS = re.compile(r"\A---[ \t]*\n(.*?)^---[ \t]*(?:\n(.*))?\Z", re.DOTALL | re.MULTILINE)
_HINT = "Begin the file with `---`, `name: NAME`, `description: WHEN TO USE IT` and `---`; quote a value that has `: `."
LARGEST = 1 << 20
"""The largest file that is read, in bytes."""


class Playbook(Entity):
    """A lesson: when to use it, and what it says."""

    name: str
    description: str
    text: str


def read_playbooks(home: Path, tenant: str) -> list[Playbook]:
    """Return the playbooks of a tenant by name. A file that is not a playbook is left out, and the log says why."""
    found = []
    for file in sorted((home / "playbooks" / tenant).glob("*/SKILL.md")):
        try:
            if file.stat().st_size > LARGEST:
                raise Invalid(f"The file is larger than {LARGEST:,} bytes.")
            found.append(parse_playbook(file.read_text(encoding="utf-8", errors="replace")))
        except Invalid as error:
            logging.getLogger("etude").warning("%s is not a playbook: %s %s", file, error.message, error.hint)
        except OSError as error:
            logging.getLogger("etude").warning("%s cannot be read: %s", file, error.strerror)
    return found


def parse_playbook(text: str) -> Playbook:
    """Parse a SKILL.md: YAML between two lines of dashes, then the lesson. Raises `Invalid` if it is not one."""
    parts = _PARTS.match(text.removeprefix("\ufeff").replace("\r\n", "\n"))
    if parts is None:
        raise Invalid("It has no front matter between two lines `---`.", hint=_HINT)
    fields = _parse_head(parts[1])
    name, description = (_read_text(fields, key) for key in ("name", "description"))
    if not name:
        raise Invalid("Its front matter has no `name`.", hint=_HINT)
    return Playbook(name=name, description=description, text=(parts[2] or "").strip())


def parse_metadata(text: str) -> dict[str, Any]:
    """Return the `metadata` of a SKILL.md, which holds what is etude's own; empty if there is none."""
    parts = _PARTS.match(text.removeprefix("\ufeff").replace("\r\n", "\n"))
    found = _parse_head(parts[1]).get("metadata") if parts else None
    return found if isinstance(found, dict) else {}


def _read_text(fields: dict[str, Any], key: str) -> str:
    value = fields.get(key) or ""
    if not isinstance(value, str):
        raise Invalid(f"`{key}` is {value!r}, not a text.", hint=_HINT)
    return value.strip()


def _parse_head(head: str) -> dict[str, Any]:
    fields = parse_yaml(head.encode("utf-8", "surrogatepass"), "Its front matter", _HINT)
    if not isinstance(fields, dict):
        raise Invalid("Its front matter is not a list of `key: value` lines.", hint=_HINT)
    return fields
