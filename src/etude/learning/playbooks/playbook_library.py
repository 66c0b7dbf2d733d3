"""The playbooks of a tenant: folders with a SKILL.md each, shown in a random share of runs, kept while harmless.

The text is the file, so a person's edit is a new version, whose effect is measured anew. A file that a person put there
counts as approved: it is active until its effect says otherwise. A draft that replays admitted is on probation until
its effect is proven. Nothing is rewritten.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import random
import re
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from etude.errors import Conflict, Invalid, NotFound
from etude.learning.playbooks.lesson_state import (
    MOST_OF_SOURCE,
    LessonStanding,
    fold_lesson_events,
    lesson_show_probability,
    lessons_over_cap,
    promotable_lessons,
    sample_lesson_benefit,
)
from etude.learning.statistical_tests import CoinEvent
from etude.playbook import (
    LARGEST,
    Definition,
    Playbook,
    find_playbook_definitions,
    parse_playbook,
    parse_playbook_metadata,
)
from etude.store.lessons import Exposure, LessonChange, StoredLessons
from etude.tools.table_ranking import ranking_words

if TYPE_CHECKING:
    from etude.store.base import Store

MOST_SHOWN = 2
MOST_IF_COMPLEX, COMPLEX = 3, 25
"""One more is shown for a question of more than this many words."""
CHARS = 2400
"""Characters of playbooks that a model is shown, which are about 600 tokens."""
CROWD_S = 60.0
"""How long it is remembered which playbooks a large library has no room for."""
PARSED = 500
"""How many playbooks are kept as they were last read."""
DRAFTS = ".drafts"
"""The folder of drafts, beside those of playbooks."""
DECISION = "DECISION"
"""The file beside a draft that holds what a person decided."""
SHARED_WORDS = 2
"""Words that a playbook without a trigger must share with a question."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ -]{0,99}")


@dataclass(frozen=True)
class LibraryLesson:
    """A playbook as it is in its file now."""

    playbook: Playbook
    version: str
    """A hash of the file."""
    folder: Path
    trigger: tuple[str, ...] = ()
    """Words or phrases, one of which a question must contain; `metadata.trigger` of the file."""
    source: str | None = None
    """The only source that it is for; `metadata.source`."""
    pinned: bool = False
    """Whether it is always shown; `metadata.pinned`, or by `pin`."""
    definitions: tuple[Definition, ...] = ()
    """What its words mean in questions; `metadata.means`, or sentences of its text."""

    @property
    def name(self) -> str:
        """Its name."""
        return self.playbook.name

    @property
    def whole_text(self) -> str:
        """What a model would be shown if there were room for all of it."""
        return f"{self.name}: {self.playbook.description}\n{self.playbook.text}"

    @property
    def is_shortened(self) -> bool:
        """Whether it is too long to be shown to a model as a whole."""
        return len(self.whole_text) > CHARS

    @property
    def shown_text(self) -> str:
        """What a model is shown; what does not fit is said to be missing."""
        whole = self.whole_text
        note = f"\n(Shortened: this playbook has {len(whole):,} characters, of which {CHARS:,} are shown.)"
        return whole[: CHARS - len(note)] + note if self.is_shortened else whole


@dataclass(frozen=True)
class LibraryEntry:
    """A playbook with its state and its measured effect."""

    lesson: LibraryLesson
    standing: LessonStanding
    eligible: int
    """Runs for which it matched."""
    shown: int
    """Runs for which it was shown."""

    @property
    def state(self) -> str:
        """`pinned`, or the state of its standing."""
        return "pinned" if self.lesson.pinned and self.standing.state != "retired" else self.standing.state


@dataclass(frozen=True)
class LibraryDraft:
    """A draft of a playbook that the observer wrote; models are not shown it."""

    name: str
    description: str
    text: str
    """The whole SKILL.md."""
    folder: Path
    decision: str
    """What a person decided: `accepted`, or `refused` with a reason; empty if no one has yet."""

    @property
    def refused(self) -> bool:
        """Whether a person refused it."""
        return self.decision.startswith("refused")


