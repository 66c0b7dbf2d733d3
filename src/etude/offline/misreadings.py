"""Find readings that the words of a question speak against, although each word has a place in the plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from pydantic import BaseModel

from etude.offline.acts import (
    date_tells_act,
    date_tells_another_act,
    find_act_tables,
    find_time_of_verb,
    is_acting_verb,
)
from etude.offline.deadline import check_deadline
from etude.offline.joins import join_hops
from etude.offline.operator_words import IDLE, LINKING, PRESENT, VERBS
from etude.offline.phrase_index import SYNONYM, Meaning, phrase_index_of, value_phrase
from etude.offline.plan_check import Facts, Place, linked_columns, plan_facts, plan_nodes
from etude.offline.question_parts import Condition, Measure, NamePart, Question
from etude.offline.resolver import GENERAL
from etude.offline.tags import TaggedItem
from etude.offline.vocabulary import Vocabulary, VocabularyTable, once_per_vocabulary
from etude.offline.vocabulary_names import vocabulary_name_without_schema
from etude.offline.words import TRAILING, fold_words, stem_word, verb_root, word_base_form, word_names_act
from etude.sources.plan.query_plan import ColumnRef, Compare, Join, Member, Or, QueryPlan

_TYING = frozenset("they their them its it his her each every corresponding respective whose".split())  # noqa: SIM905
"""Words that say that two things in a list belong together."""

_TWO_LISTS = re.compile("CpT&(C|TC|CpT)|C&C")
_OR_THEN_AND = re.compile(r"[VNDQ],?\|[prC][prCclox]*[VNDQ],?&[prCclox]*[VNDQ]")
_AND_CONDITION = re.compile(r"[VNDQ],?&[prCclox]*[VNDQ]")
"""A condition after `and`; the first also after an `or` that starts with its own preposition or noun."""
_CHANGE = frozenset(
    """
    change changed develop developed evolve evolved go went grow grew increase increased decrease decreased rise rose
    fall fell drop dropped improve improved decline declined move moved differ
    """.split()  # noqa: SIM905 - a list of words reads best as text
)
"""Words for a difference between two times."""
_DIFFERENT = frozenset(("different", "distinct", "unique"))
_WORD = re.compile(r"[^\W_]+")
_FUNCTION = frozenset(
    """
    a all an and any are as at be been by did do does for from had has have how i in is it me my no not of off on or our
    some than that the their there this to was we were what which who with you your
    """.split()  # noqa: SIM905 - a list of words reads best as text
)
"""Words of grammar, which are values only at the end: `devices that are on`."""
_IMPERATIVES = frozenset(("list", "show", "give", "find", "get", "tell", "count", "compute", "display", "report"))
FEW_VALUES = 50
"""A column with more different values is not one of states or kinds."""
_ROWS = frozenset(("row", "rows", "record", "records", "entry", "entries"))
_COUNTED_ARE = re.compile(r"how many .+ (?:is|are|was|were) (?P<adjective>[^ ]+(?: [^ ]+)?)")
MOSTLY = 0.8
"""If at least this share of the rows has a name of its own, the name stands for the row."""
_SPEEDS = frozenset(("fastest", "slowest", "faster", "slower"))
_TAKEN = frozenset(("duration", "time", "minute", "second", "hour", "day", "delay", "wait", "latency", "lap"))
"""Words of columns that say how long something takes."""
_LIGHT = TRAILING | {"profile", "location", "info", "information", "detail", "record", "list", "account", "entry"}
"""Last words of tables' names that add nothing to the word before: user profiles are users."""


