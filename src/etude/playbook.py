"""Playbooks: lessons in SKILL.md form, one folder each, below `playbooks/<tenant>` of etude's home."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from etude.entities import Entity
from etude.errors import Invalid
from etude.untrusted_yaml import parse_yaml

_PARTS = re.compile(r"\A---[ \t]*\n(.*?)^---[ \t]*(?:\n(.*))?\Z", re.DOTALL | re.MULTILINE)
_HINT = "Begin the file with `---`, `name: NAME`, `description: WHEN TO USE IT` and `---`; quote a value that has `: `."
LARGEST = 1 << 20
"""The largest file that is read, in bytes."""
_SENTENCE = re.compile(r"[\s>*-]*+[`'\"*]*+([^.`'\"*]{2,60}?)[`'\"*]*+ means ([^.]{2,200})", re.IGNORECASE)
LONGEST_SENTENCE = 1_000
"""The longest line that is searched for a definition."""
_ARTICLE = re.compile(r"^(?:the|a|an) ", re.IGNORECASE)


class Playbook(Entity):
    """A lesson: when to use it, and what it says."""

    name: str
    description: str
    text: str


class Definition(Entity):
    """What a word of questions means, as a playbook says: a synonym, or a longer description."""

    phrase: str
    """The word or phrase, without case."""
    meaning: str
    playbook: str


def find_playbook_definitions(playbook: Playbook, means: Any, triggers: Iterable[str]) -> Iterator[Definition]:
    """Yield the definitions of a playbook.

    They are the pairs of `metadata.means`, and sentences such as "Revenue means net sales." about the name or a trigger
    of the playbook.
    """
    told: dict[str, str] = {}
    if isinstance(means, dict):
        told = {str(phrase).casefold().strip(): str(meaning).strip() for phrase, meaning in means.items()}
    elif means is not None:
        raise Invalid(f"`means` is {means!r}.", hint="Write pairs below it, such as `turnover: revenue`.")
    defined = {*triggers, playbook.name.casefold()}
    for phrase, meaning in _sentences(playbook.text):
        known = _ARTICLE.sub("", phrase.casefold().strip())
        if known in defined:
            told.setdefault(known, meaning.strip().strip("`'\"*"))
    for phrase, meaning in told.items():
        if phrase and meaning and phrase != meaning.casefold():
            yield Definition(phrase=phrase, meaning=meaning, playbook=playbook.name)


def _sentences(text: str) -> Iterator[tuple[str, str]]:
    """Yield the phrase and the meaning of each line such as "Revenue means net sales."."""
    for line in text.splitlines():
        if len(line) <= LONGEST_SENTENCE and " means " in line.lower():
            found = _SENTENCE.fullmatch(line.rstrip(". \t"))
            if found:
                yield found[1], found[2]


def apply_playbook_definitions(question: str, definitions: Sequence[Definition]) -> tuple[str, list[Definition]]:
    """Return a question with defined phrases replaced by their meanings, and the definitions that were used.

    Longer phrases are replaced first. A meaning is not searched for other phrases, so definitions cannot loop.
    """
    by_phrase = {d.phrase: d for d in reversed(definitions)}
    if not by_phrase:
        return question, []
    longest = sorted(by_phrase, key=len, reverse=True)
    pattern = re.compile(rf"(?<!\w)(?:{'|'.join(re.escape(p) for p in longest)})(?!\w)", re.IGNORECASE)
    used: list[Definition] = []

    def replace(match: re.Match[str]) -> str:
        used.append(by_phrase[match[0].casefold()])
        first, _, rest = used[-1].meaning.partition(" ")
        # `total turnover`, if turnover means `total amount`: one total is meant.
        said = question[: match.start()].casefold().split()[-1:]
        return rest if rest and said == [first.casefold()] else used[-1].meaning

    return pattern.sub(replace, question), list(dict.fromkeys(used))


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


def parse_playbook_metadata(text: str) -> dict[str, Any]:
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
