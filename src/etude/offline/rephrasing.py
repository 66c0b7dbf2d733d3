"""Say in fewer words what a question says in many, before its words are tagged: `his or her` is `their`."""

from __future__ import annotations

from collections.abc import Sequence

from etude.offline.operator_words import LINKING
from etude.offline.words import Token, word_base_form

_ENDS = frozenset(".?!;")
_PHRASES: tuple[tuple[str, str], ...] = (
    ("his or her", "their"),
    ("her or his", "their"),
    ("he or she", "they"),
    ("count how many", "how many"),
    ("how old is the average", "what is the average age of the"),
    ("how old is", "what is the age of"),
    ("how old are", "what is the age of"),
    ("each and every", "each"),
    ("each each", "each"),
    ("each of them", "each"),
    ("each one of them", "each"),
    ("every one of them", "each"),
    ("by both", "both"),
    ("but also", "and"),
    ("and also", "and"),
    ("by order of", "ordered by"),
    ("by the order of", "ordered by"),
    ("most recently", "latest ones"),
)
"""Phrases, and what they are read as; longer ones stand before their parts."""
_DENYING = frozenset(
    "not never no without whose who which that do does did have has had is are was were with none cannot".split()  # noqa: SIM905
)
"""What follows a `but` that only joins two conditions."""
_BY_MANY = frozenset(("most", "more", "at", "fewest", "fewer", "less", "exactly", "only"))
_HELPING = frozenset("has have had do does did is are was were".split())  # noqa: SIM905
_PLACING = frozenset(("for", "to", "in", "of", "on", "that", "with"))
_COMPARING = {
    ("over",): "over", ("above",): "over", ("under",): "under", ("below",): "under", ("at", "least"): "at least",
    ("at", "most"): "at most", ("more", "than"): "over", ("less", "than"): "under", ("exactly",): "exactly",
    ("fewer", "than"): "under", ("greater", "than"): "over", ("up", "to"): "at most",
}  # fmt: skip


def rephrase(tokens: Sequence[Token]) -> list[Token]:
    """Return the tokens with roundabout phrases in short form."""
    made = list(tokens)
    for phrase, short in _PHRASES:
        made = _replace(made, tuple(phrase.split()), short)
    return _say_count(_drop_each(_say_age(_join_denied(_say_both(_say_numbers(made))))))


def _word(text: str, near: Token) -> Token:
    """Return a token for a word that the question does not have, at the place of one that it has."""
    return Token("word", text, text, word_base_form(text), near.start, near.end)


def _replace(tokens: list[Token], phrase: tuple[str, ...], short: str) -> list[Token]:
    made: list[Token] = []
    at = 0
    while at < len(tokens):
        if tuple(token.low for token in tokens[at : at + len(phrase)]) == phrase:
            made.extend(_word(word, tokens[at]) for word in short.split())
            at += len(phrase)
        else:
            made.append(tokens[at])
            at += 1
    return made


_TIMES = {"once": 1, "twice": 2}
_BEFORE_NUMBER = frozenset(("than", "least", "most", "exactly", "only"))


def _say_numbers(tokens: list[Token]) -> list[Token]:
    """`more than once` is more than 1 times; `at least a member` is at least 1 member."""
    made: list[Token] = []
    for token in tokens:
        before = [each.low for each in made[-2:]]
        if token.low in _TIMES and before[-1:] and before[-1] in _BEFORE_NUMBER:
            made += [_number(_TIMES[token.low], token), _word("times", token)]
        elif token.low in ("a", "an") and before == ["at", "least"]:
            made.append(_number(1, token))
        else:
            made.append(token)
    return made


def _number(value: int, near: Token) -> Token:
    return Token("number", str(value), str(value), str(value), near.start, near.end, value)