def find_misreading(
    text: str, items: Sequence[TaggedItem], plan: QueryPlan, question: Question, vocabulary: Vocabulary
) -> str:
    """Return why the plan is probably not what the question asks for, or ''."""
    facts = plan_facts(plan)
    told = {*_told_columns(plan)}
    words = frozenset(fold_words(text).split())
    checks: tuple[Callable[[], Iterator[str]], ...] = (
        lambda: _find_other_owner(items, facts, told, vocabulary),
        lambda: _find_better_place(items, facts, vocabulary, words),
        lambda: _find_name_of_another(items, facts),
        lambda: _find_denied_value(question, plan),
        lambda: _find_far_adjective(question),
        lambda: _find_modifier(question, facts, vocabulary),
        lambda: _find_part_of_all(question, facts, vocabulary, words),
        lambda: _find_far_number(question),
        lambda: _find_nested_absence(items, question),
        lambda: _find_unused_verb(items, facts, vocabulary),
        lambda: _find_asked_object(items, plan, words),
        lambda: _find_asked_doer(text, items, plan, question),
        lambda: _find_counted_column(items, plan, vocabulary),
        lambda: _find_speed_of_time(items, facts, vocabulary),
        lambda: _find_other_record(question, facts, vocabulary),
        lambda: _find_rival_noun(items, facts, vocabulary),
        lambda: _find_participle(items, facts, vocabulary),
        lambda: _find_value_with_column(items, facts, vocabulary),
        lambda: _find_other_date(items, facts, vocabulary),
        lambda: _find_date_of_another_act(items, facts, vocabulary),
        lambda: _find_dropped_change(items, plan, words),
        lambda: _find_period_of_another(items, plan, vocabulary),
        lambda: _find_pairs(items, plan),
        lambda: _find_mixed_alternatives(items, plan),
        lambda: _find_dropped_total(items, plan, facts),
        lambda: _find_counted_amount(items, facts),
        lambda: _find_two_counts(items, facts),
        lambda: _find_count_of_two(items),
        lambda: _find_unrelated_lists(items, plan, words),
        lambda: _find_repeated_number(items, plan),
        lambda: _find_link_table(items, facts, vocabulary),
        lambda: _find_count_of_one(plan, question, vocabulary),
        lambda: _find_count_of_repeated_names(plan, words, vocabulary),
        lambda: _find_dropped_value(text, items, facts, vocabulary),
        lambda: _find_rows_of_named(items, plan, words, vocabulary),
        lambda: _find_group_of_adjective(text, items, plan),
        lambda: _find_known_values(plan),
    )
    for check in checks:
        check_deadline()
        for reason in check():
            return reason
    return ""


# --- columns and the nouns that own them


def _told_columns(node: Any) -> Iterator[Place]:
    """Yield the columns that a plan shows, compares or measures; those that only join tables are not told."""
    if isinstance(node, Join):
        return
    if isinstance(node, Member):
        yield from _told_columns((node.plan.where, node.plan.source))
    elif isinstance(node, ColumnRef):
        yield str(node.table), node.column
    elif isinstance(node, BaseModel):
        shown = isinstance(node, QueryPlan) and bool(node.select)
        for name in type(node).model_fields:
            if name != "group_by" or not shown:
                yield from _told_columns(getattr(node, name))
    elif isinstance(node, tuple | list):
        for each in node:
            yield from _told_columns(each)


def _find_other_owner(
    items: Sequence[TaggedItem], facts: Facts, told: set[Place], vocabulary: Vocabulary
) -> Iterator[str]:
    """`the effective date of the claim`, if claims have one and the plan takes that of another table."""
    for owner, item in _owned(items):
        name: NamePart = item.data
        tables = {m.table for m in owner.data.tables if m.cost == owner.data.tables[0].cost}
        low = min(m.cost for m in name.columns)
        own = [m for m in name.columns if m.table in tables and m.cost <= max(low, 1)]
        if own and not any(_is_told(m, facts, told, vocabulary) for m in own):
            yield f"It is not clear whether `{item.text}` is that of `{owner.text}`."


def _owned(items: Sequence[TaggedItem]) -> Iterator[tuple[TaggedItem, TaggedItem]]:
    """Yield nouns with the columns said to be theirs: `id and name of the student`, `the student's name`."""
    for at, item in enumerate(items):
        if item.tag != "C" or not item.data.columns:
            continue
        after = at + 1
        while [i.tag for i in items[after : after + 2]] in (["&", "C"], [",", "C"]):
            after += 2
        if [i.tag for i in items[after : after + 2]] == ["p", "T"] and items[after].text == "of":
            yield items[after + 1], item
        elif at and items[at - 1].tag == "T" and (item.joined or word_base_form(fold_words(item.text)) in GENERAL):
            yield items[at - 1], item


def _is_told(meaning: Meaning, facts: Facts, told: set[Place], vocabulary: Vocabulary) -> bool:
    table = vocabulary.table(meaning.table)
    short = vocabulary_name_without_schema(meaning.table)
    columns = table.label if meaning.label else (str(meaning.column),)
    if columns == table.key and short in facts.tables and "count" in facts.functions:
        return True
    places = {(short, column) for column in columns}
    linked = {end for place in places for end in linked_columns(vocabulary).get(place, ())}
    return bool((places | linked) & told)


