"""A trace of how the rules read a question, as text: tokens, tags, the rules that fired, parts, plan and reading."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from datetime import date
from typing import Any

from etude.offline.misspelled_words import correct_words
from etude.offline.phrase_index import phrase_index_of
from etude.offline.question_parts import Condition, Group, Measure, NamePart, Question
from etude.offline.question_reader import read_question
from etude.offline.rephrasing import rephrase
from etude.offline.tags import TAGS, tag_items
from etude.offline.understand import Clarification, Refusal, understand
from etude.offline.vocabulary import Vocabulary
from etude.offline.words import tokenize


def trace_question(question: str, vocabulary: Vocabulary, today: date) -> str:
    """Return each step from the question to its plan, one section per step."""
    return "\n".join(_lines(question, vocabulary, today))


def _lines(question: str, vocabulary: Vocabulary, today: date) -> Iterator[str]:
    index = phrase_index_of(vocabulary)
    tokens = rephrase(correct_words(tokenize(question), index))
    yield "tokens"
    yield "  " + " | ".join(token.text for token in tokens)
    items = tag_items(tokens, index, today)
    yield "tags"
    for item in items:
        yield f"  {item.tag}  {item.text:<24} {TAGS[item.tag]}{_means(item.data)}"
    fired: list[str] = []
    parts = read_question(items, lambda pattern, before, after: fired.append(f"  {before} -> {after}  by {pattern}"))
    yield "rules"
    yield from fired or ["  none"]
    yield "parts"
    yield from _parts(parts)
    yield from _outcome(question, vocabulary, today)


def _means(data: Any) -> str:
    if isinstance(data, NamePart):
        places = [f"{m.table}.{m.column}" if m.column else m.table for m in data.meanings[:3]]
        return f": {', '.join(places)}{', ...' if len(data.meanings) > 3 else ''}"
    hits = data.hits[:3] if isinstance(data, Condition) else ()
    return f": {', '.join(f'{hit.table}.{hit.column}' for hit in hits)}" if hits else ""


def _parts(question: Question) -> Iterator[str]:
    empty = Question()
    for each in fields(question):
        value = getattr(question, each.name)
        if value != getattr(empty, each.name):
            yield f"  {each.name}: {_shown(value)}"


def _shown(value: Any) -> str:
    match value:
        case tuple():
            return ", ".join(map(_shown, value))
        case Measure():
            return f"{value.fn} of `{value.name.text}`"
        case NamePart() | Condition():
            return f"`{value.text}`"
        case Group():
            return f"`{value.name.text if value.name else value.grain}`"
    return str(getattr(value, "text", "") or value)


def _outcome(question: str, vocabulary: Vocabulary, today: date) -> Iterator[str]:
    match understand(question, vocabulary, today=today):
        case Refusal(reason=reason):
            yield f"refused\n  {reason}"
        case Clarification(ask=ask, choices=choices):
            yield f"asks back\n  {ask} {', '.join(choice.label for choice in choices)}"
        case found:
            plan = found.plan.model_dump(mode="json", exclude_defaults=True, by_alias=True)
            yield f"plan\n  {json.dumps(plan)}"
            yield f"reading\n  {found.reading}"
            yield from (f"  {reason}" for reason in found.reasons)