class PlaybookLibrary:
    """The playbooks of one tenant."""

    def __init__(self, store: Store, home: Path) -> None:
        self._store = store
        self._lessons = StoredLessons(store)
        self._folder = home / "playbooks" / store.tenant
        self._parsed: dict[Path, tuple[tuple[int, ...], LibraryLesson]] = {}
        """The playbooks as they were last read, with what their files looked like then."""
        self._known: dict[tuple[str, str], tuple[int, LessonStanding]] = {}
        """Standings by name and version, with the number of exposures that they were computed from."""
        self._crowd: tuple[float, Mapping[str, str], frozenset[str]] = 0.0, {}, frozenset()
        """When it was computed, for which versions, and the playbooks that there is no room for."""

    def lessons(self) -> list[LibraryLesson]:
        """Return the playbooks by name. A file that is not a playbook is left out, and the log says why."""
        found: dict[str, LibraryLesson] = {}
        for file in sorted(self._folder.glob("*/SKILL.md")):
            try:
                lesson = self._read(file)
            except Invalid as error:
                logging.getLogger("etude").warning("%s is not a playbook: %s %s", file, error.message, error.hint)
            except OSError as error:
                logging.getLogger("etude").warning("%s cannot be read: %s", file, error.strerror)
            else:
                found.setdefault(lesson.name, self._with_pin(lesson))
        return sorted(found.values(), key=lambda lesson: lesson.name)

    def _read(self, file: Path) -> LibraryLesson:
        """Read a file, unless it is as it was: a list of all playbooks would parse megabytes each time."""
        about = file.stat()
        stamp = about.st_mtime_ns, about.st_ctime_ns, about.st_size, about.st_ino
        known = self._parsed.get(file)
        if known is None or known[0] != stamp:
            if len(self._parsed) >= PARSED:
                self._parsed.clear()
            known = self._parsed[file] = (stamp, read_library_lesson(file))
        return known[1]

    def _with_pin(self, lesson: LibraryLesson) -> LibraryLesson:
        changes = self._lessons.changes(lesson.name)
        if lesson.version not in {c.version for c in changes}:
            change = "edited" if changes else "added"
            text = (lesson.folder / "SKILL.md").read_text(encoding="utf-8", errors="replace")
            self._lessons.add_change(lesson.name, lesson.version, change, "the file", text)  # type: ignore[arg-type]
        asked = [c.change for c in changes if c.change in ("pinned", "retired")]
        return replace(lesson, pinned=lesson.pinned or (bool(asked) and asked[-1] == "pinned"))

    def entries(self) -> list[LibraryEntry]:
        """Return the playbooks with their states and effects."""
        lessons = self.lessons()
        return [self._entry(lesson, lessons) for lesson in lessons]

    def entry(self, name: str) -> LibraryEntry:
        """Return one playbook."""
        lessons = self.lessons()
        for lesson in lessons:
            if lesson.name == name:
                return self._entry(lesson, lessons)
        raise NotFound(f"There is no playbook `{name[:100]}`.", hint="`etude playbooks list` shows them.")

    def _entry(self, lesson: LibraryLesson, lessons: Sequence[LibraryLesson]) -> LibraryEntry:
        eligible, shown = self._lessons.count(lesson.name, lesson.version)
        return LibraryEntry(lesson, self._standing(lesson, lessons), eligible, shown)

    def approved(self) -> list[Playbook]:
        """Return the playbooks that are not retired."""
        return [e.lesson.playbook for e in self.entries() if e.standing.state != "retired"]

    def definitions(self, source: str | None) -> list[Definition]:
        """Return the meanings of words for questions on a source, from playbooks that are active or pinned."""
        lessons = self.lessons()
        defining = (x for x in lessons if x.definitions and x.source in (None, source))
        return [d for x in defining if self._standing(x, lessons).state == "active" for d in x.definitions]

    def history(self, name: str) -> Sequence[LessonChange]:
        """Return the changes of a playbook, oldest first."""
        found = self._lessons.changes(name, texts=True)
        return found or self._lessons.changes(self.entry(name).lesson.name, texts=True)

    def exposures(self, name: str) -> list[Exposure]:
        """Return the runs that the current version of a playbook matched and whose outcome is known, oldest first."""
        lesson = self.entry(name).lesson
        return self._lessons.exposures(lesson.name, lesson.version)

    def _standing(self, lesson: LibraryLesson, lessons: Sequence[LibraryLesson]) -> LessonStanding:
        """Return the state of one of the playbooks: what people asked for, and what its exposures say."""
        changes = [c for c in self._lessons.changes(lesson.name) if c.version == lesson.version]
        standing = self._measured(lesson)
        asked = [c for c in changes if c.change in ("retired", "pinned")]
        if asked and asked[-1].change == "retired":
            return replace(standing, state="retired", reason=asked[-1].reason)
        if asked and asked[-1].change == "pinned":
            return replace(standing, state="active", reason=asked[-1].reason)
        if not lesson.pinned and lesson.name in self._crowded(lessons):
            reason = "the library is full, and this one has the lowest benefit"
            return replace(standing, state="retired", reason=reason)
        promoted = any(c.change == "promoted" for c in changes)
        proven = standing.state == "active" and (promoted or lesson.name in self._proven(lessons))
        admitted = next((c for c in changes if c.change == "admitted"), None)
        if standing.state == "active" and not proven:
            # With more playbooks in a library, each needs more evidence (e-BH).
            standing = replace(standing, state="probation")
        if admitted is not None and standing.state == "probation":
            return replace(standing, reason=f"admitted: {admitted.reason}")
        # A person approved the file, so it stays although its effect is not measured yet.
        if admitted is None and (standing.state == "probation" or standing.reason.startswith("no effect")):
            return replace(standing, state="active", reason="a person approved it")
        last = changes[-1].change if changes else None
        if standing.state in ("retired", "quarantined") and last != standing.state:
            self._lessons.add_change(lesson.name, lesson.version, standing.state, standing.reason, "")
        if proven and not promoted:
            self._lessons.add_change(lesson.name, lesson.version, "promoted", standing.reason, "")
        return standing

    def _measured(self, lesson: LibraryLesson) -> LessonStanding:
        """Return what the exposures of a playbook alone say about it."""
        exposures = self._lessons.exposures(lesson.name, lesson.version)
        key = lesson.name, lesson.version
        known = self._known.get(key)
        if known is None or known[0] != len(exposures):
            standing = fold_lesson_events(CoinEvent(e.q, e.shown, e.success, e.family) for e in exposures)
            self._known[key] = known = (len(exposures), standing)
        return known[1]

    def _proven(self, lessons: Sequence[LibraryLesson]) -> set[str]:
        """Return the playbooks whose benefit is proven in view of how many there are."""
        return promotable_lessons({lesson.name: self._measured(lesson) for lesson in lessons})

    def _crowded(self, lessons: Sequence[LibraryLesson]) -> frozenset[str]:
        """Return the playbooks that the library has no room for. Those that are pinned need no room."""
        lessons = [lesson for lesson in lessons if not lesson.pinned]
        if len(lessons) <= MOST_OF_SOURCE:
            return frozenset()
        at, versions, crowded = self._crowd
        now = {lesson.name: lesson.version for lesson in lessons}
        if versions != now or time.monotonic() - at > CROWD_S:
            standings = {lesson.name: self._measured(lesson) for lesson in lessons}
            alive = {name: s for name, s in standings.items() if s.state != "retired"}
            crowded = frozenset(lessons_over_cap(alive, {lesson.name: lesson.source or "" for lesson in lessons}))
            self._crowd = time.monotonic(), now, crowded
        return crowded

    # Changes by people.

    def add(self, path: Path, pin: bool = False) -> LibraryLesson:
        """Copy a SKILL.md, or a folder that has one, into the library. Another playbook of that name is replaced."""
        file = path / "SKILL.md" if path.is_dir() else path
        if not file.is_file():
            raise NotFound(f"There is no `{file}`.", hint="Give a SKILL.md, or a folder that has one.")
        lesson = read_library_lesson(file)
        if not _NAME.fullmatch(lesson.name):
            raise Invalid(f"`{lesson.name}` cannot name a playbook.", hint="Use letters, digits, spaces and . _ -.")
        target = self._folder / lesson.name
        taken = next((x for x in self.lessons() if x.name == lesson.name and x.folder != target), None)
        if taken is not None:
            raise Conflict(f"`{taken.folder}` has the same name.", hint="Edit that file, or remove it first.")
        if file.resolve() != (target / "SKILL.md").resolve():
            target.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                shutil.copytree(path, target, dirs_exist_ok=True)
            else:
                shutil.copy(file, target / "SKILL.md")
        if pin:
            self.pin(lesson.name)
        return self.entry(lesson.name).lesson

    def add_text(self, text: str, pin: bool = False) -> LibraryEntry:
        """Add the text of a SKILL.md to the library. Another playbook of that name is replaced."""
        self._store.check_storage()
        with tempfile.TemporaryDirectory(prefix="etude-playbook-") as folder:
            file = Path(folder, "SKILL.md")
            file.write_text(text, encoding="utf-8", newline="")
            return self.entry(self.add(file, pin).name)

    def pin(self, name: str, reason: str = "somebody asked for it") -> LibraryEntry:
        """Always show a playbook that matches, without a coin. This also brings back a retired one."""
        lesson = self.entry(name).lesson
        self._lessons.add_change(lesson.name, lesson.version, "pinned", reason, "")
        return self.entry(name)

    def retire(self, name: str, reason: str = "somebody asked for it") -> LibraryEntry:
        """Never show this version again. The file stays; an edit of it is a new version."""
        lesson = self.entry(name).lesson
        if "pinned" in parse_playbook_metadata(
            (lesson.folder / "SKILL.md").read_text(encoding="utf-8", errors="replace")
        ):
            raise Conflict(f"The file of `{name}` pins it.", hint="Remove `pinned` from its metadata.")
        self._lessons.add_change(lesson.name, lesson.version, "retired", reason, "")
        return self.entry(name)

    # Drafts.

    def drafts(self) -> list[LibraryDraft]:
        """Return the drafts of the observer by name, except those that are playbooks by now."""
        found = []
        for file in sorted((self._folder / DRAFTS).glob("*/SKILL.md")):
            with contextlib.suppress(Invalid, OSError):
                text = file.read_text(encoding="utf-8", errors="replace")
                decided = file.parent / DECISION
                decision = decided.read_text(encoding="utf-8", errors="replace") if decided.is_file() else ""
                made = LibraryDraft(file.parent.name, parse_playbook(text).description, text, file.parent, decision)
                found += [made] if not decision.startswith("accepted") else []
        return found

    def draft(self, name: str) -> LibraryDraft:
        """Return one draft."""
        found = next((draft for draft in self.drafts() if draft.name == name), None)
        if found is None:
            raise NotFound(f"There is no draft `{name[:100]}`.", hint="`etude playbooks drafts` lists them.")
        return found

    def admit_draft(self, name: str, evidence: str) -> LibraryEntry:
        """Make a playbook of a draft that helped in replays. It is on probation until its effect is proven."""
        lesson = self.accept_draft(name).lesson
        self._lessons.add_change(lesson.name, lesson.version, "admitted", evidence, "")
        return self.entry(lesson.name)

    def accept_draft(self, name: str) -> LibraryEntry:
        """Make a playbook of a draft."""
        draft = self.draft(name)
        if any(lesson.name == draft.name for lesson in self.lessons()):
            raise Conflict(f"There is a playbook `{draft.name}` already.", hint="Edit it, or refuse the draft.")
        entry = self.add_text(_without_state(draft.text))
        (draft.folder / DECISION).write_text("accepted", encoding="utf-8")
        return entry

    def refuse_draft(self, name: str, reason: str = "") -> LibraryDraft:
        """Refuse a draft. It stays on record, so that the observer does not write it again."""
        draft = self.draft(name)
        decision = "refused" + (f": {reason}" if reason else "")
        (draft.folder / DECISION).write_text(decision, encoding="utf-8")
        return replace(draft, decision=decision)

    # Showing.

    def choose(self, question: str, source: str | None, run_id: str) -> list[str]:
        """Return the texts to show for a question, and note for which playbooks the coin was flipped.

        Two are candidates, or three for a long question: pinned ones first, then by trigger, by words, and by a sample
        of their benefit. Only then is each coin flipped, so that its probability is the true one. The sample and the
        coin of a run are always the same.
        """
        shown = []
        for candidate in self._candidates(question, source, run_id):
            lesson = candidate.lesson
            q = 1.0 if lesson.pinned else lesson_show_probability(candidate.standing)
            shows = flip_library_coin(run_id, lesson.name, lesson.version) < q
            if not lesson.pinned:
                self._lessons.add_event(lesson.name, lesson.version, run_id, source or "", q, shows, candidate.why)
            if shows:
                shown.append(lesson.shown_text)
        return shown

    def _candidates(self, question: str, source: str | None, run_id: str) -> list[_Candidate]:
        """Return the playbooks that a coin is flipped for, best first, each with the reason."""
        asked, content = question.casefold(), set(ranking_words(question))
        found = []
        lessons = self.lessons()
        for lesson in lessons:
            if lesson.source is not None and lesson.source != source:
                continue
            phrase = max((p for p in lesson.trigger if p in asked), key=len, default="")
            shared = content & set(ranking_words(f"{lesson.name} {lesson.playbook.description}"))
            if not phrase and (lesson.trigger or len(shared) < SHARED_WORDS):
                continue
            standing = self._standing(lesson, lessons)
            if standing.state == "retired":
                continue
            chance = random.Random(f"{run_id}:{lesson.name}:{lesson.version}")  # noqa: S311 - not a secret
            sample = sample_lesson_benefit(standing, chance)
            rank = (not lesson.pinned, -len(phrase.split()), -len(shared), -sample)
            why = f"trigger `{phrase}`" if phrase else f"words {', '.join(sorted(shared))}"
            found.append((rank, _Candidate(lesson, standing, f"{why}; sampled benefit {sample:+.2f}")))
        found.sort(key=lambda item: item[0])
        most = MOST_IF_COMPLEX if len(question.split()) > COMPLEX else MOST_SHOWN
        chosen: list[_Candidate] = []
        left = CHARS
        for number, (_, candidate) in enumerate(found[:most], 1):
            left -= len(candidate.lesson.shown_text)
            if chosen and left < 0:
                break
            chosen.append(replace(candidate, why=f"{candidate.why}; rank {number} of {len(found)}"))
        return chosen


