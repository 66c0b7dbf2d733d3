"""From the parts of a question to a QueryPlan: every noun resolved, tables joined along keys, no row counted twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from etude.offline.better_direction import more_is_better
from etude.offline.column_traits import column_sorts_as_numbers, is_numeric_column, is_period_column, is_rate_column
from etude.offline.conditions import TAKE_HIGH, TAKE_LOW
from etude.offline.identifiers import is_named_identifier
from etude.offline.join_tree import JoinTree, fit_join_alias_length, join_column_ref, show_column
from etude.offline.joins import find_join_paths, join_hops, join_path_leads_to_one
from etude.offline.measures import TEMPORAL, Measured
from etude.offline.operator_words import OPERATORS
from etude.offline.part_references import (
    ADDING,
    LEVELS,
    apart_alternatives,
    connect_parts,
    is_repeated_part,
    part_adds_up,
)
from etude.offline.phrase_index import Meaning
from etude.offline.plan_check import plan_nodes
from etude.offline.question_parts import Condition, Direction, Fn, Measure, NamePart, Question, Rank, Threshold
from etude.offline.ratios import Ratios
from etude.offline.resolver import (
    MONEY,
    TECHNICAL,
    Ambiguous,
    Unresolved,
    dates_with_created,
    list_unresolved_words,
    nouns_to_resolve,
)
from etude.offline.revenue import rows_are_sales
from etude.offline.selling import SALES, repeated_number, sold_units
from etude.offline.spellings import fold_spellings
from etude.offline.units import check_unit, number_in_unit
from etude.offline.vocabulary import Vocabulary, VocabularyColumn, VocabularyTable
from etude.offline.vocabulary_names import vocabulary_name_without_schema
from etude.offline.words import word_base_form
from etude.sources.plan.query_plan import (
    Aggregate,
    Arithmetic,
    Case,
    ColumnRef,
    Compare,
    DaysBetween,
    Expr,
    Filter,
    Member,
    Named,
    NullTest,
    Order,
    PlanRef,
    QueryPlan,
    Single,
    Top,
    When,
    Window,
)


@dataclass(frozen=True)
class Assembled:
    """A plan, and the words for how the question was read."""

    plan: QueryPlan
    reading: str
    notes: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    """The notes that the answer repeats, because they change what its numbers mean."""


def assemble_plan(question: Question, vocabulary: Vocabulary) -> Assembled:
    """Return the plan for the question; raise `Unresolved` or `Ambiguous` if there is none."""
    question = connect_parts(question, vocabulary)
    if question.unknown:
        # "How many" alone is clear, as are `average` and 5; they are left over if the word after them is not.
        found = list(dict.fromkeys(question.unknown))
        words = [word for word in found if not _is_clear(word)] or [w for w in found if not _joins(w)] or found
        raise Unresolved(f"It is not clear what {list_unresolved_words(words)} here.")
    return _Builder(question, vocabulary).build()


def _joins(word: str) -> bool:
    """Return whether a word only connects others, so that naming it explains nothing."""
    known = OPERATORS.get(tuple(word.lower().split()))
    return word == "how many" or (known is not None and known.tag in "&|p")


def _is_clear(word: str) -> bool:
    """Return whether the rules know the word itself, and only what it belongs to is not clear."""
    known = OPERATORS.get(tuple(word.lower().split()))
    return (known is not None and known.tag in "#ASMPgcwORv&|p") or word.replace(".", "", 1).isdigit()


MOST_GAPS = 100
"""At most this many columns are looked at for missing values."""
MOST_COLUMNS = 12
"""At most this many columns show a row that has no name."""
TAKE_SUM, TAKE_BEST, TAKE_AVERAGE = ("the sum", ""), ("the best", ""), ("the average", "")
TAKE_ROWS = ("the rows", "")
"""Choices of a question back, in the form of a table and a column that were chosen."""
PLACES = frozenset(("rank", "ranking", "position", "place", "standing"))
"""Last words of columns' names whose highest value may be 1."""
_BY_WORTH = frozenset(("best", "worst", "highest", "lowest", "top"))
_OPPOSITE: dict[Direction, Direction] = {"asc": "desc", "desc": "asc"}
_LONGEST = {"day": 1, "week": 7, "month": 31, "quarter": 92, "year": 366}
"""At most this many days lie between the starts of two adjacent periods."""


