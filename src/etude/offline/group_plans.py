"""Plans with groups: measures for each value of a column, thresholds, shares, and changes between periods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from etude.offline.column_traits import is_numeric_column
from etude.offline.identifiers import is_named_identifier
from etude.offline.join_tree import join_column_ref, show_column
from etude.offline.joins import find_join_paths, join_path_leads_to_one
from etude.offline.measures import Measured
from etude.offline.part_references import (
    ADDING,
    part_adds_up,
)
from etude.offline.question_parts import Measure, NamePart, Question, Rank, Threshold
from etude.offline.ranks import Ranks
from etude.offline.resolver import (
    Unresolved,
)
from etude.offline.two_periods import is_two_periods
from etude.offline.units import number_in_unit
from etude.offline.vocabulary import VocabularyColumn, VocabularyTable
from etude.offline.words import word_base_form
from etude.sources.plan.query_plan import (
    Aggregate,
    Arithmetic,
    Case,
    ColumnRef,
    Compare,
    DaysBetween,
    Expr,
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

_LONGEST = {"day": 1, "week": 7, "month": 31, "quarter": 92, "year": 366}
"""At most this many days lie between the starts of two adjacent periods."""


class GroupPlans(Ranks):
    """Adds plans that group rows."""

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
        if not question.distinct:
            # The numbers that the groups were chosen by are shown, so that each can be checked.
            visible = list(dict.fromkeys([*visible, *(measured for measured, _, _ in limits)]))
        per = self._ranked_per(keys, hidden, dates) if ranked is not None and ordering is None else ()
        limit = (question.top or 1) if per else limit
        tied = limit == 1 and question.top is None and ranked is not None and ordering is None
        if after is not None and ordering is None:
            order.append(Order(by=names[after], desc=True))
        if (rank or limits or limit) and not (keys or dates):
            raise Unresolved("It is not clear what to choose from.")
        if limit is not None or (limits and not question.groups and len(keys) == 1):
            # No value is not one of the states that were asked for.
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
        """`average amount per order` of something else is the average over orders; a sum is that of each order."""
        kept = []
        if any(isinstance(part, Measure) and self._measured(part).fn == "sum" for part in self.question.asked):
            return self.question
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
        for measured in measures:
            self._check_average_of_parts(words, measured)
        if any(words & {*self.vocabulary.table(measured.table).words} for measured in measures):
            return
        if about is not None and any(measured.table == about.name for measured in measures):
            return
        for name in named:
            subject = self.resolver.table_of(name)
            if subject is not None and (subject.name, "") not in self.prefer:
                self._check_average_of(subject, measures)

    def _check_average_of_parts(self, words: set[str], measured: Measured) -> None:
        """Refuse `average order value`, if only the lines of an order have a value: an order has several of them."""
        column = measured.column
        if measured.fn not in ("avg", "median") or column is None or not part_adds_up(column):
            return
        for table in self.vocabulary.tables:
            whole = len(table.words) == 1 and {*table.words} <= words - {*column.words}
            if whole and table.name != column.table and self._refers_to(column.table, table.name):
                raise Unresolved(
                    f"It is not clear whether this is over all `{column.table}` or over one number for each row of "
                    f"`{table.name}`."
                )

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
        two = [c for c in self.question.conditions if c.kind == "span" and is_two_periods(c, period)]
        since = f"from the earlier {period} to the later one" if two else f"since the {period} before"
        value = value if two else Case(case=(When(when=gap, then=value),))
        self.said.insert(0, f"{measured.label}{self._per(keys, dates)}, and its change {since}")
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

    def _say_groups(self, names: dict[Measured, str], visible: Sequence[Measured], keys: Sequence[VocabularyColumn],
                    dates: Sequence[Named], limits: Sequence[tuple[Measured, str, float]]) -> None:  # fmt: skip
        head = " and ".join(m.label for m in names if m in visible) or "list"
        self.said.insert(0, head + self._per(keys, dates))
        self.said.extend(f"with {m.label} {op} {number:,}" for m, op, number in limits)
