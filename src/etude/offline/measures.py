"""Measures and groups of a question: which column is measured how, and which columns identify the groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from etude.offline.column_traits import (
    IDENTIFYING,
    column_holds_counts,
    column_sorts_as_numbers,
    is_numeric_column,
    is_period_column,
    is_rate_column,
    names_one_thing,
)
from etude.offline.conditions import Conditions
from etude.offline.identifiers import is_named_identifier, note_repeated_identifiers
from etude.offline.join_tree import JoinTree, fit_join_alias_length, join_column_ref, stored_column_ref
from etude.offline.joins import FAR, join_distance
from etude.offline.own_measure import counts_may_be_held, find_kept_level
from etude.offline.phrase_index import Meaning
from etude.offline.question_parts import Group, Measure, NamePart
from etude.offline.resolver import MONEY, Ambiguous, Unresolved
from etude.offline.revenue import money_beside
from etude.offline.vocabulary import VocabularyColumn, VocabularyTable
from etude.offline.vocabulary_names import vocabulary_name_without_schema
from etude.offline.words import TRAILING, stem_word, word_base_form
from etude.sources.plan.query_plan import Aggregate, ColumnRef, DatePart, DaysBetween, Named, TimeGrain

SUMMED = frozenset(
    [
        "sale",
        "payment",
        "expense",
        "donation",
        "deposit",
        "refund",
        "revenue",
        "earning",
        "spending",
        "purchase",
        "payout",
    ]
)
"""Words for tables whose total is a sum of money rather than a count."""

TEMPORAL = ("latest", "newest", "most recent", "oldest", "earliest", "youngest")


@dataclass(frozen=True)
class Measured:
    """A measure with its column; without a column it counts the rows of the table."""

    fn: str
    table: str
    column: VocabularyColumn | None = None
    distinct: bool = False
    until: VocabularyColumn | None = None
    """The second of two dates, if the measure is the number of days between them; that of two correlated numbers."""
    at: float | None = None
    """The part of the values below a quantile."""
    raw: bool = False
    """The column holds the number itself; it is added up if rows are grouped."""

    @property
    def label(self) -> str:
        """The measure in words."""
        if self.column is None:
            return f"number of {'distinct ' if self.distinct else ''}`{self.table}`"
        if self.fn == "correlation" and self.until is not None:
            return f"correlation of `{self.column.name}` and `{self.until.name}`"
        if self.until is not None:
            return f"{self.fn} of the days from `{self.column.name}` to `{self.until.name}`"
        words = {"avg": "average", "sum": "total", "min": "lowest", "max": "highest", "median": "median"}
        words |= {"stddev": "standard deviation of", "quantile": f"{100 * (self.at or 0):g}% quantile of"}
        what = f"`{self.column.table}.{self.column.name}`"
        return f"number of different {what}" if self.fn == "count" else f"{words[self.fn]} {what}"

    @property
    def alias(self) -> str:
        """The name of its column in the result."""
        if self.column is None:
            return fit_join_alias_length(f"number_of_{vocabulary_name_without_schema(self.table)}")
        if self.fn == "correlation":
            return "correlation"
        if self.until is not None:
            return f"{self.fn}_days"
        if self.at is not None:
            return fit_join_alias_length(f"quantile_{100 * self.at:g}_{self.column.name}")
        return fit_join_alias_length(f"{'number_of' if self.fn == 'count' else self.fn}_{self.column.name}")


_FOLDS = {
    "avg": "average", "sum": "total", "min": "lowest value", "max": "highest value", "median": "median",
    "stddev": "standard deviation", "quantile": "quantile",
}  # fmt: skip


def _dated(column: VocabularyColumn) -> bool:
    """Return whether the column holds times, of which one is the first and one the last."""
    return column.kind in ("date", "timestamp") or is_period_column(column)


def _said_period(period: Named) -> str:
    """Return the period with its date: `month` of `orders.ordered`."""
    date = period.expr.of if isinstance(period.expr, DatePart | TimeGrain) else None
    of = f" of `{date.table}.{date.column}`" if isinstance(date, ColumnRef) else ""
    return f"`{period.alias}`{of}"


def _repeated_name(table: VocabularyTable) -> VocabularyColumn | None:
    """Return the `sport_name` of a `sport_info` without a key: rows only say who does which sport."""
    if table.key or len(table.words) < 2 or table.words[-1] not in TRAILING:
        return None
    named = [c for c in table.columns if c.words == (*table.words[:-1], "name") and c.kind == "text"]
    return next((column for column in named if column.distinct < table.rows), None)


class Measures(Conditions):
    """Adds measures and groups."""

    def _measured(self, measure: Measure) -> Measured:
        name = measure.name
        if measure.fn == "correlation" and measure.until is not None:
            return self._correlated(measure, measure.until)
        if measure.until is not None:
            return self._days_between(measure, measure.until)
        if measure.fn == "count" or (measure.of_count and not name.tables):
            return self._counted(measure)
        if name.columns and (not name.tables or name.tables[0].cost > name.columns[0].cost):
            ends = measure.fn in ("min", "max")
            column = self.resolver.column(name, lambda c: is_numeric_column(c) or (ends and _dated(c)))
            if measure.text.lower().startswith(TEMPORAL) and not _dated(column):
                raise Unresolved(f"It is not clear which date `{measure.text}` refers to.")
            if not is_numeric_column(column) and not (ends and _dated(column)):
                raise Unresolved(
                    f"`{name.text}` does not hold amounts, so it has no {_FOLDS.get(measure.fn, 'total')}."
                )
            beside = money_beside(column, name.text, self.vocabulary.tables)
            if beside and (column.table, column.name) not in self.prefer:
                raise Ambiguous(name.text, [Meaning(c.table, c.name) for c in (column, *beside)])
            if measure.fn == "sum" and is_rate_column(column):
                raise Unresolved(f"`{column.name}` is a rate or an average, so its total means nothing.")
            if measure.fn == "sum":
                self._check_kept_level(column)
            return Measured(measure.fn, column.table, column, at=measure.at)
        return self._total_of(measure)

    def _check_kept_level(self, column: VocabularyColumn) -> None:
        """Refuse `total balance` over several dates, each of which has the whole balance."""
        date = find_kept_level(column, self.vocabulary.table(column.table))
        timed = any(condition.kind == "span" for condition in self.question.conditions)
        groups = [group.name for group in self.question.groups]
        dated = any(name is None or any(m.column == date for m in name.columns) for name in groups)
        if date and not timed and not dated:
            raise Unresolved(
                f"`{column.name}` is known for each `{date}`, so a sum over all of them counts the same again; "
                f"name a date, or ask for the total `{column.name}` per day."
            )

    def _correlated(self, measure: Measure, other: NamePart) -> Measured:
        first, second = (self.resolver.column(name, is_numeric_column) for name in (measure.name, other))
        for name, column in ((measure.name, first), (other, second)):
            if not is_numeric_column(column):
                raise Unresolved(f"`{name.text}` does not hold amounts, so it has no correlation.")
        if first == second:
            raise Unresolved(f"`{measure.text}` needs two different columns.")
        finest = second if self._refers_to(second.table, first.table) else first
        return Measured("correlation", finest.table, first, until=second)

    def _days_between(self, measure: Measure, until: NamePart) -> Measured:
        first, second = (
            self.resolver.column(n, lambda c: c.kind in ("date", "timestamp")) for n in (measure.name, until)
        )
        if not {first.kind, second.kind} <= {"date", "timestamp"}:
            raise Unresolved(f"`{measure.text}` needs two dates.")
        finest = second if self._refers_to(second.table, first.table) else first
        return Measured(measure.fn, finest.table, first, until=second)

    def _counted(self, measure: Measure) -> Measured:
        name = measure.name
        if measure.rows:
            found = self._group_meaning(name)
            if found.column is None:
                raise Unresolved(f"It is not clear what to count for each `{name.text}`.")
            if "popular" in measure.text and any(link.to_table == found.table for link in self.vocabulary.links):
                raise Unresolved(f"It is not clear what makes a `{name.text}` popular.")
            return Measured("count", found.table)
        if name.text.lower() == "sales" and any(self._computed(m) for m in name.columns):
            raise Unresolved("It is not clear whether to count the rows or the pieces that were sold.")
        if name.tables and (not name.columns or name.tables[0].cost <= name.columns[0].cost or self._counts_rows(name)):
            table = self.resolver.table_of(name)
            assert table is not None  # noqa: S101 - for the type checker
            held = [c for c in table.columns if c.kind == "number" and c.words == ("count",)]
            if held and not measure.distinct and (table.name, "") not in self.prefer:
                self.notes.append(f"Each row of `{table.name}` has a `{held[0].name}`; these are added up.")
                return Measured("sum", table.name, held[0])
            if (kinds := _repeated_name(table)) is not None:
                return Measured("count", table.name, kinds, distinct=True)
            if measure.distinct and len(table.key) > 1:
                raise Unresolved(f"It is not clear which rows of `{table.name}` are different ones.")
            self._check_counted(table, measure)
            own = counts_may_be_held(table, name.text) if not measure.distinct else None
            if own is not None and (own.table, own.name) in self.prefer:
                return Measured("sum", table.name, own)
            if own is not None and (table.name, "") not in self.prefer:
                raise Ambiguous(measure.text or name.text, [Meaning(table.name), Meaning(table.name, own.name)])
            if note := note_repeated_identifiers(table, [word_base_form(word) for word in name.text.lower().split()]):
                self.notes.append(note)
            return Measured("count", table.name, distinct=measure.distinct)
        column = self.resolver.column(name)
        if column.kind != "number" and len(column.words) > 1 and column.words[-1] in ("count", "number"):
            raise Unresolved(f"`{column.table}.{column.name}` is text, so its numbers cannot be added up.")
        if column_holds_counts(column) and not measure.distinct:
            if not measure.of_count and names_one_thing(column, self.vocabulary.table(column.table).rows):
                raise Unresolved(f"It is not clear whether to add up `{column.name}` or to count its values.")
            fn = measure.fn if measure.of_count else "sum"
            return Measured(fn, column.table, column, raw=not measure.of_count)
        table = self.vocabulary.table(column.table)
        if (column.name,) == table.key:
            return Measured("count", table.name)
        number = column.kind == "number" and not IDENTIFYING & {*column.words[-1:]} and not is_period_column(column)
        number = number and not column.identifies and not column.as_text and not is_named_identifier(column)
        if (
            column.flag is not None
            or (number and not measure.distinct)
            or (self._keyed_groups() and column.table == self.resolver.anchor)
        ):
            raise Unresolved(f"It is not clear whether to add up `{column.name}` or to count its values.")
        return Measured("count", column.table, column, distinct=True)

    def _computed(self, meaning: Meaning) -> bool:
        """Return whether a meaning is a column that the table does not have."""
        known = self.vocabulary.table(meaning.table)
        return meaning.column is not None and known.column(meaning.column).formula is not None

    def _counts_rows(self, name: NamePart) -> bool:
        """Return whether a noun that is counted means rows: `transactions`, not their `transaction_type`."""
        columns = [self.vocabulary.table(m.table).column(m.column) for m in name.columns if m.column]
        exact = any(m.cost == 0 for m in name.columns)
        return not exact and not any(column_holds_counts(column) for column in columns)

    def _check_counted(self, table: VocabularyTable, measure: Measure) -> None:
        """Refuse to count rows if the data holds such a number itself: either may be meant."""
        if measure.distinct or (table.name, "") in self.prefer or self._restricts(table):
            return
        verbs = {stem_word(verb) for verb in self.question.verbs}
        own = {stem_word(word) for word in table.words}
        held: list[VocabularyColumn] = []
        for other in self.vocabulary.tables:
            for column in other.columns if other.name != table.name else ():
                if not {"number", "count"} & {*column.words} or not column_holds_counts(column):
                    continue
                about = {stem_word(word) for word in column.words if word not in ("number", "count", "of", "total")}
                near = other.name in self.mentioned or other.name == self.resolver.anchor
                parent = self._refers_to(table.name, other.name)
                matches = (about <= own and (near or parent)) or (about <= verbs and near)
                if about and matches:
                    held.append(column)
        if held:
            meanings = [Meaning(table.name), *(Meaning(c.table, c.name) for c in held)]
            raise Ambiguous(measure.text or measure.name.text, meanings)

    def _restricts(self, table: VocabularyTable) -> bool:
        """Return whether a condition is about the rows themselves; then a stored number cannot be meant."""
        dated = any(c.kind in ("date", "timestamp") or c.words[-1:] == ("year",) for c in table.columns)
        for condition in self.question.conditions:
            if (condition.kind == "span" and dated) or any(hit.table == table.name for hit in condition.hits):
                return True
        return False

    def _total_of(self, measure: Measure) -> Measured:
        """`total sales`: the sum of the money if that is what the table is about, the count if it has none."""
        table = self.resolver.table_of(measure.name)
        assert table is not None  # noqa: S101 - for the type checker
        numbers = [c for c in table.columns if is_numeric_column(c)]
        if len(numbers) == 1 and measure.fn != "sum":
            self.notes.append(f"`{measure.text}` is read as that of `{numbers[0].name}`.")
            return Measured(measure.fn, table.name, numbers[0], at=measure.at)
        if measure.fn != "sum":
            raise Unresolved(f"It is not clear which number of `{table.name}` to take the {_FOLDS[measure.fn]} of.")
        money = [c for c in table.columns if is_numeric_column(c) and MONEY & {*c.words}]
        if table.words and {*table.words} & SUMMED and len(money) == 1:
            self.notes.append(f"`{measure.text}` is read as the sum of `{money[0].name}`.")
            return Measured("sum", table.name, money[0])
        if not money:
            return Measured("count", table.name)
        raise Unresolved(f"`{measure.text}` may mean a count or the sum of `{money[0].name}`.")

    def _aggregate(self, measured: Measured, tree: JoinTree, alias: str | None = None, **more: Any) -> Aggregate:
        fans = tree.fans()
        alias = alias or measured.alias
        if measured.column is None:
            table = self.vocabulary.table(measured.table)
            if measured.table == tree.base and not fans:
                return Aggregate(fn="count", alias=alias, **more)
            if len(table.key) != 1:
                raise Unresolved(f"`{table.name}` has no key of one column, so joining could count its rows twice.")
            return Aggregate(
                fn="count", of=join_column_ref(table.column(table.key[0])), distinct=True, alias=alias, **more
            )
        column = measured.column
        if measured.until is not None:
            if fans:
                raise Unresolved("Joining would count rows more than once.")
            if measured.fn == "correlation":
                other = join_column_ref(measured.until)
                return Aggregate(fn="correlation", of=join_column_ref(column), other=other, alias=alias, **more)
            days = DaysBetween(days_between=(join_column_ref(column), join_column_ref(measured.until)))
            return Aggregate(fn=measured.fn, of=days, alias=alias, **more)
        fn = "sum" if measured.raw else measured.fn
        if (
            fn in ("sum", "avg", "median", "quantile", "stddev")
            and (column.table != tree.base or fans)
            and not self._joins_once(column, tree)
        ):
            raise Unresolved(f"Joining would count rows of `{column.table}` more than once.")
        # The least and the most of numbers of equal length are the same as text, and are shown as they are stored.
        stored = column.as_text and fn in ("min", "max") and column_sorts_as_numbers(column)
        of = stored_column_ref(column) if stored else join_column_ref(column)
        return Aggregate(fn=fn, of=of, distinct=measured.distinct, at=measured.at, alias=alias, **more)

    def _joins_once(self, column: VocabularyColumn, tree: JoinTree) -> bool:
        """Return whether rows join others only through a table that does nothing but pair them."""
        fans = tree.fans()
        return column.table == tree.base and len(fans) == 1 and self._pairs(fans[0].to_table)

    def _group_meaning(self, name: NamePart) -> Meaning:
        """Return the table or column to group by; the anchor's own column comes before a table of that name."""
        costs = {
            m: 3 * m.cost + 4 * join_distance(self.vocabulary, self.resolver.anchor, m.table) for m in name.meanings
        }
        if name.owner is not None:
            owned = [m for m in name.columns if any(m.table == o.table for o in name.owner.tables)]
            costs = {m: costs[m] for m in owned} or costs
        low = min(costs.values())
        if low >= 4 * FAR:
            raise Unresolved(f"Nothing connects `{name.text}` to `{self.resolver.anchor}`.")
        best = [m for m, cost in costs.items() if cost == low]
        if len(best) == 1:
            return self._referred(best[0], name)
        tables = [m for m in best if m.column is None and not m.label]
        if len(tables) == 1:
            return tables[0]
        return self.resolver.meaning(replace(name, meanings=tuple(best))) if not tables else self._unsure(name, tables)

    def _referred(self, meaning: Meaning, name: NamePart) -> Meaning:
        """Replace a column that refers to a table of that name by the table, if it has a name to show."""
        for link in self.vocabulary.links:
            if meaning.column is None or (link.table, link.columns) != (meaning.table, (meaning.column,)):
                continue
            target = self.vocabulary.table(link.to_table)
            if any(m.table == target.name for m in name.tables) and target.label and target.label != link.to_columns:
                return Meaning(target.name)
        return meaning

    def _unsure(self, name: NamePart, meanings: Sequence[Meaning]) -> Meaning:
        raise Ambiguous(name.text, meanings)

    def _display(self, table: VocabularyTable) -> list[VocabularyColumn]:
        """Return the columns that identify a row to people: its name and its key."""
        names = [*table.label, *(key for key in table.key if key not in table.label)]
        for column in table.columns:
            known = column.words in (("number",), ("symbol",), (*table.words, "number"), (*table.words, "symbol"))
            if known and column.kind == "text" and column.distinct == table.rows and column.name not in names:
                names.append(column.name)
        return [table.column(name) for name in names]

    def _columns_of(self, name: NamePart) -> tuple[str, list[VocabularyColumn]]:
        """Return the table of a noun and the columns that show it."""
        found = self._group_meaning(name)
        table = self.vocabulary.table(found.table)
        if found.label:
            return table.name, [table.column(n) for n in table.label]
        if found.column is not None:
            return table.name, [table.column(found.column)]
        shown = self._display(table)
        if not shown:
            raise Unresolved(f"`{table.name}` has no name or key to show.")
        return table.name, shown

    def _keyed_groups(self) -> bool:
        """Return whether each row is a group of its own."""
        table = self.vocabulary.table(self.resolver.anchor)
        for group in self.question.groups:
            if group.name is None:
                continue
            found = self._group_meaning(group.name)
            if found.table == table.name and (found.column is None or (found.column,) == table.key):
                return True
        return False

    def _keys(self) -> tuple[list[VocabularyColumn], list[VocabularyColumn]]:
        """Return the columns that show the groups, and hidden ones that also distinguish them."""
        question = self.question
        keys: list[VocabularyColumn] = []
        hidden: list[VocabularyColumn] = []
        nouns = [p for p in question.requested if isinstance(p, NamePart)]
        entities: list[str] = []
        for group in question.groups:
            if group.name is None:
                continue
            table, columns = self._columns_of(group.name)
            if self._group_meaning(group.name).column is None:
                entities.append(table)
                own = question.listed or any(m.table == table for name in nouns for m in name.meanings)
                (hidden if own else keys).extend(columns)
            else:
                keys.extend(columns)
        asked = [p for p in question.asked if isinstance(p, NamePart)]
        if question.listed:
            for name in asked:
                table, columns = self._columns_of(name)
                hidden.extend(columns)
                entities.append(table)
        for name in nouns:
            owner = self._owned(name, entities)
            table, columns = self._columns_of(owner)
            if not question.listed and self._group_meaning(owner).column is not None and question.subject is not None:
                # Each customer counts once, even if two have the same name.
                self._hide_key(owner, hidden)
            keys.extend(columns)
        keys = list(dict.fromkeys(keys))
        if question.listed and not nouns:
            keys, hidden = [*hidden, *keys], []
        return keys, [column for column in dict.fromkeys(hidden) if column not in keys]

    def _owned(self, name: NamePart, entities: Sequence[str]) -> NamePart:
        """Bind a column to the grouped thing that has it."""
        if name.tables:
            return name
        own = tuple(m for m in name.columns if m.table in entities)
        return replace(name, meanings=own) if own and name.owner is None else name

    def _hide_key(self, name: NamePart, hidden: list[VocabularyColumn]) -> None:
        subject = self.resolver.table_of(self.question.subject) if self.question.subject else None
        found = self._group_meaning(name)
        # The budget of the department with the most employees is that of one department.
        owned = name.owner is not None and name.owner == self.question.subject and not self.question.plural
        identified = found.label or owned or (subject is not None and found.column in subject.label)
        if subject is not None and found.table == subject.name and identified:
            hidden.extend(subject.column(key) for key in subject.key)

    def _period(self, group: Group, tree: JoinTree) -> Named:
        """Return the period to group by, of the date that a verb names: `created_at` for `created per month`."""
        column = self.resolver.date_column(self._dated_tables(tree), self.question.verbs)
        tree.add(column.table)
        place = join_column_ref(column)
        if group.grain != "weekday":
            return Named(expr=TimeGrain(grain=group.grain, of=place), alias=group.grain)
        counts = any(m.of_count for m in self.question.requested if isinstance(m, Measure))
        if self.question.change or self.question.averaged or counts:
            raise Unresolved("It is not clear over which weeks to compare the weekdays.")
        self.notes.append("`weekday` runs from 1 (Monday) to 7 (Sunday).")
        return Named(expr=DatePart(part="weekday", of=place), alias="weekday")

    def _dates(self, tree: JoinTree) -> list[Named]:
        dates = []
        for group in self.question.groups:
            if group.name is None:
                dates.append(self._period(group, tree))
        return dates

    def _per(self, keys: Sequence[VocabularyColumn], dates: Sequence[Named]) -> str:
        per = [*map(_said_period, dates), *(f"`{key.table}.{key.name}`" for key in keys)]
        return f" per {', '.join(per)}" if per else ""
