"""The words of table and column names, split and spelled out."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from etude.offline.deadline import check_deadline
from etude.offline.vocabulary import VocabularyTable, copy_with
from etude.offline.words import ABBREVIATIONS, TAILS, spell_out_words, split_identifier_words, word_base_form


def vocabulary_name_without_schema(name: str) -> str:
    """Return the last part of a table's name."""
    return name.rsplit(".", 1)[-1]


def common_first_name_words(names: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the common prefix of all names, such as `sb` in `sbCustomer` and `sbOrder`; never a whole name."""
    if len(names) < 3:
        return ()
    shared = 0
    while all(len(name) > shared + 1 for name in names) and len({name[shared] for name in names}) == 1:
        shared += 1
    return names[0][:shared]


@dataclass(frozen=True)
class VocabularyNameSplitter:
    """Splits names written as one word, and spells out abbreviations of table names."""

    wholes: frozenset[str]
    parts: frozenset[str]
    _known: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def split(self, name: str) -> tuple[str, ...]:
        """Return the words of a column's or table's name."""
        return tuple(part for word in split_identifier_words(name) for part in self._parts(word))

    def _parts(self, word: str) -> tuple[str, ...]:
        found = self._known.get(word)
        if found is None:
            found = self._known[word] = self._word(word)
        return found

    def _word(self, word: str) -> tuple[str, ...]:
        starts = [word[:end] for end in range(len(word)) if word[:end] in self.wholes]
        if word in self.wholes and not starts:
            return (word,)
        for first in reversed(starts):
            rest = word.removeprefix(first)
            if len(first) > 2 and (rest in TAILS or rest in self.wholes):
                return first, rest
        if word.startswith("num") and len(word) > 6 and word != "number" and not word.startswith("number"):
            return "num", word[3:]
        if word_base_form(word) in self._bases or len(word) < 3 or word in ABBREVIATIONS:
            return (word,)
        following = (self._sorted[at] for at in range(bisect_left(self._sorted, word), len(self._sorted)))
        begun = itertools.takewhile(lambda part: part.startswith(word), following)
        longer = list(itertools.islice((part for part in begun if len(part) > len(word) + 2), 2))
        return (longer[0],) if len(longer) == 1 else (word,)

    @cached_property
    def _bases(self) -> frozenset[str]:
        return frozenset(word_base_form(part) for part in self.parts)

    @cached_property
    def _sorted(self) -> list[str]:
        return sorted(self.parts)


def name_vocabulary_table(
    table: VocabularyTable, common: tuple[str, ...], names: VocabularyNameSplitter
) -> VocabularyTable:
    """Return the table with the words of its name and of its columns, without the prefixes that they share."""
    check_deadline()
    own = names.split(vocabulary_name_without_schema(table.name))[len(common) :]
    splits = [names.split(column.name) for column in table.columns]
    start = common_first_name_words(splits)
    words = spell_out_words(own)
    spelled = [_owned(spell_out_words(_minutes(_full(split[len(start) :]), splits)), words, splits) for split in splits]
    if ("latitude",) in spelled:
        spelled = [("longitude",) if each == ("long",) else each for each in spelled]
    columns = tuple(copy_with(column, words=each) for column, each in zip(table.columns, spelled, strict=True))
    aliases = {spell_out_words(start[len(common) :] if start[: len(common)] == common else start)} - {(), words}
    return copy_with(table, columns=columns, words=words, aliases=tuple(sorted(aliases)))


_INITIALS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("f", "name"): ("first", "name"),
    ("l", "name"): ("last", "name"),
    ("m", "name"): ("middle", "name"),
}


def _full(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words with `fName` and `lName` in full."""
    return words[:-2] + _INITIALS.get(words[-2:], words[-2:])


_LASTING = frozenset(("duration", "dur", "length", "time", "delay", "runtime", "wait", "waiting", "elapsed", "late"))
"""Words for how long something takes."""


def _minutes(words: tuple[str, ...], splits: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the words of `duration_min` with minutes in full, unless a `duration_max` says that it is the least."""
    lasts = words[-1:] in (("min",), ("mins",)) and _LASTING & {*words[:-1]}
    return (*words[:-1], "minute") if lasts and (*words[:-1], "max") not in splits else words


_GENERAL = frozenset(("name", "title", "type"))
"""What a letter of the table's name may stand before: `bname` of banks."""


def _owned(words: tuple[str, ...], own: tuple[str, ...], splits: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the words of a column without a short form of its table's name: `pName` of players, `apt_type`."""
    if len(words) == 1 and words[0][1:] in _GENERAL and words[0][:1] in {word[:1] for word in own}:
        return (words[0][1:],) if (words[0][1:],) not in splits else words
    first = words[0] if len(words) > 1 and own else ""
    if not first or first in own or len(first) > 4 or first[0] != own[0][0]:
        return words
    if len(first) == 1:
        return words[1:]
    shared = sum(len(split) > 1 and split[0] == first for split in splits) > 1
    rest = iter(own[0])
    shortens = len(own[0]) > len(first) + 1 and all(letter in rest for letter in first)
    return (*own, *words[1:]) if shared and shortens else words


def vocabulary_name_words(name: str) -> tuple[str, ...]:
    """Return the words of a table's name, with abbreviations in full."""
    return spell_out_words(split_identifier_words(vocabulary_name_without_schema(name)))
