"""An index from phrases to the tables, columns and values they mean."""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import NamedTuple

from etude.offline.collection import pause_garbage_collection
from etude.offline.deadline import check_deadline
from etude.offline.places import CODED, place_names
from etude.offline.revenue import MONEY_WORDS, money_of, revenue_phrases, sales_meanings
from etude.offline.spellings import plain_spelling
from etude.offline.vocabulary import Vocabulary, VocabularyColumn, VocabularyTable, once_per_vocabulary
from etude.offline.words import (
    GENERIC,
    MEASURES,
    QUANTITIES,
    TRAILING,
    fold_words,
    stem_word,
    verb_root,
    word_base_form,
    word_synonyms,
    words_without_numbers,
)

Phrase = tuple[str, ...]

SYNONYM, HEAD, SUFFIX = 2, 3, 1
"""Costs of a reading: a synonym, only the last word of the name, the name without the word for its kind."""


class Meaning(NamedTuple):
    """A table (no column), a column, or the columns that name a row (`label`).

    A named tuple, because a source with thousands of tables has hundreds of thousands of them.
    """

    table: str
    column: str | None = None
    cost: int = 0
    label: bool = False
    flag: bool = False
    """The column holds yes or no."""


class Hit(NamedTuple):
    """The values of a column that a text means."""

    table: str
    column: str
    values: tuple[str, ...]
    cost: int = 0


@dataclass(frozen=True)
class PhraseIndex:
    """The phrases of a vocabulary."""

    names: dict[Phrase, tuple[Meaning, ...]]
    values: dict[Phrase, tuple[Hit, ...]]
    longest: int

    @cached_property
    def roots(self) -> dict[str, list[Hit]]:
        """Values of one word, by its stem."""
        found: dict[str, list[Hit]] = defaultdict(list)
        for phrase, hits in self.values.items():
            if len(phrase) == 1 and phrase[0].isalpha() and len(phrase[0]) > 3:
                found[stem_word(phrase[0])].extend(hit for hit in hits if hit.cost == 0)
        return found

    @cached_property
    def parts(self) -> dict[str, list[tuple[Phrase, Hit]]]:
        """Values of several words, by each of these words. Most questions need none of them."""
        found: dict[str, list[tuple[Phrase, Hit]]] = defaultdict(list)
        for phrase, hits in self.values.items():
            if 1 < len(phrase) <= 12:
                for word in {*phrase}:
                    found[word].extend((phrase, hit) for hit in hits if hit.cost == 0)
        return found

    @cached_property
    def spellings(self) -> dict[tuple[str, int], list[tuple[int, str, tuple[Hit, ...]]]]:
        """The values as texts with their positions in `values`, by first letter and length."""
        found: dict[tuple[str, int], list[tuple[int, str, tuple[Hit, ...]]]] = defaultdict(list)
        for place, (words, hits) in enumerate(self.values.items()):
            text = " ".join(words)
            found[text[:1], len(text)].append((place, text, hits))
        return found

    @cached_property
    def name_stems(self) -> frozenset[str]:
        """The stems of all words in the names of tables."""
        tables = (p for p, meanings in self.names.items() if any(m.column is None and not m.label for m in meanings))
        return frozenset(stem_word(word) for phrase in tables for word in phrase if len(word) > 4)

    @cached_property
    def verb_roots(self) -> dict[str, tuple[Meaning, ...]]:
        """The tables and columns by the roots of the words in their names: `investor` for `invested`."""
        found: dict[str, dict[Meaning, None]] = defaultdict(dict)
        for phrase, meanings in self.names.items():
            own = [m for m in meanings if m.cost == 0 and not m.label]
            for word in phrase if own else ():
                if len(word) > 3:
                    found[verb_root(word)].update(dict.fromkeys(own))
        return {root: tuple(own) for root, own in found.items()}

    @cached_property
    def acts(self) -> dict[str, tuple[Meaning, ...]]:
        """The tables that are named after what happens, by the stem of the verb: `repairs` for `repaired`."""
        found: dict[str, tuple[Meaning, ...]] = {}
        for phrase, meanings in self.names.items():
            if len(phrase) > 1 or len(phrase[0]) <= 3:
                continue
            if tables := tuple(m for m in meanings if m.column is None and not m.label and m.cost == 0):
                found[stem_word(phrase[0])] = tables
        return found

    @cached_property
    def stemmed(self) -> dict[Phrase, tuple[Meaning, ...]]:
        """The columns of two words or three by the stems of these: `open_year` for `opening year`."""
        found: dict[Phrase, dict[Meaning, None]] = defaultdict(dict)
        for phrase, meanings in self.names.items():
            if 2 <= len(phrase) <= 3:
                own = [m._replace(cost=SUFFIX) for m in meanings if m.column is not None and m.cost == 0]
                found[tuple(map(stem_word, phrase))].update(dict.fromkeys(own))
        return {stems: tuple(own) for stems, own in found.items() if own}

    @cached_property
    def begun(self) -> dict[tuple[str, str, int], list[Phrase]]:
        """The names of several words, by their first two letters, the first letter of their last word, and length."""
        found: dict[tuple[str, str, int], list[Phrase]] = defaultdict(list)
        for phrase in self.names:
            if 1 < len(phrase) <= 5 and phrase[1] != "of":
                found[phrase[0][:2], phrase[-1][0], len(phrase)].append(phrase)
        return found

    @cached_property
    def initials(self) -> dict[str, tuple[Meaning, ...]]:
        """The columns of three words or more by their first letters: `mpg` for `miles per gallon`."""
        found: dict[str, tuple[Meaning, ...]] = {}
        for phrase, meanings in self.names.items():
            if len(phrase) <= 2:
                continue
            if own := tuple(m._replace(cost=SYNONYM) for m in meanings if m.column is not None and m.cost == 0):
                letters = "".join(word[0] for word in phrase)
                found[letters] = tuple(dict.fromkeys((*found.get(letters, ()), *own)))
        return found

    @cached_property
    def name_spellings(self) -> dict[tuple[str, int], list[str]]:
        """The names of one word, by first letter and length."""
        found: dict[tuple[str, int], list[str]] = defaultdict(list)
        for words, meanings in self.names.items():
            if len(words) == 1 and meanings[0].cost <= SYNONYM:
                found[words[0][:1], len(words[0])].append(words[0])
        return found