def _find_better_place(
    items: Sequence[TaggedItem], facts: Facts, vocabulary: Vocabulary, words: frozenset[str]
) -> Iterator[str]:
    """`the description of document type`: not that of shipping agents, if document types have one too."""
    said = {word_base_form(word.strip("?.,'\"")) for word in words}
    for item in items:
        if item.tag != "C":
            continue
        used = [m for m in item.data.columns if m.column and _place(m) in facts.columns]
        if len({m.table for m in used}) != 1 or _names(vocabulary.table(used[0].table)) & said:
            continue
        rivals = [m for m in item.data.columns if m.table != used[0].table]
        if any(_names(vocabulary.table(m.table)) & said - {*item.text.lower().split()} for m in rivals):
            yield f"It is not clear which `{item.text}` is meant."


def _find_name_of_another(items: Sequence[TaggedItem], facts: Facts) -> Iterator[str]:
    """`the game name`, if games have no name and the plan shows that of students."""
    for owner, item in pairwise(items):
        general = (
            item.tag == "C" and item.joined and word_base_form(fold_words(item.text)) in ("name", "title", "id", "code")
        )
        if owner.tag != "T" or not general:
            continue
        tables = {m.table for m in owner.data.tables}
        used = [m for m in item.data.columns if vocabulary_name_without_schema(m.table) in facts.tables]
        if used and not any(m.table in tables for m in item.data.columns):
            yield f"`{owner.text}` has no `{item.text}`."


def _find_denied_value(question: Question, plan: QueryPlan) -> Iterator[str]:
    """`customers without a credit card`: those who have none, not those who have another card."""
    denied = [c for c in question.conditions if c.negated and c.hits and c.text.lower().startswith("without")]
    held = {vocabulary_name_without_schema(hit.table) for condition in denied for hit in condition.hits}
    others = {str(ref.table) for ref in (*plan.select, *plan.group_by) if isinstance(ref, ColumnRef)} - held
    if denied and others:
        yield f"It is not clear what `{denied[0].text}` says about them."


def _find_known_values(plan: QueryPlan) -> Iterator[str]:
    """`the members of the club Oak; show the full name`, if the plan shows `Oak` once for each member."""
    shown = {(ref.table, ref.column) for ref in (*plan.select, *plan.group_by) if isinstance(ref, ColumnRef)}
    filters = plan.where if isinstance(plan.where, tuple) else () if plan.where is None else (plan.where,)
    fixed = {
        (each.column.table, each.column.column)
        for each in filters
        if isinstance(each, Compare) and each.op == "=" and isinstance(each.value, str)
        if isinstance(each.column, ColumnRef)
    }
    if shown and shown <= fixed and not plan.aggregate and (plan.joins or len(filters) > 1):
        yield "The answer would only repeat what the question says."


def _find_far_adjective(question: Question) -> Iterator[str]:
    """`an accounting professor`, if it is students and professors that have a department."""
    for condition in question.conditions:
        noun = condition.of if condition.hits and condition.name is None else None
        if noun is None or not noun.tables or noun == question.subject:
            continue
        if not {hit.table for hit in condition.hits} & {m.table for m in noun.tables}:
            yield f"It is not clear what `{condition.text}` says about `{noun.text}`."


def _find_far_number(question: Question) -> Iterator[str]:
    """`the people injured`, if `injured` is a number that something else has."""
    subject = question.subject
    if subject is None or not subject.tables:
        return
    tables = {m.table for m in subject.tables}
    for name in question.loose:
        if name.columns and not any(m.flag or m.table in tables for m in name.columns):
            yield f"It is not clear what `{name.text}` says about `{subject.text}`."


def _find_nested_absence(items: Sequence[TaggedItem], question: Question) -> Iterator[str]:
    """`customers whose orders have no invoice`: one of the orders, or none of them?"""
    for at, item in enumerate(items):
        before = [each.data for each in items[:at] if each.tag in "TC"][-1:]
        if item.tag == "x" and question.absences and before and before[0] in question.context:
            yield f"It is not clear whether each of `{before[0].text}` is meant, or one of them."


def _place(meaning: Meaning) -> Place:
    return vocabulary_name_without_schema(meaning.table), str(meaning.column)


def _names(table: VocabularyTable) -> set[str]:
    return {word for words in (table.words, *table.aliases) for word in words if word != "ref"}


# --- words that name something else


def _find_modifier(question: Question, facts: Facts, vocabulary: Vocabulary) -> Iterator[str]:
    """`tourists`, read as `tourist_attractions`: the first word of a name only says what kind of thing it is."""
    nouns = [question.subject, *(threshold.measure.name for threshold in question.thresholds)]
    nouns += [question.rank.by.name] if question.rank is not None and isinstance(question.rank.by, Measure) else []
    for noun in nouns:
        used = [m for m in noun.tables if vocabulary_name_without_schema(m.table) in facts.tables] if noun else []
        best = min(used, key=lambda m: m.cost, default=None)
        if noun is None or best is None or min(m.cost for m in noun.tables) <= SYNONYM:
            continue
        table = vocabulary.table(best.table)
        first = table.words[:1] == (word_base_form(fold_words(noun.text)),) and len(table.words) > 1
        named = [table.column(column).words for column in (*table.key, *table.label)]
        keyed = any(table.words[:1] in (words, words[:-1]) for words in named[: len(table.key)] or named)
        # The members of a club are in `member_of_club`.
        if first and not keyed and table.words[-1] not in _LIGHT and table.words[1] != "of":
            yield f"It is not clear whether `{noun.text}` means `{table.name}`."


