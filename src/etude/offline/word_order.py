"""Say in the usual order what a question says in another: `for songs in Hindi, find the average rating`."""

from __future__ import annotations

from collections.abc import Sequence

from etude.offline.operator_words import ASKING
from etude.offline.words import Token, word_base_form

_ENDS = frozenset(".?!;")
_FRONT = {"for": "for", "among": "of", "across": "of", "of": "of"}
"""Words that begin a clause before the question, and the preposition of that clause after it."""
_EACH = frozenset(("each", "every", "per", "which", "whom"))
_CHOOSING = frozenset(("one", "ones", "who"))
"""Words in a question that stand for the things of the clause: `of all cities, name the one with the most people`."""
_SORTING = frozenset(("sorted", "ordered", "sort", "order", "ranked", "arranged"))
_WAYS = frozenset("ascending descending alphabetical increasing decreasing reverse order".split())  # noqa: SIM905
_HIGH = frozenset("highest largest greatest biggest most longest tallest heaviest latest newest".split())  # noqa: SIM905
_LOW = frozenset("lowest smallest least fewest shortest lightest earliest".split())  # noqa: SIM905
_EXTREME = (_HIGH | _LOW | {"maximum", "minimum"}) - {"most", "least", "fewest"}
_COMPARED = {"more": "above", "higher": "above", "larger": "above", "less": "below", "lower": "below"}
_BEING = frozenset(("is", "are", "was", "were"))
_LONGEST_NOUN = 5


def say_in_order(tokens: Sequence[Token]) -> list[Token]:
    """Return the tokens with clauses, orders and extremes where the rules expect them."""
    return _move_front(_say_which_first(_say_from_to(_say_above(_say_extreme(list(tokens))))))


def _words(text: str, near: Token) -> list[Token]:
    """Return tokens for words that the question does not have, at the place of one that it has."""
    return [Token("word", word, word, word_base_form(word), near.start, near.end) for word in text.split()]


def _is_end(tokens: Sequence[Token], at: int) -> bool:
    return at >= len(tokens) or tokens[at].text in _ENDS or tokens[at].text == ","


def _move_front(tokens: list[Token]) -> list[Token]:
    """`For songs in Hindi, find the average rating` asks for the average rating of songs in Hindi."""
    if not tokens or tokens[0].low not in _FRONT:
        return tokens
    end = next((at for at, token in enumerate(tokens) if token.text in _ENDS), len(tokens))
    asks = (at for at in range(2, end - 1) if tokens[at].text == "," and _asks(tokens[at + 1]))
    comma = next(asks, None)
    if comma is None or any(token.low in _EACH for token in tokens[:end]):
        return tokens
    if any(token.low in _CHOOSING for token in tokens[comma:end]):
        return tokens
    tail = next((at for at in range(comma + 1, end) if _begins_order(tokens, at)), end)
    clause = [*_words(_FRONT[tokens[0].low], tokens[0]), *tokens[1:comma]]
    return [*tokens[comma + 1 : tail], *clause, *tokens[tail:]]


def _asks(token: Token) -> bool:
    return token.low not in ("which", "who") and token.low in ASKING | {"how", "count"}


def _begins_order(tokens: Sequence[Token], at: int) -> bool:
    """Return whether the order of the rows is said from here on: `, sorted by`, `and sort`, `in descending order`."""
    words = [token.low for token in tokens[at : at + 3]]
    if words[:1] in ([","], ["and"]) and len(words) > 1:
        return words[1] in _SORTING or (words[1] == "in" and words[-1] in _WAYS)
    return words[0] in _SORTING or (words[0] == "in" and len(words) > 1 and words[1] in _WAYS)