_Names = dict[Phrase, list[Meaning]]
"""The meanings of each phrase; those of one table are adjacent, because it is built table by table."""


@dataclass
class _Draft:
    """An index while it is built, table by table. It is kept: a run that is stopped leaves its work to the next."""

    names: _Names = field(default_factory=dict)
    values: dict[Phrase, list[Hit]] = field(default_factory=lambda: defaultdict(list))
    derived: list[VocabularyTable] = field(default_factory=list)
    """Tables with columns that are computed: these get the phrases that mean nothing else."""
    done: int = 0
    """How many tables are in it."""
    whole: PhraseIndex | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


@once_per_vocabulary
def _draft_of(vocabulary: Vocabulary) -> _Draft:
    return _Draft()


def phrase_index_of(vocabulary: Vocabulary) -> PhraseIndex:
    """Return the index of a vocabulary; it is built once."""
    draft = _draft_of(vocabulary)
    if draft.whole is None:
        with draft.lock, pause_garbage_collection():
            for table in vocabulary.tables[draft.done :]:
                check_deadline()
                _index_names(table, draft)
                _index_values(table, draft)
                draft.done += 1
            if draft.whole is None:
                draft.whole = _finish(draft, vocabulary)
    return draft.whole


def _finish(draft: _Draft, vocabulary: Vocabulary) -> PhraseIndex:
    _add_derived(draft)
    if (paid := money_of(vocabulary.tables)) is not None:
        for word in sorted(MONEY_WORDS):
            if (word,) not in draft.names:
                _add(draft.names, (word,), Meaning(paid.table, paid.name, SYNONYM))
    _prefer_own_words(draft.names, vocabulary)
    longest = max(max(map(len, phrases), default=1) for phrases in (draft.names, draft.values))
    listed = {phrase: tuple(sorted(found, key=_cost)) for phrase, found in draft.names.items()}
    values = {phrase: tuple(found) for phrase, found in draft.values.items()}
    draft.names, draft.values = {}, {}
    return PhraseIndex(listed, values, min(longest, 8))