class _Builder(Ratios):
    """Builds the kinds of plans: groups, lists, averages of counts; `Ratios` builds the ratios."""

    def build(self) -> Assembled:
        self._choose_sales()
        self.question = self._count_related(apart_alternatives(self.question))
        self._take_fold()
        self._take_better_end()
        question = self.question
        self._check_compounds()
        self._check_verbs()
        self._check_units()
        if question.change and (question.ratio or question.shares or not any(g.name is None for g in question.groups)):
            raise Unresolved("A change needs a period; say, for example, per month.")
        if question.gaps:
            plan = self._gaps()
        elif question.ratio is not None:
            self._refuse(rank=question.rank, condition=question.thresholds)
            over = question.ratio.upper.thresholds or question.ratio.lower.thresholds
            plan = self._ratio_over() if over else self._ratio()
        elif any(m.of_count and m.name.tables for m in question.requested if isinstance(m, Measure)):
            plan = self._average_of_counts()
        elif self._counts_entities():
            plan = self._entities_over()
        elif self._is_grouped():
            plan = self._grouped()
        else:
            plan = self._listing()
        plan, told = fold_spellings(plan, self.vocabulary)
        formulas = self._formulas(plan)
        self._check_whole_rows(plan, question, formulas)
        own = (note for note in self.notes if " is taken as " in note or note.startswith("Rows are counted: "))
        told = [*formulas.values(), *own, *told]
        said = [f"with `{column.name}` as {column.formula.text}" for column in formulas if column.formula]
        self.said.extend(piece for piece in said if piece not in self.said)
        notes = (*question.notes, *self.notes, *self.resolver.notes, *told)
        return Assembled(plan, self._reading(), notes, tuple(told))

    def _count_related(self, question: Question) -> Question:
        """`counties with at least two delegates`, if rows that refer to counties have a text called so: count them."""
        kept: list[Condition] = []
        thresholds = list(question.thresholds)
        for condition in question.conditions:
            counted = condition.said == "counted" and condition.kind == "compare" and not condition.negated
            name = condition.name if counted and condition.name is not None and condition.name.columns else None
            column = self.resolver.column(name) if name is not None else None
            hops = join_hops(self.vocabulary).get(self.resolver.anchor, ())
            related = [hop for hop in hops if column is not None and hop.to_table == column.table]
            number = condition.values[0] if condition.values else None
            things = column is not None and (column.kind == "text" or column.identifies)
            own = {m.table for m in question.subject.tables} if question.subject is not None else {""}
            things = things and not own & {hop.to_table for hop in related}
            if name is None or not things or len(related) != 1 or related[0].to_one or not isinstance(number, int):
                kept.append(condition)
                continue
            rows = NamePart(name.text, (Meaning(related[0].to_table),))
            thresholds.append(Threshold(Measure("count", rows, text=condition.text), condition.op, number))
        return replace(question, conditions=tuple(kept), thresholds=tuple(thresholds))

    def _formulas(self, plan: QueryPlan) -> dict[VocabularyColumn, str]:
        """Return the columns of the plan that no table has, with a note on how each is computed."""
        nodes = [node for node in plan_nodes(plan) if isinstance(node, Arithmetic)]
        if not nodes:
            return {}
        known = [c for table in self.vocabulary.tables for c in (*table.columns, *table.derived) if c.formula]
        derived = [c for c in known if join_column_ref(c) in nodes]
        return {c: f"{c.name.capitalize().replace('_', ' ')} is {c.formula.text}." for c in derived if c.formula}

    def _check_whole_rows(self, plan: QueryPlan, question: Question, formulas: Iterable[VocabularyColumn]) -> None:
        """Refuse `average revenue per order`, if an order has several rows: only sums do not depend on that."""
        functions = {node.fn for node in plan_nodes(plan) if isinstance(node, Aggregate)}
        if functions == {"sum"}:
            return
        for column in formulas:
            nouns = [name for name in nouns_to_resolve(question) if any(m.table == column.table for m in name.tables)]
            for name in nouns:
                noun = word_base_form(name.text.lower().split()[-1])
                if number := repeated_number(self.vocabulary.table(column.table), noun):
                    raise Unresolved(f"Several rows share one `{number}`, so a row is not a whole `{noun}`.")

    def _choose_sales(self) -> None:
        """`the best selling product`: rank by the units sold, or by the amount; without either, by the rows."""
        rank, anchor = self.question.rank, self.resolver.anchor
        if rank is None or rank.by is not None or SALES not in rank.implied:
            return
        below = [hop.to_table for hop in join_hops(self.vocabulary).get(anchor, ()) if hop.back]
        tables = [self.vocabulary.table(name) for name in dict.fromkeys((anchor, *below))]
        numbers = [c for table in tables for c in table.columns if is_numeric_column(c)]
        units = [column for table in tables for column in sold_units(table)]
        amounts = [c for c in numbers if {"amount", "revenue", "sale", "turnover", "total"} & {*c.words}]
        amounts = [c for c in amounts if "price" not in c.words or "total" in c.words]
        found = list(dict.fromkeys((*units, *amounts)))
        chosen = [c for c in found if (c.table, c.name) in self.prefer]
        if len(found) > 1 and not chosen:
            raise Ambiguous(rank.text, [Meaning(c.table, c.name) for c in found])
        rows = self._lists_shared_values() and rows_are_sales(tables[0])
        high, most = ("highest", "most") if rank.direction == "desc" else ("lowest", "fewest")
        if rows and found and not units and not chosen and TAKE_ROWS not in self.prefer:
            total = (f"the {high} total `{found[0].name}`", (found[0].table, found[0].name))
            raise Ambiguous(rank.text, choices=(total, (f"the {most} rows of `{anchor}`", TAKE_ROWS)))
        if found and TAKE_ROWS not in self.prefer:
            column = (chosen or found)[0]
            name = NamePart(rank.text, (Meaning(column.table, column.name),))
            by = Measure("sum", name, text=rank.text)
            self.notes.append(f"`{rank.text}` is read as the {high} sum of `{column.table}.{column.name}`.")
        else:
            sold = [table for table in tables[1:] if {*table.words} & {"sale", "order", "purchase", "invoice", "line"}]
            sold = sold or (tables[:1] if rows else [])
            if len(sold) != 1:
                raise Unresolved(f"It is not clear which number says what is `{rank.text}`.")
            by = Measure("count", NamePart(rank.text, (Meaning(sold[0].name),)), text=rank.text)
            self.notes.append(f"`{rank.text}` is read as the {most} rows of `{sold[0].name}`.")
        self.question = replace(self.question, rank=replace(rank, by=by))

    def _lists_shared_values(self) -> bool:
        """Return whether the question asks for one column whose values several rows share."""
        (part, *others) = self.question.requested or (None,)
        if others or not isinstance(part, NamePart) or not part.columns:
            return False
        column = self.resolver.column(part)
        return column.distinct < self.vocabulary.table(column.table).rows - column.nulls

    def _take_better_end(self) -> None:
        """Decide whether the best is the highest or the lowest; ask back if nothing about the column says it."""
        question = self.question
        rank, ordering = question.rank, question.ordering
        first = rank.text.lower().split()[:1] if rank is not None and SALES not in rank.implied else []
        if rank is not None and first in (["best"], ["worst"]):
            column = self._rank_column(rank, self.vocabulary.table(self.resolver.anchor))
            direction = self._better_end(column, first[0], rank.text)
            turned = (rank.direction == "desc") != _descends(rank, column)
            rank = replace(rank, direction=_OPPOSITE[direction] if turned else direction)
        elif rank is not None and isinstance(rank.by, NamePart) and first in (["highest"], ["lowest"], ["top"]):
            place = self._rank_column(rank, self.vocabulary.table(self.resolver.anchor))
            rank = replace(rank, direction=self._end_of_places(place, rank.direction, rank.text))
        if ordering is not None and ordering.direction in ("best", "worst"):
            by = ordering.by or next((p for p in question.requested if isinstance(p, Measure)), None)
            measured = self._measured(by).column if isinstance(by, Measure) else None
            sorted_by = self.resolver.column(by) if isinstance(by, NamePart) and by.columns else measured
            if sorted_by is None:
                raise Unresolved(f"It is not clear what `{ordering.direction} first` means here.")
            way = self._better_end(sorted_by, ordering.direction, f"{ordering.direction} first")
            ordering = replace(ordering, direction=way)
        requested, asked = ([self._better_measure(p) for p in parts] for parts in (question.requested, question.asked))
        self.question = replace(question, rank=rank, ordering=ordering, requested=tuple(requested), asked=tuple(asked))

    def _better_measure(self, part: NamePart | Measure) -> NamePart | Measure:
        """`the worst grade`: the highest or the lowest of all."""
        word = part.text.lower().partition(" ")[0]
        if not isinstance(part, Measure) or part.fn not in ("min", "max") or word not in _BY_WORTH:
            return part
        column = self._measured(part).column
        if column is None:
            return part
        if word not in ("best", "worst"):
            way = self._end_of_places(column, "desc" if part.fn == "max" else "asc", part.text)
            return replace(part, fn="max" if way == "desc" else "min")
        return replace(part, fn="max" if self._better_end(column, word, part.text) == "desc" else "min")

    def _end_of_places(self, column: VocabularyColumn, direction: Direction, text: str) -> Direction:
        """`the highest rank`: the first place or the greatest number; ask back unless a choice says which."""
        if not PLACES & {*column.words[-1:]} or column.kind != "number":
            return direction
        if TAKE_HIGH not in self.prefer and TAKE_LOW not in self.prefer:
            choices = ((f"the greatest `{column.name}`", TAKE_HIGH), (f"the smallest `{column.name}`", TAKE_LOW))
            raise Ambiguous(text, choices=choices)
        return "desc" if TAKE_HIGH in self.prefer else "asc"

    def _better_end(self, column: VocabularyColumn, word: str, text: str) -> Direction:
        more = more_is_better(column)
        if more is None and TAKE_HIGH not in self.prefer and TAKE_LOW not in self.prefer:
            choices = (
                (f"the highest `{column.name}` is the {word}", TAKE_HIGH),
                (f"the lowest `{column.name}` is the {word}", TAKE_LOW),
            )
            raise Ambiguous(text, choices=choices)
        up = TAKE_HIGH in self.prefer if more is None else more == (word == "best")
        return "desc" if up else "asc"

    def _take_fold(self) -> None:
        """Apply the choice between the sum and the highest of several numbers that each row of the subject has."""
        rank = self.question.rank
        folds: dict[tuple[str, str], Fn] = {TAKE_SUM: "sum", TAKE_BEST: "max", TAKE_AVERAGE: "avg"}
        fn = next((fn for choice, fn in folds.items() if choice in self.prefer), None)
        if rank is None:
            self._take_fold_of_groups()
        if rank is None or fn is None or (isinstance(rank.by, Measure) and not self._measured(rank.by).raw):
            return
        column = self._rank_column(rank, self.vocabulary.table(self.resolver.anchor))
        if fn == "max" and not _descends(rank, column):
            fn = "min"
        by = Measure(fn, NamePart(rank.text, (Meaning(column.table, column.name),)), text=rank.text)
        direction: Direction = "desc" if _descends(rank, column) else "asc"
        self.question = replace(self.question, rank=replace(rank, by=by, direction=direction))

    def _take_fold_of_groups(self) -> None:
        """Apply the choice between the total and the average of the numbers in each group."""
        fn: Fn | None = "sum" if TAKE_SUM in self.prefer else "avg" if TAKE_AVERAGE in self.prefer else None
        (part, *others) = self.question.requested or (None,)
        if fn is None or others or not isinstance(part, NamePart):
            return
        measure = Measure(fn, part, text=part.text)
        self.question = replace(self.question, requested=(measure,), asked=(measure,))

    def _ask_fold_of_groups(self, reason: str) -> Unresolved | Ambiguous:
        """Return the question whether the total or the average of a number is meant, if it asks for one number only."""
        (part, *others) = self.question.requested or (None,)
        column = self.resolver.column(part) if isinstance(part, NamePart) and part.columns and not part.tables else None
        if others or column is None or not is_numeric_column(column) or is_rate_column(column):
            return Unresolved(reason)
        choices = (
            (f"the total `{column.name}` for each", TAKE_SUM),
            (f"the average `{column.name}` for each", TAKE_AVERAGE),
        )
        assert isinstance(part, NamePart)  # noqa: S101 - for the type checker
        return Ambiguous(part.text, choices=choices)

    def _shares_rank(self, rank: Rank, column: VocabularyColumn) -> bool:
        """Return whether a row of its own cannot be meant: `the class with the most days absent` has many rows."""
        if (
            not is_numeric_column(column)
            or not is_repeated_part(self.question, self.vocabulary)
            or self.question.groups
        ):
            return False
        most = isinstance(rank.by, Measure)
        if rank.by in self.question.requested and len(self.question.requested) == 1:
            return False  # "the top 3 highest prices" are single prices
        return self.question.top is not None or most or (rank.by is not None and part_adds_up(column))

    def _ask_fold(self, rank: Rank, column: VocabularyColumn) -> Ambiguous:
        """Return the question whether the sum or the highest of several numbers ranks."""
        best = "highest" if _descends(rank, column) else "lowest"
        whole = (f"the total `{column.name}` of each", TAKE_SUM)
        if LEVELS & {*column.words} and not part_adds_up(column):
            whole = (f"the average `{column.name}` of each", TAKE_AVERAGE)
        return Ambiguous(rank.text, choices=(whole, (f"the {best} single `{column.name}` of each", TAKE_BEST)))

    def _check_units(self) -> None:
        """Refuse `in dollars` of a column that does not hold dollars; note it if nothing says so."""
        question = self.question
        if not question.units:
            return
        sides = [s.subject for s in (question.ratio.upper, question.ratio.lower)] if question.ratio else []
        ordered = question.ordering.by if question.ordering else None
        parts = [*question.requested, *question.asked, *sides, *([ordered] if ordered else [])]
        rank = question.rank
        parts += [rank.by] if rank is not None and isinstance(rank.by, Measure) else []
        measured = [self._measured(p) for p in parts if isinstance(p, Measure)]
        columns = [m.column for m in measured if m.column is not None and m.until is None]
        shown = [p for p in parts if isinstance(p, NamePart) and p.columns]
        columns += [c for c in map(self.resolver.column, shown) if is_numeric_column(c)]
        if rank is not None and not isinstance(rank.by, Measure):
            columns.append(self._rank_column(rank, self.vocabulary.table(self.resolver.anchor)))
        whole = question.shares or (question.ratio.scale if question.ratio else 0) or (question.change == "percent")
        for unit in question.units:
            if (unit == "percent" and whole == 100) or (unit == "days" and any(m.until for m in measured)):
                continue
            notes: list[str] = []
            refused: Unresolved | None = None
            for column in dict.fromkeys(columns):
                try:
                    notes.append(check_unit(column, self.vocabulary.table(column.table), unit))
                except Unresolved as error:
                    refused = error
            if not notes:
                raise refused or Unresolved(f"It is not clear what `in {unit}` means here.")
            self.notes.extend(notes[:1] if "" not in notes else [])

    def _reading(self) -> str:
        text = ", ".join(piece for piece in self.said if piece)
        return text[:1].upper() + text[1:] + "."

    def _gaps(self) -> QueryPlan:
        """`missing values per column`: for each column of a table, the rows without a value."""
        question, table = self.question, self.vocabulary.table(self.resolver.anchor)
        others = [p for p in question.requested if p is not question.subject]
        self._refuse(noun=others or question.context or question.loose, group=question.groups, rank=question.rank)
        self._refuse(condition=question.thresholds or question.absences, order=question.ordering, number=question.top)
        tree = self._tree(table.name)
        where = self._where(tree)
        columns = table.columns[:MOST_GAPS]
        measures = [
            Aggregate(
                fn="count",
                filter=NullTest(column=join_column_ref(c), op="is null"),
                alias=fit_join_alias_length(c.name),
            )
            for c in columns
        ]
        listed = ", ".join(f"`{c.name}`" for c in columns)
        self.said.insert(0, f"number of missing values of `{table.name}` in {listed}")
        return self._plan(tree, (), where, (), measures, [], [], None)

    def _is_grouped(self) -> bool:
        question = self.question
        parts = [p for p in (*question.requested, *question.asked) if isinstance(p, Measure)]
        rank = question.rank.by if question.rank else None
        if isinstance(rank, Measure):
            parts.append(rank)
        if question.ordering is not None and isinstance(question.ordering.by, Measure):
            parts.append(question.ordering.by)
        grouped = bool(question.thresholds) or any(not self._measured(part).raw for part in parts)
        if not grouped and parts and question.groups:
            grouped = not self._keyed_groups()
        if not grouped and isinstance(rank, Measure) and rank.fn == "count":
            # "Which product sold the most units": each has many, and the most of something is a sum.
            column = self._measured(rank).column
            grouped = column is not None and not self._tree(self.resolver.anchor).reaches_one(column.table)
        alone = all(isinstance(part, Measure) for part in question.requested) and not question.rank
        if not grouped and parts and alone and not question.groups and not question.ordering:
            # "How many units were sold" asks for their sum, not for a list of quantities.
            return True
        return grouped or (bool(question.groups) and not parts and not question.requested)

    def _counts_entities(self) -> bool:
        """`How many customers have more than 5 orders`."""
        question = self.question
        asked = question.asked
        return bool(
            question.thresholds and not question.groups and len(asked) == 1 and isinstance(asked[0], Measure)
            and asked[0].fn == "count" and asked[0].name.tables and not question.rank
        )  # fmt: skip

    def _entities_over(self) -> QueryPlan:
        question = self.question
        self._refuse(order=question.ordering, number=question.top, noun=question.listed and question.requested)
        (asked,) = question.asked
        assert isinstance(asked, Measure)  # noqa: S101 - for the type checker
        inner = self._over(asked.name, question.thresholds)
        self.said.insert(0, "number of these")
        count = Aggregate(
            fn="count", alias=fit_join_alias_length(f"number_of_{vocabulary_name_without_schema(self.resolver.anchor)}")
        )
        return QueryPlan(source=PlanRef(plan=inner, alias="groups"), aggregate=(count,))

    def _over(
        self, name: NamePart, thresholds: Sequence[Any], conditions: Sequence[Condition] | None = None
    ) -> QueryPlan:
        """Return a plan for the keys of the things whose measures pass the thresholds."""
        question = self.question
        part = Question(
            requested=(name,), asked=(name,), subject=name, plural=True, thresholds=tuple(thresholds),
            conditions=question.conditions if conditions is None else tuple(conditions), context=question.context,
            absences=question.absences, loose=question.loose, verbs=question.verbs, prefer=question.prefer,
        )  # fmt: skip
        made = _Builder(part, self.vocabulary)
        plan = made.build().plan
        self.said.extend(made.said)
        return plan

    def _grouped(self) -> QueryPlan:
        question = self.question
        shown = [self._measured(p) for p in question.requested if isinstance(p, Measure)]
        asked = [self._measured(p) for p in question.asked if isinstance(p, Measure)]
        rank = question.rank
        ranked = self._measured(rank.by) if rank and isinstance(rank.by, Measure) else None
        after = self._measured(rank.then) if rank and rank.then else None
        ordering = question.ordering
        ordered = self._measured(ordering.by) if ordering and isinstance(ordering.by, Measure) else None
        limits = [(self._measured(t.measure), self._limit_op(t), self._limit(t)) for t in question.thresholds]
        measures = list(
            dict.fromkeys(
                [
                    *shown,
                    *asked,
                    *([ranked] if ranked else []),
                    *([after] if after else []),
                    *([ordered] if ordered else []),
                ]
            )
        )
        visible = list(dict.fromkeys([*shown, *asked])) if question.listed else measures
        if question.listed and shown:
            visible = shown
        counted = {m.table for m in asked if m.column is None}
        if question.groups and counted and any(m.table not in counted for m, _, _ in limits):
            # "How many customers per city have more than 5 orders" sets no condition on the cities.
            raise Unresolved("It is not clear whether the number applies to each one or to the whole group.")
        if not (question.requested or measures or limits or rank):
            raise Unresolved("Say what to compute for each of them, such as their number.")
        if self._counts_apart(measures) and not (rank or limits):
            return self._separate_counts(measures)
        base = self._base([*measures, *(m for m, _, _ in limits)])
        self._check_average(measures)
        self.resolver = replace(self.resolver, anchor=base)
        question = self.question = self._without_unit(base)
        keys, hidden = self._keys()
        self._check_per(keys, measures)
        self._check_single_rows(base, [*keys, *hidden], measures)
        counts = question.subject is None and all(m.column is None for m, _, _ in limits)
        if limits and keys and all(is_numeric_column(k) and (part_adds_up(k) or not counts) for k in keys):
            raise Unresolved(f"It is not clear whether to list `{keys[0].name}` or to add it up.")
        tree = self._tree(base)
        grains = [group for group in question.groups if group.name is None]
        if grains and not keys and rank is not None and isinstance(rank.by, NamePart):
            raise self._ask_fold(rank, self._rank_column(rank, self.vocabulary.table(base)))
        for column in [*keys, *hidden]:
            tree.add(column.table)
        for measured in [*measures, *(m for m, _, _ in limits)]:
            tree.add(measured.table)
            for dated in (measured.column, measured.until):
                if dated is not None:
                    tree.add(dated.table)
        where = self._where(tree)
        group_by: list[Any] = [show_column(column) for column in dict.fromkeys([*keys, *hidden])]
        dates = [self._period(group, tree) for group in grains]
        aggregates: list[Aggregate] = []
        names: dict[Measured, str] = {}
        for measured in dict.fromkeys([*measures, *(m for m, _, _ in limits)]):
            alias = self._free(measured.alias, [*keys, *hidden], names.values())
            names[measured] = alias
            aggregates.append(self._aggregate(measured, tree, alias))
        for measured, op, _ in limits:
            # A column of the rows themselves has no value without a row.
            if op in ("<", "<=") and measured.column is None and any(key.table != base for key in keys):
                raise Unresolved(f"It is not clear whether to include those with no `{measured.table}` at all.")
        having = [Compare(column=names[m], op=op, value=number) for m, op, number in limits]
        if rank is not None and ranked is None and ordering is None:
            raise Unresolved(f"It is not clear what `{rank.text}` refers to here.")
        order, limit = self._order_groups(rank, ranked, ordered, keys, names, dates, visible)
        per = self._ranked_per(keys, hidden, dates) if ranked is not None and ordering is None else ()
        limit = (question.top or 1) if per else limit
        tied = limit == 1 and question.top is None and ranked is not None and ordering is None
        if after is not None and ordering is None:
            order.append(Order(by=names[after], desc=True))
        if (rank or limits or limit) and not (keys or dates):
            raise Unresolved("It is not clear what to choose from.")
        if limit is not None:
            where.extend(NullTest(column=join_column_ref(key), op="is not null") for key in keys if key.nulls)
            self.said.extend(f"where `{key.table}.{key.name}` is known" for key in keys if key.nulls)
        select: tuple[Any, ...] = ()
        hide = [m for m in names if m not in visible]
        if hidden or hide:
            select = (*dates, *(show_column(column) for column in keys), *(names[m] for m in names if m in visible))
        plan = self._plan(tree, select, where, (*dates, *group_by), aggregates, having, order, limit)
        if tied and ranked is not None and rank is not None:
            # Of several that tie, no one is the first.
            best = Top(n=1, by=names[ranked], lowest=rank.direction == "asc", ties=True)
            plan = plan.model_copy(update={"top": best, "limit": None})
        if per and ranked is not None and rank is not None:
            n, ties = question.top or 1, question.top is None
            best = Top(n=n, per=per, by=names[ranked], lowest=rank.direction == "asc", ties=ties)
            plan = plan.model_copy(update={"top": best, "limit": None, "order_by": ()})
            self.said.append(f"for each {', '.join(f'`{name}`' for name in per)}")
        if (question.shares or question.change) and hidden:
            raise Unresolved("It is not clear what to show besides the change.")
        if question.shares:
            return self._share(plan, names, dates, keys)
        if question.change:
            return self._changes(plan, names, dates, keys)
        if hide:
            plan = self._project(plan, dates, keys, [names[m] for m in names if m in visible])
        self._say_groups(names, visible, keys, dates, limits)
        self._say_order(order, limit, tied)
        return plan

    def _counts_apart(self, measures: Sequence[Measured]) -> bool:
        """Return whether these are the numbers of rows of different tables, and nothing else is said about them."""
        question = self.question
        said = (question.groups, question.conditions, question.loose, question.absences, question.context)
        tables = {m.table for m in measures}
        plain = all(m.fn == "count" and m.column is None for m in measures)
        return plain and len(tables) == len(measures) > 1 and not any(said) and not question.shares

    def _separate_counts(self, measures: Sequence[Measured]) -> QueryPlan:
        """Count each table by itself: joined, rows without a partner would not be counted."""
        names: dict[Measured, str] = {}
        plans = []
        for measured in measures:
            tree = self._tree(measured.table)
            names[measured] = self._free(measured.alias, [], names.values())
            counted = self._aggregate(measured, tree, names[measured])
            plans.append(self._plan(tree, (), [], (), [counted], [], [], None))
        first, *others = names.values()
        self._say_groups(names, measures, [], [], [])
        singles = (Named(expr=Single(plan=plan), alias=alias) for plan, alias in zip(plans[1:], others, strict=True))
        return QueryPlan(source=PlanRef(plan=plans[0], alias="counts"), select=(first, *singles))

    def _ranked_per(
        self, keys: Sequence[VocabularyColumn], hidden: Sequence[VocabularyColumn], dates: Sequence[Named]
    ) -> tuple[str, ...]:
        """Return the columns of which each value has a best one: the country of `the top customer in each country`."""
        grouped = [c for g in self.question.groups if g.name is not None for c in self._columns_of(g.name)[1]]
        apart = [key for key in keys if key not in grouped]
        names = [date.alias for date in dates] + [key.name for key in keys if key in grouped]
        if not names or not apart or not any(isinstance(part, NamePart) for part in self.question.requested):
            return ()
        if hidden or len({key.name.lower() for key in keys}) < len(keys):
            raise Unresolved("It is not clear which one of each group is meant.")
        return tuple(names)

    def _limit_op(self, threshold: Threshold) -> str:
        """Return the comparison of a threshold; that of `better than` depends on the measured column."""
        column = self._measured(threshold.measure).column
        if threshold.op not in ("better", "worse") or column is None:
            return threshold.op
        return self._better(column, threshold.op, str(threshold.number), f"{threshold.op} than {threshold.number}")

    def _limit(self, threshold: Threshold) -> float | int:
        """Return the number of a threshold as the measured column holds it."""
        column = self._measured(threshold.measure).column
        if column is None:
            if threshold.unit == "percent":
                raise Unresolved(f"It is not clear what {threshold.number}% of `{threshold.measure.text}` is.")
            return threshold.number
        number, note = number_in_unit(column, self.vocabulary.table(column.table), threshold.number, threshold.unit)
        self.notes.extend([note] if note else [])
        return number

    def _without_unit(self, base: str) -> Question:
        """`average amount per order` of something else is the average over orders."""
        kept = []
        for group in self.question.groups:
            found = self._group_meaning(group.name) if group.name is not None else None
            whole = found is not None and found.column is None and found.table == base
            if not (
                whole
                and group.text.startswith(("per ", "across "))
                and len(self.question.asked) + len(self.question.groups) > 1
            ):
                kept.append(group)
        return replace(self.question, groups=tuple(kept))

    def _check_per(self, keys: Sequence[VocabularyColumn], measures: Sequence[Measured]) -> None:
        """`cost per kg`, `price per share`: one number over another, not a group for each weight."""
        for group in self.question.groups:
            names = {(m.table, m.column) for m in group.name.columns} if group.name else set()
            averaged = (
                any(m.fn == "avg" for m in measures)
                and group.name is not None
                and min(m.cost for m in group.name.meanings) > 0
            )
            numbers = [
                key
                for key in keys
                if (key.table, key.name) in names
                and (is_numeric_column(key) or (averaged and is_named_identifier(key)))
            ]
            if numbers and group.text.startswith("per ") and measures:
                raise Unresolved(f"It is not clear whether `{group.text}` means for each one, or divided by it.")

    def _check_single_rows(self, base: str, keys: Sequence[VocabularyColumn], measures: Sequence[Measured]) -> None:
        """Refuse groups of one row each: the number of students of each student is one."""
        table = self.vocabulary.table(base)
        own = {key.name for key in keys if key.table == base}
        several = len({key.table for key in keys}) > 1
        named = several and bool(table.label) and {*table.label} <= own
        if len({*keys}) < 2 or not ((table.key and {*table.key} <= own) or named):
            return
        if any(m.fn != "sum" or several for m in measures if m.table == base and not m.raw):
            raise Unresolved(f"It is not clear what to count or measure for each of `{base}`: each is one row.")

    def _check_average(self, measures: Sequence[Measured]) -> None:
        """`average rating of businesses`, if each has many: the average of all ratings, or of each one's average?"""
        named = [n for n in (self.question.subject, *self.question.context) if n is not None and n.tables]
        about = self.resolver.table_of(self.question.subject) if self.question.subject else None
        words = {
            word_base_form(w)
            for p in self.question.requested
            if isinstance(p, Measure)
            for w in p.name.text.lower().split()
        }
        if any(words & {*self.vocabulary.table(measured.table).words} for measured in measures):
            return
        if about is not None and any(measured.table == about.name for measured in measures):
            return
        for name in named:
            subject = self.resolver.table_of(name)
            if subject is not None and (subject.name, "") not in self.prefer:
                self._check_average_of(subject, measures)

    def _check_average_of(self, subject: VocabularyTable, measures: Sequence[Measured]) -> None:
        grouped = {m.table for group in self.question.groups if group.name for m in group.name.tables}
        nouns = {m.table for p in self.question.requested if isinstance(p, NamePart) for m in p.meanings}
        for measured in measures:
            apart = measured.table != subject.name and self._refers_to(measured.table, subject.name)
            adds = measured.column is not None and bool(ADDING & {*measured.column.words})
            unsure = measured.fn in ("avg", "median") or (measured.fn in ("min", "max") and adds)
            if unsure and apart and subject.name not in grouped | nouns:
                raise Unresolved(
                    f"It is not clear whether this is over all `{measured.table}` or over one number for each row of "
                    f"`{subject.name}`."
                )

    def _project(
        self, plan: QueryPlan, dates: Sequence[Named], keys: Sequence[VocabularyColumn], shown: Sequence[str]
    ) -> QueryPlan:
        """Show measures after the columns of `select`; an outer plan drops those that only sort or limit."""
        inner = plan.model_copy(update={"select": ()})
        columns = [*(d.alias for d in dates), *(key.name for key in keys), *shown]
        if len({c.lower() for c in columns}) < len(columns):
            raise Unresolved("Two columns of the answer would have the same name.")
        outer_order = [
            Order(by=o.by.column if isinstance(o.by, ColumnRef) else o.by, desc=o.desc)
            for o in plan.order_by
            if isinstance(o, Order)
        ]
        # Of `distinct names`, two that are equal are shown once.
        once = self.question.distinct and not outer_order
        return QueryPlan(
            source=PlanRef(plan=inner, alias="groups"),
            select=() if once else tuple(columns),
            group_by=tuple(columns) if once else (),
            order_by=tuple(outer_order),
        )

    def _share(
        self, plan: QueryPlan, names: dict[Measured, str], dates: Sequence[Named], keys: Sequence[VocabularyColumn]
    ) -> QueryPlan:
        """Return a plan for each group's share of the whole; if only the first groups are shown, of all groups."""
        self._refuse(condition=plan.having)
        if len(names) != 1:
            raise Unresolved("It is not clear which number to take the share of.")
        ((measured, alias),) = names.items()
        part: Expr = Arithmetic(op="/", args=(alias, Window(window="total", of=alias)))
        if self.question.shares != 1:
            part = Arithmetic(op="*", args=(part, self.question.shares))
        columns = (*(d.alias for d in dates), *(key.name for key in keys))
        if not columns:
            raise Unresolved("It is not clear what the share is taken of.")
        if len({*columns}) < len(columns):
            raise Unresolved("Two columns of the answer would have the same name.")
        self.said.insert(0, f"share of the {measured.label}{self._per(keys, dates)}")
        inner = plan.model_copy(update={"order_by": (), "select": (), "limit": None, "top": None})
        order = tuple(Order(by=column) for column in columns[:1])
        limit = plan.limit or (plan.top.n if plan.top is not None else None)
        if limit is not None:
            first = plan.order_by[0] if plan.order_by else None
            order = (Order(by="share", desc=isinstance(first, Order) and first.desc),)
            self._say_order(order, limit)
        return QueryPlan(
            source=PlanRef(plan=inner, alias="groups"),
            select=(*columns, Named(expr=part, alias="share")),
            order_by=order,
            limit=limit,
        )

    def _changes(
        self, plan: QueryPlan, names: dict[Measured, str], dates: Sequence[Named], keys: Sequence[VocabularyColumn]
    ) -> QueryPlan:
        """Return a plan that shows each period beside the one before."""
        self._refuse(condition=plan.having, number=plan.limit)
        if len(names) != 1 or len(dates) != 1:
            raise Unresolved("A change needs one number per period, such as the growth of sales per month.")
        ((measured, alias),) = names.items()
        period = dates[0].alias
        columns = (period, *(key.name for key in keys))
        if len({*columns}) < len(columns):
            raise Unresolved("Two columns of the answer would have the same name.")
        before = Window(window="previous", of=alias, per=tuple(key.name for key in keys), by=period)
        value: Expr = Arithmetic(op="-", args=(alias, before))
        if self.question.change == "percent":
            value = Arithmetic(op="*", args=(Arithmetic(op="/", args=(value, before)), 100))
        # If a period has no rows, the previous row is not the previous period.
        last = Window(window="previous", of=period, per=tuple(key.name for key in keys), by=period)
        gap = Compare(column=DaysBetween(days_between=(last, period)), op="<=", value=_LONGEST[period])
        value = Case(case=(When(when=gap, then=value),))
        self.said.insert(0, f"{measured.label}{self._per(keys, dates)}, and its change since the {period} before")
        name = "growth_percent" if self.question.change == "percent" else "change"
        inner = plan.model_copy(update={"order_by": (), "select": ()})
        return QueryPlan(
            source=PlanRef(plan=inner, alias="periods"),
            select=(*columns, alias, Named(expr=value, alias=name)),
            order_by=tuple(Order(by=column) for column in columns),
        )

    def _free(self, alias: str, keys: Iterable[VocabularyColumn], taken: Iterable[str]) -> str:
        used = {key.name.lower() for key in keys} | {name.lower() for name in taken}
        while alias.lower() in used:
            alias += "_"
        return alias

    def _base(self, measures: Sequence[Measured]) -> str:
        """Return the measured table with the finest rows: each joins at most one row of every other measured table."""
        tables = list(dict.fromkeys(m.table for m in measures)) or [self.resolver.anchor]
        for table in tables:
            ways = [find_join_paths(self.vocabulary, table, other)[1] for other in tables]
            if all(paths and any(join_path_leads_to_one(path) for path in paths) for paths in ways):
                return table
        raise Unresolved("It measures tables that share no rows: " + ", ".join(f"`{t}`" for t in tables) + ".")

    def _order_groups(
        self, rank: Rank | None, ranked: Measured | None, ordered: Measured | None, keys: Sequence[VocabularyColumn],
        names: dict[Measured, str], dates: Sequence[Named], visible: Sequence[Measured],
    ) -> tuple[list[Order], int | None]:  # fmt: skip
        question = self.question
        ordering, limit = question.ordering, question.top
        order: list[Order] = []
        if ordering is not None:
            by: Any = None
            if ordered is not None:
                by = names[ordered]
            elif isinstance(ordering.by, NamePart):
                by = self._order_name(ordering.by, keys, names)
            elif ranked is not None:
                by = names[ranked]
            elif visible:
                by = names[visible[-1]]
            else:
                by = join_column_ref(keys[0])
            order.append(
                Order(
                    by=by,
                    desc=ordering.direction == "desc"
                    or (ordering.direction is None and by in names.values() and bool(limit)),
                )
            )
        elif ranked is not None and rank is not None:
            order.append(Order(by=names[ranked], desc=rank.direction == "desc"))
        elif limit and visible:
            order.append(Order(by=names[visible[-1]], desc=not question.lowest))
        elif dates:
            order.extend(Order(by=date.alias) for date in dates)
        if limit is None and rank is not None and ordering is None:
            limit = self._one_or_ask(rank)
        return order, limit

    def _one_or_ask(self, rank: Rank) -> int | None:
        if self.question.plural and self.question.groups:
            return None
        if self.question.plural and rank.text.lower().startswith(("top", "best", "worst")):
            raise Unresolved(f"It does not say how many with `{rank.text}` to return; say, for example, top 5.")
        return 1

    def _order_name(self, name: NamePart, keys: Sequence[VocabularyColumn], names: dict[Measured, str]) -> Any:
        for column in keys:
            if any((m.table, m.column) == (column.table, column.name) for m in name.columns):
                return join_column_ref(column)
        for measured, alias in names.items():
            if measured.column is not None and any(m.column == measured.column.name for m in name.columns):
                return alias
            if measured.column is None and any(m.table == measured.table for m in name.tables):
                return alias
        for column in keys:
            if any(m.table == column.table for m in name.tables):
                return join_column_ref(column)
        raise Unresolved(f"The answer has no `{name.text}` to sort by.")

    def _listing(self) -> QueryPlan:
        question = self.question
        about = self.resolver.anchor
        base = self._ranked_table()
        self.resolver = replace(self.resolver, anchor=base)
        table = self.vocabulary.table(base)
        columns: list[VocabularyColumn] = []
        whole = False
        for part in question.requested:
            if isinstance(part, Measure):
                column = self._measured(part).column
                assert column is not None  # noqa: S101 - for the type checker
                if any(c.identifies and (c.name,) != table.key and c.table == column.table for c in columns):
                    raise Unresolved(f"There may be several `{column.name}` for each; say whether to use their sum.")
                columns.append(column)
                continue
            found = Meaning(about) if part is question.subject and part.tables else self._listed_meaning(part)
            owner = self.vocabulary.table(found.table)
            if question.everything and found.column is None and not found.label:
                whole = True
                columns.extend(owner.columns)
            elif found.label:
                columns.extend(owner.column(n) for n in owner.label)
            elif found.column is not None:
                columns.append(owner.column(found.column))
            else:
                whole = True
                if question.distinct and (names := self._shared_names(owner)):
                    columns.extend(names)
                    continue
                columns.extend((self._display(owner) if owner.label else ()) or owner.columns[:MOST_COLUMNS])
        named = len(columns) == 1 and columns[0].name in self.vocabulary.table(columns[0].table).label
        unsure = whole or (len(columns) == 1 and not is_numeric_column(columns[0]) and not named)
        if unsure and question.rank is None and any(g.text.startswith(("per ", "by ")) for g in question.groups):
            raise Unresolved("It is not clear whether to list or to count them for each.")
        for group in question.groups:
            if group.name is None:
                noun = question.subject.text if question.subject is not None else "rows"
                raise self._ask_fold_of_groups(f"Say what to compute for each period, such as the number of `{noun}`.")
            keys = self._columns_of(group.name)[1]
            several = (
                [c for c in columns if is_numeric_column(c)]
                if question.rank is None and not self._keyed_groups()
                else []
            )
            if several:
                raise self._ask_fold_of_groups(
                    f"There may be several `{several[0].name}` for each; say whether to use their sum or average."
                )
            columns = [*(key for key in keys if key not in columns), *columns]
        if not columns:
            raise Unresolved("It is not clear what to show.")
        if self._shows_each(columns, table):
            columns = [*(table.column(name) for name in table.label or table.key), *columns]
        tree = self._tree(base)
        sort, limit = self._sort_rows(table)
        rank = question.rank if question.ordering is None else None
        if sort is not None and rank is not None and self._shares_rank(rank, sort[0]):
            raise self._ask_fold(rank, sort[0])
        explicit = question.listed or not whole
        if sort is not None and not explicit and sort[0] not in columns:
            columns.append(sort[0])
        for column in columns:
            tree.add(column.table)
        fans = sort is not None and sort[0].table in {column.table for column in columns} and question.ordering
        if sort is not None and not fans and not tree.reaches_one(sort[0].table):
            if question.rank is not None and question.ordering is None and is_numeric_column(sort[0]):
                raise self._ask_fold(question.rank, sort[0])
            raise Unresolved(
                f"There may be several `{sort[0].name}` for each; say whether to sort by their sum or by the highest."
            )
        if sort is not None:
            tree.add(sort[0].table)
        columns = list(dict.fromkeys(columns))
        where = self._having_both(tree, columns) or self._where(tree)
        order = [Order(by=join_column_ref(sort[0]), desc=sort[1])] if sort else []
        tied = sort is not None and limit == 1 and question.top is None and not question.groups
        if question.ordering is not None and question.ordering.then is not None:
            second = self._order_column(question.ordering.then, table)
            if not tree.reaches_one(second.table):
                raise Unresolved(f"There may be several `{second.name}` for each; say which of them to sort by.")
            tree.add(second.table)
            order.append(Order(by=join_column_ref(second), desc=bool(sort and sort[1])))
        each = self._lists_for_each(tree, columns, table)
        if each:
            columns.extend(column for column in self._display(table) if column not in columns)
        self.said.append("list of " + ", ".join(f"`{c.table}.{c.name}`" for c in columns))
        self._say_order(order, limit, tied, sort[0].name if sort is not None else "")
        if sort is not None and tied:
            # Of several that tie, no one is the first: all of them are shown.
            extreme = Aggregate(fn="max" if sort[1] else "min", of=join_column_ref(sort[0]))
            best = QueryPlan(source=tree.base, joins=tree.joins(), where=tuple(where) or None, aggregate=(extreme,))
            where.append(Compare(column=join_column_ref(sort[0]), op="=", value=Single(plan=best)))
            limit, order = None, []
        if sort is not None and limit is not None and sort[0].nulls:
            where.append(NullTest(column=join_column_ref(sort[0]), op="is not null"))
            self.said.append(f"where `{sort[0].table}.{sort[0].name}` is known")
        select = tuple(show_column(column) for column in columns)
        if question.rank is not None and question.groups and sort is not None:
            return self._best_of_each(tree, columns, where, sort)
        apart = sort is not None and sort[0] not in columns
        if sort is not None and apart and order and question.distinct and not self._has_unique(columns, tree):
            raise Unresolved(f"Rows that show the same may differ in `{sort[0].name}`, so it cannot sort them.")
        if not each and self._repeats(tree, columns, table) and not apart:
            return self._plan(tree, (), where, select, [], [], order, limit)
        return self._plan(tree, select, where, (), [], [], order, limit)

    def _having_both(self, tree: JoinTree, columns: Sequence[VocabularyColumn]) -> list[Filter]:
        """`countries with both hosts over 45 and hosts under 35`: values that a row of each kind has; else nothing."""
        question = self.question
        pair = self._alternatives(tree) if len(columns) == 1 and len(question.conditions) == 2 else None
        (column, *_) = columns
        if pair is None or column.table != tree.base or column.distinct >= self.vocabulary.table(tree.base).rows:
            return []
        if question.rank or question.ordering or question.absences or question.loose or question.groups:
            raise Unresolved("The rules cannot look for things that have both.")
        self.question = replace(question, distinct=True, both=False)
        place = join_column_ref(column)
        made: list[Filter] = []
        for condition in question.conditions:
            inner = self._tree(tree.base)
            for table in self._condition_tables(condition, inner):
                inner.add(table, self._near(condition), condition.said)
            filters = (self._filter(condition, inner), NullTest(column=place, op="is not null"))
            plan = QueryPlan(source=tree.base, joins=inner.joins(), select=(place,), where=filters)
            made.append(Member(column=place, op="in", plan=plan))
            self.said[-1] = f"with a row {self.said[-1]}"
        return made

    def _alternatives(self, tree: JoinTree) -> tuple[Condition, Condition] | None:
        """Return the two conditions if no row can meet both: two values of one column, or above 45 and below 35."""
        first, second = self.question.conditions
        if first.either or second.either or first.negated or second.negated:
            return None
        one, other = (self._condition_column(condition, tree)[0] for condition in (first, second))
        if one != other or not tree.reaches_one(one.table):
            return None
        if (first.kind, second.kind) == ("compare", "compare"):
            return (first, second) if _contradict(first, second) else None
        return (first, second) if self.question.both and first.kind == second.kind else None

    def _shared_names(self, table: VocabularyTable) -> list[VocabularyColumn]:
        """Return the name of a row if several rows share it: `distinct products` are then the different names."""
        if len(table.label) != 1 or table.column(table.label[0]).distinct == table.rows:
            return []
        return [table.column(table.label[0])]

    def _has_unique(self, columns: Sequence[VocabularyColumn], tree: JoinTree) -> bool:
        """Return whether a column that is shown differs in every row, so that no two rows are equal."""
        rows = self.vocabulary.table(tree.base).rows
        own = [column for column in columns if column.table == tree.base]
        return not tree.fans() and any(column.distinct == rows for column in own)

    def _ranked_table(self) -> str:
        """Return the table to choose rows from: that of the cities for `the country with the largest city`."""
        rank, anchor = self.question.rank, self.resolver.anchor
        table = self.resolver.table_of(rank.of) if rank is not None and rank.of is not None and rank.of.tables else None
        if table is None or table.name == anchor or self.question.groups:
            return anchor
        if not self._refers_to(table.name, anchor):
            assert rank is not None  # noqa: S101 - for the type checker
            raise Unresolved(f"It is not clear how `{rank.text} {table.name}` chooses from `{anchor}`.")
        return table.name

    def _best_of_each(
        self,
        tree: JoinTree,
        columns: Sequence[VocabularyColumn],
        where: list[Filter],
        sort: tuple[VocabularyColumn, bool],
    ) -> QueryPlan:
        """`the most expensive product in each category`."""
        shown = [*columns, *([sort[0]] if sort[0] not in columns else [])]
        names = {column.name.lower() for column in shown}
        groups = [c for group in self.question.groups if group.name for c in self._columns_of(group.name)[1]]
        if len(names) < len(shown) or tree.fans() or self.question.ordering is not None or self._keyed_groups():
            raise Unresolved("It is not clear which one of each group is meant.")
        per = tuple(column.name for column in groups)
        ties = self.question.top is None
        top = Top(n=self.question.top or 1, per=per, by=sort[0].name, lowest=not sort[1], ties=ties)
        self.said.append(f"for each {', '.join(f'`{name}`' for name in per)}")
        where.append(NullTest(column=join_column_ref(sort[0]), op="is not null"))
        self.said.append(f"where `{sort[0].table}.{sort[0].name}` is known")
        plan = self._plan(tree, tuple(show_column(column) for column in shown), where, (), [], [], [], None)
        return plan.model_copy(update={"top": top})

    def _listed_meaning(self, name: NamePart) -> Meaning:
        if name is self.question.subject and name.tables:
            return Meaning(self.resolver.anchor)
        if name.tables and (not name.columns or name.tables[0].cost < name.columns[0].cost):
            table = self.resolver.table_of(name)
            assert table is not None  # noqa: S101 - for the type checker
            return Meaning(table.name)
        return self.resolver.meaning(name)

    def _shows_each(self, columns: Sequence[VocabularyColumn], table: VocabularyTable) -> bool:
        """`the categories of products`: that of each product, beside its name; not the different ones."""
        question, column = self.question, columns[0]
        if question.subject is None or question.distinct or question.groups or len(columns) > 1 or question.both:
            return False
        known = column.table != table.name or column.name in (*table.label, *table.key)
        return question.plural and not known and column.kind == "text" and column.distinct < table.rows

    def _lists_for_each(self, tree: JoinTree, columns: Sequence[VocabularyColumn], table: VocabularyTable) -> bool:
        """`facility codes of apartments with 4 bedrooms`: those of each apartment, beside it, if two may have one."""
        question = self.question
        denied = question.absences or any(condition.negated for condition in question.conditions)
        chosen = question.rank or question.top or question.groups or question.distinct
        held = [column for column in columns if column.table == table.name]
        # `staff_details`, if most rows have their own, tell about each of the staff; they are not one of a few kinds.
        own = len(held) == len(columns) and all(
            2 * column.distinct > table.rows and {*table.words[-1:]} <= {*column.words[:-1]} for column in held
        )
        # "Which cities do customers live in" asks for cities, each once.
        things = not question.plural or (question.subject is None and bool(question.context))
        if denied or chosen or things or not table.key or not (tree.fans() or question.conditions or own):
            return False
        return self._repeats(tree, columns, table)

    def _repeats(self, tree: JoinTree, columns: Sequence[VocabularyColumn], table: VocabularyTable) -> bool:
        """Return whether the same row could be listed twice."""
        if self.question.distinct or tree.fans():
            return True
        keyed = all(table.column(key) in columns for key in table.key) and bool(table.key)
        if keyed:
            return False
        # A question without a subject asks for the distinct values of a column.
        return self.question.subject is None or columns[0].table != table.name

    def _sort_rows(self, table: VocabularyTable) -> tuple[tuple[VocabularyColumn, bool] | None, int | None]:
        question = self.question
        rank, ordering, limit = question.rank, question.ordering, question.top
        by = ordering.by if ordering is not None else None
        column: VocabularyColumn | None = None
        if isinstance(by, NamePart):
            column = self._order_column(by, table)
        elif isinstance(by, Measure):
            column = self._measured(by).column
        ranked = self._rank_column(rank, table) if rank is not None else None
        if column is None:
            column = ranked
        desc = ordering.direction == "desc" if ordering is not None and ordering.direction else False
        ranks_desc = rank is not None and ranked is not None and _descends(rank, ranked)
        if ordering is not None and ordering.direction is None and rank is not None and column == ranked:
            desc = ranks_desc
        raw = [self._measured(p).column for p in (*question.requested, *question.asked) if isinstance(p, Measure)]
        if ordering is not None and column is None and raw:
            column = raw[0]
        if ordering is not None and column is None:
            names = [p for p in question.requested if isinstance(p, NamePart)]
            found = self._listed_meaning(names[0]) if names else Meaning(table.name)
            owner = self.vocabulary.table(found.table)
            shown = [owner.column(found.column)] if found.column else self._display(owner)
            numbers = [self._listed_meaning(name) for name in names]
            sized = [
                c
                for m in numbers
                if m.column and is_numeric_column(c := self.vocabulary.table(m.table).column(m.column))
            ]
            # "Departments and their budgets, largest first".
            shown = sized if len(sized) == 1 else shown
            if not shown:
                raise Unresolved("It is not clear what to sort by.")
            column = shown[0]
        if rank is not None and limit is None and ordering is None:
            limit = self._one_or_ask(rank)
        if rank is not None and ordering is None:
            desc = ranks_desc
        if rank is not None and ordering is not None and limit is not None and ranked is not None and column != ranked:
            raise Unresolved("The question ranks by one thing and sorts by another.")
        if limit is not None and column is None:
            raise Unresolved("It is not clear how to choose the first ones.")
        if rank is not None and ordering is not None and limit is None and not question.plural:
            limit = 1
        if rank is not None and limit is not None and ordering is not None and desc != ranks_desc:
            raise Unresolved("The question ranks in one direction and sorts in the other.")
        return (column, desc) if column is not None else None, limit

    def _order_column(self, name: NamePart, table: VocabularyTable) -> VocabularyColumn:
        if name.tables and not name.columns:
            shown = self._display(self.vocabulary.table(self._group_meaning(name).table))
            if shown:
                return shown[0]
        return self.resolver.column(name)

    def _rank_column(self, rank: Rank, table: VocabularyTable) -> VocabularyColumn:
        if isinstance(rank.by, NamePart):
            column = self.resolver.column(
                rank.by, lambda c: is_numeric_column(c) or is_period_column(c) or c.kind in ("date", "timestamp")
            )
            if rank.text.lower().startswith(TEMPORAL) and is_numeric_column(column) and "age" not in column.words:
                raise Unresolved(f"It is not clear which date `{rank.text}` refers to.")
            dated = column.kind in ("date", "timestamp") or column.words[-1:] == ("year",) or is_period_column(column)
            if (
                not is_numeric_column(column)
                and not dated
                and not column_sorts_as_numbers(column)
                and not column.identifies
            ):
                raise Unresolved(
                    f"`{column.table}.{column.name}` holds no numbers or dates to find the `{rank.text}` by."
                )
            return column
        if isinstance(rank.by, Measure):
            measured = self._measured(rank.by).column
            assert measured is not None  # noqa: S101 - for the type checker
            return measured
        # Not those that the question names: the largest player is not the one of the largest team.
        beside = [self.vocabulary.table(n) for n in self._referred_tables(table.name) if n not in self.nouns]
        dates = [c for c in table.columns if c.kind in ("date", "timestamp") and not TECHNICAL & {*c.words}]
        if rank.text.lower().startswith(TEMPORAL) and dates:
            beside = []  # a date of its own says more than one of another table
            every = dates_with_created(dates, [c for c in table.columns if c.kind in ("date", "timestamp")], table)
            chosen = [c for c in every if (c.table, c.name) in self.prefer]
            if len(every) > len(dates):
                if not chosen:
                    raise Ambiguous(rank.text, [Meaning(c.table, c.name) for c in every])
                return chosen[0]
        for held in ([table], beside):
            for word in (word.removeprefix("!") for word in rank.implied):
                fitting = [
                    c for each in held for c in each.columns
                    if word in c.words
                    and (is_numeric_column(c) or c.kind in ("date", "timestamp") or c.words[-1:] == ("year",))
                    and not {"created", "updated"} & {*c.words}
                ]  # fmt: skip
                chosen = [c for c in fitting if (c.table, c.name) in self.prefer]
                if len(fitting) == 1 or chosen:
                    column = (chosen or fitting)[0]
                    if MONEY & {*column.words}:
                        # Of an order, the price of a piece may not be what makes it expensive.
                        end = "highest" if rank.direction == "desc" else "lowest"
                        self.notes.append(f"`{rank.text}` is taken as the {end} `{column.name}`.")
                    return column
                if len(fitting) > 1:
                    raise Ambiguous(rank.text, [Meaning(c.table, c.name) for c in fitting])
        if rank.text.lower().startswith(TEMPORAL) and len(dates) == 1:
            return dates[0]
        raise Unresolved(f"It is not clear which column of `{table.name}` makes it the `{rank.text}`.")

    def _ratio_over(self) -> QueryPlan:
        """`authors with 3 or more papers to authors with less than 3`."""
        question, ratio = self.question, self.question.ratio
        assert ratio is not None  # noqa: S101 - for the type checker
        self._refuse(condition=question.conditions or question.loose or question.absences, group=question.groups)
        self._refuse(noun=question.context)
        plans = []
        for alias, side in (("upper", ratio.upper), ("lower", ratio.lower)):
            name = side.subject.name if isinstance(side.subject, Measure) else side.subject
            if name is None or not name.tables or side.context or side.loose:
                raise Unresolved("It is not clear what the ratio compares.")
            if side.thresholds:
                inner = self._over(name, side.thresholds, side.conditions)
                count = Aggregate(fn="count", alias=alias)
                plans.append(QueryPlan(source=PlanRef(plan=inner, alias="groups"), aggregate=(count,)))
            elif not side.conditions:
                table = self.resolver.table_of(name)
                assert table is not None  # noqa: S101 - for the type checker
                plans.append(QueryPlan(source=table.name, aggregate=(Aggregate(fn="count", alias=alias),)))
            else:
                raise Unresolved("It is not clear what the ratio compares.")
        value = self._scaled(Arithmetic(op="/", args=("upper", Single(plan=plans[1]))))
        return QueryPlan(source=PlanRef(plan=plans[0], alias="parts"), select=(Named(expr=value, alias="ratio"),))

    def _average_of_counts(self) -> QueryPlan:
        """`average number of orders per customer`: counted for each, then averaged."""
        question = self.question
        measures = [p for p in question.requested if isinstance(p, Measure)]
        if len(measures) != 1 or len(question.requested) != 1 or len(question.groups) != 1 or question.rank:
            raise Unresolved("It is not clear what to average the number over; say, for example, per customer.")
        self._refuse(condition=question.thresholds, order=question.ordering, number=question.top)
        counted = self._measured(Measure("count", measures[0].name, measures[0].distinct))
        self.resolver = replace(self.resolver, anchor=counted.table)
        tree = self._tree(counted.table)
        dates = self._dates(tree)
        name = question.groups[0].name
        keys = self._columns_of(name)[1] if name is not None else []
        for column in keys:
            tree.add(column.table)
        where = self._where(tree)
        aggregate = self._aggregate(counted, tree, "counted")
        inner = self._plan(tree, (), where, (*dates, *(show_column(c) for c in keys)), [aggregate], [], [], None)
        fn = measures[0].fn
        self.said.insert(0, f"{fn} over{self._per(keys, dates).removeprefix(' per')} of the {counted.label}")
        outer = Aggregate(fn=fn, of="counted", alias=fit_join_alias_length(f"{fn}_{counted.alias}"))
        return QueryPlan(source=PlanRef(plan=inner, alias="counts"), aggregate=(outer,))

    def _say_groups(self, names: dict[Measured, str], visible: Sequence[Measured], keys: Sequence[VocabularyColumn],
                    dates: Sequence[Named], limits: Sequence[tuple[Measured, str, float]]) -> None:  # fmt: skip
        head = " and ".join(m.label for m in names if m in visible) or "list"
        self.said.insert(0, head + self._per(keys, dates))
        self.said.extend(f"with {m.label} {op} {number:,}" for m, op, number in limits)

    def _say_order(self, order: Sequence[Order], limit: int | None, tied: bool = False, first: str = "") -> None:
        """Say the order; `first` is the name of the column that sorts, if the plan has only its formula."""
        by = order[0].by if order else None
        name = first or (by.column if isinstance(by, ColumnRef) else by)
        if order and tied:
            self.said.append(f"only those with the {'highest' if order[0].desc else 'lowest'} `{name}`")
            return
        for each in order[1:]:
            also = each.by.column if isinstance(each.by, ColumnRef) else each.by
            self.said.append(f"then by `{also}`")
        if order:
            self.said.append(f"{'highest' if order[0].desc else 'lowest'} `{name}` first")
        if limit:
            self.said.append(f"the first {limit}" if limit > 1 else "only the first")


def _contradict(first: Condition, second: Condition) -> bool:
    """Return whether no number can meet two comparisons: above 45 and below 35."""
    bounds: dict[str, float] = {}
    for condition in (first, second):
        value = condition.values[0] if len(condition.values) == 1 else None
        if not isinstance(value, int | float) or condition.op[:1] not in ("<", ">", "="):
            return False
        bounds[condition.op[:1]] = value
    if {*bounds} == {"="}:
        return first.values != second.values
    return {*bounds} == {"<", ">"} and bounds[">"] >= bounds["<"]


def _descends(rank: Rank, column: VocabularyColumn) -> bool:
    """Return whether the highest come first: the oldest have the highest age, but the lowest date of birth."""
    turned = rank.by is None and any(word[1:] in column.words for word in rank.implied if word.startswith("!"))
    return (rank.direction == "desc") != turned