@dataclass(frozen=True)
class _Candidate:
    """A playbook that matches a question."""

    lesson: LibraryLesson
    standing: LessonStanding
    why: str


def _without_state(text: str) -> str:
    return text.replace("  state: draft\n", "", 1)


def flip_library_coin(*of: str) -> float:
    """Return a number from 0 to 1 that is always the same for the same texts."""
    return int.from_bytes(hashlib.sha256("\0".join(of).encode()).digest()[:6], "big") / 2**48


def read_library_lesson(file: Path) -> LibraryLesson:
    """Read a SKILL.md. Raises `Invalid` if it is not a playbook."""
    if file.stat().st_size > LARGEST:
        raise Invalid(f"The file is larger than {LARGEST:,} bytes.")
    text = file.read_text(encoding="utf-8", errors="replace")
    playbook, metadata = parse_playbook(text), parse_playbook_metadata(text)
    trigger = metadata.get("trigger", ())
    phrases = (trigger,) if isinstance(trigger, str) else tuple(str(t) for t in trigger or ())
    source = metadata.get("source") or None
    version = hashlib.sha256(text.encode()).hexdigest()[:12]
    triggers = tuple(phrase.casefold().strip() for phrase in phrases if phrase.strip())
    return LibraryLesson(
        playbook,
        version,
        file.parent,
        triggers,
        str(source) if source is not None else None,
        metadata.get("pinned") in (True, "true"),
        tuple(find_playbook_definitions(playbook, metadata.get("means"), triggers)),
    )
