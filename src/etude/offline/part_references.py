"""Connect the parts of a question: what an order, a list of columns or a later mention refers to."""

from __future__ import annotations

from dataclasses import replace

from etude.offline.column_traits import column_holds_counts, is_numeric_column, is_rate_column
from etude.offline.measure_rules import quartiles_of
from etude.offline.phrase_index import Meaning
from etude.offline.question_parts import Condition, Measure, NamePart, Question, Rank, Threshold
from etude.offline.revenue import MONEY_WORDS, money_of, sales_meanings
from etude.offline.vocabulary import Vocabulary, VocabularyColumn, VocabularyTable
from etude.offline.words import split_identifier_words, word_base_form

ADDING = frozenset(
    [
        "sold",
        "ticket",
        "unit",
        "fee",
        "kwh",
        "usage",
        "consumption",
        "amount",
        "total",
        "revenue",
        "quantity",
        "count",
        "number",
        "volume",
        "sale",
        "payment",
    ]
)
"""Words in the names of columns whose sum makes sense."""
LEVELS = frozenset(
    """
    price rating score grade mark age temperature degree star height weight width depth speed latitude longitude rank
    position level index percent percentage share discount year inch foot average mean median minimum maximum
    """.split()  # noqa: SIM905 - a list of words reads best as text
)
"""Words in the names of columns whose numbers say how high, not how much: their sum means little."""


def part_adds_up(column: VocabularyColumn) -> bool:
    """Return whether people mean the total of the column: `quantity`, `days absent`; not `unit price` or `grade`."""
    words = {*column.words}
    if not is_numeric_column(column) or is_rate_column(column) or (LEVELS & words and "total" not in words):
        return False
    return bool(ADDING & words) or any(word_base_form(word) != word for word in split_identifier_words(column.name))


def connect_parts(question: Question, vocabulary: Vocabulary) -> Question:
    """Return the question with its parts connected."""
    question = _undated(question, vocabulary)
    question = _sold(question, vocabulary)
    question = count_grouped_rows(_everything(_only_rows(_described(question, vocabulary), vocabulary)))
    question = replace(question, conditions=tuple(_aligned(condition) for condition in question.conditions))
    question = replace(
        question, requested=_distributed(question.requested, vocabulary), asked=_distributed(question.asked, vocabulary)
    )
    question = _limited_by_total(_ranked(_unify(_complete(question, vocabulary)), vocabulary), vocabulary)
    return _added_count(_summed(_ranked_by_total(question, vocabulary), vocabulary), vocabulary)


def apart_alternatives(question: Question) -> Question:
    """`both tea and coffee`: return the question with a condition for each value, because one row has only one."""
    if not question.both:
        return question
    conditions: list[Condition] = []
    for condition in question.conditions:
        if condition.op == "and" and condition.either and not condition.negated:
            first = replace(condition, text=condition.text.split(" and ")[0], either=(), op="=")
            others = (
                replace(
                    part,
                    name=part.name or condition.name,
                    after=condition.after,
                    beside=condition.beside,
                    said=condition.said,
                    op="=",
                )
                for part in condition.either
            )
            conditions += [first, *others]
        else:
            conditions.append(condition)
    return replace(question, conditions=tuple(conditions))


def _undated(question: Question, vocabulary: Vocabulary) -> Question:
    """`quantity in 2024`: the amount is asked for, it does not say which date is meant."""
    if question.requested or question.ratio or question.rank:
        return question
    for at, condition in enumerate(question.conditions):
        name = condition.name if condition.kind == "span" else None
        columns = [vocabulary.table(m.table).column(m.column) for m in name.columns if m.column] if name else []
        if name is not None and columns and not name.tables and all(part_adds_up(column) for column in columns):
            text = condition.span.text if condition.span else condition.text
            timed = replace(condition, name=None, text=text)
            conditions = (*question.conditions[:at], timed, *question.conditions[at + 1 :])
            return replace(question, requested=(name,), asked=(name,), conditions=conditions)
    return question


def _only_rows(question: Question, vocabulary: Vocabulary) -> Question:
    """`paintings on display`, of a source with one table: its rows under these conditions."""
    flags = tuple(
        p for p in question.requested if isinstance(p, NamePart) and p.meanings and all(m.flag for m in p.meanings)
    )
    alone = len(flags) == len(question.requested) and not question.groups and question.subject is None
    if len(vocabulary.tables) != 1 or not alone or question.ratio or question.rank or not question.conditions:
        return question
    rows = NamePart(vocabulary.tables[0].name, (Meaning(vocabulary.tables[0].name),))
    loose = (*question.loose, *flags)
    return replace(question, requested=(rows,), asked=(rows,), subject=rows, plural=True, loose=loose)


