"""Turn tagged items into the parts of a question: sentence by sentence, and the two sides of a ratio."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from etude.offline.grammar import OnRule, apply_rules
from etude.offline.noun_rules import read_agents
from etude.offline.question_parts import (
    Absence,
    Condition,
    Group,
    Measure,
    NamePart,
    Ordering,
    Question,
    Rank,
    Ratio,
    Side,
    Threshold,
)
from etude.offline.tags import TaggedItem
from etude.offline.words import word_base_form

_OWNED = frozenset(("name", "title", "id", "number", "date", "type", "code", "description", "status"))
"""Nouns that nearly every table has a column for: they need the noun they belong to."""
_BESIDES = frozenset(("together with", "along with", "alongside", "with their", "with its", "with his", "with her"))


def read_question(items: Sequence[TaggedItem], on_rule: OnRule | None = None) -> Question:
    """Return the parts of the question that the items form."""
    reader = _Reader(on_rule=on_rule)
    for number, sentence in enumerate(_sentences(_defined(list(items)))):
        reader.read(sentence, first=number == 0)
    return reader.question()


def _defined(items: list[TaggedItem]) -> list[TaggedItem]:
    """Apply `revenue (based on sale price)` wherever `revenue` occurs."""
    tags = "".join(item.tag for item in items)
    for match in re.finditer(r"[uC]\(p+C\)", tags):
        word, column = items[match.start()], items[match.end() - 2]
        name: NamePart = replace(column.data, text=f"{word.text} ({column.text})")
        items = [*items[: match.start()], TaggedItem("C", word.text, name), *items[match.end() :]]
        return _defined(
            [
                TaggedItem("C", i.text, name, joined=i.joined) if i.tag == word.tag and i.text == word.text else i
                for i in items
            ]
        )
    return items


def _sentences(items: Sequence[TaggedItem]) -> list[list[TaggedItem]]:
    sentences: list[list[TaggedItem]] = [[]]
    for item in items:
        if item.tag == ".":
            sentences.append([])
        else:
            sentences[-1].append(item)
    return [sentence for sentence in sentences if sentence]


@dataclass
class _Reader:
    """Collects the parts of all sentences."""

    requested: list[NamePart | Measure] = field(default_factory=list)
    returned: list[NamePart | Measure] = field(default_factory=list)
    subject: TaggedItem | None = None
    context: list[NamePart] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    ranks: list[Rank] = field(default_factory=list)
    plural_rank: bool = False
    top: tuple[int, str, str, str] | None = None
    orderings: list[Ordering] = field(default_factory=list)
    thresholds: list[Threshold] = field(default_factory=list)
    absences: list[Absence] = field(default_factory=list)
    ratio: Ratio | None = None
    distinct: bool = False
    both: bool = False
    change: Literal["", "percent", "difference"] = ""
    averaged: bool = False
    shares: int = 0
    joining: bool = False
    several: bool = False
    typical: bool = False
    everything: bool = False
    gaps: bool = False
    loose: list[NamePart] = field(default_factory=list)
    verbs: list[str] = field(default_factory=list)
    alone: str = ""
    unknown: list[str] = field(default_factory=list)
    last: str = ""
    """The tag two items back."""
    on_rule: OnRule | None = None

    def read(self, items: list[TaggedItem], first: bool) -> None:
        """Read one sentence."""
        if re.fullmatch(r"u[Cuc]*", "".join(item.tag for item in items)) and items[0].data in ("match", "filter"):
            return
        self.verbs.extend(item.text.lower() for item in items if item.tag == "r")
        self.alone = items[-1].text.lower() if items[-1].tag == "r" else self.alone
        if any(item.tag == "R" for item in items):
            items = self._read_ratio(items)
        else:
            # "Among all counties" relates two numbers only in a ratio.
            items = [TaggedItem("p", i.text, "of", joined=i.joined) if i.tag == "f" else i for i in items]
        items = read_agents(items)
        items = apply_rules(items, self.on_rule)
        items = [item for item in items if not self._take(item)]
        self._read_rest(items, first)

    def _take(self, item: TaggedItem) -> bool:
        """Keep the item if it is a part by itself; return whether it was."""
        match item.tag:
            case "F" | "D":
                self.conditions.append(item.data)
            case "B":
                self.groups.extend(item.data)
            case "H":
                self.thresholds.append(item.data)
            case "X":
                self.absences.append(item.data)
            case "Y":
                self.orderings.append(item.data)
            case "Z":
                self.ranks.append(item.data)
            case "K":
                if self.top is not None and self.top != item.data:
                    self.unknown.append(item.text)
                self.top = item.data
            case "U":
                self.distinct = True
            case "r":
                self.verbs.append(item.text.lower())
            case "a":
                self.typical = True
            case "I":
                self.everything = True
            case "m":
                self.gaps = True
            case "b":
                self.both = True
            case "i":
                self.change, grain = item.data
                self.groups.extend([Group(None, grain, item.text)] if grain else [])
            case _:
                return False
        return True

    def _read_rest(self, items: list[TaggedItem], first: bool) -> None:
        """Read nouns and measures: what is asked for, and of what."""
        listed = self.requested if first else self.returned
        before, beside, loose = "", "", False
        for item in items:
            if item.tag == "j":
                self.joining = True
            elif item.tag == "E":
                listed.append(item.data)
                counted = item.data.name
                if first and self.subject is None and item.data.fn == "count" and counted.tables:
                    self.subject = replace(item, data=counted, plural=True)
            elif item.tag == "C":
                apart = self.subject is not None or (listed and before == "p")
                # "The majors that students with votes have": the votes say which students, and are not listed.
                stray = bool(listed) and before in ("C", "T")
                if first and (apart or stray) and (before not in (",", "&") or loose):
                    self.loose.append(item.data)
                    loose = True
                else:
                    self.several = self.several or (first and not listed and item.plural)
                    listed.append(item.data)
            elif item.tag == "T":
                self._take_table(item, before, beside, first, listed)
            elif item.tag == "n" and _is_listed(before, first) and (counted := self._counted_before(listed, first)):
                listed.append(counted)
            elif item.tag == "n" and any(isinstance(rank.by, Measure) for rank in self.ranks):
                pass
            elif item.tag == "t" and first and not listed and self.subject is None:
                # "Which month had the most orders": one row for each month, and the best of them.
                self.groups.append(Group(None, item.data, item.text))
            elif item.tag not in (",", "&", "p", "(", ")"):
                self.unknown.append(item.text)
            self.last, before, beside = before, item.tag, item.text

    def _counted_before(self, listed: Sequence[NamePart | Measure], first: bool) -> Measure | None:
        """Return the count that `and the count` means: the one asked for before, else that of the subject's rows."""
        counts = [part for part in self.requested if isinstance(part, Measure) and part.fn == "count"]
        counts += [rank.by for rank in self.ranks if isinstance(rank.by, Measure) and rank.by.fn == "count"]
        if counts and not first:
            return counts[0]
        columns = bool(listed) and all(isinstance(part, NamePart) and not part.tables for part in listed)
        if first and columns and not counts and self.subject is not None and self.subject.plural:
            return Measure("count", self.subject.data, text="count")
        return None

    def _take_table(
        self, item: TaggedItem, before: str, beside: str, first: bool, listed: list[NamePart | Measure]
    ) -> None:
        if self.joining and self.absences:
            return
        if before == "&" and beside in _BESIDES and first and self.subject and not isinstance(listed[0], Measure):
            listed.append(item.data)
            return
        if not first:
            if before in ("", ",", "&") and not listed:
                listed.append(item.data)
            elif self.subject is None or item.data.tables[:1] != self.subject.data.tables[:1]:
                self.context.append(item.data)
            return
        again = self.subject is not None and before == "p" and bool(listed) and self.last == "C"
        if again and isinstance(listed[-1], NamePart) and listed[-1].owner is None and not listed[-1].tables:
            # "Names of members and names of colleges": the second belongs to the second.
            self._own(listed[-1:], item.data, listed)
            self.context.append(item.data)
            return
        if self.subject is None and (before == "p" or not listed or isinstance(listed[-1], Measure)):
            self.subject = item
            if not listed:
                listed.append(item.data)
            elif before == "p":
                self._own(list(listed), item.data, listed)
        elif self.subject is None or item.data.tables[:1] != self.subject.data.tables[:1]:
            self.context.append(item.data)

    def _own(self, parts: list[NamePart | Measure], owner: NamePart, listed: list[NamePart | Measure]) -> None:
        """`the name and city of the customer`: both belong to the customer, if it has them."""
        tables = {m.table for m in owner.tables}
        start = len(listed) - len(parts)
        for at, part in enumerate(parts, start):
            if isinstance(part, NamePart) and part.owner is None:
                generic = word_base_form(part.text.lower().split()[-1]) in _OWNED
                if generic or any(m.table in tables for m in part.columns):
                    listed[at] = replace(part, owner=owner)

    # --- ratios

    def _read_ratio(self, items: list[TaggedItem]) -> list[TaggedItem]:
        """`ratio of A to B`, `percentage of A that are F`: read two sides; return the items that apply to both."""
        tags = "".join(item.tag for item in items)
        at = tags.index("R")
        before, rest = items[:at], items[at + 1 :]
        if before and before[-1].tag == "A" and before[-1].data == "avg":
            before, self.averaged = before[:-1], True
        middle = next((n for n, i in enumerate(rest) if n and _divides(i, rest[n - 1], items[at].text)), None)
        if middle is None:
            return self._read_part(items, before, rest, items[at].data)
        end = next((n for n, i in enumerate(rest) if n > middle and i.tag in "gGO,"), len(rest))
        inner = next((n for n, i in enumerate(rest[:middle]) if i.tag == "g"), None)
        if inner is not None and rest[middle].tag == "f":
            return self._read_share(items, before, rest[:inner], rest[inner:middle], rest[middle + 1 :], items[at].data)
        # "to the total number of restaurants" counts the restaurants.
        upper, lower = self._side(rest[:middle]), self._side(rest[middle + 1 : end])
        if upper is None or lower is None:
            return items
        used = {_column_key(condition) for condition in upper.conditions}
        shared = [c for c in lower.conditions if _column_key(c) not in used]
        if not upper.conditions and lower.conditions:
            shared = []
        lower = replace(lower, conditions=tuple(c for c in lower.conditions if c not in shared))
        self.conditions.extend(shared)
        self.ratio = Ratio(upper, lower, items[at].data)
        return before + rest[end:]

    def _read_share(
        self,
        items: list[TaggedItem],
        before: list[TaggedItem],
        upper: list[TaggedItem],
        group: list[TaggedItem],
        lower: list[TaggedItem],
        scale: int,
    ) -> list[TaggedItem]:
        """`ratio of the number of shops in each state to the total number of shops`."""
        part, whole = self._side(upper), self._side(lower)
        if part is None or whole is None or part.conditions or whole.conditions or part.thresholds or part.loose:
            return items
        name = part.subject.name if isinstance(part.subject, Measure) else part.subject
        total = whole.subject.name if isinstance(whole.subject, Measure) else whole.subject
        if name is None or total is None or name.tables[:1] != total.tables[:1] or not name.tables:
            return items
        self.shares = scale
        self.requested.append(Measure("count", name, text="share"))
        return before + group

    def _read_part(
        self, items: list[TaggedItem], before: list[TaggedItem], rest: list[TaggedItem], scale: int
    ) -> list[TaggedItem]:
        """`percentage of customers that are active`: those that meet the condition, out of all."""
        # "By web" is a condition: a value is not what groups are made of.
        tags = "".join(item.tag for item in rest)
        end = next((m.start() for m in re.finditer("g(?!V)|[GO,]", tags)), len(rest))
        group, tail = rest[end : end + 2], rest[end + 2 :]
        if group and group[0].tag == "g" and tail[:1] and tail[0].tag != "p" and any(i.tag in "cVxl" for i in tail):
            # "of employees in each department have a salary above 100": the condition is on the employees.
            rest, end = [*rest[:end], *tail, *group], end + len(tail)
        side = self._side(rest[:end])
        if side is None:
            return items
        own = [c for c in side.conditions if c.kind != "span"]
        if not own and len(side.loose) == 1 and all(m.flag for m in side.loose[0].meanings):
            # "Percentage of meters that are smart".
            own, side = [Condition("flag", side.loose[0].text, side.loose[0])], replace(side, loose=())
        if not own and end < len(rest) and rest[end].tag in "gG" and not side.context and not side.loose:
            self.shares = scale
            listed = side.subject if isinstance(side.subject, Measure) else Measure("count", side.subject, text="share")  # type: ignore[arg-type]
            self.requested.append(listed)
            self.conditions.extend(side.conditions)
            return before + rest[end:]
        if len(own) != 1:
            return items
        self.conditions.extend(c for c in side.conditions if c.kind == "span")
        self.ratio = Ratio(Side(side.subject, tuple(own)), Side(side.subject), scale)
        return before + rest[end:]

    def _side(self, items: list[TaggedItem]) -> Side | None:
        items = apply_rules(items, self.on_rule)
        conditions = tuple(item.data for item in items if item.tag in "FD")
        nouns = [item for item in items if item.tag in "TCE"]
        limits = tuple(item.data for item in items if item.tag == "H")
        rest = [item for item in items if item.tag not in "TCEFDHrp"]
        if len(nouns) == 2 and nouns[0].tag in "CE" and nouns[1].tag == "T":
            # The payload of an aircraft.
            owned = nouns[0].data
            if isinstance(owned, NamePart):
                nouns = [replace(nouns[0], data=replace(owned, owner=nouns[1].data))]
        context: list[NamePart] = []
        loose: list[NamePart] = []
        if len(nouns) == 2 and (nouns[0].tag == "T" or (nouns[0].tag == "E" and nouns[1].tag == "C")):
            (context if nouns[1].tag == "T" else loose).append(nouns[1].data)
            nouns = nouns[:1]
        if rest or len(nouns) != 1:
            return None
        return Side(nouns[0].data, conditions, tuple(context), tuple(loose), limits)

    # --- the whole

    def _own_returned(self) -> None:
        """`Which country has the tallest tower? Show its name`: that of the country, which the question asks for."""
        asked = self.subject is not None and self.subject.data in self.requested[:1]
        for at, part in enumerate(self.returned):
            if asked and self.subject is not None and isinstance(part, NamePart) and not part.tables:
                nearest = min((m.cost for m in self.subject.data.tables), default=0)
                tables = {m.table for m in self.subject.data.tables if m.cost == nearest}
                owned = part.owner is None and any(m.table in tables and m.cost == 0 for m in part.columns)
                self.returned[at] = replace(part, owner=self.subject.data) if owned else part

    def question(self) -> Question:
        """Return all parts together."""
        self._own_returned()
        unknown = list(self.unknown)
        rank = self.ranks[0] if self.ranks else None
        for other in self.ranks[1:]:
            if rank is None or other.by is None or (other.by, other.direction) != (rank.by, rank.direction):
                unknown.append(other.text)
        if len(self.orderings) > 1:
            unknown.append("ordering")
        requested = tuple(self.requested)
        if not requested and self.top is not None and rank is not None and isinstance(rank.by, NamePart):
            requested = (rank.by,)  # "the top 3 highest prices" are prices
        matched = [c.name for c in self.conditions if c.kind == "match" and c.name is not None and c.name.columns]
        bare = not (requested or self.returned or self.subject or self.groups or rank or self.ratio)
        if bare and len(matched) == len(self.conditions) == 1:
            requested = tuple(matched)  # "which names contain the word `new`"
        if self.typical:
            counts = [p for p in requested if isinstance(p, Measure) and p.fn == "count" and p.name.tables]
            unknown += [] if len(counts) == len(requested) == 1 else ["on average"]
            requested = tuple(replace(p, fn="avg", of_count=True) for p in counts) or requested
        plural = bool(self.subject and self.subject.plural) or self.several
        return Question(
            requested=tuple(self.returned) or requested,
            listed=bool(self.returned),
            subject=self.subject.data if self.subject else None,
            plural=plural,
            context=tuple(self.context),
            conditions=tuple(self.conditions),
            groups=tuple(dict.fromkeys(self.groups)),
            rank=rank,
            top=self.top[0] if self.top else None,
            ordering=self.orderings[0] if self.orderings else None,
            thresholds=tuple(self.thresholds),
            absences=tuple(self.absences),
            ratio=self.ratio,
            distinct=self.distinct,
            everything=self.everything,
            gaps=self.gaps,
            both=self.both,
            change=self.change,
            averaged=self.averaged,
            shares=self.shares,
            loose=tuple(self.loose),
            verbs=tuple(self.verbs),
            alone=self.alone,
            unknown=tuple(unknown),
            asked=requested,
            lowest=bool(self.top and self.top[1] == "asc"),
        )


def _is_listed(before: str, first: bool) -> bool:
    """Return whether an item is one of a list; in a sentence that says what to show, also the first."""
    return before in ("&", ",") or (not first and not before)


def _divides(item: TaggedItem, before: TaggedItem, words: str) -> bool:
    """`to`, `out of`, `per` between the two numbers of a ratio; not the `to` of `belong to`."""
    dividers = ("to", "per") if words.startswith("ratio") else ("to",)
    return item.tag == "f" or (item.tag in "pg" and item.text in dividers and before.tag != "r")


def _column_key(condition: Condition) -> object:
    if condition.hits:
        return frozenset((hit.table, hit.column) for hit in condition.hits)
    return condition.name.meanings if condition.name else condition.kind
