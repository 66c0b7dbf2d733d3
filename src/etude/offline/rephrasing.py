"""Say in fewer words what a question says in many, before its words are tagged: `his or her` is `their`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from etude.offline.operator_words import ASKING, LINKING, OPERATORS, Word
from etude.offline.word_order import say_in_order
from etude.offline.words import Token, word_base_form

_ENDS = frozenset(".?!;")
_PHRASES: tuple[tuple[str, str], ...] = (
    ("his or her", "their"),
    ("her or his", "their"),
    ("he or she", "they"),
    ("him or her", "them"),
    ("her or him", "them"),
    ("count how many", "how many"),
    ("how old is the average", "what is the average age of the"),
    ("how old is", "what is the age of"),
    ("how old are", "what is the age of"),
    *((f"how {size} is the {fold}", f"what is the {fold}")
      for size in ("large", "big", "high", "great") for fold in ("average", "total", "maximum", "minimum")),
    *((f"{verb} place", "happened") for verb in ("take", "takes", "took", "taken", "taking")),
    *((f"what information do you have {about}", "show all information about") for about in ("on", "about", "for")),
    *((f"{verb} part in", "participated in") for verb in ("take", "takes", "took", "taken", "taking")),
    *((f"how much {verb} the", "what is the") for verb in ("is", "was")),
    *((f"{verb} out", verb) for verb in ("take", "takes", "took", "taken", "carried")),
    ("from a to z", "in alphabetical order"),
    ("from z to a", "in reverse alphabetical order"),
    ("years of age", "years old"),
    ("every distinct", "distinct"),
    ("every different", "different"),
    ("every unique", "unique"),
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
)  # fmt: skip
"""Phrases, and what they are read as; longer ones stand before their parts."""
_DENYING = frozenset(
    "not never no without whose who which that do does did have has had is are was were with none cannot".split()  # noqa: SIM905
)
"""What follows a `but` that only joins two conditions."""
_BY_MANY = frozenset(("most", "more", "at", "fewest", "fewer", "less", "exactly", "only"))
_ASKING = frozenset(
    "how what which who when where list show give find count name number total average sum is are do does did".split()  # noqa: SIM905
)
"""Words that begin a question of their own: what follows them is not the noun to count."""
_COUNTED = frozenset(("the", "all", "different", "distinct", "unique", "how"))
"""Words after `count` if it is the verb."""
_HELPING = frozenset("has have had do does did is are was were".split())  # noqa: SIM905
_PLACING = frozenset(("for", "to", "in", "of", "on", "that", "with", "from"))
_COMPARING = {
    ("over",): "over", ("above",): "over", ("under",): "under", ("below",): "under", ("at", "least"): "at least",
    ("at", "most"): "at most", ("more", "than"): "over", ("less", "than"): "under", ("exactly",): "exactly",
    ("fewer", "than"): "under", ("greater", "than"): "over", ("up", "to"): "at most",
}  # fmt: skip


def rephrase(tokens: Sequence[Token]) -> list[Token]:
    """Return the tokens with roundabout phrases in short form."""
    made = say_in_order(_ask_count_first(_list_all(_say_owner(list(tokens)))))
    for phrase, short in _PHRASES:
        made = _replace(made, tuple(phrase.split()), short)
    made = _say_direction(_say_contains(_say_as_well(made)))
    return _say_count(_drop_each(_say_age(_join_denied(_say_both(_say_numbers(_count_after_comma(made)))))))


def _say_owner(tokens: list[Token]) -> list[Token]:
    """`the students' names`: the student names."""
    made: list[Token] = []
    for at, token in enumerate(tokens):
        beside = at + 1 < len(tokens) and tokens[at + 1].kind == "word"
        if token.text == "'" and made and made[-1].kind == "word" and made[-1].low.endswith("s") and beside:
            made[-1] = replace(made[-1], text=made[-1].base, low=made[-1].base)
        else:
            made.append(token)
    return made


def _list_all(tokens: list[Token]) -> list[Token]:
    """`List every distinct name` asks for all of them, if nothing is computed for each."""
    end = next((at for at, token in enumerate(tokens) if token.text in _ENDS), len(tokens))
    at = next((at for at, token in enumerate(tokens[:3]) if token.low in ("each", "every")), 0)
    asked = bool(at) and tokens[0].low in ASKING and all(token.low == "me" for token in tokens[1:at])
    folds = any(OPERATORS.get((token.low,), Word("")).tag in ("A", "S", "M", "n") for token in tokens[at:end])
    counted = any(token.low in ("number", "many", "together", "along", "with") for token in tokens[at:end])
    if not asked or folds or counted:
        return tokens
    return [*tokens[:at], _word("all", tokens[at]), *tokens[at + 1 :]]


def _ask_count_first(tokens: list[Token]) -> list[Token]:
    """`bookings without a review, how many?` asks how many bookings there are."""
    end = len(tokens)
    while end and tokens[end - 1].text in _ENDS:
        end -= 1
    asked = [token.low for token in tokens[max(end - 3, 0) : end]] == [",", "how", "many"]
    first = tokens[0].low if tokens else ""
    if not asked or end < 4 or first in _ASKING or any(token.text in _ENDS for token in tokens[: end - 3]):
        return tokens
    return [*tokens[end - 2 : end], *tokens[: end - 3], *tokens[end:]]


def _count_after_comma(tokens: list[Token]) -> list[Token]:
    """`For each gender, count the people`: how many people."""
    made: list[Token] = []
    for at, token in enumerate(tokens):
        following = [each.low for each in tokens[at + 1 : at + 3]]
        verb = following[:1] != [] and following[0] in _COUNTED and "number" not in following
        if token.low == "count" and made and made[-1].text == "," and verb:
            made += [_word("how", token), _word("many", token)]
        else:
            made.append(token)
    return made


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
_OR_MORE = {"more": "least", "fewer": "most", "less": "most"}
"""`3 orders or more` is at least 3 orders."""
_BEFORE_NUMBER = frozenset(("than", "least", "most", "exactly", "only"))


def _say_numbers(tokens: list[Token]) -> list[Token]:
    """`more than once` is more than 1 times, as is `2 or more times`; `at least a member` is at least 1 member."""
    made: list[Token] = []
    for at, token in enumerate(tokens):
        before = [each.low for each in made[-2:]]
        compares = at + 1 < len(tokens) and tokens[at + 1].low == "than"
        if token.low == "times" and before in (["or", "more"], ["or", "fewer"]) and made[-3:-2] and made[-3].number:
            op, number = ("least" if before[1] == "more" else "most"), made[-3]
            made[-3:] = [_word("at", token), _word(op, token), number, token]
        elif token.low in _OR_MORE and not compares and before[-1:] == ["or"] and _counts(made[-3:]):
            number, noun = made[-3:-1]
            made[-3:] = [_word("at", token), _word(_OR_MORE[token.low], token), number, noun]
        elif token.low in _TIMES and before[-1:] and before[-1] in _BEFORE_NUMBER:
            made += [_number(_TIMES[token.low], token), _word("times", token)]
        elif token.low in ("a", "an") and before == ["at", "least"]:
            made.append(_number(1, token))
        else:
            made.append(token)
    return made


def _counts(tokens: Sequence[Token]) -> bool:
    """Return whether the tokens are a number, a noun and one more."""
    return len(tokens) == 3 and tokens[0].number is not None and tokens[1].kind == "word"


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


def _say_as_well(tokens: list[Token]) -> list[Token]:
    """`clubs with players from Rome as well as players from Oslo`: with both."""
    for at in range(len(tokens) - 3):
        if [token.low for token in tokens[at : at + 3]] != ["as", "well", "as"]:
            continue
        noun = tokens[at + 3].base
        start = _start(tokens[:at])
        first = next((n for n in range(at - 1, start + 1, -1) if tokens[n].base == noun and noun), None)
        if first is not None and not any(token.low == "both" for token in tokens[start:at]):
            joined = [*tokens[first:at], _word("and", tokens[at]), *tokens[at + 3 :]]
            return [*tokens[:first], _word("both", tokens[first]), *joined]
    return tokens


def _say_contains(tokens: list[Token]) -> list[Token]:
    """`names that include "Opera"`: that contain it."""
    made = list(tokens)
    for at, (token, following) in enumerate(pairwise(tokens)):
        if token.base == "include" and following.kind == "quoted":
            made[at] = _word("contain", token)
    return made


_DIRECTIONS = {"ascending": "ascending", "increasing": "ascending", "descending": "descending",
               "decreasing": "descending"}  # fmt: skip
_SORTED = frozenset("sorted ordered sort order sorting ordering arranged arrange ranked rank listed them it".split())  # noqa: SIM905


def _say_direction(tokens: list[Token]) -> list[Token]:
    """`the names of firms by ascending number of sales`: in ascending order of it."""
    made: list[Token] = []
    for at, token in enumerate(tokens):
        following = tokens[at + 1].low if at + 1 < len(tokens) else ""
        after = tokens[at + 2].low if at + 2 < len(tokens) else ""
        placed = token.low in _DIRECTIONS and bool(made) and made[-1].low == "by" and following != "order"
        if placed and following and after and (len(made) < 2 or made[-2].low not in _SORTED):
            made[-1:] = [_word(word, token) for word in ("in", _DIRECTIONS[token.low], "order", "of")]
            continue
        made.append(token)
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
        if before[-1:] and before[-1].low == "or" and before[-2:-1] and before[-2].number is not None:
            made = [*before[:-2], _word("age", number), *before[-2:], number]
            continue
        if [token.low for token in (*before[-3:-2], *before[-1:])] == ["between", "and"]:
            made = [*before[:-3], _word("age", number), *before[-3:], number]
            continue
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
        asked = any(t.low in ("and", "as", "with") for t in made[_start(made) :])
        before = made[-1].low if made else ""
        verbal = 0 < len(rest) < 4 and all(each.low in LINKING | _HELPING | {"been", "there"} for each in rest)
        placed = before in _PLACING and (not rest or (verbal and before in ("of", "from")))
        helped = verbal or (before in _HELPING and not rest)
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
        said = " ".join(t.low for t in made)
        again = bool(made) and made[-1].low in ("that", "this") and ("how many" in said or "number of" in said)
        if again and alone and token.low in ("number", "count"):
            made[-1] = _word("count", token)
            continue
        if token.low in ("number", "numbers", "counts") and counted and alone and listed:
            made.append(_word("count", token))
        else:
            made.append(token)
    return made