MOST_BARS = 20
"""A number with more values than this is described by its quartiles, not by a count of each value."""


def _described(question: Question, vocabulary: Vocabulary) -> Question:
    """`distribution of prices`: with many values, the lowest and highest of them and the quartiles."""
    group = question.groups[0] if len(question.groups) == 1 else None
    if group is None or group.name is None or not group.text.startswith("distribution of "):
        return question
    columns = [vocabulary.table(m.table).column(m.column) for m in group.name.columns if m.column]
    if not columns or not all(is_numeric_column(column) and column.distinct > MOST_BARS for column in columns):
        return question
    measures = tuple(quartiles_of(group.name))
    return replace(question, requested=measures, asked=measures, groups=(), subject=None)


def _sold(question: Question, vocabulary: Vocabulary) -> Question:
    """`sales by region`, of a table called sales: either what was taken in or how many were sold, not its rows."""
    (part, *others) = question.requested or (None,)
    name = part.name if isinstance(part, Measure) else part
    if others or name is None or name.text.lower() != "sales" or (isinstance(part, Measure) and part.fn == "count"):
        return question
    tables = [vocabulary.table(m.table) for m in name.tables]
    meanings = tuple(Meaning(table.name, column) for table in tables for column in sales_meanings(table))
    if not meanings or not (question.groups or isinstance(part, Measure)):
        return question
    meant = NamePart(name.text, meanings)
    found = replace(part, name=meant) if isinstance(part, Measure) else meant
    return replace(question, requested=(found,), asked=(found,), subject=None)


def count_grouped_rows(question: Question) -> Question:
    """`orders by status`: how many of them for each."""
    things = question.requested
    if len(things) != 1 or question.rank or question.top or question.listed or question.ratio or question.ordering:
        return question
    (thing,) = things
    if not isinstance(thing, NamePart) or not thing.tables or thing is not question.subject or not question.plural:
        return question
    grouped = question.groups and all(group.text.startswith(("per ", "by ")) for group in question.groups)
    grouped = grouped or (bool(question.change) and bool(question.groups))  # "growth of orders year over year"
    if not grouped or question.everything:
        return question
    measure = Measure("count", thing, text=thing.text)
    notes = (*question.notes, f"`{thing.text}` are counted.")
    return replace(question, requested=(measure,), asked=(measure,), notes=notes)


def _everything(question: Question) -> Question:
    """`all information for each election`: the rows themselves, not one for each."""
    group = question.groups[0].name if len(question.groups) == 1 else None
    if not question.everything or question.requested or group is None or not group.tables:
        return question
    return replace(question, requested=(group,), asked=(group,), subject=group, plural=True, groups=())


def _distributed(parts: tuple[NamePart | Measure, ...], vocabulary: Vocabulary) -> tuple[NamePart | Measure, ...]:
    """`total tax and commission`: the total of both."""
    made: list[NamePart | Measure] = []
    for part in parts:
        before = made[-1] if made else None
        if isinstance(before, Measure) and isinstance(part, NamePart) and before.fn != "count" and not before.of_count:
            columns = [vocabulary.table(m.table).column(m.column) for m in part.columns if m.column]
            adds = bool(columns) and not part.tables and all(is_numeric_column(column) for column in columns)
            made.append(Measure(before.fn, part, text=part.text) if adds else part)
        else:
            made.append(part)
    return tuple(made)


def _aligned(condition: Condition) -> Condition:
    """`in Italy or France`: values of one column, if one column holds them all."""
    parts = (condition, *condition.either)
    if len(parts) == 1 or any(part.kind != "value" for part in parts):
        return condition
    held = [{(hit.table, hit.column) for hit in part.hits} for part in parts]
    shared = held[0].intersection(*held[1:])
    if not shared:
        return condition
    first, *others = (
        replace(part, hits=tuple(hit for hit in part.hits if (hit.table, hit.column) in shared)) for part in parts
    )
    return replace(first, either=tuple(replace(other, said=other.said or first.said) for other in others))