def _find_part_of_all(question: Question, facts: Facts, vocabulary: Vocabulary, words: frozenset[str]) -> Iterator[str]:
    """`permits`, read as `permits_to_be_renewed`, if there are `all_permits` too."""
    subject = question.subject
    noun = word_base_form(fold_words(subject.text)) if subject else ""
    used = [vocabulary.table(m.table) for m in subject.tables] if subject else []
    for table in used:
        done = table.words[:1] == (noun,) and len(table.words) > 1 and table.words[-1].endswith("ed")
        if not done or table.words[-1] in words or vocabulary_name_without_schema(table.name) not in facts.tables:
            continue
        whole = [other for other in used if other.words[-1:] == (noun,) and other != table]
        if whole:
            yield f"It is not clear whether `{noun}` means `{whole[0].name}` or `{table.name}`."


def _find_unused_verb(items: Sequence[TaggedItem], facts: Facts, vocabulary: Vocabulary) -> Iterator[str]:
    """`students enrolled`, if there is a table `enrollments` that the plan does not use."""
    acts = phrase_index_of(vocabulary).acts
    counted = {item.text for item in items if item.tag == "T"}
    for item in (each for each in items if each.text not in counted):
        tables = acts.get(stem_word(item.text.lower()), ()) if item.tag == "r" else ()
        if tables and not {vocabulary_name_without_schema(m.table) for m in tables} & facts.tables:
            yield f"It is not clear what `{item.text}` means here: `{tables[0].table}` is not needed to answer."
        stem = stem_word(item.text.lower()) if item.tag == "r" and not tables else ""
        acts_of = [table.name for table in vocabulary.tables if any(word_names_act(word, stem) for word in table.words)]
        if acts_of and not {vocabulary_name_without_schema(name) for name in acts_of} & facts.tables:
            yield f"It is not clear what `{item.text}` means here: `{acts_of[0]}` is not needed to answer."
        known = item.tag != "r" or tables or acts_of or item.text.lower() in LINKING | VERBS
        named = () if known else phrase_index_of(vocabulary).verb_roots.get(verb_root(item.text.lower()), ())
        if named and not any(_is_needed(m, facts) for m in named):
            yield f"It is not clear what `{item.text}` means here: `{named[0].table}` is not needed to answer."


def _find_asked_object(items: Sequence[TaggedItem], plan: QueryPlan, words: frozenset[str]) -> Iterator[str]:
    """`what do the teachers earn`, if the plan lists the teachers."""
    last = next((item for item in reversed(items) if item.tag != "."), None)
    asks = "what" in words and bool({"do", "does", "did"} & words)
    if asks and last is not None and last.tag == "r" and last.text.lower() not in IDLE and not plan.aggregate:
        yield f"It is not clear what `{last.text}` asks for."


def _find_asked_doer(text: str, items: Sequence[TaggedItem], plan: QueryPlan, question: Question) -> Iterator[str]:
    """`who advises student 7`, if the plan lists the student: it asks for the one who does it."""
    first, said = items[0] if items else None, text.lower()
    if first is None or question.listed or plan.aggregate or not said.startswith("who "):
        return
    if first.tag == "r" or (first.tag in "TC" and said.startswith(("who has ", "who have ", "who had "))):
        yield f"It is not clear who is asked for by `who` before `{first.text}`."


def _find_counted_column(items: Sequence[TaggedItem], plan: QueryPlan, vocabulary: Vocabulary) -> Iterator[str]:
    """`the number of hosts per nationality`, if hosts have a nationality, and parties a `number_of_hosts`."""
    index = phrase_index_of(vocabulary)
    grouped = {ref.table for ref in plan.group_by if isinstance(ref, ColumnRef)}
    for item in items:
        words = fold_words(item.text).split()
        if item.tag != "C" or words[:2] != ["number", "of"] or not grouped:
            continue
        rows = index.names.get(tuple(word_base_form(word) for word in words[2:]), ())
        tables = {vocabulary_name_without_schema(m.table) for m in rows if m.column is None and m.cost == 0}
        owners = {vocabulary_name_without_schema(m.table) for m in item.data.columns}
        if tables & grouped and not tables & owners:
            yield f"It is not clear whether to count `{words[-1]}` or to add up a `{item.text}`."