_cost = attrgetter("cost")


def _index_names(table: VocabularyTable, draft: _Draft) -> None:
    phrases = list(_table_phrases(table))
    if _is_named_after_kinds(table):
        first = table.words[:1] if len(table.words) > 1 else ()
        phrases = [(phrase, cost if phrase == first else cost + SYNONYM) for phrase, cost in phrases]
    _add_all(draft.names, phrases, Meaning(table.name))
    for column in table.columns:
        meaning = Meaning(table.name, column.name, flag=column.flag is not None)
        _add_all(draft.names, _column_phrases(table, column), meaning)
    _add_key_and_label(draft.names, table)
    if table.derived:
        draft.derived.append(table)


def _is_named_after_kinds(table: VocabularyTable) -> bool:
    """Return whether a column has the table's name and few values: `cargo_type` of `cargo_type`; it is meant first."""
    same = [c for c in table.columns if c.words == table.words and c.kind == "text"]
    return any(2 * column.distinct <= table.rows for column in same)


def _add_derived(draft: _Draft) -> None:
    """Let phrases mean what can be computed, unless a table or a column has that name."""
    made = [
        (table, column, *each)
        for table in draft.derived
        for column in table.derived
        for each in revenue_phrases(column)
    ]
    made += [
        (table, table.column(name), ("sale",), SYNONYM) for table in draft.derived for name in sales_meanings(table)
    ]
    free = {phrase for _, _, phrase, _ in made} - {*draft.names}
    for table, column, phrase, cost in made:
        if phrase in free:
            _add(draft.names, phrase, Meaning(table.name, column.name, cost))


def _prefer_own_words(names: _Names, vocabulary: Vocabulary) -> None:
    """Let `price` mean the `list_price` rather than the `cost`: a number that has the word goes before a synonym."""
    for phrase, meanings in names.items():
        if not word_synonyms(phrase[-1]):
            continue
        numbers = [m for m in meanings if m.column and vocabulary.table(m.table).column(m.column).kind == "number"]
        others = [m for m in numbers if phrase[-1] not in vocabulary.table(m.table).column(str(m.column)).words]
        if not others or (len(phrase) == 1 and len(others) == len(numbers)):
            continue
        for other in others if len(phrase) > 1 else ():
            # `product price`, if products have a `cost` and a `list_price`.
            table = vocabulary.table(other.table)
            own = [c for c in table.columns if c.kind == "number" and c.words[-1:] == phrase[-1:]]
            if own and phrase[:-1] in (table.words, *table.aliases):
                meanings[:] = [m for m in meanings if m != other]
                meanings.extend(Meaning(table.name, c.name, HEAD) for c in own)
        if len(phrase) == 1:
            meanings[:] = [m._replace(cost=HEAD + 1) if m in others and m.cost <= HEAD else m for m in meanings]


def _add(names: _Names, phrase: Phrase, meaning: Meaning) -> None:
    _add_all(names, [(phrase, meaning.cost)], meaning)


def _add_all(names: _Names, phrases: Iterable[tuple[Phrase, int]], meaning: Meaning) -> None:
    """Let phrases mean something, each at its own cost; of two costs of the same phrase, the lower counts."""
    made = {meaning.cost: meaning}
    for phrase, cost in phrases:
        if not phrase or "" in phrase:
            continue
        if cost not in made:
            made[cost] = Meaning(meaning.table, meaning.column, cost, meaning.label, meaning.flag)
        found = names.get(phrase)
        if found is None:
            names[phrase] = [made[cost]]
            continue
        at = _place_of(meaning, found)
        if at is None:
            found.append(made[cost])
        elif cost < found[at].cost:
            found[at] = made[cost]