def _complete(question: Question, vocabulary: Vocabulary) -> Question:
    """`Show the price` after a question about products adds a column; with the name it replaces them."""
    asked = [part for part in question.asked if isinstance(part, NamePart) and part.tables]
    if not question.listed or not asked or question.groups or question.ratio:
        return question
    table = vocabulary.table(min(asked[0].tables, key=lambda m: m.cost).table)
    shown = {*table.label, *table.key}
    for part in question.requested:
        if isinstance(part, NamePart) and any(
            m.label or m.column in shown or m.column is None for m in part.meanings if m.table == table.name
        ):
            return question
    if not shown or any(isinstance(part, NamePart) and not _held(part, table) for part in question.requested):
        return question
    return replace(question, requested=(*question.asked, *question.requested), listed=False)


def _unify(question: Question) -> Question:
    """`average cost` after `average cost of round-trip fares` is the same measure."""
    known: list[Measure] = []

    def same(measure: Measure) -> Measure:
        own = {(m.table, m.column) for m in measure.name.meanings}
        for earlier in known:
            others = {(m.table, m.column) for m in earlier.name.meanings}
            alike = (earlier.fn, earlier.of_count, earlier.at) == (measure.fn, measure.of_count, measure.at)
            if alike and others and others <= own:
                return earlier
        known.append(measure)
        return measure

    def each(parts: tuple[NamePart | Measure, ...]) -> tuple[NamePart | Measure, ...]:
        return tuple(same(part) if isinstance(part, Measure) else part for part in parts)

    asked = each(question.asked)
    rank, ordering = question.rank, question.ordering
    if rank is not None and isinstance(rank.by, Measure):
        rank = replace(rank, by=same(rank.by))
    if rank is not None and rank.then is not None:
        rank = replace(rank, then=same(rank.then))
    requested = each(question.requested)
    if ordering is not None and isinstance(ordering.by, Measure):
        ordering = replace(ordering, by=same(ordering.by))
    return replace(question, asked=asked, rank=rank, requested=requested, ordering=ordering)


def _ranked(question: Question, vocabulary: Vocabulary) -> Question:
    """`top 5 products by price`: the price ranks, it does not group."""
    last = question.groups[-1] if question.groups else None
    rank = question.rank
    implied = rank is not None and rank.by is None
    if (question.top is None and not implied) or (rank is not None and not implied) or not last or last.name is None:
        return question
    numbers = [
        m for m in last.name.columns if m.column and is_numeric_column(vocabulary.table(m.table).column(m.column))
    ]
    if (
        not numbers
        or not last.text.startswith(("by ", "in terms of "))
        or any(isinstance(p, Measure) for p in question.requested)
    ):
        return question
    # "The biggest country by population": the adjective says which end, the column after `by` which number.
    direction = rank.direction if rank is not None else "asc" if question.lowest else "desc"
    chosen = Rank(
        direction, last.name, text=f"{rank.text} {last.text}" if rank else last.text, of=rank.of if rank else None
    )
    ranked = replace(question, groups=question.groups[:-1], rank=chosen)
    columns = [vocabulary.table(m.table).column(m.column) for m in numbers if m.column]
    if (
        question.top is None
        or not is_repeated_part(ranked, vocabulary)
        or not all(part_adds_up(column) for column in columns)
    ):
        return ranked
    # "Top 5 products by quantity", if each product has many rows: those with the highest total.
    measure = Measure("sum", replace(last.name, meanings=tuple(numbers)), text=last.name.text)
    notes = (*question.notes, f"`{last.name.text}` is added up.")
    return replace(ranked, rank=replace(chosen, by=measure), notes=notes)


def _ranked_by_total(question: Question, vocabulary: Vocabulary) -> Question:
    """`the region with the highest revenue`: that of all its rows together, if no column holds a revenue."""
    rank = question.rank
    if rank is None or rank.by is None:
        return question
    by = rank.by.name if isinstance(rank.by, Measure) else rank.by
    if not _totals(by, vocabulary):
        return question
    counted = not isinstance(rank.by, Measure) or rank.by.fn == "count"
    if not counted or not (is_repeated_part(question, vocabulary) or (question.groups and not question.requested)):
        return question
    return replace(question, rank=replace(rank, by=Measure("sum", by, text=rank.text)))