def _find_speed_of_time(items: Sequence[TaggedItem], facts: Facts, vocabulary: Vocabulary) -> Iterator[str]:
    """`slowest response`, if the number is a time: then the slowest has the highest one."""
    said = next((item.text for item in items if item.tag in "So" and item.text.lower().split()[0] in _SPEEDS), None)
    columns = [c for t in vocabulary.tables for c in t.columns if said is not None]
    for column in columns:
        used = (vocabulary_name_without_schema(column.table), column.name) in facts.columns
        if used and column.kind == "number" and _TAKEN & {*column.words}:
            yield f"It is not clear whether `{said}` means the highest or the lowest `{column.name}`."


def _is_needed(meaning: Meaning, facts: Facts) -> bool:
    table, column = _place(meaning)
    return table in facts.tables if meaning.column is None else (table, column) in facts.columns


def _find_other_record(question: Question, facts: Facts, vocabulary: Vocabulary) -> Iterator[str]:
    """`games`, read as `game_record`, if the plan has `home_game` too: which are counted?"""
    nouns = [threshold.measure.name for threshold in question.thresholds]
    nouns += [question.rank.by.name] if question.rank is not None and isinstance(question.rank.by, Measure) else []
    for noun in nouns:
        word = word_base_form(fold_words(noun.text).split()[-1])
        used = [vocabulary.table(m.table) for m in noun.tables]
        used = [table for table in used if vocabulary_name_without_schema(table.name) in facts.tables]
        kept = [table for table in used if table.words[-1] in TRAILING and table.words[:-1] == (word,)]
        heads = [table for table in used if table.words[-1:] == (word,) and len(table.words) > 1]
        if kept and heads:
            yield f"It is not clear whether `{noun.text}` means `{kept[0].name}` or `{heads[0].name}`."


def _find_rival_noun(items: Sequence[TaggedItem], facts: Facts, vocabulary: Vocabulary) -> Iterator[str]:
    """`followers`, if it is a column and there is a table `follows` besides."""
    acts = phrase_index_of(vocabulary).acts
    for item in items:
        word = fold_words(item.text)
        if item.tag != "C" or " " in word or len(word) < 5:
            continue
        tables = [
            m.table
            for m in acts.get(stem_word(word), ())
            if word_base_form(word) not in vocabulary.table(m.table).words
        ]
        if tables and not {vocabulary_name_without_schema(table) for table in tables} & facts.tables:
            yield f"It is not clear whether `{item.text}` means a column or `{tables[0]}`."


def _find_participle(items: Sequence[TaggedItem], facts: Facts, vocabulary: Vocabulary) -> Iterator[str]:
    """`nominated`, if it is a value of the result and there are nominees or nominations besides."""
    for item in items:
        word = fold_words(item.text)
        hits = item.data.hits if isinstance(item.data, Condition) else ()
        if not hits or not word.endswith("ed") or " " in word or not item.text[:1].islower() or len(word) < 7:
            continue
        held = {(vocabulary_name_without_schema(hit.table), hit.column) for hit in hits}
        for table in vocabulary.tables:
            short = vocabulary_name_without_schema(table.name)
            if short not in facts.tables:
                continue
            texts = [(short, c.name) for c in table.columns if c.kind == "text"]
            named = [table.words, *(table.column(c).words for _, c in texts if (short, c) not in held)]
            if any(_same_root(word, other) for words in named for other in words):
                yield f"It is not clear whether `{item.text}` is a value or says what happened."


def _same_root(word: str, other: str) -> bool:
    return other != word and len(other) > 5 and word[:5] == other[:5]


def _find_value_with_column(items: Sequence[TaggedItem], facts: Facts, vocabulary: Vocabulary) -> Iterator[str]:
    """`Kent County`, if it is the name of an area, and `Kent` is a county besides."""
    index = phrase_index_of(vocabulary)
    for item in items:
        hits = item.data.hits if isinstance(item.data, Condition) else ()
        *words, noun = value_phrase(item.text) or ("",)
        if not hits or not words or item.plural:
            continue
        columns = {_place(m) for m in index.names.get((word_base_form(noun),), ()) if m.column is not None}
        others = {(vocabulary_name_without_schema(h.table), h.column) for h in index.values.get(tuple(words), ())}
        held = {(vocabulary_name_without_schema(hit.table), hit.column) for hit in hits}
        if columns & others and not columns & others & facts.columns and held & facts.columns:
            yield f"It is not clear whether `{item.text}` is a name, or `{' '.join(words)}` a `{noun}`."


