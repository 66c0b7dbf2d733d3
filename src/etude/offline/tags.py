"""Turn the tokens of a question into tagged items: names, values, numbers, spans of time and operators."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import pairwise
from typing import Any

from etude.offline.dates import find_date_span
from etude.offline.deadline import check_deadline
from etude.offline.operator_words import (
    ASKING,
    LINKING,
    LONGEST,
    OPERATORS,
    REQUESTS,
    STOP,
    UNITS,
    VERBS,
    Word,
)
from etude.offline.phrase_index import (
    HEAD,
    SUFFIX,
    SYNONYM,
    Hit,
    Meaning,
    PhraseIndex,
    phrase_names_one_typo_away,
    phrase_values_one_typo_away,
    phrases_of,
    shortened_phrase_names,
    value_phrase,
    values_containing_phrase,
)
from etude.offline.question_parts import Condition, NamePart
from etude.offline.resolver import GENERAL
from etude.offline.words import (
    ABBREVIATIONS,
    Token,
    fold_words,
    spell_out_words,
    split_identifier_words,
    stem_word,
    verb_root,
    word_base_form,
    word_plural_form,
)

_PAST = frozenset(
    [
        "made",
        "wrote",
        "written",
        "gave",
        "given",
        "held",
        "took",
        "taken",
        "taught",
        "got",
        "came",
        "went",
        "sang",
        "sung",
        "bought",
        "sold",
        "paid",
        "spent",
        "sent",
        "ran",
    ]
)
_WEEKDAYS: dict[str, tuple[int, ...]] = {
    "monday": (1,), "tuesday": (2,), "wednesday": (3,), "thursday": (4,), "friday": (5,), "saturday": (6,),
    "sunday": (7,), "weekend": (6, 7), "weekday": (1, 2, 3, 4, 5),
}  # fmt: skip
_BEFORE_GROUP = frozenset(("per", "by", "each", "which", "what"))
"""Words before `weekday` that ask for each day of the week, Monday to Sunday."""
_ENDS = frozenset(".?!;")
_DETERMINERS = frozenset(
    [
        "a",
        "an",
        "the",
        "per",
        "each",
        "every",
        "any",
        "one",
        "no",
        "number",
        "many",
        "of",
        "their",
        "his",
        "her",
        "its",
        "all",
        "most",
        "more",
        "than",
        "distinct",
        "different",
    ]
)
_ATTRIBUTES = {
    "people": "population", "inhabitants": "population", "residents": "population", "stars": "rating",
    "star": "rating", "aged": "age", "priced": "price", "weighing": "weight", "costing": "cost", "born": "birth",
}  # fmt: skip
_REVENUE = frozenset(("revenue", "turnover", "earnings", "income", "money"))
_NUMBERED = frozenset(("phone", "telephone", "fax", "mobile", "cell", "license", "licence", "isbn", "zip"))
"""What a number after it does not count: a phone number is a phone."""
_STAFF = frozenset(("staff", "faculty", "crew"))
_BY_MANY = tuple(["by", word] for word in ("most", "more", "at", "fewest"))
"""What follows a value that is shared by a number of rows; `shared by A and B` asks for what both have."""
_VAGUE = frozenset(("about", "around", "up", "down", "off", "just", "very"))
"""Words that say nothing on their own, but change a number that follows them."""
_VAGUE_NOUNS = frozenset(("information", "info", "detail", "data"))
"""Nouns that say nothing beside one that does, but ask for something in a list."""
_ORDINALS = frozenset(("first", "second", "third", "last", "final", "next", "previous"))
"""Words that choose one of several things in an order."""
_ABBREVIATED = frozenset(("us", "it", "who", "am", "me"))
"""Pronouns and verbs that are something else in capitals: `US`, `IT`, `WHO`, `AM`, `ME`."""
_ARTICLES = ("the", "a", "an")
_WAYS = frozenset(
    """
    in the ascending descending alphabetical alphabetic increasing decreasing reverse reversed chronological
    lexicographical lexicographic lexical dictionary numerical numeric asc desc
    """.split()  # noqa: SIM905
)
"""Words before `order` that say how rows are sorted."""
_SUBJECTS = frozenset(("they", "who", "that", "which", "do", "does", "did", "can", "to"))
"""Words before a verb that has the form of a noun."""
_UNIT_NAMES = "(?:days?|weeks?|months?|quarters?|years?|time)"
CHANGE_OVER_TIME = re.compile(
    rf"\b(?:over|per|by|each|every|across)(?: the)? {_UNIT_NAMES}\b|\b(?:dai|week|month|quarter|year)ly\b|\bannual"
    rf"|\b{_UNIT_NAMES} (?:over|by|on|- over -) {_UNIT_NAMES}\b"
)
"""Words that ask for a number in each of several periods."""
_HELPING = frozenset(("is", "are", "was", "were", "been", "being", "be", "has", "have", "had"))
_WHOLE = frozenset(("information", "info", "detail"))
_BEFORE_MONTH = ("p", "&", "|", "x", "c", "g")
_HARD = frozenset(
    [
        "the",
        "a",
        "an",
        "is",
        "are",
        "was",
        "were",
        "be",
        "been",
        "of",
        "in",
        "on",
        "at",
        "to",
        "for",
        "and",
        "or",
        "with",
        "by",
        "that",
        "which",
        "who",
        "what",
        "has",
        "have",
        "had",
        "do",
        "does",
        "did",
        "not",
        "no",
    ]
)

TAGS = {
    "T": "a table", "C": "a column, or the name of a row", "V": "a value of a column", "N": "a number",
    "Q": "a quoted text that is not a known value", "D": "a span of time", "W": "a weekday", "K": "top n, first n",
    "#": "how many, number of", "A": "average, total, maximum", "n": "count, after its noun",
    "M": "most, fewest", "P": "most common", "S": "highest, cheapest, oldest", "U": "distinct, different",
    "g": "per, by, for each", "G": "monthly, per year", "t": "month, year and other units of time",
    "i": "growth, change", "c": "more than, at least", "o": "older than, cheaper than", "e": "or more, or less",
    "w": "between",
    "l": "starts with, contains", "x": "not, without", "|": "or", "&": "and",
    "p": "in, of, for and other prepositions",
    "O": "ordered by", "d": "ascending, descending", "R": "ratio of, percentage of", "f": "out of, relative to",
    "a": "on average", "I": "all information", "v": "distribution of, spread of", "b": "both", "j": "by joining",
    "y": "correlation of, outliers in", "m": "missing values per column",
    "r": "a verb that only connects: made, bought",
    ",": "a comma", "(": "a bracket opens", ")": "a bracket closes", ".": "a sentence ends",
    "u": "a word that nothing explains",
    "E": "rule: a measure", "F": "rule: a condition", "B": "rule: groups", "H": "rule: a condition on a measure",
    "X": "rule: an absence", "Y": "rule: an order", "Z": "rule: a rank",
}  # fmt: skip
"""The meaning of each tag: capitals carry data, other characters are operators; rules make the last seven."""


@dataclass(frozen=True)
class TaggedItem:
    """A tag for the grammar, the words it stands for, and what they mean."""

    tag: str
    text: str
    data: Any = None
    plural: bool = False
    joined: bool = False
    """It directly follows the previous item."""
    hits: tuple[Hit, ...] = ()
    """Values that the name may mean instead."""


def tag_items(tokens: Sequence[Token], index: PhraseIndex, today: date) -> list[TaggedItem]:
    """Return the items of a question; `u` tags a word that nothing explains."""
    tagged = _join_table_names(_tag(_share_noun(_unquote(tokens, index), index), index, today))
    tagged = _drop_kind(tagged)
    items = _group_listed(_drop_repeated_noun(_own_name(_name_again(_share_prefix(_hold(tagged), index)))))
    return _compared(_rate(_sort_last(items)))


def _share_noun(tokens: Sequence[Token], index: PhraseIndex) -> list[Token]:
    """`the start and end dates`: the start dates and the end dates, if there are columns with these names."""
    made: list[Token] = []
    for at, token in enumerate(tokens):
        made.append(token)
        joins, other, noun = ([*tokens[at + 1 : at + 4], None, None, None])[:3]
        if joins is None or other is None or noun is None or joins.low not in ("and", "or") or token.kind != "word":
            continue
        if any(each.kind != "word" for each in (other, noun)) or (token.base,) in index.names:
            continue
        full, pair = ((*(t.base for t in words), noun.base) for words in ([token], [other]))
        alone = index.names.get((token.base, other.base))
        if not alone and all(_is_column(index, phrase) for phrase in (full, pair)):
            made.append(noun)
    return made


def _is_column(index: PhraseIndex, phrase: tuple[str, ...]) -> bool:
    return any(meaning.column is not None and meaning.cost <= 1 for meaning in index.names.get(phrase, ()))


def _join_table_names(items: list[TaggedItem]) -> list[TaggedItem]:
    """`media type`: two words that name one table in full do not name others by one of them."""
    made: list[TaggedItem] = []
    for item in items:
        before = made[-1] if made else None
        if before is not None and before.tag == item.tag == "T":
            words = [fold_words(text) for text in (before.text, item.text)]
            words[1] = word_base_form(words[1])
            owned = {m.table for m in item.data.meanings}
            named = {m.table for m in before.data.meanings if m.table in owned}
            whole = [table for table in named if list(split_identifier_words(table)) == words]
            if len(whole) == 1:
                text = f"{before.text} {item.text}"
                made[-1] = replace(item, text=text, data=NamePart(text, (Meaning(whole[0]),)), joined=before.joined)
                continue
        made.append(item)
    return made


def _share_prefix(items: list[TaggedItem], index: PhraseIndex) -> list[TaggedItem]:
    """`the budget type code and description`: the second noun is the description of the budget type, if it has one."""
    made = list(items)
    for at in range(2, len(items)):
        first, between, second = items[at - 2 : at + 1]
        words = first.text.lower().split()
        if (first.tag, second.tag) != ("C", "C") or between.tag not in "&," or len(words) < 3:
            continue
        general = {words[-1], second.text.lower()} <= GENERAL
        if not general or (at + 1 < len(items) and items[at + 1].tag in "pT"):
            continue
        found = index.names.get((*words[:-1], second.text.lower()), ())
        meanings = tuple(m for m in found if m.column is not None and m.cost == 0)
        if meanings:
            made[at] = replace(second, data=NamePart(second.text, meanings))
    return made


def _hold(items: list[TaggedItem]) -> list[TaggedItem]:
    """`the range that contains the most mountains` has them; only a text contains a text."""
    made = list(items)
    for at, (item, following) in enumerate(pairwise(items)):
        if item.tag == "l" and item.data == "contains" and following.tag in "cM#":
            made[at] = replace(item, tag="r", data=stem_word(item.text.split()[0]))
        elif item.tag == "c" and item.text == "under" and following.tag in "TVQ":
            made[at] = replace(item, tag="p", data="under")  # "under the policy" compares nothing
    return made


def _group_listed(items: list[TaggedItem]) -> list[TaggedItem]:
    """`card type codes and the number of cards in each type`: for each of the codes that are listed."""
    made = list(items)
    for at, (each, item) in enumerate(pairwise(items), 1):
        noun = word_base_form(item.text.lower())
        if (each.tag, item.tag) != ("g", "C") or noun not in GENERAL:
            continue
        listed = [other for other in items[: at - 1] if other.tag == "C" and len(other.text.split()) > 2]
        listed = [other for other in listed if noun in map(word_base_form, other.text.lower().split()[1:])]
        if len(listed) == 1 and listed[0].data.meanings[0] not in item.data.meanings:
            made[at] = replace(item, data=replace(listed[0].data, text=item.text))
    return made


def _drop_kind(items: list[TaggedItem]) -> list[TaggedItem]:
    """`the institution "Oak"`: a word that nothing explains says what a name in quotes is, if only one thing has it."""
    made: list[TaggedItem] = []
    for at, item in enumerate(items):
        value = items[at + 1] if at + 1 < len(items) else None
        if item.tag == "u" and value is not None and value.tag == "V" and value.joined and value.plural:
            places = {(hit.table, hit.column) for hit in value.data.hits}
            words = [split_identifier_words(column)[-1:] for _, column in places]
            if not item.joined and len(places) == 1 and words[0] in (("name",), ("title",)):
                continue
        made.append(item)
    return made


def _drop_repeated_noun(items: list[TaggedItem]) -> list[TaggedItem]:
    """`the dates of the card with card number 7`: the column says whose number it is."""
    made: list[TaggedItem] = []
    for at, item in enumerate(items):
        before = made[-1].tag if made else ""
        following, value = ([*items[at + 1 : at + 3], None, None])[:2]
        if item.tag == "C" and before == "p" and following is not None and value is not None:
            alone = following.tag == "C" and not following.joined and value.tag in "VNQ"
            first, *_ = following.text.lower().split()
            again = first == item.text.lower() and first != following.text.lower()
            one, other = item.data.meanings[0], following.data.meanings[0] if alone else None
            if alone and (again or (one.column is not None and one == other)):
                continue
        made.append(item)
    return made


def _name_again(items: list[TaggedItem]) -> list[TaggedItem]:
    """`transactions with more than the average amount of a transaction`: the noun means the same both times."""
    tables = {word_base_form(item.text.lower()): item for item in items if item.tag == "T" and item.plural}
    made = list(items)
    for at, item in enumerate(items):
        said = tables.get(item.text.lower()) if item.tag == "C" and not item.plural else None
        beside = at + 1 < len(items) and items[at + 1].joined and items[at + 1].tag in "CTV"
        if said is None or beside or (at and item.joined and items[at - 1].tag in "CTV"):
            continue
        table = said.data.meanings[0].table
        if any(m.table == table and m.column is None and not m.label for m in item.data.meanings):
            meanings = sorted(item.data.meanings, key=lambda m: m.table != table or m.column is not None or m.label)
            made[at] = replace(item, tag="T", data=replace(item.data, meanings=tuple(meanings)))
    return made


def _own_name(items: list[TaggedItem]) -> list[TaggedItem]:
    """`the name of the project`: a row of the projects, which have a name, although a column is called so too."""
    made = list(items)
    for at in range(2, len(items)):
        column, of, item = items[at - 2 : at + 1]
        beside = at + 1 < len(items) and items[at + 1].joined and items[at + 1].tag in "CTVQN"
        if (column.tag, of.tag, of.text, item.tag) != ("C", "p", "of", "C") or item.plural or beside:
            continue
        if word_base_form(column.text.lower().split()[-1]) not in GENERAL or item.data.meanings[0].label:
            continue
        owners = {m.table for m in column.data.columns if m.column is not None and m.cost <= SUFFIX}
        own = [m for m in item.data.meanings if m.column is None and not m.label and m.cost == 0 and m.table in owners]
        if len(own) == 1:
            others = [m for m in item.data.meanings if m != own[0]]
            made[at] = replace(item, tag="T", data=replace(item.data, meanings=(own[0], *others)))
    return made


def _compared(items: list[TaggedItem]) -> list[TaggedItem]:
    """`compare web and app orders`: each of them by itself, as in `web vs app orders`."""
    if not items or items[0].tag != "u" or items[0].data != "compare":
        return items
    made = list(items[1:])
    for at, item in enumerate(made[1:-1], 1):
        between = made[at - 1].tag in "VDN" and made[at + 1].tag in "VDN"
        if between and (item.tag == "&" or item.text in ("to", "with")):
            made[at] = TaggedItem("|", item.text, "vs")
    return made


def _rate(items: list[TaggedItem]) -> list[TaggedItem]:
    """`return rate by channel`: the percentage of rows that have the value, if only one table has it."""
    for at, item in enumerate(items):
        said = items[at - 1] if at and item.tag == "u" and item.data in ("rate", "rates") else None
        if said is None or said.tag != "V" or not item.joined:
            continue
        tables = dict.fromkeys(hit.table for hit in said.data.hits)
        if len(tables) == 1 and not any(other.tag == "R" for other in items):
            (table,) = tables
            rows = TaggedItem("T", table, NamePart(table, (Meaning(table),)), plural=True)
            share = TaggedItem("R", "percentage of", 100, joined=said.joined)
            return [*items[: at - 1], share, rows, said, *items[at + 1 :]]
    return items


def _value_of_rate(token: Token, index: PhraseIndex) -> TaggedItem | None:
    """Return the value that a noun before `rate` stands for: `returned` for return, `cancelled` for cancellation."""
    act = next((token.low.removesuffix(end) for end in ("ation", "ion") if token.low.endswith(end)), token.low)
    roots = {stem_word(token.low), stem_word(act)} if len(act) > 3 else set()
    hits = index.values.get((token.low,), ()) or tuple(
        hit for root in sorted(roots) for hit in index.roots.get(root, ())
    )
    listed = tuple(dict.fromkeys(Hit(h.table, h.column, h.values, 2) for h in hits))
    return TaggedItem("V", token.text, Condition("value", token.text, hits=listed)) if listed else None


def _sort_last(items: list[TaggedItem]) -> list[TaggedItem]:
    """`Sort the customers by name`, `sort the names in descending order`: list them, and then the order."""
    if not items or items[0].tag != "O" or items[0].text not in ("sort", "order", "sort the", "order the"):
        return items
    for at, item in enumerate(items):
        if item.tag == "g" and item.text == "by":
            return [*items[1:at], TaggedItem("O", "sorted by", joined=item.joined), *items[at + 1 :]]
        if at and item.tag in "dO":
            return items[1:]
    return items


def _tag(tokens: Sequence[Token], index: PhraseIndex, today: date) -> list[TaggedItem]:
    items: list[TaggedItem] = []
    at, joined = 0, False
    while at < len(tokens):
        check_deadline()
        item, length = _best(tokens, at, index, today, items)
        if item is not None:
            items.append(replace(item, joined=joined))
        elif items and items[-1].tag == "N" and tokens[at].low in UNITS:
            items[-1] = replace(items[-1], text=f"{items[-1].text} {tokens[at].low}")
        joined = item is not None
        at += length
    return items


def _best(
    tokens: Sequence[Token], at: int, index: PhraseIndex, today: date, before: Sequence[TaggedItem]
) -> tuple[TaggedItem | None, int]:
    """Return the longest reading here; on a tie, names win over operators and operators over values."""
    token = tokens[at]
    first = at == 0 or tokens[at - 1].text in _ENDS
    if token.kind == "mark":
        return _mark(token), 1
    if token.kind == "quoted":
        return _quoted(token, index), 1
    if length := _unit_phrase(tokens, at, index) or _that_again(tokens, at, before) or _chart_words(tokens, at, index):
        return None, length
    if [t.low for t in tokens[at : at + 3]] == ["of", "the", "week"] and at and tokens[at - 1].base == "day":
        return None, 3
    if first and token.low == "how" and tokens[at + 1 : at + 2] and tokens[at + 1].low in ("do", "does", "did"):
        return None, 2
    if token.low in ("change", "changes") and tokens[0].low == "how" and _is_over_time(tokens):
        # "How does the price change over the years" asks for the price; "change in 2024" does not.
        return None, 1
    if token.low == "when" and before and before[-1].tag in "CDt":
        # "The dates when" are those at which something holds.
        return None, 1
    if token.base == "member" and before and before[-1].tag in "TC" and tokens[at - 1].base in _STAFF:
        # A staff member is one of the staff, if nothing is called so.
        return None, 1
    if token.low == "shared" and [t.low for t in tokens[at + 1 : at + 4] if t.low != "the"][:2] in _BY_MANY:
        return TaggedItem("r", token.text, "share"), 1
    follows = bool(before) and before[-1].tag == "C" and before[-1].text.lower().endswith(tokens[at - 1].low)
    if follows and not before[-1].data.tables and _says_value(tokens, at, index):
        # "The maximum weight value" is the maximum weight.
        return None, 1
    if follows and token.low == "time" and _is_duration(before[-1]) and not _name(tokens, at, index):
        return None, 1  # "the load time", if a column is `load_ms`
    numbers = token.base in ("number", "numbered") and bool(before) and before[-1].tag == "C" and at + 1 < len(tokens)
    if numbers and (tokens[at + 1].number is not None or tokens[at + 1].kind == "quoted"):
        # "The major number 600" is the major 600.
        return None, 1
    following_words = [t.base for t in tokens[at + 1 : at + 3]]
    origin = token.low == "of" and following_words[:1] == ["origin"] and ("origin",) not in index.names
    if origin and before and before[-1].tag == "C":
        return None, 2  # the country of origin is the country
    own = any(meaning.cost < SYNONYM for meaning in index.names.get((token.base,), ()))
    if token.base in ("kind", "sort") and following_words[:1] == ["of"] and not own:
        named = _name(tokens, at + 2, index)
        if named is not None and named[0].tag == "C":
            return None, 2  # "what kind of decor" asks for the decor
    if token.low == "yet" and any(item.tag == "x" for item in before):
        return None, 1
    if token.low == "only" and at + 1 < len(tokens) and tokens[at + 1].number is not None:
        return TaggedItem("c", token.text, "="), 1
    if token.low == "all" and before and (before[-1].tag == "r" or before[-1].text == "ordered"):
        # "who visited all wards" asks for more than having visited some.
        return TaggedItem("u", token.text, token.low), 1
    following = tokens[at + 1] if at + 1 < len(tokens) else None
    rated = following is not None and following.base == "rate" and ("rate",) not in index.names
    if rated and (token.base,) not in index.names and (valued := _value_of_rate(token, index)):
        # "Return rate" at the start is not a request to return something.
        return valued, 1
    if token.low in _VAGUE and following is not None and following.number is not None:
        # "About 500" is not exactly 500.
        return TaggedItem("u", token.text, token.low), 1
    if token.low == "may" and at and OPERATORS.get((tokens[at - 1].low,), Word("")).tag in _BEFORE_MONTH:
        # "In May", of which year? Elsewhere it is the verb.
        span = find_date_span(tokens, at, today)
        if span is None:
            return TaggedItem("u", token.text, token.low), 1
    if token.low == "where" and (first or tokens[at - 1].low in (",", "and")):
        # It asks for a place; after a noun, it only begins a condition.
        return TaggedItem("u", token.text, token.low), 1
    denied = token.kind == "word" and bool(before) and before[-1].tag == "x" and token.low.endswith(("ed", "ing"))
    if denied and (acted := index.acts.get(stem_word(token.low))):
        # "Bikes never repaired" have no repairs.
        return TaggedItem("T", token.text, NamePart(token.text, acted), plural=True), 1
    if len(token.text) == 1 and token.text.isalnum() and before and before[-1].tag == "l":
        # "Starts with A": a letter, not an article.
        return TaggedItem("Q", token.text, token.text), 1
    if part := _percentile(tokens, at):
        return part
    readings: list[tuple[int, int, TaggedItem | None]] = []
    listed = bool(before) and before[-1].tag in "&," and any(item.tag in "gG" for item in before)
    if token.low == "weekday" and at and (tokens[at - 1].low in _BEFORE_GROUP or listed):
        # "Per weekday" and "per month and weekday", but not "on a weekday".
        readings.append((1, 2, TaggedItem("t", token.text, "weekday")))
    elif days := _WEEKDAYS.get(token.base):
        readings.append((1, 1, TaggedItem("W", token.text, Condition("weekday", token.text, values=days))))
    if found := find_date_span(tokens, at, today):
        condition = Condition("span", found.span.text, span=found.span)
        tag = "D" if found.span.clear else "u"
        readings.append((found.length, 5, TaggedItem(tag, found.span.text, condition)))
    if count := _top_number(tokens, at):
        readings.append((count[1], 5, count[0]))
    if found_name := _name(tokens, at, index):
        flags = all(m.flag for m in found_name[0].data.meanings)
        verb = found_name[1] == 1 and token.low in LINKING and is_past_form(token.low) and not flags
        readings.append((found_name[1], -1 if verb else 3 if found_name[2] <= 1 else 1, found_name[0]))
    if token.low in _ORDINALS and found_name and found_name[1] == 1 and found_name[2] > 0:
        following_name = _name(tokens, at + 1, index) if found is None else None  # "last year" is a time
        if following_name is not None:
            # "The first rental" is one of the rentals; only part of a column's name is `first`.
            return TaggedItem("u", token.text, token.low), 1
    found_word = _operator(tokens, at)
    if found_word and found_word[0].tag == "O" and found_name and _is_order_noun(tokens, at):
        found_word = None  # "per order" is about orders
    if found_word and found_word[0].tag == "I" and (tokens[at + found_word[1] - 1].base,) in index.names:
        found_word = None  # a column has that name
    if found_word and found_word[0].text.endswith("amount of") and ("amount",) in index.names:
        found_word = _operator(tokens[: at + 1], at)  # "the largest amount of an order" is the largest of a column
    if found_word:
        # "total" before a noun adds up, even if a column has that name.
        adds = found_word[0].tag == "A" and _noun_follows(tokens, at + found_word[1], index)
        readings.append((found_word[1], 4 if adds else 2, found_word[0]))
    if found_value := _value(tokens, at, index):
        capital = token.text[:1].isupper() and not first
        readings.append((found_value[1], 4 if capital else 0, found_value[0]))
    if len(token.text) == 1 and token.text.isupper() and before and before[-1].tag == "C":
        # "return flag R"; a value such as `O+` is a different one.
        held = tuple(hit for hit in index.values.get((token.low,), ()) if {*hit.values} <= {token.text, token.low})
        readings.extend(
            [(1, 7, TaggedItem("V", token.text, Condition("value", token.text, hits=held)))] if held else []
        )
    if token.low in VERBS and any(t.low in ("do", "does", "did") for t in tokens[max(0, at - 2) : at]):
        readings.append((1, 7, TaggedItem("r", token.text, stem_word(token.low))))
    if token.low in LINKING:
        readings.append((1, 0, TaggedItem("r", token.text, stem_word(token.low))))
    if first and token.low == "count":
        readings.append((1, 6, TaggedItem("#", token.text, "")))
    counted = token.base in ("record", "row", "entry") and bool(before) and before[-1].tag in "Nc"
    graded = token.text == "A" and not first and any(t.text.islower() for t in tokens)
    if graded and at and tokens[at - 1].low in ("a", "an"):
        # "Received an A": a grade, not an article.
        held = tuple(hit for hit in index.values.get(("a",), ()) if hit.values == ("A",))
        graded_item = TaggedItem("V", token.text, Condition("value", token.text, hits=held)) if held else None
        readings.append((1, 8, graded_item or TaggedItem("u", token.text, token.low)))
    idle = token.low in STOP and not _is_abbreviation(tokens, at)
    if token.kind == "word" and not counted and (idle or _requests(tokens, at, before)):
        hard = token.low in _HARD or first
        readings.append((1, 6 if hard else 2, None))
        if token.base in _WHOLE and not found_name and not before and _of_follows(tokens, at):
            # "The details of chips" are all that is known of them.
            readings.append((1, 7, TaggedItem("I", token.text)))
        elif token.base in _VAGUE_NOUNS and not found_name and _in_list(tokens, at, before):
            # "The ids and information of events" asks for more than the ids.
            readings.append((1, 7, TaggedItem("u", token.text, token.low)))
    if readings:
        length, _, item = max(readings, key=lambda r: (r[0], r[1]))
        return None if item is not None and item.tag == "-" else item, length
    return _leftover(tokens, at, index, before), 1


def _is_abbreviation(tokens: Sequence[Token], at: int) -> bool:
    """Return whether a short word is not the pronoun that it looks like: `in the US`, `the IT department`."""
    token = tokens[at]
    if token.low not in _ABBREVIATED:
        return False
    capital = token.text.isupper() and any(other.text.islower() for other in tokens if other.kind == "word")
    return capital or (token.low == "us" and at > 0 and tokens[at - 1].low in ("the", "in", "from", "within"))


def _says_value(tokens: Sequence[Token], at: int, index: PhraseIndex) -> bool:
    """Return whether a noun adds nothing to the column before it: `enrollment numbers`, `RAM size`."""
    token, following = tokens[at], tokens[at + 1].low if at + 1 < len(tokens) else ""
    if token.base == "value" and _COUNTED & {*tokens[at - 1].base.split()}:
        return False  # "the stock value" is what the stock is worth
    amount = token.base in ("value", "figure", "size", "amount", "number")
    return amount and (token.base,) not in index.names and following != "of"


_COUNTED = frozenset(("stock", "inventory", "quantity", "unit", "order"))
_DURATIONS = frozenset(("ms", "millisecond", "sec", "second", "minute", "min", "hour"))


def _is_duration(item: TaggedItem) -> bool:
    """Return whether a noun means columns whose names end with a unit of time: `load_ms`."""
    ends = [word_base_form(split_identifier_words(str(m.column))[-1]) for m in item.data.columns if m.column]
    return bool(ends) and all(end in _DURATIONS for end in ends)


def _is_order_noun(tokens: Sequence[Token], at: int) -> bool:
    """Return whether `order` is a thing here: `per order`, `a pending order`; not the order of rows."""
    if at and tokens[at - 1].low in _DETERMINERS:
        return True
    ends = at + 1 == len(tokens) or tokens[at + 1].text in _ENDS or tokens[at + 1].text == ","
    return ends and at > 0 and tokens[at].low == "order" and tokens[at - 1].low not in _WAYS


def _of_follows(tokens: Sequence[Token], at: int) -> bool:
    return [token.low for token in tokens[at + 1 : at + 2]] in (["of"], ["for"], ["about"], ["on"])


def _in_list(tokens: Sequence[Token], at: int, before: Sequence[TaggedItem]) -> bool:
    """Return whether a noun is one of several that `and` or commas join: `ids and order information`."""
    following = [token.low for token in tokens[at + 1 : at + 4]]
    if following[:1] in (["and"], [","]) or following == ["as", "well", "as"]:
        return bool(before) or following[:1] == ["and"]
    last = len(before) - 1
    last -= 1 if before and before[-1].tag == "T" and before[-1].text.endswith(tokens[at - 1].text) else 0
    return last > 0 and before[last].tag in "&,"


def _percentile(tokens: Sequence[Token], at: int) -> tuple[TaggedItem, int] | None:
    """Read `90th percentile of`, `the 0.9 quantile of`, `p95 of`."""
    token, following = tokens[at], tokens[at + 1].base if at + 1 < len(tokens) else ""
    part, length = token.number, 2
    if token.low[:1] == "p" and token.low[1:].isdigit():
        part, length = int(token.low[1:]), 1
    elif part is None or following not in ("percentile", "quantile"):
        return None
    part = part / 100 if part > 1 or following == "percentile" else float(part)
    if not 0 < part < 1:
        return None
    end = at + length
    of = end < len(tokens) and tokens[end].low == "of"
    text = " ".join(t.text for t in tokens[at:end])
    return TaggedItem("A", text, part), length + of


def _requests(tokens: Sequence[Token], at: int, before: Sequence[TaggedItem]) -> bool:
    """Return whether a verb only asks for an answer: `show`, also after `please`, or a comma."""
    low = tokens[at].low
    if at == 0 or tokens[at - 1].text in _ENDS:
        return low in ASKING
    return low in REQUESTS and (not before or tokens[at - 1].low in (",", "and", "then", "please", "also"))


def _noun_follows(tokens: Sequence[Token], at: int, index: PhraseIndex) -> bool:
    """Return whether a name comes next, after articles: `average of the points` measures, whatever the columns."""
    while (at < len(tokens) and tokens[at].low in ("the", "of", "all", "their", "its", "and", "or", ",")) or (
        at < len(tokens) and OPERATORS.get((tokens[at].low,), Word("")).tag == "A"
    ):
        at += 1
    if at < len(tokens) and tokens[at].low in _REVENUE | {"sales"} and _money(index):
        return True  # "total revenue", although a column is called `total`
    return at < len(tokens) and _name(tokens, at, index) is not None


def _is_over_time(tokens: Sequence[Token]) -> bool:
    return CHANGE_OVER_TIME.search(" ".join(token.low for token in tokens)) is not None


def is_past_form(word: str) -> bool:
    """Return whether a verb has the form of `requested`, `made` or `selling`."""
    return word in _PAST or word.endswith(("ed", "ing"))


def _top_number(tokens: Sequence[Token], at: int) -> tuple[TaggedItem, int] | None:
    """Read `top 5` and `first 10`; `5 highest` is left to the grammar."""
    word, number = tokens[at].low, tokens[at + 1].number if at + 1 < len(tokens) else None
    if word not in ("top", "first", "bottom", "last", "best", "worst") or not isinstance(number, int) or number < 1:
        return None
    following = tokens[at + 2].base if at + 2 < len(tokens) else ""
    if number > 10_000 or (word in ("first", "last") and following in ("day", "week", "month", "quarter", "year")):
        return None
    if tokens[at + 1].text.endswith("%") or following == "percent":
        # A part of all rows, which is not a number of rows.
        return TaggedItem("u", f"{word} {tokens[at + 1].text}"), 2
    direction = "asc" if word in ("bottom", "last", "worst") else "desc"
    implied = "rating score grade" if word in ("best", "worst") else ""
    text = f"{word} {number}"
    return TaggedItem("K", text, (number, direction, implied, word)), 2


def tag_asked_units(tokens: Sequence[Token], index: PhraseIndex) -> tuple[str, ...]:
    """Return the units in which the question asks for its numbers: `meters` of `in meters`."""
    found = ((at, _unit_phrase(tokens, at, index)) for at in range(len(tokens)))
    return tuple(" ".join(t.low for t in tokens[at + 1 : at + length]) for at, length in found if length)


def _mark(token: Token) -> TaggedItem | None:
    if token.text in _ENDS:
        return TaggedItem(".", token.text)
    if token.text in (",", "(", ")"):
        return TaggedItem(token.text, token.text)
    word = OPERATORS.get((token.text,))
    if word:
        return TaggedItem(word.tag, token.text, word.data)
    return None if token.text in "-\u2013\u2014/:\"'`" else TaggedItem("u", token.text)


def _quoted(token: Token, index: PhraseIndex) -> TaggedItem:
    phrase = value_phrase(token.text)
    hits = index.values.get(phrase) or tuple(values_containing_phrase(index, phrase))
    if hits:
        return TaggedItem("V", token.text, Condition("value", token.text, hits=hits), plural=True)
    if meanings := index.names.get(spell_out_words(phrase)):
        tag = "C" if meanings[0].column is not None or meanings[0].label else "T"
        return TaggedItem(tag, token.text, NamePart(token.text, meanings))
    return TaggedItem("Q", token.text, token.text)


def _unquote(tokens: Sequence[Token], index: PhraseIndex) -> list[Token]:
    """Return the tokens with a quoted name whose words are values of two columns, `"John Doe"`, as these words."""
    made: list[Token] = []
    for token in tokens:
        phrase = value_phrase(token.text) if token.kind == "quoted" else ()
        if len(phrase) == 2 and phrase not in index.values and not values_containing_phrase(index, phrase):
            first, second = (index.values.get((word,), ()) for word in phrase)
            if {hit.table for hit in first} & {hit.table for hit in second}:
                words = token.text.split()
                made += [Token("word", w, p, p, token.start, token.end) for w, p in zip(words, phrase, strict=False)]
                continue
        made.append(token)
    return made


def _operator(tokens: Sequence[Token], at: int) -> tuple[TaggedItem, int] | None:
    for size in range(min(LONGEST, len(tokens) - at), 0, -1):
        phrase = tuple(token.low for token in tokens[at : at + size])
        word = OPERATORS.get(phrase)
        following = tokens[at + size] if at + size < len(tokens) else None
        if word and word.tag == "e" and following and (following.low == "than" or following.number is not None):
            continue  # "above 10 or less than 5", "above 10 or below 5" compare twice
        if word:
            return TaggedItem(word.tag, " ".join(phrase), word.data), size
        # Articles inside a phrase change nothing: "the ratio of the".
        if size > 2 and "the" in phrase[1:-1]:
            word = OPERATORS.get(tuple(w for w in phrase if w != "the"))
            if word:
                return TaggedItem(word.tag, " ".join(phrase), word.data), size
    return None


def _name(tokens: Sequence[Token], at: int, index: PhraseIndex) -> tuple[TaggedItem, int, int] | None:
    best: tuple[TaggedItem, int, int] | None = None
    for size in range(min(index.longest, len(tokens) - at), 0, -1):
        span = [t for t in tokens[at : at + size] if t.text not in ("-", "the")]
        if any(t.kind not in ("word", "number") for t in span) or len(span) == 0 or tokens[at].text in ("-", "the"):
            continue
        if tokens[at + size - 1].text in ("-", "the"):
            continue
        meanings = _lookup(index, [t.base for t in span]) or _lookup(index, [t.low for t in span])
        if not meanings and (size > 1 or span[0].low in ABBREVIATIONS):
            # A column by its own name, `temp_c`, whose words are spelled out.
            meanings = _lookup(index, spell_out_words(t.low for t in span))
        if not meanings and 2 <= size <= 3 and any(t.low.endswith("ing") for t in span):
            # "The opening year", "the year of opening", if a column is `open_year`.
            meanings = index.stemmed.get(tuple(stem_word(t.low) for t in span), ())
        meanings = meanings or shortened_phrase_names(index, [t.base for t in span])
        if not meanings and size > 1 and span[-1].base == "number" and span[-2].base in _NUMBERED:
            # A phone number is the phone, not how many there are.
            meanings = tuple(m for m in _lookup(index, [t.base for t in span[:-1]]) if m.column is not None)
        if not meanings or (size == 1 and (len(span[0].low) == 1 or span[0].kind == "number" or span[0].low in _HARD)):
            continue
        if size > 1 and _measures_column(span, meanings):
            continue
        owned = _names_owner(span, meanings, index) or _begins_owner(tokens, at, size, index)
        if size > 1 and (_two_nouns(span, index) or owned):
            continue
        cost = meanings[0].cost
        text = " ".join(t.text for t in tokens[at : at + size])
        plural = span[-1].low != span[-1].base or span[-1].base in _STAFF
        near = [m for m in meanings if m.cost <= (cost + 1 if cost > 1 else cost)]
        if plural and size == 1 and cost == SUFFIX:
            near += [m for m in meanings if m.cost == HEAD and _is_head(m, span[-1].base, meanings)]
        some = at > 0 and tokens[at - 1].low in ("any", "some")
        if (plural or some) and any(m.column is None and not m.label for m in near):
            # "Projects" are rows of the table, even if a column refers to a project.
            meanings = (*sorted(meanings, key=lambda m: (m not in near, m.column is not None or m.label, m.cost)),)
        tag = "C" if meanings[0].column is not None or meanings[0].label else "T"
        hits = index.values.get(tuple(t.low for t in span), ())
        item = TaggedItem(tag, text, NamePart(text, meanings), plural, hits=hits)
        if best is None:
            best = item, size, cost
        break
    return best


def _is_head(table: Meaning, noun: str, meanings: Sequence[Meaning]) -> bool:
    """Return whether a noun is what the rows of a table are, `cards` of `customer_cards`, and no column's last word.

    A `card_number` says something of a card; the cards are not numbers.
    """
    if table.column is not None or table.label:
        return False
    columns = [split_identifier_words(str(m.column)) for m in meanings if m.column is not None]
    own = [m for m in meanings if m.column is not None and m.table == table.table]
    heads = {word_base_form(words[-1]) for words in columns if words}
    last = [word_base_form(word) for word in split_identifier_words(table.table)[-1:]]
    others = [m for m in meanings if m.column is None and not m.label and m.cost == HEAD and m != table]
    return bool(own) and not others and noun not in heads and last == [noun]


def _measures_column(span: Sequence[Token], meanings: Sequence[Meaning]) -> bool:
    """`total v` is a sum of `v`, even if `v` is a column of a table called `tot`."""
    word = span[0].low
    if OPERATORS.get((word,), Word("")).tag != "A" or any(m.column is None for m in meanings):
        return False
    names = [split_identifier_words(str(m.column)) for m in meanings]
    return not any({word, *spell_out_words([word])} & {*name, *spell_out_words(name)} for name in names)


def _names_owner(span: Sequence[Token], meanings: Sequence[Meaning], index: PhraseIndex) -> bool:
    """`address of the department`: the department is named too, and other columns may belong to it."""
    words = [token.base for token in span]
    if "of" not in words or any("of" in split_identifier_words(m.column or "") for m in meanings):
        return False
    owner = tuple(words[words.index("of") + 1 :])
    return any(m.column is None and not m.label and m.cost == 0 for m in index.names.get(owner, ()))


def _begins_owner(tokens: Sequence[Token], at: int, size: int, index: PhraseIndex) -> bool:
    """`id of tourist attractions`: the noun after `of` goes on, and is a table with its own id."""
    words = [token.low for token in tokens[at : at + size]]
    if "of" not in words or size < 3:
        return False
    start = at + words.index("of") + 1
    owner = [token for token in tokens[start : at + size + 1] if token.text not in ("-", "the")]
    meanings = index.names.get(tuple(token.base for token in owner), ()) if at + size < len(tokens) else ()
    return len(owner) > 1 and any(m.column is None and not m.label and m.cost == 0 for m in meanings)


def _two_nouns(span: Sequence[Token], index: PhraseIndex) -> bool:
    """`employees report to`: only the plural `sales` stands before the noun it belongs to."""
    first = span[0]
    plural = first.low not in (first.base, "sales") and not first.text.endswith(("'s", "s'"))
    return plural and any(m.column is None for m in index.names.get((first.base,), ()))


def _lookup(index: PhraseIndex, bases: Sequence[str]) -> tuple[Meaning, ...]:
    for phrase in phrases_of(bases):
        if phrase in index.names:
            return index.names[phrase]
    return ()


def _value(tokens: Sequence[Token], at: int, index: PhraseIndex) -> tuple[TaggedItem, int] | None:
    for size in range(min(index.longest, len(tokens) - at), 0, -1):
        span = tokens[at : at + size]
        words = [t for t in span if t.text != "-"]
        if any(t.kind == "quoted" or (t.kind == "mark" and t.text not in "-.&/'") for t in span):
            continue
        if span[-1].kind == "mark" or (size == 1 and not _may_be_value(span[0])):
            continue
        phrase = tuple(t.low for t in words if t.kind != "mark")
        if _is_noun_with_article(words, index):
            continue
        hits = index.values.get(phrase)
        if hits is None and len(phrase) > 1:
            hits = index.values.get((*phrase[:-1], words[-1].base))  # `e-bikes`, if the value is `E-bike`
        if hits is None and phrase and phrase[0] in ("the",):
            continue
        if hits:
            text = " ".join(t.text for t in span)
            return TaggedItem("V", text, Condition("value", text, hits=hits)), size
    return None


def _is_noun_with_article(words: Sequence[Token], index: PhraseIndex) -> bool:
    """`the mountains`: a noun of the data, although a photo has that title; with a capital it is the title."""
    noun = words[1:] if words and words[0].low in _ARTICLES else ()
    return bool(noun) and all(t.text.islower() for t in noun) and bool(_lookup(index, [t.base for t in noun]))


def _may_be_value(token: Token) -> bool:
    if token.kind == "number":
        return False
    return len(token.text) > 1 and token.low not in _HARD


def _leftover(tokens: Sequence[Token], at: int, index: PhraseIndex, before: Sequence[TaggedItem]) -> TaggedItem | None:
    """Read a word that, as written, is neither a name, a value nor an operator."""
    token = tokens[at]
    if token.kind == "number" and token.low.endswith(("st", "nd", "rd", "th")):
        # The 3rd highest is one of them, not the highest 3.
        return TaggedItem("u", token.text, token.low)
    if token.kind == "number":
        return TaggedItem("N", token.text, token.number)
    after_number = bool(before) and before[-1].tag in "Ne"
    attribute = _ATTRIBUTES.get(token.low)
    if attribute and (meanings := index.names.get((attribute,)) or index.names.get((attribute, "year"))):
        return TaggedItem("C", token.text, NamePart(token.text, meanings))
    sales = token.low == "sales" and not any(item.tag in "#U" for item in before[-1:])
    if (token.low in _REVENUE or sales) and (meanings := _money(index)):
        return TaggedItem("C", token.text, NamePart(token.text, meanings))
    if initials := index.initials.get(token.low) if len(token.low) > 2 else None:
        return TaggedItem("C", token.text, NamePart(token.text, initials))
    if token.low in UNITS and (after_number or _in_unit(tokens, at)):
        return None
    if hits := tuple(index.roots.get(stem_word(token.low), ())) if len(token.low) > 4 else ():
        listed = tuple(Hit(h.table, h.column, h.values, 2) for h in hits)
        return TaggedItem("V", token.text, Condition("value", token.text, hits=listed))
    if len(token.low) == 4 and token.low != token.base and (hits := index.values.get((token.base,), ())):
        listed = tuple(Hit(h.table, h.column, h.values, 2) for h in hits)
        return TaggedItem("V", token.text, Condition("value", token.text, hits=listed))  # dogs, if values are `dog`
    if token.low in LINKING or (token.low in VERBS and any(t.low in ("do", "does", "did") for t in tokens[:at])):
        return TaggedItem("r", token.text, stem_word(token.low))
    if token.text[:1].isupper() and at and tokens[at - 1].text not in _ENDS:
        if found := values_containing_phrase(index, (token.low,)):
            return TaggedItem("V", token.text, Condition("value", token.text, hits=tuple(found)))
        if near := phrase_values_one_typo_away(index, (token.low,)):
            return TaggedItem("V", token.text, Condition("value", token.text, hits=tuple(near), near=(token.text,)))
    if token.low.endswith(("ed", "ing")) and stem_word(token.low) in index.name_stems:
        return TaggedItem("r", token.text, stem_word(token.low))  # "supplied", if there are suppliers
    if verb_root(token.low) in index.verb_roots and _is_verb(tokens, at, before):
        return TaggedItem("r", token.text, stem_word(token.low))  # "they climb", if there are climbers
    if numbered := _numbered(tokens, at, index, before):
        return TaggedItem("C", token.text, NamePart(token.text, numbered), token.low != token.base)
    plural = word_plural_form(token.low)
    if token.low.islower() and len(token.low) > 3 and (hits := index.values.get((plural,), ())):
        listed = tuple(Hit(h.table, h.column, h.values, 2) for h in hits)
        return TaggedItem("V", token.text, Condition("value", token.text, hits=listed))  # a bike, if values are `bikes`
    if names := phrase_names_one_typo_away(index, token.base):
        tag = "C" if names[0].column is not None or names[0].label else "T"
        return TaggedItem(tag, token.text, NamePart(token.text, names), token.low != token.base)
    return TaggedItem("u", token.text, token.low)


def _numbered(
    tokens: Sequence[Token], at: int, index: PhraseIndex, before: Sequence[TaggedItem]
) -> tuple[Meaning, ...]:
    """Return the column with the numbers of such things, `user_id`, after `different` or as a singular: `which user`.

    `How many users` may be another number than that of those who have rows.
    """
    token = tokens[at]
    different = bool(before) and (before[-1].tag == "U" or (before[-1].tag == "#" and before[-1].data == "distinct"))
    which = at > 0 and tokens[at - 1].low in ("which", "per", "each", "by")
    named = any(item.tag == "T" for item in before)  # "of each trip, the number of different bikes"
    if not (different and not named) and not (which and token.low == token.base):
        return ()
    found = tuple(m for m in index.names.get((token.base, "id"), ()) if m.column is not None and m.cost == 0)
    return found if len(found) == 1 else ()


def _is_verb(tokens: Sequence[Token], at: int, before: Sequence[TaggedItem]) -> bool:
    """Return whether a word can only be a verb here: `invested`, `they climb`, `physicians who prescribe`."""
    token, earlier = tokens[at], tokens[at - 1].low if at else ""
    if token.text[:1].isupper() or not before:
        return False
    if earlier in _SUBJECTS:
        return True
    # "The opening year" has an adjective; "the year opened" and "was opened" have a verb.
    follows = before[-1].tag in "TCV" and before[-1].text.lower().endswith(earlier)
    return token.low.endswith(("ed", "ing")) and (follows or earlier in _HELPING)


def _money(index: PhraseIndex) -> tuple[Meaning, ...]:
    """Return what `revenue` may mean if nothing has that name: an amount, if there is exactly one."""
    found = [m for m in index.names.get(("amount",), ()) if m.column is not None]
    return tuple(found) if len(found) == 1 else ()


def _unit_phrase(tokens: Sequence[Token], at: int, index: PhraseIndex) -> int:
    """Return the number of tokens that name a unit: `in meters`, `in people per square kilometer`."""
    if tokens[at].low != "in":
        return 0
    end = at + 1
    while end < len(tokens) and tokens[end].low in ("square", "cubic", "integer", "us"):
        end += 1
    if end >= len(tokens) or tokens[end].low not in UNITS or tokens[end].low in ("time", "times", "day", "year"):
        return 0
    if (tokens[end].low,) in index.values:
        return 0
    end += 1
    per = end
    while per < len(tokens) and tokens[per].low in ("per", *UNITS):
        per += 1
    return (per if tokens[per - 1].low != "per" else end) - at


_DRAWINGS = frozenset(("chart", "graph", "plot", "diagram", "visualization", "visualisation"))
_FORMS = frozenset(("bar", "line", "pie", "column", "scatter", "area"))
_DRAW = frozenset(("plot", "graph", "chart", "draw", "visualize", "visualise"))


def _chart_words(tokens: Sequence[Token], at: int, index: PhraseIndex) -> int:
    """Return the number of tokens that ask for a chart: `a bar chart of`, `as a line`, `plot`; the answer has one."""
    words = [(token.low, token.base) for token in tokens[at : at + 6]]
    place = 1 if words[0][0] in ("as", "in", "with", "using") else 0
    said = place > 0
    place += 1 if words[place : place + 1] and words[place][0] in ("a", "an", "the") else 0
    form = bool(words[place : place + 1]) and words[place][1] in _FORMS
    noun = words[place + form][1] if len(words) > place + form else ""
    if noun in _DRAWINGS and (noun,) not in index.names and (form or said or not _followed_by_name(tokens, at, index)):
        end = place + form + 1
        return end + (len(words) > end and words[end][0] in ("of", "for", "showing", "with"))
    if said and words[0][0] == "as" and form and (words[place][1],) not in index.names:
        return place + 1
    return 1 if at == 0 and words[0][0] in _DRAW and (words[0][1],) not in index.names else 0


def _followed_by_name(tokens: Sequence[Token], at: int, index: PhraseIndex) -> bool:
    """Return whether a noun of the data follows directly, to which a word such as `graph` may belong."""
    return at + 1 < len(tokens) and (tokens[at + 1].base,) in index.names


def _that_again(tokens: Sequence[Token], at: int, before: Sequence[TaggedItem]) -> int:
    """Return 2 if two tokens repeat an earlier noun and add nothing: `that year`, `that state`."""
    if tokens[at].low not in ("that", "those", "these", "this") or at + 1 >= len(tokens):
        return 0
    noun = tokens[at + 1].base
    said = {word.rstrip("s") for item in before if item.tag in "TCDt" for word in item.text.lower().split()}
    following = tokens[at + 2].low if at + 2 < len(tokens) else ""
    return 2 if noun.rstrip("s") in said and following != "of" else 0


def _in_unit(tokens: Sequence[Token], at: int) -> bool:
    """`in meters`, `in square kilometers`."""
    back = at - 1
    while back >= 0 and tokens[back].low in ("square", "cubic", "integer"):
        back -= 1
    return back >= 0 and tokens[back].low in ("in", "per", "as")