def _limited_by_total(question: Question, vocabulary: Vocabulary) -> Question:
    """`products with revenue over 100`: the revenue of all rows of a product together."""
    named = [c for c in question.conditions if c.name is not None and _totals(c.name, vocabulary)]
    counted = any(isinstance(p, Measure) and p.fn == "count" and not p.name.tables for p in question.requested)
    if named and counted:
        return replace(question, unknown=(*question.unknown, *(condition.text for condition in named)))
    if not named or question.groups or not is_repeated_part(question, vocabulary):
        return question
    limits = []
    for condition in named:
        number = condition.values[0] if condition.values else None
        plain = condition.kind == "compare" and not condition.negated and not condition.either
        if condition.name is None or not plain or isinstance(number, str | bool | None):
            return replace(question, unknown=(*question.unknown, condition.text))
        measure = Measure("sum", condition.name, text=condition.name.text)
        limits.append(Threshold(measure, condition.op, number, condition.unit))
    conditions = tuple(condition for condition in question.conditions if condition not in named)
    return replace(question, conditions=conditions, thresholds=(*question.thresholds, *limits))


def _totals(name: NamePart, vocabulary: Vocabulary) -> bool:
    """Return whether a noun means the total of what no column, or one of another name, holds for each row."""
    return _is_derived(name, vocabulary) or _is_taken_in(name, vocabulary)


def _is_derived(name: NamePart, vocabulary: Vocabulary) -> bool:
    """Return whether a noun can only mean what is computed for each row, such as revenue."""
    columns = [vocabulary.table(m.table).column(m.column) for m in name.columns if m.column]
    return bool(columns) and not name.tables and all(column.formula is not None for column in columns)


def _is_taken_in(name: NamePart, vocabulary: Vocabulary) -> bool:
    """Return whether a noun means all that is taken in, by a column of another name: `money` by `amount` or `price`."""
    paid = money_of(vocabulary.tables)
    columns = [vocabulary.table(m.table).column(m.column) for m in name.columns if m.column]
    word = word_base_form(name.text.lower())
    added = all((c == paid or part_adds_up(c)) and word not in c.words for c in columns)
    return word in MONEY_WORDS and bool(columns) and added


def is_repeated_part(question: Question, vocabulary: Vocabulary) -> bool:
    """Return whether a question asks for one column that several rows share: `products` of a table of orders."""
    (part, *others) = question.requested or (None,)
    if others or not isinstance(part, NamePart) or question.listed or part.tables or not part.columns:
        return False
    tables = [(vocabulary.table(m.table), m.column) for m in part.columns]
    return all(
        name is not None
        and not table.column(name).identifies
        and table.column(name).distinct < table.rows - table.column(name).nulls
        and not (table.key and name in table.label)
        for table, name in tables
    )


def _summed(question: Question, vocabulary: Vocabulary) -> Question:
    """`amount per month` is the sum, because amounts add up; `price per month` is refused."""
    timed = any(c.kind == "span" for c in question.conditions) and question.subject is None and not question.ordering
    if len(question.requested) != 1 or question.listed or question.ratio:
        return question
    if question.rank or question.distinct:
        return question
    (part,) = question.requested
    # "Revenue from returned orders": of all of them together.
    chosen = question.ordering or question.top
    total = isinstance(part, NamePart) and _totals(part, vocabulary)
    if not (question.groups or timed or (total and not chosen)):
        return question
    if not isinstance(part, NamePart) or part.tables or not part.columns:
        return question
    columns = [vocabulary.table(m.table).column(m.column) for m in part.columns if m.column]
    if not columns or not (total or all(part_adds_up(column) for column in columns)):
        return question
    measure = Measure("sum", part, text=part.text)
    notes = (*question.notes, f"`{part.text}` is added up.")
    return replace(question, requested=(measure,), asked=(measure,), notes=notes)


def _added_count(question: Question, vocabulary: Vocabulary) -> Question:
    """`the number of customers in the banks in Rome`, if banks have that number: that of all of them together."""
    (part, *others) = question.requested or (None,)
    plain = not (question.groups or question.rank or question.top or question.ordering or question.distinct)
    if others or not plain or not question.plural or question.subject is None or question.ratio or question.listed:
        return question
    if not isinstance(part, NamePart) or part.tables or not part.text.lower().startswith("number of "):
        return question
    columns = [vocabulary.table(m.table).column(m.column) for m in part.columns if m.column]
    if not columns or not all(column_holds_counts(column) for column in columns):
        return question
    measure = Measure("sum", part, text=part.text)
    notes = (*question.notes, f"`{part.text}` is added up.")
    return replace(question, requested=(measure,), asked=(measure,), notes=notes)


def _held(name: NamePart, table: VocabularyTable) -> bool:
    return any(m.table == table.name for m in name.columns)
