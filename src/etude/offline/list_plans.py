"""Plans that list rows: the columns to show, their order, the best of each group, and things that have both."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from etude.offline.column_traits import is_numeric_column
from etude.offline.group_plans import GroupPlans
from etude.offline.join_tree import JoinTree, join_column_ref, show_column
from etude.offline.phrase_index import Meaning
from etude.offline.question_parts import Condition, Measure, NamePart
from etude.offline.ranks import rank_descends
from etude.offline.resolver import (
    Unresolved,
)
from etude.offline.vocabulary import VocabularyColumn, VocabularyTable
from etude.offline.words import word_base_form
from etude.sources.plan.query_plan import (
    Aggregate,
    Compare,
    Filter,
    Member,
    NullTest,
    Order,
    QueryPlan,
    Single,
    Top,
)

MOST_COLUMNS = 12
"""At most this many columns show a row that has no name."""


class ListPlans(GroupPlans):
    """Adds plans that list rows."""

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
                if question.rank is not None and found.column in owner.label and self._is_thing(part, owner):
                    columns.extend(owner.column(n) for n in owner.key if n not in owner.label)
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
            once = question.distinct or self._has_unique(columns, tree)
            self.said = (
                self.said if once else [re.sub("^list of (?=`)", "list of different ", piece) for piece in self.said]
            )
            return self._plan(tree, (), where, select, [], [], order, limit)
        return self._plan(tree, select, where, (), [], [], order, limit)

    def _is_thing(self, name: NamePart, owner: VocabularyTable) -> bool:
        """Return whether a noun asks for the thing itself, `which room`, whose name no other row has."""
        unique = len(owner.label) == 1 and owner.column(owner.label[0]).distinct == owner.rows
        return unique and word_base_form(name.text.lower()) in owner.words

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
        ranks_desc = rank is not None and ranked is not None and rank_descends(rank, ranked)
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
