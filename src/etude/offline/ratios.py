"""Ratios: one number over another, of the same rows, of two tables, or for each group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from etude.offline.column_traits import is_numeric_column
from etude.offline.join_tree import JoinTree, join_column_ref, show_column
from etude.offline.joins import find_join_paths
from etude.offline.measures import Measured, Measures
from etude.offline.question_parts import Measure, NamePart, Side
from etude.offline.resolver import Unresolved
from etude.offline.vocabulary import VocabularyColumn
from etude.sources.plan.query_plan import (
    Aggregate,
    Arithmetic,
    ColumnRef,
    Expr,
    Filter,
    JoinPlan,
    Named,
    NullTest,
    Order,
    PlanRef,
    QueryPlan,
    Single,
)


class Ratios(Measures):
    """Adds ratios."""

    def _ratio(self) -> QueryPlan:
        ratio = self.question.ratio
        assert ratio is not None  # noqa: S101 - for the type checker
        if any(isinstance(part, Measure) for part in (*self.question.requested, *self.question.asked)):
            raise Unresolved("The question asks for other numbers besides the ratio.")
        own = {(hit.table, hit.column) for condition in ratio.upper.conditions for hit in condition.hits}
        if any((hit.table, hit.column) in own for condition in self.question.conditions for hit in condition.hits):
            raise Unresolved("It is not clear which of the values the share is taken of.")
        self._check_ratio_columns()
        upper, lower = self._side_column(ratio.upper), self._side_column(ratio.lower)
        if upper is not None and lower is not None:
            return self._ratio_of_columns(upper, lower)
        sides = [self._side_measure(ratio.upper), self._side_measure(ratio.lower)]
        if sides[0].table == sides[1].table or (self.question.groups and self._shares_rows(sides)):
            return self._ratio_of_rows(sides)
        if not self.question.groups:
            return self._ratio_of_tables(sides)
        return self._ratio_by_group(sides)

    def _check_ratio_columns(self) -> None:
        """Refuse columns besides the ratio that are not those of its groups."""
        groups = {m for group in self.question.groups if group.name for m in group.name.meanings}
        tables = {m.table for m in groups}
        for part in self.question.requested:
            if isinstance(part, NamePart) and not any(m.table in tables for m in part.meanings):
                raise Unresolved(f"It is not clear how `{part.text}` belongs to the ratio.")

    def _shares_rows(self, sides: Sequence[Measured]) -> bool:
        return all(side.column is not None for side in sides)

    def _side_column(self, side: Side) -> VocabularyColumn | None:
        """Return the column of a side, if it is a number of each row."""
        subject = side.subject
        if isinstance(subject, Measure):
            if subject.fn not in ("max", "min") or not self.question.groups or not self._keyed_groups():
                return None
            subject = subject.name
        if (
            subject is None
            or not subject.columns
            or (subject.tables and subject.tables[0].cost <= subject.columns[0].cost)
        ):
            return None
        column = self.resolver.column(subject, is_numeric_column)
        return column if is_numeric_column(column) else None

    def _side_measure(self, side: Side) -> Measured:
        if isinstance(side.subject, Measure):
            return self._measured(side.subject)
        assert side.subject is not None  # noqa: S101 - for the type checker
        return self._measured(Measure("count", side.subject))

    def _ratio_of_columns(self, upper: VocabularyColumn, lower: VocabularyColumn) -> QueryPlan:
        question, ratio = self.question, self.question.ratio
        assert ratio is not None  # noqa: S101 - for the type checker
        base = upper.table
        self.resolver = replace(self.resolver, anchor=base)
        tree = self._tree(base)
        for column in (upper, lower):
            if not tree.reaches_one(column.table):
                raise Unresolved(f"`{lower.name}` does not belong to the same rows as `{upper.name}`.")
            tree.add(column.table)
        value = self._scaled(Arithmetic(op="/", args=(join_column_ref(upper), join_column_ref(lower))))
        said = f"`{upper.table}.{upper.name}` divided by `{lower.table}.{lower.name}`"
        if question.averaged:
            keys, hidden = self._keys()
            for column in (*keys, *hidden):
                tree.add(column.table)
            where = self._where(tree)
            if tree.fans():
                raise Unresolved("Joining would count rows more than once.")
            aggregate = Aggregate(fn="avg", of=value, alias="average_ratio")
            group_by = [show_column(column) for column in (*keys, *hidden)]
            self.said.insert(0, f"average of {said}" + "".join(f" per `{key.table}.{key.name}`" for key in keys))
            return self._plan(tree, (), where, group_by, [aggregate], [], [], question.top)
        if ratio.upper.conditions or ratio.lower.conditions:
            return self._ratio_of_sums(tree, upper, lower)
        if not question.groups or not self._keyed_groups():
            raise Unresolved("It is not clear which rows to take the ratio over.")
        columns = [column for group in question.groups if group.name for column in self._columns_of(group.name)[1]]
        where = self._where(tree)
        for column in columns:
            tree.add(column.table)
        if tree.fans():
            raise Unresolved("Joining would repeat rows.")
        self.said.insert(0, said + " per " + ", ".join(f"`{c.table}.{c.name}`" for c in columns))
        select = (*(show_column(column) for column in columns), Named(expr=value, alias="ratio"))
        order = self._ratio_order()
        return self._plan(tree, select, where, (), [], [], order, question.top)

    def _ratio_order(self) -> list[Order]:
        question = self.question
        if question.ordering is not None:
            return [Order(by="ratio", desc=question.ordering.direction == "desc")]
        return [Order(by="ratio", desc=not question.lowest)] if question.top else []

    def _scaled(self, value: Arithmetic) -> Arithmetic:
        ratio = self.question.ratio
        scale = ratio.scale if ratio is not None else 1
        return value if scale == 1 else Arithmetic(op="*", args=(value, scale))

    def _ratio_of_sums(self, tree: JoinTree, upper: VocabularyColumn, lower: VocabularyColumn) -> QueryPlan:
        ratio = self.question.ratio
        assert ratio is not None  # noqa: S101 - for the type checker
        measures = [Measured("sum", upper.table, upper), Measured("sum", lower.table, lower)]
        return self._two_measures(tree, measures, "the ratio of the two")

    def _ratio_of_rows(self, sides: Sequence[Measured]) -> QueryPlan:
        self.resolver = replace(self.resolver, anchor=sides[0].table)
        tree = self._tree(sides[0].table)
        return self._two_measures(tree, sides, "the ratio of the two")

    def _two_measures(self, tree: JoinTree, sides: Sequence[Measured], said: str) -> QueryPlan:
        """Divide two numbers over the same rows, each under its own conditions."""
        ratio, question = self.question.ratio, self.question
        assert ratio is not None  # noqa: S101 - for the type checker
        keys, hidden = self._keys() if question.groups else ([], [])
        for column in (*keys, *hidden):
            tree.add(column.table)
        where = self._where(tree)
        aggregates = []
        for alias, side, measured in zip(("upper", "lower"), (ratio.upper, ratio.lower), sides, strict=True):
            filters = []
            for condition in side.conditions:
                for table in self._condition_tables(condition, tree):
                    if not tree.reaches_one(table):
                        raise Unresolved("The two numbers are not about the same rows.")
                    tree.add(table)
                filters.append(self._filter(condition, tree))
            filters.extend(self._has(name, tree) for name in side.context)
            filters.extend(self._loose(name, tree) for name in side.loose)
            aggregates.append((alias, measured, filters))
        made = [self._aggregate(m, tree, alias, filter=tuple(f) or None) for alias, m, f in aggregates]
        dates = self._dates(tree)
        group_by = [*dates, *(show_column(column) for column in (*keys, *hidden))]
        inner = self._plan(tree, (), where, group_by, made, [], [], None)
        value = self._scaled(Arithmetic(op="/", args=("upper", "lower")))
        self.said.insert(0, self._say_ratio(said, sides) + self._per(keys, dates))
        return self._around(inner, [*(d.alias for d in dates), *(key.name for key in keys)], value)

    def _say_ratio(self, said: str, sides: Sequence[Measured]) -> str:
        """Return what is divided by what; a part of the same rows is a percentage or a share of them."""
        ratio = self.question.ratio
        part = (
            ratio is not None and bool(ratio.upper.conditions) and not (ratio.lower.conditions or ratio.lower.context)
        )
        if not part or ratio is None or sides[0].label != sides[1].label:
            return f"{said}: {sides[0].label} and {sides[1].label}"
        whole = sides[0].label if sides[0].column is not None else f"all `{sides[0].table}`"
        which = "last condition" if self.question.conditions else "condition"
        return f"{'percentage' if ratio.scale == 100 else 'ratio'} of {whole} that meet the {which}"

    def _has(self, name: NamePart, tree: JoinTree) -> Filter:
        """Keep rows that refer to such a thing."""
        table = self.resolver.table_of(name)
        path = find_join_paths(self.vocabulary, tree.base, table.name)[1] if table is not None else ()
        if len(path) != 1 or len(path[0]) != 1 or path[0][0].back:
            raise Unresolved(f"It is not clear what `{name.text}` means here.")
        column = self.vocabulary.table(tree.base).column(path[0][0].columns[0])
        self.said.append(f"with `{column.table}.{column.name}`")
        return NullTest(column=join_column_ref(column), op="is not null")

    def _around(self, inner: QueryPlan, shown: Sequence[str], value: Expr) -> QueryPlan:
        if len({*shown}) < len(shown):
            raise Unresolved("Two columns of the answer would have the same name.")
        order = tuple(self._ratio_order()) or tuple(Order(by=name) for name in shown[:1])
        return QueryPlan(
            source=PlanRef(plan=inner, alias="parts"),
            select=(*shown, Named(expr=value, alias="ratio")),
            order_by=order,
            limit=self.question.top,
        )

    def _ratio_of_tables(self, sides: Sequence[Measured]) -> QueryPlan:
        """Divide two counts of different things."""
        question, ratio = self.question, self.question.ratio
        assert ratio is not None  # noqa: S101 - for the type checker
        self._refuse(condition=question.conditions or question.loose or question.absences, noun=question.context)
        self._refuse(noun=ratio.upper.context or ratio.lower.context or ratio.upper.loose or ratio.lower.loose)
        plans = []
        for alias, side, measured in zip(("upper", "lower"), (ratio.upper, ratio.lower), sides, strict=True):
            self.resolver = replace(self.resolver, anchor=measured.table)
            tree = self._tree(measured.table)
            filters = []
            for condition in side.conditions:
                for table in self._condition_tables(condition, tree):
                    if not tree.reaches_one(table):
                        raise Unresolved("A condition does not apply to the rows that are counted.")
                    tree.add(table)
                filters.append(self._filter(condition, tree))
            plans.append(self._plan(tree, (), filters, (), [self._aggregate(measured, tree, alias)], [], [], None))
        value = self._scaled(Arithmetic(op="/", args=("upper", Single(plan=plans[1]))))
        self.said.insert(0, f"{sides[0].label} divided by {sides[1].label}")
        return QueryPlan(source=PlanRef(plan=plans[0], alias="parts"), select=(Named(expr=value, alias="ratio"),))

    def _ratio_by_group(self, sides: Sequence[Measured]) -> QueryPlan:
        """Divide two counts of different things for each group: count separately, then join."""
        question, ratio = self.question, self.question.ratio
        assert ratio is not None  # noqa: S101 - for the type checker
        self._refuse(condition=question.loose or question.absences, noun=question.context)
        self._refuse(noun=ratio.upper.context or ratio.lower.context or ratio.upper.loose or ratio.lower.loose)
        if len(question.groups) != 1 or question.groups[0].name is None or question.conditions:
            raise Unresolved("A ratio of two different things can have one grouping and no conditions.")
        if ratio.upper.conditions or ratio.lower.conditions:
            raise Unresolved("A ratio of two different things can have one grouping and no conditions.")
        plans, shown = [], []
        for alias, measured in zip(("upper", "lower"), sides, strict=True):
            self.resolver = replace(self.resolver, anchor=measured.table)
            columns = self._columns_of(question.groups[0].name)[1]
            tree = self._tree(measured.table)
            for column in columns:
                tree.add(column.table)
            group_by = [show_column(column) for column in columns]
            plans.append(self._plan(tree, (), (), group_by, [self._aggregate(measured, tree, alias)], [], [], None))
            shown.append(columns)
        names = [[column.name for column in columns] for columns in shown]
        if len(names[0]) != len(names[1]):
            raise Unresolved("The two numbers have different groups.")
        on = tuple(
            (ColumnRef(table="parts", column=left), ColumnRef(table="others", column=right))
            for left, right in zip(*names, strict=True)
        )
        value = self._scaled(Arithmetic(op="/", args=("upper", "lower")))
        self.said.insert(0, f"{sides[0].label} divided by {sides[1].label}" + self._per(shown[0], ()))
        keys = tuple(ColumnRef(table="parts", column=name) for name in names[0])
        return QueryPlan(
            source=PlanRef(plan=plans[0], alias="parts"),
            joins=(JoinPlan(plan=plans[1], alias="others", on=on),),
            select=(*keys, Named(expr=value, alias="ratio")),
            order_by=tuple(self._ratio_order()),
            limit=question.top,
        )