def _find_other_date(items: Sequence[TaggedItem], facts: Facts, vocabulary: Vocabulary) -> Iterator[str]:
    """`orders shipped after May 2020`, if `shipped` is a status and the plan has the date of the order."""
    for said, span in pairwise(items):
        word = fold_words(said.text)
        done = (word.endswith("ed") or word in PRESENT) and " " not in word and not said.text[:1].isupper()
        if (said.tag, span.tag) != ("V", "D") or not done:
            continue
        columns = [c for t in vocabulary.tables for c in t.columns if c.kind in ("date", "timestamp")]
        used = [c for c in columns if (vocabulary_name_without_schema(c.table), c.name) in facts.columns]
        if used and not any(stem_word(word) == stem_word(part) for column in used for part in column.words):
            noun = next((item for item in items if item.tag == "T"), None)
            own = noun is not None and used[0].table in {hit.table for hit in said.data.hits}
            hint = (
                f"; if `{used[0].name}` is meant, ask for `{said.text} {noun.text} {span.text}`" if own and noun else ""
            )
            yield f"It is not clear whether `{span.text}` says when something was `{said.text}`{hint}."


def _find_date_of_another_act(items: Sequence[TaggedItem], facts: Facts, vocabulary: Vocabulary) -> Iterator[str]:
    """`customers who paid in 2025`, if the plan has the date on which they signed up."""
    columns = [c for t in vocabulary.tables for c in t.columns if c.kind in ("date", "timestamp")]
    used = [c for c in columns if (vocabulary_name_without_schema(c.table), c.name) in facts.columns]
    for at, item in enumerate(items):
        if not used or not is_acting_verb(items, at) or find_time_of_verb(items, at) is None:
            continue
        tables = find_act_tables(item.text, vocabulary)
        told = any(c.table in tables or date_tells_act(c, item.text) for c in used)
        if not told and (tables or all(date_tells_another_act(c, item.text) for c in used)):
            column = f"{used[0].table}.{used[0].name}"
            yield f"It is not clear which date says when something was `{item.text}`: `{column}` does not."


def _find_dropped_change(items: Sequence[TaggedItem], plan: QueryPlan, words: frozenset[str]) -> Iterator[str]:
    """`how did revenue change from 2024 to 2025`, if the plan makes one number of both years."""
    named = {word for item in items if item.tag in "CTV" for word in fold_words(item.text).split()}
    change = sorted((words & _CHANGE) - named)
    spans = [item for item in items if item.tag == "D" and item.text.lower().startswith(("from ", "between "))]
    if change and spans and plan.aggregate and not plan.group_by:
        yield f"The rules cannot tell a change {spans[0].text} (`{change[0]}`). Ask for it per year or per month."


def _find_period_of_another(items: Sequence[TaggedItem], plan: QueryPlan, vocabulary: Vocabulary) -> Iterator[str]:
    """`visitors per year`, if films have a `year` and screenings a date: which one is meant?"""
    tables = [t for t in vocabulary.tables if vocabulary_name_without_schema(t.name) == str(plan.source)]
    dates = [c for t in tables for c in t.columns if c.kind in ("date", "timestamp")]
    for ref in [key for key in plan.group_by if isinstance(key, ColumnRef) and str(key.table) != str(plan.source)]:
        other = ref.column.lower()
        said = [item for item in items if item.tag == "C" and item.text.lower() == other]
        if said and dates and other in ("year", "month", "quarter", "season"):
            date = f"{dates[0].table}.{dates[0].name}"
            yield f"It is not clear whether `{other}` is that of `{ref.table}` or of `{date}`."


# --- what belongs together


def _find_pairs(items: Sequence[TaggedItem], plan: QueryPlan) -> Iterator[str]:
    """`in Austin, Texas or in Phoenix, Arizona`: each city with its state, not one of four."""
    either = [node for node in plan_nodes(plan) if isinstance(node, Or)]
    for node in either:
        if not _mixes_columns(node):
            continue
        for first, comma, second in zip(items, items[1:], items[2:], strict=False):
            if (first.tag, comma.tag, second.tag) != ("V", ",", "V"):
                continue
            one, other = ({(hit.table, hit.column) for hit in item.data.hits} for item in (first, second))
            if not one & other:
                yield f"It is not clear which of the values belong to `{first.text}`."