def _place_of(meaning: Meaning, found: Sequence[Meaning]) -> int | None:
    """Return where the same table or column is among the meanings of its table, which are the last."""
    for at in range(len(found) - 1, -1, -1):
        other = found[at]
        if other.table != meaning.table:
            return None
        if other.column == meaning.column and other.label == meaning.label:
            return at
    return None


@lru_cache(maxsize=50_000)
def _respelled(phrase: Phrase) -> tuple[tuple[Phrase, int], ...]:
    """Return the phrase itself, written as one word, and with one word replaced by a synonym."""
    made = [(phrase, 0)]
    if len(phrase) > 1:
        made.append((("".join(phrase),), 0))
    for at, word in enumerate(phrase):
        for other in word_synonyms(word):
            made.append(((*phrase[:at], other, *phrase[at + 1 :]), SYNONYM))
    return tuple(made)


def _table_phrases(table: VocabularyTable) -> Iterator[tuple[Phrase, int]]:
    for phrase, cost in _respelled(table.words):
        # A synonym of a price or an amount is never a synonym of a table.
        if cost == 0 or not QUANTITIES & {*phrase}:
            yield phrase, cost
    for alias in table.aliases:
        yield alias, 0
    noun = words_without_numbers(table.words)
    if noun != table.words:
        yield from ((phrase, cost + SUFFIX) for phrase, cost in _respelled(noun))
    if len(table.words) > 1:
        yield noun[-1:], HEAD
        if table.words[-1] in TRAILING:
            yield table.words[:-1], SUFFIX
            yield table.words[-2:-1], SYNONYM
        # In `payments received` the first word is the noun.
        yield table.words[:1], SUFFIX if table.words[-1].endswith(("ed", "made", "sent")) else HEAD
        yield tuple(reversed(table.words)), 0


def _column_phrases(table: VocabularyTable, column: VocabularyColumn) -> Iterator[tuple[Phrase, int]]:
    words = column.words
    own = [table.words, *table.aliases]
    short = next(
        (words[len(o) :] for o in (*own, table.words[-1:]) if words[: len(o)] == o and len(words) > len(o)), words
    )
    for name in {words, short}:
        yield from _respelled(name)
        yield from _abbreviated(name)
        if len(name) == 2 and name[1] not in ("number", "count"):
            yield (name[1], "of", name[0]), 0
    for owner in own:
        if owner and short != owner:
            yield from _respelled((*owner, *short))
    if len(short) > 1 and short[-1] in ("code", "type"):
        yield short[-1:], HEAD
    if "of" in short[1:-1] and short not in _BIRTHDAYS and short[0] not in ("number", "count"):
        yield short[: short.index("of")], HEAD  # `date_of_notes` is a date
    # `gdp_per_capita` is neither a GDP nor a capita; a price per unit is still a price.
    rate = "per" in short and short[0] not in QUANTITIES | {"salary", "wage"}
    if len(short) > 2 and short[0] not in _FIRST_WORDS | MEASURES and not rate:
        yield short[:1], HEAD
    if len(short) > 1 and short[-1] not in {"id", "name", "code", "number", "type", "no"} | MEASURES and not rate:
        yield short[-1:], HEAD
        for other in word_synonyms(short[-1]):
            yield (other,), HEAD + SYNONYM
    said = _WORDS.findall(fold_words(column.comment)) if 0 < len(column.comment) < 25 else []
    if len(said) == 1 and len(said[0]) > 3:
        yield (word_base_form(said[0]),), SUFFIX


_WORDS = re.compile(r"[^\W_]+")
_BIRTHDAYS = (("date", "of", "birth"), ("birth", "date"), ("birthdate",), ("birthday",), ("date", "birth"))
"""Names of the day on which somebody was born."""
_PERSON_NAMES: tuple[tuple[Phrase, ...], ...] = (
    (("first", "name"), ("given", "name"), ("forename",)),
    (("last", "name"), ("family", "name"), ("surname",)),
)
"""Names of the two parts of a person's name."""
_FIRST_WORDS = frozenset("number total is has count n date other min max minimum maximum average first last".split())  # noqa: SIM905
"""First words of column names that say nothing about it alone."""