def _say_both(tokens: list[Token]) -> list[Token]:
    """`colors shared by cars from Rome and cars from Oslo`, `not only tea but also coffee`: what both have."""
    made: list[Token] = []
    at = 0
    while at < len(tokens):
        low = [token.low for token in tokens[at : at + 3]]
        joined = any(token.low == "and" for token in tokens[at + 2 :])
        shared = low[:2] == ["shared", "by"] and not {*low[2:]} & _BY_MANY and tokens[at + 2].number is None
        if joined and (shared or low[:2] == ["not", "only"]):
            made.append(_word("both", tokens[at]))
            at += 2
        else:
            made.append(tokens[at])
            at += 1
    return made


def _join_denied(tokens: list[Token]) -> list[Token]:
    """`who bought tea but never coffee`: two conditions, as with `and`; the comma before it says nothing."""
    made: list[Token] = []
    for at, token in enumerate(tokens):
        following = tokens[at + 1].low if at + 1 < len(tokens) else ""
        if token.low == "but" and following in _DENYING:
            while made and made[-1].text == ",":
                made.pop()
            made.append(_word("and", token))
        else:
            made.append(token)
    return made


def _say_age(tokens: list[Token]) -> list[Token]:
    """`over 20 years old`, `aged 20 or older`: the age, and the number it is compared with."""
    made: list[Token] = []
    at = 0
    while at < len(tokens):
        old = [token.low for token in tokens[at : at + 2]] in (["years", "old"], ["year", "old"])
        number = made[-1] if old and made and made[-1].number is not None else None
        if number is None:
            made.append(tokens[at])
            at += 1
            continue
        at += 2
        before = made[:-1]
        op = next((size for size in (2, 1) if tuple(t.low for t in before[-size:]) in _COMPARING), 0)
        if [token.low for token in before[-2:]] in (["older", "than"], ["younger", "than"]):
            continue
        said = _COMPARING[tuple(t.low for t in before[-op:])].split() if op else ["exactly"]
        kept = before[: len(before) - op]
        made = [*kept, _word("age", number), *(_word(word, number) for word in said), number]
    return made


def _drop_each(tokens: list[Token]) -> list[Token]:
    """`the names of tracks, and how many races has each had`: that of each track is meant anyway."""
    made: list[Token] = []
    for at, token in enumerate(tokens):
        counted = any(made[n].low in ("many", "number") for n in range(_start(made), len(made)))
        rest = _rest(tokens, at + 1)
        asked = any(t.low in ("and", "as") for t in made[_start(made) :])
        before = made[-1].low if made else ""
        placed = before in _PLACING and not rest
        helped = before in _HELPING and (not rest or (len(rest) == 1 and rest[0].low in LINKING | _HELPING))
        if token.low == "each" and counted and asked and (placed or helped):
            if placed:
                made.pop()
            continue
        made.append(token)
    return made


def _start(tokens: Sequence[Token]) -> int:
    """Return where the last sentence begins."""
    return next((n + 1 for n in range(len(tokens) - 1, -1, -1) if tokens[n].text in _ENDS), 0)


def _rest(tokens: Sequence[Token], at: int) -> list[Token]:
    """Return the tokens up to the end of the sentence, or up to a comma."""
    found: list[Token] = []
    for token in tokens[at:]:
        if token.text in _ENDS or token.text == ",":
            break
        if token.low not in ("one", "them"):
            found.append(token)
    return found


def _say_count(tokens: list[Token]) -> list[Token]:
    """`How many hosts per city? List the city and the number`: the number is the count asked for before."""
    made: list[Token] = []
    for at, token in enumerate(tokens):
        start = _start(made)
        earlier = " ".join(t.low for t in made[:start])
        counted = "how many" in earlier or "number of" in earlier or "most " in earlier
        following = tokens[at + 1].text.lower() if at + 1 < len(tokens) else "."
        alone = following in _ENDS or following in (",", "and", "in")
        listed = start and bool(made) and made[-1].low in ("the", "and", "corresponding")
        if token.low in ("number", "numbers", "counts") and counted and alone and listed:
            made.append(_word("count", token))
        else:
            made.append(token)
    return made