def _find_mixed_alternatives(items: Sequence[TaggedItem], plan: QueryPlan) -> Iterator[str]:
    """`in Rome or in Oslo and in May`: does the last one apply to both?"""
    tags = "".join(item.tag for item in items)
    mixed = any(_mixes_columns(node) for node in plan_nodes(plan) if isinstance(node, Or))
    found = _OR_THEN_AND.search(tags) or (_AND_CONDITION.search(tags) if mixed else None)
    if found and "|" in tags:
        yield "It is not clear what `and` and `or` join; say it in two questions."


def _mixes_columns(node: Or) -> bool:
    refs = [each.column for each in plan_nodes(node) if isinstance(each, Compare)]
    return len({(ref.table, ref.column) for ref in refs if isinstance(ref, ColumnRef)}) > 1


def _find_unrelated_lists(items: Sequence[TaggedItem], plan: QueryPlan, words: frozenset[str]) -> Iterator[str]:
    """`the names of reviewers and movie titles`: two lists, or who reviewed what?"""
    shown = {node.table for node in plan_nodes((plan.select, plan.group_by)) if isinstance(node, ColumnRef)}
    tags = "".join(item.tag for item in items if item.tag != ".")
    if not plan.aggregate and len(shown) > 1 and _TWO_LISTS.fullmatch(tags) and not words & _TYING:
        yield f"It is not clear how `{items[0].text}` and `{items[-2].text}` belong together."


# --- numbers


def _find_dropped_total(items: Sequence[TaggedItem], plan: QueryPlan, facts: Facts) -> Iterator[str]:
    """`the total number of residents of the 3 largest districts` is one number, not three."""
    added = bool({"sum", "count"} & facts.functions)
    named = any("total" in column.lower() for _, column in facts.columns)
    if not added and not named and any(item.tag == "#" and "total" in item.text for item in items):
        yield "It is not clear what to add up for the total."


def _find_counted_amount(items: Sequence[TaggedItem], facts: Facts) -> Iterator[str]:
    """`how much do customers pay`, if the plan counts customers: an amount is never a number of rows."""
    if any(item.text == "how much" for item in items) and facts.functions == {"count"}:
        yield "It is not clear which amount `how much` asks for."


def _find_count_of_two(items: Sequence[TaggedItem]) -> Iterator[str]:
    """`how many artists and albums are there`: two numbers, not the artists that have albums."""
    if re.fullmatch(r"#U?T(?:,T)*,?&T\.?", "".join(item.tag for item in items)):
        nouns = " and the ".join(f"number of {item.text}" for item in items if item.tag == "T")
        yield f"It is not clear what is counted. Ask for the {nouns}."


def _find_two_counts(items: Sequence[TaggedItem], facts: Facts) -> Iterator[str]:
    """`the numbers of majors and cities` are two numbers."""
    for at, item in enumerate(items):
        after = [each.tag for each in items[at + 1 : at + 5] if each.tag != "U"]
        if item.tag == "#" and item.text.startswith("numbers") and facts.groups and after[1:2] == ["&"]:
            yield f"It is not clear what the `{item.text}` count."


def _find_repeated_number(items: Sequence[TaggedItem], plan: QueryPlan) -> Iterator[str]:
    """`the students and the number of hours played`: each game's hours, or all together?"""
    if any(item.tag == "#" for item in items) and plan.joins and not plan.aggregate and not plan.group_by:
        yield "It is not clear whether to add up the number, or to list it for each row."


def _find_count_of_one(plan: QueryPlan, question: Question, vocabulary: Vocabulary) -> Iterator[str]:
    """`how many goals does Ann have`, if the rows of a file are taken for goals and one of them is Ann's."""
    counts = [part for part in question.requested if isinstance(part, Measure) and part.fn == "count"]
    if len(plan.aggregate) != 1 or plan.group_by or plan.joins or not counts or not isinstance(plan.source, str):
        return
    noun, table = counts[0].name, vocabulary.table(plan.source)
    if len(vocabulary.tables) > 1 or not noun.tables or noun.tables[0].cost == 0 or table.rows < 2:
        return
    filters = plan.where if isinstance(plan.where, tuple) else () if plan.where is None else (plan.where,)
    for each in filters:
        if not isinstance(each, Compare) or each.op != "=" or not isinstance(each.column, ColumnRef):
            continue
        own = each.column.table in (None, vocabulary_name_without_schema(table.name))
        if own and table.column(each.column.column).distinct == table.rows:
            yield f"Only one row has this `{each.column.column}`, so it is not clear what `{noun.text}` counts."