def _say_which_first(tokens: list[Token]) -> list[Token]:
    """`with the highest price first`: sorted by price in descending order."""
    for at in range(len(tokens) - 3):
        begin = at + 1 + _is_article(tokens, at + 1)
        if tokens[at].low not in ("with", ",") or begin >= len(tokens) - 1:
            continue
        recent = [token.low for token in tokens[begin : begin + 2]] == ["most", "recent"]
        start, first = (begin + 2, "latest") if recent else (begin + 1, tokens[begin].low)
        last = next((n for n in range(start, start + _LONGEST_NOUN) if _is_end(tokens, n + 1)), None)
        if first not in _HIGH | _LOW or last is None or last >= len(tokens) or tokens[last].low != "first":
            continue
        if last == start:
            continue
        counted = "number of " if first in ("most", "least", "fewest") else ""
        way = "descending" if first in _HIGH else "ascending"
        order = [*_words(f"sorted by {counted}".strip(), tokens[at]), *tokens[start:last]]
        return [*tokens[:at], *order, *_words(f"in {way} order", tokens[at]), *tokens[last + 1 :]]
    return tokens


def _say_from_to(tokens: list[Token]) -> list[Token]:
    """`ordered from most to least money`, `from the highest price to the lowest`: sorted by that, in one direction."""
    for at, token in enumerate(tokens):
        start = at + 1 + _is_article(tokens, at + 1)
        if token.low != "from" or start >= len(tokens) or tokens[start].low not in _HIGH | _LOW:
            continue
        to = next(
            (n for n in range(start, start + 2 + _LONGEST_NOUN) if not _is_end(tokens, n) and tokens[n].low == "to"), 0
        )
        low = to + 1 + _is_article(tokens, to + 1)
        end = next((n for n in range(low + 1, low + 2 + _LONGEST_NOUN) if _is_end(tokens, n)), None)
        if not to or low >= len(tokens) or end is None or not _opposed(tokens[start].low, tokens[low].low):
            continue
        noun = [*tokens[start + 1 : to], *tokens[low + 1 : end]]
        if not noun:
            continue
        counted = "number of" if "fewest" in (tokens[start].low, tokens[low].low) else ""
        way = "descending" if tokens[start].low in _HIGH else "ascending"
        before = tokens[:at]
        while before and before[-1].low in _SORTING | {"listed", ","}:
            before.pop()
        order = [*_words(f"sorted by {counted}", token), *noun, *_words(f"in {way} order", token)]
        return [*before, *order, *tokens[end:]]
    return tokens


def _is_article(tokens: Sequence[Token], at: int) -> bool:
    return at < len(tokens) and tokens[at].low == "the"


def _opposed(first: str, second: str) -> bool:
    return (first in _HIGH and second in _LOW) or (first in _LOW and second in _HIGH)


def _say_extreme(tokens: list[Token]) -> list[Token]:
    """`the student whose age is the highest`: with the highest age."""
    for at, token in enumerate(tokens):
        if token.low != "whose":
            continue
        verb = next(
            (n for n in range(at + 2, min(at + 2 + _LONGEST_NOUN, len(tokens))) if tokens[n].low in _BEING), None
        )
        if verb is None:
            continue
        extreme = verb + 1 + _is_article(tokens, verb + 1)
        if extreme < len(tokens) and tokens[extreme].low in _EXTREME and _is_end(tokens, extreme + 1):
            said = [*_words("with the", token), tokens[extreme], *tokens[at + 1 : verb]]
            return [*tokens[:at], *said, *tokens[extreme + 1 :]]
    return tokens


def _say_above(tokens: list[Token]) -> list[Token]:
    """`more points than the average`: points above the average."""
    for at, token in enumerate(tokens):
        than = at + 2
        average = than + 1 + _is_article(tokens, than + 1)
        said = average < len(tokens) and tokens[than].low == "than" and tokens[average].low == "average"
        if said and token.low in _COMPARED and tokens[at + 1].kind == "word" and _is_end(tokens, average + 1):
            return [*tokens[:at], tokens[at + 1], *_words(f"{_COMPARED[token.low]} the", token), *tokens[average:]]
    return tokens
