"""Averages of rows: `average orders per month` counts the orders of each month, whatever numbers orders have."""

from __future__ import annotations

from dataclasses import replace

from etude.offline.column_traits import is_numeric_column
from etude.offline.measures import SUMMED
from etude.offline.part_references import part_adds_up
from etude.offline.question_parts import Measure, NamePart, Question
from etude.offline.resolver import MONEY, Unresolved
from etude.offline.vocabulary import Vocabulary, VocabularyTable
from etude.offline.words import word_base_form

_PERIODICAL = frozenset(("daily", "weekly", "monthly", "quarterly", "yearly", "annual", "annually"))


def count_averaged_rows(question: Question, vocabulary: Vocabulary) -> Question:
    """Return the question with an average of a table's rows as the average of their number in each group.

    Without groups, `average orders` has no number; `average payment` is that of the only amount that a payment has.
    """
    (part, *others) = question.requested or (None,)
    if others or not isinstance(part, Measure) or part.of_count or part.until is not None:
        return question
    if part.fn not in ("avg", "median", "min", "max") or question.ratio is not None:
        return question
    _check_periodical(part, question, vocabulary)
    if not _means_rows(part.name):
        return question
    table = vocabulary.table(part.name.tables[0].table)
    if _has_one_amount(table) or not (_is_plural(part.name.text) or _has_only_a_fee(table)):
        return question
    if not question.groups or not _is_plural(part.name.text):
        raise Unresolved(
            f"It is not clear which number of `{table.name}` `{part.text}` is about, or in what they are counted."
        )
    counted = replace(part, of_count=True)
    return replace(
        question,
        requested=(counted,),
        asked=tuple(counted if each == part else each for each in question.asked),
        subject=question.subject if question.subject != part.name else None,
    )


def _means_rows(name: NamePart) -> bool:
    return bool(name.tables) and (not name.columns or name.tables[0].cost <= name.columns[0].cost)


def _is_plural(text: str) -> bool:
    last = text.lower().split()[-1]
    return word_base_form(last) != last


def _has_one_amount(table: VocabularyTable) -> bool:
    """Return whether the rows are amounts: `payments` with one `amount`; the `shipping_cost` of an order is not it."""
    numbers = [c for c in table.columns if is_numeric_column(c)]
    money = [c for c in numbers if MONEY & {*c.words}]
    if {*table.words} & SUMMED:
        return len(money) == 1 or len(numbers) == 1
    return len(numbers) == 1 and {*numbers[0].words} <= MONEY | {*table.words}


def _has_only_a_fee(table: VocabularyTable) -> bool:
    """Return whether the only number is money for something else: an average order is not its `shipping_cost`."""
    numbers = [c for c in table.columns if is_numeric_column(c)]
    return len(numbers) == 1 and bool(MONEY & {*numbers[0].words})


def _check_periodical(part: Measure, question: Question, vocabulary: Vocabulary) -> None:
    """Refuse `average monthly revenue`: the average of the monthly sums, or of the rows of each month?"""
    said = [group.text.lower() for group in question.groups if group.name is None]
    columns = [vocabulary.table(m.table).column(m.column) for m in part.name.columns if m.column]
    if part.fn != "avg" or not _PERIODICAL & {*said} or part.name.tables or not columns:
        return
    if all(part_adds_up(column) for column in columns):
        noun = part.name.text
        raise Unresolved(
            f"It is not clear whether the average of the {said[0]} sums of `{noun}` is meant, or the average of single "
            f"rows; ask for the total `{noun}` per period, or for the average `{noun}` per period."
        )