def _find_count_of_repeated_names(plan: QueryPlan, words: frozenset[str], vocabulary: Vocabulary) -> Iterator[str]:
    """`how many players`, if nearly every row has its own `player`, and a few share one: rows, or names?"""
    of = plan.aggregate[0].of if len(plan.aggregate) == 1 and plan.aggregate[0].distinct else None
    if not isinstance(of, ColumnRef) or plan.group_by or plan.joins or not isinstance(plan.source, str):
        return
    table = vocabulary.table(plan.source)
    if of.table not in (None, vocabulary_name_without_schema(table.name)) or words & _DIFFERENT:
        return
    column = table.column(of.column)
    known = table.rows - column.nulls
    if column.kind == "text" and not column.as_text and MOSTLY * known <= column.distinct < known:
        yield (
            f"{known:,} rows have a `{column.name}`, {column.distinct:,} of them different. Ask for the number of "
            f"rows, or of different `{column.name}`."
        )


def _find_dropped_value(text: str, items: Sequence[TaggedItem], facts: Facts, vocabulary: Vocabulary) -> Iterator[str]:
    """`how many visits were done`, if `done` is a status: a word that often says nothing may be a value."""
    index = phrase_index_of(vocabulary)
    read = [item for item in items if item.tag != "."]
    if read and read[-1].tag == "p":
        read.pop()  # nothing follows this preposition
    said = {word for item in read for word in _WORD.findall(fold_words(item.text))}
    asked = _WORD.findall(fold_words(text))
    for at, word in enumerate(asked):
        last = at == len(asked) - 1
        if word in said or (word in _FUNCTION and not last) or (at == 0 and word in _IMPERATIVES):
            continue
        for hit in index.values.get((word,), ()):
            table = vocabulary.table(hit.table)
            used = vocabulary_name_without_schema(table.name) in facts.tables
            if used and hit.cost == 0 and 1 < table.column(hit.column).distinct <= FEW_VALUES:
                yield f"It is not clear whether `{word}` is meant as a value of `{hit.column}`."


def _find_rows_of_named(
    items: Sequence[TaggedItem], plan: QueryPlan, words: frozenset[str], vocabulary: Vocabulary
) -> Iterator[str]:
    """`how many counters` of `bike_counters`, if its rows repeat each `Counter Name`: rows, or counters?"""
    counted = plan.aggregate[0] if len(plan.aggregate) == 1 else None
    if counted is None or counted.fn != "count" or counted.of is not None or len(vocabulary.tables) > 1:
        return
    table = vocabulary.tables[0]
    for item in items:
        noun = tuple(map(word_base_form, fold_words(item.text).split())) if item.tag == "T" else ()
        for column in table.columns if noun and not words & _ROWS else ():
            named = column.kind == "text" and column.words in ((*noun, "name"), (*noun, "title"))
            if named and 0 < column.distinct < MOSTLY * (table.rows - column.nulls):
                yield (
                    f"The rows of `{table.name}` repeat each `{column.name}`. Ask for the number of rows, or of "
                    f"different `{column.name}`."
                )


def _find_group_of_adjective(text: str, items: Sequence[TaggedItem], plan: QueryPlan) -> Iterator[str]:
    """`how many parcels are organic`, if the plan counts them for each value of the column `organic`."""
    found = _COUNTED_ARE.fullmatch(fold_words(text).strip(" ?.!"))
    grouped = [part for part in plan.group_by if isinstance(part, ColumnRef)]
    last = next((item for item in reversed(items) if item.tag != "."), None)
    if found is None or len(grouped) != 1 or last is None or last.tag != "C":
        return
    if fold_words(last.text) == found["adjective"]:
        yield f"It is not clear which values of `{grouped[0].column}` are meant by `{last.text}`."


def _find_link_table(items: Sequence[TaggedItem], facts: Facts, vocabulary: Vocabulary) -> Iterator[str]:
    """`train stations`, if that table only links trains to stations."""
    others, hops = _table_names(vocabulary), join_hops(vocabulary)
    for item in items:
        for meaning in item.data.tables if item.tag == "T" else ():
            table = vocabulary.table(meaning.table)
            refers = {column for hop in hops.get(table.name, ()) if not hop.back for column in hop.columns}
            links = len(refers) > 1 and refers.issuperset(column.name for column in table.columns)
            if not links or vocabulary_name_without_schema(table.name) not in facts.tables or meaning.cost > 0:
                continue
            if len(table.words) > 1 and table.words[:1] in others and table.words[1:] in others:
                yield f"It is not clear whether `{item.text}` means `{others[table.words[1:]]}`."


@once_per_vocabulary
def _table_names(vocabulary: Vocabulary) -> dict[tuple[str, ...], str]:
    """Return the tables by their words; of two with the same words, the last."""
    return {words: table.name for table in vocabulary.tables for words in (table.words, *table.aliases)}
