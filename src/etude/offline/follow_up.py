"""Follow-ups: `the same by region`, `only 2025`, `and for Germany?`, `top 5`, `as a share`, `per month instead`."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import date

from etude.offline.column_traits import is_numeric_column
from etude.offline.dates import Span
from etude.offline.part_references import count_grouped_rows
from etude.offline.question_parts import Condition, Direction, Group, Measure, NamePart, Question, Rank
from etude.offline.question_reader import read_question
from etude.offline.tags import TaggedItem
from etude.offline.vocabulary import Vocabulary
from etude.offline.words import Token, tokenize

_LEANING = (
    "the same", "same again", "same", "and what about", "what about", "and how about", "how about", "only", "just",
    "now", "those again", "those", "these", "them", "again", "but only", "but", "instead", "as a", "also", "show it",
    "show them", "show that", "do that", "make it",
)  # fmt: skip
"""Openings that refer to the previous question, whatever follows."""
_OPENINGS = (
    "and", "then", "with", "without", "excluding", "top", "bottom", "sorted", "sort", "order", "ordered", "by", "per",
    "for", "in", "since", "before", "after", "last", "this", "split", "broken", "group", "grouped", "not", "except",
    "monthly", "yearly", "weekly", "daily", "quarterly",
)  # fmt: skip
"""Openings of both questions and follow-ups: a follow-up names nothing to list or count."""
_FILLERS = frozenset(
    [
        "same",
        "only",
        "just",
        "now",
        "again",
        "instead",
        "those",
        "these",
        "them",
        "please",
        "also",
        "too",
        "but",
        "then",
        "as",
        "share",
        "it",
        "that",
        "about",
        "make",
        "ones",
    ]
)
_ALONE = frozenset((
    "average", "count", "find", "give", "how", "list", "number", "show", "sum", "total", "what", "when", "where",
    "which", "who", "whose",
))  # fmt: skip
"""First words of questions that are complete."""
_ORDER = frozenset((
    "all", "ascending", "best", "biggest", "bottom", "descending", "first", "five", "give", "highest", "in",
    "largest", "last", "least", "list", "lowest", "me", "most", "one", "order", "reverse", "reversed", "show",
    "smallest", "sorted", "ten", "the", "top", "worst",
))  # fmt: skip
"""Words that say nothing but an order or a number of rows."""
_REFERRING = frozenset(("their", "theirs", "them", "they", "those", "these", "its"))
"""Words for the rows of the previous answer, if no noun before them is meant."""
_BARE = frozenset(
    """
    and are average avg biggest count how highest is it largest lowest max maximum mean median min minimum many most
    number of one smallest sum the there total was were what which least
    """.split()  # noqa: SIM905
)
"""Words of questions that name nothing of the data: `how many are there?`, `and the average?`."""
_LIFTING = re.compile(
    "(?:please )?(?:remove|drop|clear|reset|lift)(?: all)?(?: the| these| those| my)? (?:filter|condition)s?"
)
"""Words that take back all conditions of the question before."""
_STARTING = frozenset(("top", "bottom", "monthly", "yearly", "weekly", "daily", "quarterly"))
"""Openings that name a thing themselves: `monthly quantity`, `top 5 products by quantity`."""


def is_no_follow_up(question: str) -> bool:
    """Return whether a question is certain to mean the same after any other question, judged by its words alone."""
    words = [token.low for token in tokenize(question) if token.kind != "mark"]
    if not words or words[0] not in _ALONE or _leans(words) or _asks_share(words):
        return False
    if _REFERRING & {*words} or _BARE.issuperset(words):
        return False
    return not (_FILLERS - {"as", "about", "share"}) & {*words} and not _ORDER.issuperset(words)


_AFTER_PAUSE = frozenset(("also", "and", "but", "now", "ok", "okay", "then"))
"""Words that people put before a new question, too."""


def after_pause(tokens: Sequence[Token]) -> list[Token] | None:
    """Return the tokens of a complete question after a word like `now`; None if none of these words opens it."""
    rest = list(itertools.dropwhile(lambda token: token.low in _AFTER_PAUSE, tokens))
    again = len(rest) < len(tokens) and is_no_follow_up(" ".join(token.text for token in rest))
    return rest if again else None


def continues_conditions(tokens: Sequence[Token], before: Question) -> bool:
    """Return whether `and` opens a question after one with conditions: it is about the same rows."""
    asks_all = {"all", "overall", "altogether"} & {token.low for token in tokens}
    restricted = before.conditions or before.absences or before.thresholds or before.loose
    return bool(restricted) and tokens[0].low in ("and", "also") and not asks_all


def is_complete(items: Sequence[TaggedItem]) -> bool:
    """Return whether the words say what to compute or which rows to list."""
    asked = read_question(items).asked
    return any(part.name.meanings if isinstance(part, Measure) else part.tables for part in asked)


def _leans(words: Sequence[str]) -> bool:
    return any(words[: len(o.split())] == o.split() for o in _LEANING) or "instead" in words


def follow_up(
    items: Sequence[TaggedItem], tokens: Sequence[Token], before: Question, vocabulary: Vocabulary
) -> Question | None:
    """Return the previous question, changed by this one; None if this one is complete by itself."""
    before = count_grouped_rows(before)  # "top 1" after "orders by channel" ranks their numbers
    words = [token.low for token in tokens if token.kind != "mark"]
    leaning = _leans(words)
    opening = any(words[: len(o.split())] == o.split() for o in _OPENINGS)
    share = _asks_share(words)
    leaning = leaning or (bool(items) and all(item.tag in "dO." for item in items))  # "highest first"
    if _LIFTING.fullmatch(" ".join(words)) and (before.conditions or before.absences or before.loose):
        return replace(before, conditions=(), absences=(), loose=())
    if (bare := _bare(items, words, before)) is not None:
        return bare
    if (listed := _listed(words, before)) is not None:
        return listed
    referring = _refers(items, tokens)
    referring = referring or _BARE.issuperset(words)
    elliptic = words[:1] == ["and"]  # "and the number of orders?" is about the same rows
    items = _name_counted(items, before) if referring else items
    rest = [item for item in items if not (item.tag == "u" and str(item.data) in _FILLERS)]
    rest = rest[1:] if elliptic and rest and rest[0].tag == "&" else rest
    rest = rest[:-1] if referring and rest and (rest[-1].tag, rest[-1].text) == ("p", "of") else rest
    rest = [item for item in rest if item.tag != "R"] if share else rest
    rest = [_year(item) for item in rest]
    parts = read_question(rest)
    alone = parts.ratio is not None or any(isinstance(part, Measure) or part.tables for part in parts.asked)
    # "Top 5 products by quantity" says what of what; "top 5" and "monthly" do not.
    of_what = bool(parts.groups) or (parts.rank is not None and parts.rank.by is not None)
    alone = alone or (words[:1] != [] and words[0] in _STARTING and bool(parts.asked) and of_what)
    if not (leaning or share or referring or elliptic or (opening and not alone)):
        return None
    if (referring or elliptic) and _measures(parts):
        before = _measured_rows(before, parts, share)
    return _merge(before, parts, words, share, vocabulary)


def _bare(items: Sequence[TaggedItem], words: Sequence[str], before: Question) -> Question | None:
    """Return the previous question with another fold or only its highest row: `and the average?`, `the highest?`."""
    said = [item for item in items if item.tag not in "&.p"]
    measures = _measures(before)
    if len(said) != 1 or len(measures) != 1 or not _BARE.issuperset(words):
        return None
    if said[0].tag == "A" and measures[0].fn != "count" and not measures[0].of_count and before.rank is None:
        other = replace(measures[0], fn=said[0].data, text=said[0].text)
        asked = tuple(other if part is measures[0] else part for part in before.requested)
        return replace(before, requested=asked, asked=asked, shares=0)
    if said[0].tag in "SM" and before.groups and before.rank is None and before.top is None and not before.change:
        direction: Direction = said[0].data[0] if said[0].tag == "S" else said[0].data
        return replace(before, rank=Rank(direction, measures[0], text=said[0].text), ordering=None, plural=False)
    return None


_LIST_THEM = re.compile(
    "(?:please )?(?:list|show|name|give)(?: me)? (?:them|those|these)(?: all)?|which ones(?: are they)?"
)


def _listed(words: Sequence[str], before: Question) -> Question | None:
    """Return the rows that the previous question counted: `list them`; refused if it did not count rows."""
    measures = _measures(before)
    if not _LIST_THEM.fullmatch(" ".join(words)) or not (measures or before.ratio or before.shares):
        return None
    counts = [m for m in measures if m.fn == "count" and not m.of_count and m.name.tables and not m.distinct]
    if len(counts) != 1 or len(before.requested) != 1 or before.groups or before.ratio or before.rank or before.change:
        return replace(before, unknown=(*before.unknown, " ".join(words)))
    rows = counts[0].name
    return replace(before, requested=(rows,), asked=(rows,), subject=rows, plural=True)


def _refers(items: Sequence[TaggedItem], tokens: Sequence[Token]) -> bool:
    """Return whether a word like `their` means the previous answer: no noun of this question comes before it."""
    place = next((token.start for token in tokens if token.low in _REFERRING), None)
    if place is None:
        return False
    nouns = {item.text.lower() for item in items if item.tag == "T"}
    return not any(token.low in nouns for token in tokens if token.start < place)


def _name_counted(items: Sequence[TaggedItem], before: Question) -> Sequence[TaggedItem]:
    """`how many of them are paid?`: the rows that the previous question was about."""
    counted = before.subject
    if counted is None:
        counted = next((part.name for part in _measures(before) if part.name.tables), None)
    at = next((n for n, item in enumerate(items) if item.tag == "#"), None)
    if at is None or counted is None or (at + 1 < len(items) and items[at + 1].tag in "TCUA"):
        return items
    return [*items[: at + 1], TaggedItem("T", counted.text, counted, plural=True), *items[at + 1 :]]


def _measured_rows(before: Question, new: Question, share: int) -> Question:
    """Return the previous question without what it listed: `what is their total amount?` after a list of orders."""
    shares = before.shares if share else 0
    before = replace(before, shares=shares, subject=new.subject or before.subject)
    if _measures(before) or before.groups or before.rank or before.top or before.thresholds:
        return before
    return replace(before, requested=(), asked=(), listed=False, everything=False, ordering=None)


def _year(item: TaggedItem) -> TaggedItem:
    """`only 2025`: a bare year."""
    if item.tag != "N" or not isinstance(item.data, int) or not 1900 <= item.data <= 2100:
        return item
    span = Span(date(item.data, 1, 1), date(item.data + 1, 1, 1), item.text, item.data)
    return TaggedItem("D", item.text, Condition("span", item.text, span=span))


def _asks_share(words: Sequence[str]) -> int:
    text = " ".join(words)
    if any(phrase in text for phrase in ("as a percentage", "as percentage", "in percent", "as percent")):
        return 100
    return 1 if any(phrase in text for phrase in ("as a share", "as shares", "as a proportion", "as share")) else 0


def _merge(before: Question, new: Question, words: Sequence[str], share: int, vocabulary: Vocabulary) -> Question:
    unknown = tuple(word for word in new.unknown if word.lower() not in _FILLERS)
    if "instead" in words and new.conditions and not _replaces(before, new):
        unknown = (*unknown, "instead")  # "and for Ann instead", if no condition was about people
    changed = replace(before, unknown=unknown, shares=share or before.shares, distinct=before.distinct or new.distinct)
    changed = replace(changed, conditions=_conditions(before, new), absences=(*before.absences, *new.absences))
    changed = replace(changed, thresholds=(*before.thresholds, *new.thresholds))
    if new.groups:
        added = ("also" in words or words[:1] == ["and"]) and "instead" not in words
        changed = _regroup(changed, new.groups, added)
    if new.top is not None:
        changed = replace(changed, top=new.top, lowest=new.lowest, rank=new.rank or _rank_of(before, new.lowest))
        if before.ordering is not None and not isinstance(before.ordering.by, NamePart):
            changed = replace(changed, ordering=None)
    elif new.rank is not None:
        changed = replace(changed, rank=new.rank)
    if new.ordering is not None:
        changed = replace(changed, ordering=new.ordering)
    names = [part for part in new.requested if isinstance(part, NamePart)]
    numbers = [name for name in names if _is_amount(name, vocabulary)] if _measures(before) else []
    changed = _add_names(changed, [name for name in names if name not in numbers], before, instead="instead" in words)
    changed = _add_amounts(changed, numbers, added=_adds(words))
    measures = tuple(_measures(new))
    if measures:
        listed = tuple(part for part in before.requested if isinstance(part, NamePart))
        changed = replace(changed, requested=(*listed, *measures), asked=(*listed, *measures))
    return replace(changed, context=(*changed.context, *new.context), loose=(*before.loose, *new.loose))


def _adds(words: Sequence[str]) -> bool:
    """Return whether the follow-up keeps the earlier numbers: `and tax`, but not `and tax instead`."""
    return ("also" in words or words[:1] in (["and"], ["with"])) and "instead" not in words


def _conditions(before: Question, new: Question) -> tuple[Condition, ...]:
    """Let a new condition replace an earlier one on the same column, or of the same kind of time."""
    kept = [old for old in before.conditions if not any(_same_place(old, other) for other in new.conditions)]
    after = before.subject
    fresh = [other if other.after is not None else replace(other, after=after) for other in new.conditions]
    return (*kept, *fresh)


def _replaces(before: Question, new: Question) -> bool:
    """Return whether a part of the follow-up takes the place of an earlier one."""
    asked = new.groups or new.requested or new.top is not None or new.ordering is not None
    return bool(asked) or any(_same_place(old, other) for old in before.conditions for other in new.conditions)


def _same_place(left: Condition, right: Condition) -> bool:
    if left.kind != right.kind:
        return False
    if left.kind == "span":
        return left.name == right.name
    if left.hits and right.hits:
        columns = {(hit.table, hit.column) for hit in left.hits}
        return any((hit.table, hit.column) in columns for hit in right.hits)
    return left.name is not None and right.name is not None and left.name.meanings == right.name.meanings


def _regroup(question: Question, groups: tuple[Group, ...], added: bool) -> Question:
    if added:
        return replace(question, groups=(*question.groups, *groups))
    # Rows that were listed by one noun are now grouped by another.
    measures = tuple(part for part in question.requested if isinstance(part, Measure))
    if measures:
        return replace(question, groups=groups, requested=measures, asked=measures, listed=False)
    return replace(question, groups=groups)


def _rank_of(before: Question, lowest: bool) -> Rank | None:
    """Return what the rows are ranked by; `top` and `bottom` say from which end, whatever the order was before."""
    direction: Direction = "asc" if lowest else "desc"
    if before.rank is not None:
        return replace(before.rank, direction=direction)
    measures = [part for part in before.requested if isinstance(part, Measure)]
    return Rank(direction, measures[-1], text=measures[-1].text) if measures else None


def _things(question: Question) -> list[NamePart]:
    """Return the nouns that a question counts or lists: naming them again changes nothing."""
    parts = [part.name if isinstance(part, Measure) else part for part in question.requested]
    return [name for name in (question.subject, *parts) if name is not None]


def _measures(question: Question) -> list[Measure]:
    return [part for part in question.requested if isinstance(part, Measure)]


def _is_amount(name: NamePart, vocabulary: Vocabulary) -> bool:
    """Return whether a noun means numbers, which are measured and never grouped."""
    columns = [vocabulary.table(m.table).column(m.column) for m in name.columns if m.column]
    return bool(columns) and not name.tables and all(is_numeric_column(column) for column in columns)


def _add_amounts(question: Question, names: Sequence[NamePart], added: bool) -> Question:
    """`what about the discount?` after an average: the average discount; after a count it is not clear."""
    known = _measures(question)
    folds = [measure for measure in known if measure.fn != "count"]
    if not names:
        return question
    if not folds:
        return replace(question, unknown=(*question.unknown, *(name.text for name in names)))
    held = {(m.table, m.column) for measure in folds for m in measure.name.columns}
    new = [
        replace(folds[-1], name=name, text=name.text)
        for name in names
        if not held & {(m.table, m.column) for m in name.columns}
    ]
    if not new:
        return question
    kept = [part for part in question.requested if added or isinstance(part, NamePart) or part.fn == "count"]
    return replace(question, requested=(*kept, *new), asked=(*kept, *new))


def _add_names(question: Question, names: Sequence[NamePart], before: Question, instead: bool) -> Question:
    """`those again with product names`: add columns, or more columns to group by if rows are grouped.

    `agent instead` groups by that alone.
    """
    about = {m.table for name in _things(before) for m in name.tables}
    names = [name for name in names if not any(m.table in about for m in name.tables)]
    if not names:
        return question
    if any(isinstance(part, Measure) for part in before.requested):
        groups = tuple(Group(name, None, f"with {name.text}") for name in names)
        return replace(question, groups=groups if instead else (*question.groups, *groups))
    return replace(question, requested=(*question.requested, *names), asked=(*question.asked, *names))