def _abbreviated(name: Phrase) -> Iterator[tuple[Phrase, int]]:
    """Yield the name without the word for its kind: `city_name` is the city, `citation_num` the citations."""
    if len(name) > 1 and (name[-1] in GENERIC or name[-1] in MEASURES or len(name[-1]) == 1):
        kind = SYNONYM if name[-1] in ("type", "code") else SUFFIX
        whole = name[:-2] if len(name) > 2 and name[-2] == "in" else name[:-1]
        for phrase, cost in _respelled(whole):
            yield phrase, cost + kind
    if len(name) > 1 and name[0] in ("number", "total", "is", "has", "count", "n"):
        rest = name[2:] if name[1] == "of" else name[1:]
        for phrase, cost in _respelled(rest):
            yield phrase, cost + SUFFIX
    if name[-2:] == ("email", "address"):
        yield name[:-1], SUFFIX
    elif name[-1:] == ("email",):
        yield (*name, "address"), SUFFIX
    for alike in (_BIRTHDAYS, *_PERSON_NAMES):
        if name in alike:
            yield from ((other, SUFFIX) for other in alike if other != name)
    if len(name) > 1 and name[-1] == "id":
        yield (name[-2], "identifier"), 0


def _add_key_and_label(names: _Names, table: VocabularyTable) -> None:
    owners = [table.words, *table.aliases, *([table.words[-1:]] if len(table.words) > 1 else [])]
    if len(table.key) == 1:
        words = table.column(table.key[0]).words
        if words[-1:] and words[-1].endswith("id"):
            for phrase in (("id",), ("identifier",), *((*owner, "id") for owner in owners)):
                _add(names, phrase, Meaning(table.name, table.key[0], 0 if len(phrase) > 1 else SUFFIX))
    if (table.label and not any(table.column(name).words[-1:] == ("name",) for name in table.label[:1])) or len(
        table.label
    ) > 1:
        for phrase in (("name",), ("full", "name"), *((*owner, "name") for owner in owners)):
            _add(names, phrase, Meaning(table.name, None, SUFFIX, label=True))
    elif table.label:
        _add(names, ("full", "name"), Meaning(table.name, table.label[0], SUFFIX))


def _index_values(table: VocabularyTable, draft: _Draft) -> None:
    for column in table.columns:
        if not column.values:
            continue
        about = (*column.words, *(table.words if column.name in table.label else ()))
        coded = not CODED.isdisjoint(about)
        spelled: dict[Phrase, list[str]] = defaultdict(list)
        alike = {value: group for group in column.spellings for value in group}
        phrases = [value_phrase(value) for value in column.values]
        if not coded and not alike and len({*phrases}) == len(phrases):
            for phrase, value in zip(phrases, column.values, strict=True):
                if phrase:
                    draft.values[phrase].append(Hit(table.name, column.name, (value,)))
            continue
        for phrase, value in zip(phrases, column.values, strict=True):
            spelled[phrase].extend(alike.get(value, (value,)))
        for phrase, texts in spelled.items():
            if not phrase:
                continue
            # `A` and `A+` are the same words but not the same value: neither is chosen.
            for values in _one_value_each(texts):
                draft.values[phrase].append(Hit(table.name, column.name, values))
            for name in place_names(texts[0], about) if coded and len(phrase) < 5 else ():
                if value_phrase(name) not in spelled:
                    draft.values[value_phrase(name)].append(Hit(table.name, column.name, tuple(texts), SUFFIX))


