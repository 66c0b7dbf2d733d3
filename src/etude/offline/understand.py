"""Turn a question in words into a plan, a question back, or a refusal that says why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from pydantic import ValidationError

from etude.errors import Cancelled, EtudeError
from etude.offline.acts import read_acts
from etude.offline.best_row import read_best_row
from etude.offline.column_traits import is_numeric_column
from etude.offline.confidence import confidence_of, find_confidence_risks
from etude.offline.contents import read_contents
from etude.offline.deadline import check_deadline
from etude.offline.earning import read_earning
from etude.offline.first_and_last import read_first_and_last
from etude.offline.follow_up import after_pause, continues_conditions, follow_up, is_complete
from etude.offline.misreadings import find_misreading
from etude.offline.misspelled_words import correct_words
from etude.offline.months import add_years_to_months
from etude.offline.occurrences import read_occurrences
from etude.offline.own_measure import read_own_measure
from etude.offline.part_references import part_adds_up
from etude.offline.phrase_index import SYNONYM, Hit, Meaning, phrase_index_of, phrases_differ_by_one_slip
from etude.offline.plan_assembly import Assembled, assemble_plan
from etude.offline.plan_check import find_noun_beside_plan, find_repetition_in_plan, find_words_lost_in_plan, plan_facts
from etude.offline.question_parts import NamePart, Question
from etude.offline.question_reader import read_question
from etude.offline.ranked_nouns import read_ranked_nouns
from etude.offline.rephrasing import rephrase
from etude.offline.resolver import MONEY, Ambiguous, Unresolved, list_unresolved_words
from etude.offline.row_noun import add_row_noun, table_names_row_noun
from etude.offline.selling import read_selling
from etude.offline.spending import read_money_and_sales, tell_units_sold
from etude.offline.tags import TaggedItem, tag_asked_units, tag_items
from etude.offline.two_periods import find_two_periods
from etude.offline.value_nouns import read_value_nouns
from etude.offline.value_search import find_words_for_value_search, tag_found_values
from etude.offline.vocabulary import Vocabulary, VocabularyColumn, VocabularyTable, once_per_vocabulary
from etude.offline.vocabulary_names import vocabulary_name_without_schema
from etude.offline.words import (
    MAX_CHARS,
    MEASURES,
    Token,
    fold_words,
    split_identifier_words,
    tokenize,
    word_base_form,
    word_plural_form,
)
from etude.offline.zero_amounts import read_zero_amounts
from etude.sources.plan import QueryPlan
from etude.sources.plan.compile import compile_plan
from etude.sources.plan.query_plan import ColumnRef

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
    told: tuple[str, ...] = ()
    """Those of the reasons that the answer repeats, because they change what its numbers mean."""
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
    """A question back, with two to four choices; `take_choice` continues with one."""

    text: str
    ask: str
    choices: tuple[Choice, ...]
    question: Question = field(repr=False)
    vocabulary: Vocabulary = field(repr=False, compare=False)
    items: tuple[TaggedItem, ...] = field(default=(), repr=False, compare=False)
    told: tuple[str, ...] = ()
    """What the answer says about the reading, whatever is chosen: that it is a follow-up."""


@dataclass(frozen=True)
class Refusal:
    """The reason why the rules do not answer, and the nearest questions that they do answer."""

    text: str
    reason: str
    nearest: tuple[str, ...] = ()
    unexplained: tuple[str, ...] = ()
    """Phrases that may be values of a column with too many to know; `search_values` finds them."""


Outcome = Understanding | Clarification | Refusal


def understand(
    question: str,
    vocabulary: Vocabulary,
    *,
    previous: Understanding | None = None,
    today: date,
    values: Mapping[str, tuple[Hit, ...]] | None = None,
) -> Outcome:
    """Return what the question means on this source; with `previous`, it may be a follow-up.

    `values` says where phrases that nothing else explains were found in the data.
    """
    if len(question) > MAX_CHARS:
        reason = f"The question has {len(question)} characters; the limit is {MAX_CHARS}."
        return Refusal(question, reason, _nearest([], vocabulary))
    index = phrase_index_of(vocabulary)
    written = correct_words(tokenize(question), index)
    tokens, told = add_years_to_months(rephrase(written), vocabulary)
    if not any(token.kind in ("word", "quoted") for token in tokens):
        return Refusal(question, "The question has no words.", _nearest([], vocabulary))
    items = _tag_all(tokens, vocabulary, today)
    same_rows = previous is not None and continues_conditions(tokens, previous.question)
    fresh = after_pause(tokens) if previous is not None and not same_rows else None
    if fresh is not None and is_complete(anew := _tag_all(fresh, vocabulary, today)):
        items, tokens, previous = anew, fresh, None
    items = tag_found_values(items, values) if values else items
    changed = follow_up(items, tokens, previous.question, vocabulary) if previous is not None else None
    parts = changed if changed is not None else read_question(items)
    found = _settle(question, replace(parts, units=tag_asked_units(tokens, index) or parts.units), vocabulary, items)
    if changed is not None and previous is not None and isinstance(found, Understanding):
        if found.plan == previous.plan and (asking := _asks_nothing(tokens)):
            found = Refusal(question, f"It is not clear what `{asking}` asks for.")
        elif found.plan == previous.plan and _says_something(items):
            found = Refusal(question, "The answer before already shows this; as a follow-up it changes nothing.")
        elif lost := _find_lost_date(items, previous.plan, found.plan, vocabulary):
            found = Refusal(
                question, f"It is not clear whether the time of “{previous.text}” is that of `{lost}` here."
            )
        else:
            told = (*told, f"This is read as a follow-up to “{previous.text}”.")
    if changed is not None and previous is not None and isinstance(found, Clarification):
        told = (*told, f"This is read as a follow-up to “{previous.text}”.")
    if isinstance(found, Refusal):
        return replace(found, nearest=_nearest(items, vocabulary), unexplained=find_words_for_value_search(items))
    return _tell(found, (*told, *tell_units_sold(items)))


def _tag_all(tokens: Sequence[Token], vocabulary: Vocabulary, today: date) -> list[TaggedItem]:
    index = phrase_index_of(vocabulary)
    if two := find_two_periods(tokens, today, _named_words(vocabulary)):
        return two[1].tag(_tag_all(two[0], vocabulary, today))
    tagged = read_zero_amounts(read_first_and_last(tag_items(tokens, index, today), vocabulary), vocabulary)
    spent = read_money_and_sales(read_earning(tagged, vocabulary), tokens, vocabulary)
    spent = read_ranked_nouns(read_contents(read_value_nouns(spent, vocabulary)), vocabulary)
    items = read_acts(read_occurrences(spent, vocabulary), vocabulary)
    named = add_row_noun(read_selling(items, index), vocabulary)
    return read_best_row(read_own_measure(named, vocabulary), tokens, vocabulary)


def _find_lost_date(items: Sequence[TaggedItem], before: QueryPlan, after: QueryPlan, vocabulary: Vocabulary) -> str:
    """Return the date column of the previous plan if a follow-up that names no time uses another one instead; or ''."""
    if any(item.tag in "DWtG" for item in items):
        return ""
    dates = {
        (vocabulary_name_without_schema(c.table), c.name)
        for table in vocabulary.tables
        for c in table.columns
        if c.kind in ("date", "timestamp")
    }
    lost = dates & plan_facts(before).columns - plan_facts(after).columns
    others = dates & plan_facts(after).columns - plan_facts(before).columns
    return next((f"{table}.{column}" for table, column in sorted(lost)), "") if others else ""


@once_per_vocabulary
def _named_words(vocabulary: Vocabulary) -> frozenset[str]:
    """Return the words in the names of tables and columns."""
    return frozenset(word for phrase in phrase_index_of(vocabulary).names for word in phrase)


def _says_something(items: Sequence[TaggedItem]) -> bool:
    """Return whether a follow-up names something of the data or an order: not only `the same again`."""
    return any(item.tag not in "u." for item in items)


_ASKING_NOTHING = frozenset(
    """
    what which who how when where why is was are were it that this there do does did so
    """.split()  # noqa: SIM905 - a list of words reads best as text
)


def _asks_nothing(tokens: Sequence[Token]) -> str:
    """Return the words of `what?` or `how is it?`, which ask for nothing that a follow-up could change; else ''."""
    words = [token.low for token in tokens if token.kind != "mark"]
    return " ".join(words) if _ASKING_NOTHING.issuperset(words) else ""


def take_choice(clarification: Clarification, text: str) -> Outcome:
    """Return what the question means after a choice, given by number, label or a word that only one label has."""
    wanted = fold_words(text).strip(" .!\"'`")
    labels = [fold_words(choice.label) for choice in clarification.choices]
    chosen = [n for n, label in enumerate(labels) if wanted in (label, str(n + 1))]
    chosen = chosen or [n for n, label in enumerate(labels) if wanted and wanted in label]
    if len(chosen) != 1:
        listed = ", ".join(f"`{choice.label}`" for choice in clarification.choices)
        return Refusal(text, f"`{text}` is not one of {listed}.")
    prefer = (*clarification.question.prefer, clarification.choices[chosen[0]].prefer)
    question = replace(clarification.question, prefer=prefer)
    found = _settle(clarification.text, question, clarification.vocabulary, clarification.items)
    return _tell(found, clarification.told)


def _tell(found: Outcome, told: tuple[str, ...]) -> Outcome:
    """Return the outcome with more that the answer says about its reading."""
    if isinstance(found, Understanding) and told:
        return replace(found, reasons=(*found.reasons, *told), told=(*found.told, *told))
    return replace(found, told=(*found.told, *told)) if isinstance(found, Clarification) else found


def _settle(text: str, parts: Question, vocabulary: Vocabulary, items: Sequence[TaggedItem]) -> Outcome:
    try:
        check_deadline()
        made = assemble_plan(parts, vocabulary)
        check_deadline()
        _check_words(text, items, made, parts, vocabulary)
        if vocabulary.catalog is not None:
            compile_plan(made.plan, vocabulary.catalog)
    except Unresolved as error:
        return Refusal(text, error.reason)
    except Ambiguous as error:
        found = dict.fromkeys(Choice(_choice_label(m, vocabulary), (m.table, m.column or "")) for m in error.meanings)
        choices = (*(Choice(*choice) for choice in error.choices), *found)[:4]
        if len(choices) < 2:
            return Refusal(text, f"It is not clear what `{error.text}` means here.")
        if refused := _refused_anyway(text, parts, choices, vocabulary, items):
            return refused
        return Clarification(text, f"Which one is meant by `{error.text}`?", choices, parts, vocabulary, tuple(items))
    except Cancelled:
        raise
    except EtudeError as error:
        return Refusal(text, error.message)
    except ValidationError:
        return Refusal(text, "The question asks for more than one query can express.")
    notes = tuple(dict.fromkeys(made.notes))
    risks = find_confidence_risks(items, parts, made.plan, notes)
    slips = _corrections(items)
    notes = tuple(dict.fromkeys((*notes, *slips)))
    told = tuple(dict.fromkeys((*slips, *made.told)))
    return Understanding(text, made.plan, made.reading, parts, notes, told, risks)


def _refused_anyway(
    text: str, parts: Question, choices: Sequence[Choice], vocabulary: Vocabulary, items: Sequence[TaggedItem]
) -> Refusal | None:
    """Return a refusal if the question is refused after every choice: then there is nothing to ask back."""
    if len(parts.prefer) > 1:
        return None
    refused = None
    for choice in choices:
        found = _settle(text, replace(parts, prefer=(*parts.prefer, choice.prefer)), vocabulary, items)
        if not isinstance(found, Refusal):
            return None
        refused = refused or found
    return refused


def _corrections(items: Sequence[TaggedItem]) -> list[str]:
    """Return notes on mistyped words that were read as names: `garde` as `Grade`."""
    found = []
    for item in items:
        word = word_base_form(fold_words(item.text))
        meaning = item.data.meanings[0] if isinstance(item.data, NamePart) and item.data.meanings else None
        if meaning is None or len(word) < 4 or " " in word or meaning.cost < SYNONYM:
            continue
        name = meaning.column or meaning.table
        parts = [word_base_form(part) for part in split_identifier_words(name)]
        if word.removesuffix("d") in parts:
            continue  # `priced` is not a mistake
        if any(phrases_differ_by_one_slip(word, part) for part in parts):
            found.append(f"`{item.text}` is read as `{_label(meaning)}`.")
    return found


def _check_words(
    text: str, items: Sequence[TaggedItem], made: Assembled, parts: Question, vocabulary: Vocabulary
) -> None:
    """Refuse a plan that leaves out a word of the question, that only repeats one, or that another one contradicts."""
    lost = find_words_lost_in_plan(items, made.plan, parts, vocabulary)
    if lost:
        raise Unresolved(f"It is not clear what {list_unresolved_words(lost)} here.")
    if said := _counts_its_group(made.plan):
        raise Unresolved(f"It is not clear what to count for each `{said}`: each is one `{said}`.")
    if beside := find_noun_beside_plan(items, made.plan, parts):
        raise Unresolved(f"It is not clear what to show of `{beside}`.")
    if said := find_repetition_in_plan(parts, made.plan, vocabulary):
        raise Unresolved(f"It is not clear what `{said}` says about the others: the answer would only repeat it.")
    if reason := find_misreading(text, items, made.plan, parts, vocabulary):
        raise Unresolved(reason)


def _choice_label(meaning: Meaning | Hit, vocabulary: Vocabulary) -> str:
    """Return what a choice means; of a column that is computed, also how."""
    formula = vocabulary.table(meaning.table).column(meaning.column).formula if meaning.column else None
    return f"{str(meaning.column).replace('_', ' ')} ({formula.text})" if formula else _label(meaning)


def _counts_its_group(plan: QueryPlan) -> str | None:
    """Return the column whose different values are counted per value of that column."""
    counted = [m.of for m in plan.aggregate if m.fn == "count" and m.distinct and isinstance(m.of, ColumnRef)]
    return next((ref.column for ref in counted if ref in plan.group_by), None)


def _label(meaning: Meaning | Hit) -> str:
    return f"{meaning.table}.{meaning.column}" if meaning.column else meaning.table


# --- questions to offer instead


def offer_questions(vocabulary: Vocabulary) -> tuple[str, ...]:
    """Return questions about the largest tables that the rules answer."""
    return _nearest([], vocabulary)


def _nearest(items: Sequence[TaggedItem], vocabulary: Vocabulary) -> tuple[str, ...]:
    """Return questions about what the words name, else about the largest tables; each is known to work.

    Each is of another kind, so that they show different things to ask.
    """
    meanings = [m for item in items if isinstance(item.data, NamePart) for m in item.data.meanings[:2]]
    named = [m.table for m in meanings]
    named += [hit.table for item in items for hit in getattr(item.data, "hits", ())[:2]]
    columns = frozenset((m.table, m.column) for m in meanings if m.column)
    largest = [table.name for table in sorted(vocabulary.tables, key=lambda table: -table.rows)][:NEAREST]
    # Several about a table that is named, then one about each of the largest, then any.
    tables = [*(name for name in list(dict.fromkeys(named))[:NEAREST] for _ in range(NEAREST)), *largest]
    found: dict[str, str] = {}
    for again, name in enumerate([*tables, *tables * NEAREST]):
        if len(found) == NEAREST:
            break
        for kind, text in _sure_offers(vocabulary, name, columns):
            if text not in found and (kind not in found.values() or again >= len(tables)):
                found[text] = kind
                break
    return tuple(found)


def _sure_offers(
    vocabulary: Vocabulary, table: str, columns: frozenset[tuple[str, str]]
) -> tuple[tuple[str, str], ...]:
    """Return questions about a table that the rules answer, with their kinds."""
    known = vocabulary.table(table)
    own = frozenset(column for owner, column in columns if owner == table)
    kept = _offers_of(vocabulary)
    if (table, own) not in kept:
        sure = []
        noun = " ".join((*known.words[:-1], word_plural_form(known.words[-1]))) if known.words else known.name
        if len(vocabulary.tables) == 1 and not table_names_row_noun(known.name):
            noun = "rows"  # the name of a file, `titanic`, is not what its rows are
        for kind, text in _offers(known, noun, own):
            items = add_row_noun(tag_items(tokenize(text), phrase_index_of(vocabulary), date.min), vocabulary)
            if isinstance(_settle(text, read_question(items), vocabulary, items), Understanding):
                sure.append((kind, text))
        kept[table, own] = tuple(sure)
    return kept[table, own]


@once_per_vocabulary
def _offers_of(vocabulary: Vocabulary) -> dict[tuple[str, frozenset[str]], tuple[tuple[str, str], ...]]:
    """Return the questions that were made so far, by table and the columns that they are about."""
    return {}


_NO_AMOUNTS = frozenset(("latitude", "longitude", "position", "rank", "number", "flight", "round", "zip", "phone"))
"""Words in the names of columns whose numbers have no meaningful average."""


def _holds_amounts(column: VocabularyColumn) -> bool:
    """Return whether an average of the column tells something: not of flags, places and numbers of things."""
    flag = (column.low, column.high) in ((0, 1), (0, 0), (1, 1)) and column.distinct < 3
    return is_numeric_column(column) and not flag and not _NO_AMOUNTS & {*column.words}


def _spelled_words(column: VocabularyColumn) -> str:
    """Return the words of a column as its name has them, `pages` rather than `page`, without a unit at the end."""
    forms = {word_base_form(word): word for word in split_identifier_words(column.name)}
    words = [*column.words]
    while len(words) > 1 and (words[-1] in MEASURES or words[-1].isdigit()):
        words.pop()
    words = words[:-1] if len(words) > 1 and words[-1] == "in" else words
    return " ".join(forms.get(word, word) for word in words)


def _offers(table: VocabularyTable, noun: str, named: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Yield questions about a table with their kinds, those about the named columns first."""
    columns = sorted(table.columns, key=lambda c: (c.name not in named, not MONEY & {*c.words}))
    groups = [c for c in columns if c.kind == "text" and 1 < c.distinct <= 50 and c.distinct < table.rows]
    groups = [c for c in groups if c.words[-2:-1] not in (("first",), ("last",))][:1]
    numbers = [c for c in columns if _holds_amounts(c)][:1]
    made = []
    if groups and numbers and {groups[0].name, numbers[0].name} & named:
        fold = "total" if part_adds_up(numbers[0]) else "average"
        fold = "" if fold in numbers[0].words else f"{fold} "  # not the total total
        both = f"What is the {fold}{_spelled_words(numbers[0])} for each {' '.join(groups[0].words)}?"
        made.append((numbers[0] if numbers[0].name in named else groups[0], "measure", both))
    for column in groups:
        words = " ".join(column.words)
        made.append((column, "groups", f"How many {noun} are there for each {words}?"))
    for column in numbers:
        words = _spelled_words(column)
        made.append((column, "average", f"What is the average {words} of {noun}?"))
        made.append((column, "top", f"What are the top 5 {noun} by {words}?"))
    for column in [c for c in columns if c.kind in ("date", "timestamp")][:1]:
        made.append((column, "months", f"How many {noun} are there per month?"))
    yield from ((kind, text) for column, kind, text in sorted(made, key=lambda each: each[0].name not in named))
    yield "count", f"How many {noun} are there?"
