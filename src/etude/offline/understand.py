"""Turn a question in words into a plan, a question back, or a refusal that says why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from pydantic import ValidationError

from etude.errors import Cancelled, EtudeError
from etude.offline.assemble import Assembled, assemble_plan
from etude.offline.confidence import confidence_of, find_risks
from etude.offline.follow_up import follow_up
from etude.offline.grammar import read_question
from etude.offline.phrase_index import Hit, Meaning, phrase_index_of
from etude.offline.question_parts import Name, Question
from etude.offline.resolve import Ambiguous, Unresolved, is_numeric
from etude.offline.row_noun import name_rows
from etude.offline.self_check import find_lost_words, repeats_itself
from etude.offline.tags import TaggedItem, tag_items, units_named
from etude.offline.vocabulary import KnownTable, Vocabulary, once_per_vocabulary
from etude.offline.words import MAX_CHARS, fold, plural_form, tokenize
from etude.sources.plan import QueryPlan
from etude.sources.plan.compile import compile_plan

NEAREST = 3


@dataclass(frozen=True)
class Understanding:
    """A question that was understood: its plan, and its reading in plain words."""

    text: str
    plan: QueryPlan
    reading: str
    question: Question
    """Its measures, groups, conditions and order as typed parts; follow-ups change these."""
    reasons: tuple[str, ...] = ()
    """Words that were not found as written, and how they were read."""
    risks: tuple[str, ...] = ()
    """What may have gone wrong; each was measured to make a wrong answer more, or less, likely."""

    @property
    def confidence(self) -> float:
        """How often readings like this one were right on the databases on which the rules were developed."""
        return confidence_of(self.risks)


@dataclass(frozen=True)
class Choice:
    """One way to read an ambiguous word."""

    label: str
    prefer: tuple[str, str]


@dataclass(frozen=True)
class Clarification:
    """A question back, with two to four choices; `answer` takes the choice."""

    text: str
    ask: str
    choices: tuple[Choice, ...]
    question: Question = field(repr=False)
    vocabulary: Vocabulary = field(repr=False, compare=False)
    items: tuple[TaggedItem, ...] = field(default=(), repr=False, compare=False)


@dataclass(frozen=True)
class Refusal:
    """The reason why the rules do not answer, and the nearest questions that they do answer."""

    text: str
    reason: str
    nearest: tuple[str, ...] = ()


Outcome = Understanding | Clarification | Refusal


def understand(question: str, vocabulary: Vocabulary, *, previous: Understanding | None = None, today: date) -> Outcome:
    """Return what the question means on this source; with `previous`, it may be a follow-up."""
    if len(question) > MAX_CHARS:
        reason = f"The question has {len(question)} characters; the limit is {MAX_CHARS}."
        return Refusal(question, reason, _nearest([], vocabulary))
    tokens = tokenize(question)
    if not any(token.kind in ("word", "quoted") for token in tokens):
        return Refusal(question, "The question has no words.", _nearest([], vocabulary))
    index = phrase_index_of(vocabulary)
    items = name_rows(tag_items(tokens, index, today), vocabulary)
    changed = follow_up(items, tokens, previous.question) if previous is not None else None
    parts = changed if changed is not None else read_question(items)
    found = _settle(question, replace(parts, units=units_named(tokens, index) or parts.units), vocabulary, items)
    if isinstance(found, Refusal):
        return replace(found, nearest=_nearest(items, vocabulary))
    return found


def take_choice(clarification: Clarification, text: str) -> Outcome:
    """Return what the question means after a choice, given by number, label or a word that only one label has."""
    wanted = fold(text).strip(" .!\"'`")
    labels = [fold(choice.label) for choice in clarification.choices]
    chosen = [n for n, label in enumerate(labels) if wanted in (label, str(n + 1))]
    chosen = chosen or [n for n, label in enumerate(labels) if wanted and wanted in label]
    if len(chosen) != 1:
        listed = ", ".join(f"`{choice.label}`" for choice in clarification.choices)
        return Refusal(text, f"`{text}` is not one of {listed}.")
    prefer = (*clarification.question.prefer, clarification.choices[chosen[0]].prefer)
    question = replace(clarification.question, prefer=prefer)
    return _settle(clarification.text, question, clarification.vocabulary, clarification.items)


def _settle(text: str, parts: Question, vocabulary: Vocabulary, items: Sequence[TaggedItem]) -> Outcome:
    try:
        made = assemble_plan(parts, vocabulary)
        _check_words(items, made, parts, vocabulary)
        if vocabulary.catalog is not None:
            compile_plan(made.plan, vocabulary.catalog)
    except Unresolved as error:
        return Refusal(text, error.reason)
    except Ambiguous as error:
        found = dict.fromkeys(Choice(_label(m), (m.table, m.column or "")) for m in error.meanings)
        choices = tuple(found)[:4]
        if len(choices) < 2:
            return Refusal(text, f"It is not clear what `{error.text}` means here.")
        return Clarification(text, f"Which one is meant by `{error.text}`?", choices, parts, vocabulary, tuple(items))
    except Cancelled:
        raise
    except EtudeError as error:
        return Refusal(text, error.message)
    except ValidationError:
        return Refusal(text, "The question asks for more than one query can express.")
    notes = tuple(dict.fromkeys(made.notes))
    return Understanding(text, made.plan, made.reading, parts, notes, find_risks(items, parts, made.plan, notes))


def _check_words(items: Sequence[TaggedItem], made: Assembled, parts: Question, vocabulary: Vocabulary) -> None:
    """Refuse a plan that leaves out a word of the question, or that only repeats one."""
    lost = find_lost_words(items, made.plan, parts, vocabulary)
    if lost:
        raise Unresolved(f"It is not clear what {', '.join(f'`{word}`' for word in lost)} means here.")
    if said := repeats_itself(parts, made.plan, vocabulary):
        raise Unresolved(f"It is not clear what `{said}` says about the others: the answer would only repeat it.")


def _label(meaning: Meaning | Hit) -> str:
    return f"{meaning.table}.{meaning.column}" if meaning.column else meaning.table


# --- questions to offer instead


def _nearest(items: Sequence[TaggedItem], vocabulary: Vocabulary) -> tuple[str, ...]:
    """Return questions about the tables that the words name, else about the largest; each is known to work."""
    named = [m.table for item in items if isinstance(item.data, Name) for m in item.data.meanings[:2]]
    named += [hit.table for item in items for hit in getattr(item.data, "hits", ())[:2]]
    largest = [table.name for table in sorted(vocabulary.tables, key=lambda table: -table.rows)]
    found: list[str] = []
    for name in dict.fromkeys([*named, *largest][:12]):
        found += [text for text in _sure_offers(vocabulary, name) if text not in found]
        if len(found) >= NEAREST:
            break
    return tuple(found[:NEAREST])


def _sure_offers(vocabulary: Vocabulary, table: str) -> tuple[str, ...]:
    """Return questions about a table that the rules answer."""
    kept = _offers_of(vocabulary)
    if table not in kept:
        sure = []
        for text in _offers(vocabulary.table(table)):
            items = tag_items(tokenize(text), phrase_index_of(vocabulary), date.min)
            if isinstance(_settle(text, read_question(items), vocabulary, items), Understanding):
                sure.append(text)
        kept[table] = tuple(sure)
    return kept[table]


@once_per_vocabulary
def _offers_of(vocabulary: Vocabulary) -> dict[str, tuple[str, ...]]:
    """Return the questions that were made so far, by table."""
    return {}


def _offers(table: KnownTable) -> Iterator[str]:
    noun = " ".join((*table.words[:-1], plural_form(table.words[-1]))) if table.words else table.name
    groups = [c for c in table.columns if c.kind == "text" and 1 < c.distinct <= 50 and c.distinct < table.rows]
    numbers = [c for c in table.columns if is_numeric(c) and c.kind == "number"]
    yield f"How many {noun} are there?"
    for column in groups[:1]:
        yield f"How many {noun} are there for each {' '.join(column.words)}?"
    for column in numbers[:1]:
        yield f"What is the average {' '.join(column.words)} of {noun}?"
        yield f"What are the top 5 {noun} by {' '.join(column.words)}?"