def _one_value_each(texts: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the texts that are spellings of one value, by value."""
    if len(texts) == 1:
        return [(texts[0],)]
    found: dict[str, set[str]] = defaultdict(set)
    for text in texts:
        found[plain_spelling(text)].add(text)
    return [tuple(sorted(values)) for values in found.values()]


@lru_cache(maxsize=50_000)
def value_phrase(text: str) -> Phrase:
    """Return a value as the words that a question would use."""
    return tuple(_WORDS.findall(fold_words(text).replace("'", "")))


def values_containing_phrase(index: PhraseIndex, phrase: Phrase) -> list[Hit]:
    """Return the columns with values that contain the phrase as whole words, each with all these values."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    size = len(phrase)
    for words, hit in index.parts.get(phrase[0], ()) if phrase else ():
        if any(words[n : n + size] == phrase for n in range(len(words) - size + 1)):
            found[hit.table, hit.column].extend(hit.values)
    return [Hit(table, column, tuple(sorted(texts)), HEAD) for (table, column), texts in found.items()]


def phrase_values_one_typo_away(index: PhraseIndex, phrase: Phrase) -> list[Hit]:
    """Return the values that differ from the phrase by one typing mistake."""
    text = " ".join(phrase)
    if len(text) < 6:
        return []
    alike = (known for size in (-1, 0, 1) for known in index.spellings.get((text[0], len(text) + size), ()))
    slips = sorted((place, hits) for place, known, hits in alike if phrases_differ_by_one_slip(text, known))
    return [hit for _, hits in slips for hit in hits]


def phrase_names_one_typo_away(index: PhraseIndex, word: str) -> tuple[Meaning, ...]:
    """Return the tables and columns of the only name that differs from the word by one typing mistake."""
    if len(word) < 4:
        return ()
    # In a short word, only two letters in the wrong order are a slip: `garde`; other letters make other words.
    sizes = (-1, 0, 1) if len(word) > 5 else (0,)
    alike = [known for size in sizes for known in index.name_spellings.get((word[0], len(word) + size), ())]
    found = [
        known
        for known in alike
        if phrases_differ_by_one_slip(word, known) and (len(word) > 5 or sorted(word) == sorted(known))
    ]
    if len(found) != 1:
        return ()
    # It costs more than a synonym, so that the answer tells how the word was read.
    return tuple(m._replace(cost=m.cost + SYNONYM) for m in index.names[found[0],])


def shortened_phrase_names(index: PhraseIndex, words: Sequence[str]) -> tuple[Meaning, ...]:
    """Return the columns whose name shortens the words: `dep_delay` for `departure delay`.

    At least one word of the name is written in full, and says more than `name` or `id`.
    """
    found: dict[tuple[str, str | None], Meaning] = {}
    for phrase in index.begun.get((words[0][:2], words[-1][:1], len(words)), ()) if len(words) > 1 else ():
        alone = (short for short in {*phrase} - {*words} if any(m.cost == 0 for m in index.names.get((short,), ())))
        if _shortens(phrase, words) and not any(alone):
            meanings = (m for m in index.names[phrase] if m.column is not None and m.cost <= SUFFIX)
            found.update({(m.table, m.column): m._replace(cost=SYNONYM) for m in meanings})
    return tuple(found.values())


def _shortens(phrase: Phrase, words: Sequence[str]) -> bool:
    """Return whether each word of the phrase begins a word, and one of them is that word."""
    pairs = list(zip(phrase, words, strict=True))
    whole = {short for short, word in pairs if short == word} - GENERIC - {"id", "of", "per"}
    return bool(whole) and all(short == word or (len(short) > 2 and word.startswith(short)) for short, word in pairs)


def phrases_differ_by_one_slip(left: str, right: str) -> bool:
    """Return whether one letter was added, dropped or changed, or two were swapped; the first letter must match."""
    if left == right or left[0] != right[:1] or abs(len(left) - len(right)) > 1:
        return False
    if len(left) == len(right):
        differ = [n for n, (a, b) in enumerate(zip(left, right, strict=True)) if a != b]
        if len(differ) == 2 and differ[1] == differ[0] + 1:
            return left[differ[0]] == right[differ[1]] and left[differ[1]] == right[differ[0]]
        return len(differ) == 1
    longer, shorter = (left, right) if len(left) > len(right) else (right, left)
    return any(longer[:n] + longer[n + 1 :] == shorter for n in range(len(longer)))


def phrases_of(bases: Sequence[str]) -> Iterator[Phrase]:
    """Yield the words as written, and joined into one word."""
    yield tuple(bases)
    if 1 < len(bases) <= 3:
        yield ("".join(bases),)
