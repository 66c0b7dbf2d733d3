"""From the parts of a question to a QueryPlan: every noun resolved, tables joined along keys, no row counted twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from etude.offline.average_rows import count_averaged_rows
from etude.offline.column_traits import is_numeric_column
from etude.offline.join_tree import fit_join_alias_length, join_column_ref, show_column
from etude.offline.joins import join_hops
from etude.offline.list_plans import ListPlans
from etude.offline.operator_words import OPERATORS
from etude.offline.part_references import (
    apart_alternatives,
    connect_parts,
)
from etude.offline.phrase_index import Meaning
from etude.offline.plan_check import plan_nodes
from etude.offline.question_parts import Condition, Measure, NamePart, Question, Threshold
from etude.offline.resolver import (
    Unresolved,
    list_unresolved_words,
    nouns_to_resolve,
)
from etude.offline.selling import repeated_number
from etude.offline.spellings import fold_spellings
from etude.offline.units import check_unit
from etude.offline.vocabulary import Vocabulary, VocabularyColumn
from etude.offline.vocabulary_names import vocabulary_name_without_schema
from etude.offline.words import word_base_form
from etude.sources.plan.query_plan import (
    Aggregate,
    Arithmetic,
    AsNumber,
    ColumnRef,
    Named,
    NullTest,
    PlanRef,
    QueryPlan,
    Single,
)

MOST_GAPS = 100
"""At most this many columns are looked at for missing values."""


_ONLY_PERIODS = "The average is over the"
"""How a note begins that says which periods have no part in an average of counts."""


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
    return _Builder(count_averaged_rows(question, vocabulary), vocabulary).build()


def _joins(word: str) -> bool:
    """Return whether a word only connects others, so that naming it explains nothing."""
    known = OPERATORS.get(tuple(word.lower().split()))
    return word == "how many" or (known is not None and known.tag in "&|p")


def _is_clear(word: str) -> bool:
    """Return whether the rules know the word itself, and only what it belongs to is not clear."""
    known = OPERATORS.get(tuple(word.lower().split()))
    return (known is not None and known.tag in "#ASMPgcwORv&|p") or word.replace(".", "", 1).isdigit()


class _Builder(ListPlans):
    """Chooses the kind of plan, and builds those that are neither groups nor lists."""

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
        cast = [node.number for node in plan_nodes(plan) if isinstance(node, AsNumber)]
        names = dict.fromkeys(place.column for place in cast if isinstance(place, ColumnRef))
        self.notes.extend(f"`{name}` is stored as text and is taken as numbers." for name in names)
        plan, told = fold_spellings(plan, self.vocabulary)
        formulas = self._formulas(plan)
        self._check_whole_rows(plan, question, formulas)
        told_notes = (" is taken as ", "Rows are counted: ", _ONLY_PERIODS)
        own = (note for note in self.notes if any(part in note for part in told_notes))
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
        if dates:
            grain = question.groups[0].grain
            self.notes.append(f"{_ONLY_PERIODS} {grain}s that have some; {grain}s without any are not part of it.")
        self.said.insert(0, f"{fn} over{self._per(keys, dates).removeprefix(' per')} of the {counted.label}")
        outer = Aggregate(fn=fn, of="counted", alias=fit_join_alias_length(f"{fn}_{counted.alias}"))
        return QueryPlan(source=PlanRef(plan=inner, alias="counts"), aggregate=(outer,))
