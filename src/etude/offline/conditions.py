"""Conditions as filters of a plan: on the rows themselves, on rows they refer to, on rows that refer to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from etude.offline.acts import find_act_tables
from etude.offline.better_direction import more_is_better
from etude.offline.column_traits import column_holds_counts, holds_years, is_numeric_column
from etude.offline.dated_parent import find_dated_parent
from etude.offline.dates import Span, dates_of_span
from etude.offline.deadline import check_deadline
from etude.offline.join_tree import JoinTree, Place, join_column_ref, stored_column_ref
from etude.offline.joins import find_join_paths, join_distance, join_hops, join_path_leads_to_one
from etude.offline.operator_words import IDLE, LINKING, PRESENT
from etude.offline.own_measure import find_own_measure
from etude.offline.phrase_index import Hit, Meaning
from etude.offline.question_parts import Absence, Condition, Measure, NamePart, Question
from etude.offline.resolver import MONEY, TECHNICAL, Ambiguous, Resolver, Unresolved, nouns_to_resolve, resolve_anchor
from etude.offline.row_noun import names_people
from etude.offline.units import is_money_unit, number_in_unit
from etude.offline.vocabulary import Vocabulary, VocabularyColumn, VocabularyTable
from etude.offline.words import parse_plain_number, split_identifier_words, stem_word, word_base_form
from etude.offline.zero_amounts import zero_condition, zero_note
from etude.sources.plan.query_plan import (
    Aggregate,
    AggregateFn,
    And,
    Arithmetic,
    Between,
    Compare,
    DatePart,
    Filter,
    InList,
    Match,
    Member,
    Not,
    NullTest,
    Or,
    Order,
    QueryPlan,
    Single,
)

_MADE = frozenset(("built", "made", "manufactured", "produced", "released", "published", "founded"))
"""Verbs for how a thing began, of which its only year can tell."""
_LACKING = frozenset(("without", "never", "no", "lacking", "with", "have", "has", "do", "did", "does"))
"""First words of a negation that says that something has none, not that it is another."""
TAKE_HIGH, TAKE_LOW = ("the highest", ""), ("the lowest", "")
"""Choices of a question back, in the form of a table and a column that were chosen."""
OLDEST = 120
"""The highest number of years that may be somebody's age."""
MOST_CHOICES = 4
"""If a number may be about more columns, the user is not asked which one."""
_LINES = frozenset(("item", "line", "detail", "entry", "link"))
"""Last words of the names of tables that list what belongs to another row: `order_items`."""
SNAPSHOT = frozenset(("daily", "weekly", "monthly", "snapshot", "history"))
"""Words in the names of tables that hold many states of one thing over time."""


@dataclass
class Conditions:
    """A question on its way to a plan: what its nouns mean so far, its reading and its notes."""

    question: Question
    vocabulary: Vocabulary
    notes: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    """The reading, piece by piece."""

    def __post_init__(self) -> None:
        check_deadline()
        anchor = resolve_anchor(self.question, self.vocabulary)
        named = tuple(t for t in (self._loose_table(name) for name in self.question.context) if t)
        self.prefer = frozenset(self.question.prefer)
        self.verbs = frozenset(stem_word(verb) for verb in self.question.verbs)
        self.nouns = {m.table for name in nouns_to_resolve(self.question) for m in name.tables if m.cost < 3}
        self.mentioned = self.nouns | {anchor}
        self.resolver = Resolver(self.vocabulary, anchor, named, self.prefer)

    def _tree(self, base: str) -> JoinTree:
        return JoinTree(self.vocabulary, base, self.prefer, self.verbs, frozenset(self.nouns))

    def _check_compounds(self) -> None:
        """`customer orders` are orders of customers; two adjacent nouns that no key connects are refused."""
        for name in nouns_to_resolve(self.question):
            owner = name.owner
            if owner is None or not owner.tables or not name.tables:
                continue
            ways = [join_distance(self.vocabulary, o.table, m.table) for o in owner.tables for m in name.tables]
            if min(ways) > 1:
                raise Unresolved(f"It is not clear what `{owner.text}` says about `{name.text}`.")

    def _check_verbs(self) -> None:
        """Ignore verbs that only connect two nouns, as the keys do; refuse verbs that restrict."""
        question = self.question
        anchor = self.vocabulary.table(self.resolver.anchor)
        shown = question.listed or len(question.requested) > 1
        if question.both and not (shown or question.conditions or question.context or question.loose):
            raise Unresolved("It is not clear what `both` refers to.")
        # An adjective, as in `rock tracks that were sold`, is not what the verb connects the tracks to.
        apart = [c for c in question.conditions if c.of is None or question.subject is None or c.of != question.subject]
        named = self.nouns | {hit.table for c in apart for hit in c.hits} | {anchor.name}
        acted = question.alone.endswith("ed") or question.alone in PRESENT
        about = question.subject is not None and bool(question.subject.tables) and not question.ratio
        if acted and question.alone not in IDLE and about and len(named) == 1:
            # "How many cars were sold", if sales have their own table.
            raise Unresolved(f"It is not clear which of them are `{question.alone}`.")
        roots = {stem_word(PRESENT.get(verb, verb)): verb for verb in question.verbs if verb not in IDLE}
        used = {(hit.table, hit.column) for c in question.conditions for hit in c.hits}
        for column in (c for name in sorted(self.mentioned) for c in self.vocabulary.table(name).columns):
            few = column.kind == "text" and 1 < len(column.values) <= 50 and (column.table, column.name) not in used
            for value in column.values if few else ():
                if stem_word(value.lower()) in roots:
                    verb = roots[stem_word(value.lower())]
                    raise Unresolved(f"It is not clear whether `{verb}` means that `{column.name}` is `{value}`.")
        if any(c.kind in ("span", "weekday") for c in question.conditions):
            return
        for column in anchor.columns:
            dated = column.kind in ("date", "timestamp") and column.nulls and column.name not in self._columns_asked()
            if dated and roots.keys() & {stem_word(word) for word in column.words}:
                raise Unresolved(f"It is not clear whether only rows with a `{column.name}` count.")

    def _columns_asked(self) -> set[str]:
        return {m.column for name in nouns_to_resolve(self.question) for m in name.columns if m.column}

    def _check_values(self, tree: JoinTree) -> None:
        """Refuse two values of one column: they contradict each other, or are about two things."""
        seen: dict[VocabularyColumn, tuple[Condition, Hit | None]] = {}
        for condition in self.question.conditions:
            if condition.kind != "value" or condition.negated or condition.either:
                continue
            column, hit = self._condition_column(condition, tree)
            earlier, other = seen.setdefault(column, (condition, hit))
            named = condition.name is not None or earlier.name is not None
            if named and hit is not None and other is not None and hit.values == other.values:
                continue  # "female students (sex is F)" says the same twice
            if (earlier.said, other) != (condition.said, hit):
                raise Unresolved(f"`{earlier.text}` and `{condition.text}` are both values of `{column.name}`.")

    def _check_times(self, tree: JoinTree) -> None:
        """Refuse two times of one column, unless one lies in the other or each sets one end: they are one time."""
        seen: dict[VocabularyColumn, list[Condition]] = {}
        for condition in self.question.conditions:
            if condition.kind in ("span", "weekday") and not condition.negated and not condition.either:
                column = self._condition_column(condition, tree)[0]
                for earlier in seen.setdefault(column, []):
                    if not _at_once(earlier, condition):
                        raise Unresolved(f"It is not clear how `{earlier.text}` and `{condition.text}` go together.")
                seen[column].append(condition)

    def _check_apart(self, condition: Condition, tree: JoinTree) -> None:
        """`average price of tea and coffee`: of both together, or of each?"""
        measured = any(isinstance(part, Measure) for part in self.question.requested)
        if condition.op != "and" or not condition.either or not measured:
            return
        column = self._condition_column(condition, tree)[0]
        grouped = {(m.table, m.column) for group in self.question.groups if group.name for m in group.name.columns}
        if (column.table, column.name) not in grouped:
            raise Unresolved(f"It is not clear whether to take `{condition.text}` together or each by itself.")

    def _refuse(self, **parts: object) -> None:
        """Refuse parts of the question that this kind of answer has no place for."""
        for what, part in parts.items():
            if part:
                raise Unresolved(f"It is not clear what the {what} refers to here.")

    def _loose_table(self, name: NamePart) -> str | None:
        return min(name.tables, key=lambda m: m.cost).table if name.tables else None

    def _where(self, tree: JoinTree) -> list[Filter]:
        """Return the conditions on a row of the base: on itself, on what it refers to, or on what refers to it."""
        question = self.question
        where: list[Filter] = []
        far: list[tuple[Condition, list[str]]] = []
        needed: list[str] = []
        before: list[str] = []
        for name in question.context:
            table = self._context_table(name)
            if table is None or table in tree.single:
                continue
            if needed or not tree.reaches_one(table, before):
                needed.append(table)
            else:
                tree.add(table, before)
            before = [table]
        if not question.both:
            self._check_values(tree)
            self._check_times(tree)
        loose = tuple(Condition("flag", name.text, name, after=question.subject) for name in question.loose)
        for condition in (*question.conditions, *loose):
            if lacked := self._lacked_rows(condition, tree):
                where.append(self._absent(lacked, tree))
                continue
            tables = self._condition_tables(condition, tree)
            self._check_negation(condition, tables)
            if all(
                tree.reaches_one(t, self._near(condition), condition.said) or t in tree.single for t in tables
            ) and not ({*tables} & {*needed}):
                self._check_apart(condition, tree)
                if lacking := self._lacking(condition, tables, tree):
                    where.append(lacking)
                    continue
                for table in tables:
                    tree.add(table, self._near(condition), condition.said)
                where.append(self._filter(condition, tree))
            elif condition.said == "counted" and [*tables] != self._near(condition)[:1]:
                raise Unresolved(f"It is not clear whether `{condition.text}` applies to one row or to all together.")
            elif any(self._kept_over_time(t, condition) for t in tables):
                raise Unresolved(f"`{condition.text}` changes over time; it is not clear which time is meant.")
            elif condition.negated:
                where.append(self._never(condition, tables, tree))
            elif condition.either and len({*tables}) > 1:
                raise Unresolved(f"The rules cannot look for either of `{condition.text}` in two tables.")
            elif condition.op == "and" and condition.either and not question.both:
                raise Unresolved(f"It is not clear whether `{condition.text}` means one of them or all.")
            else:
                far.append((condition, tables))
        if far or needed:
            self._check_sum_of_parts(tree, [condition for condition, _ in far])
            where.extend(self._exists(tree, far, needed))
        where.extend(self._absent(absence, tree) for absence in question.absences)
        return where

    def _check_sum_of_parts(self, tree: JoinTree, far: Sequence[Condition]) -> None:
        """Refuse `revenue from rock`, if only whole invoices have an amount: one has tracks of other genres, too."""
        named = {m.table for name in nouns_to_resolve(self.question) for m in name.tables}
        if not far or tree.base in named:
            return
        for part in self.question.requested:
            if isinstance(part, Measure) and part.fn in ("sum", "avg", "median") and not part.of_count:
                column = self.resolver.column(part.name) if part.name.columns else None
                if column is not None and column.table == tree.base:
                    raise Unresolved(
                        f"`{column.name}` is that of a whole row of `{tree.base}`, and `{far[0].text}` may be only a "
                        f"part of it; name `{tree.base}` in the question to add up whole rows."
                    )

    def _lacked_rows(self, condition: Condition, tree: JoinTree) -> Absence | None:
        """`projects with no outcome`, if `outcome_code` is a column of rows that refer to projects: no such row."""
        if condition.kind != "null" or condition.negated or condition.either or condition.name is None:
            return None
        column = self._condition_column(condition, tree)[0]
        hops = [hop for hop in join_hops(self.vocabulary).get(tree.base, ()) if hop.to_table == column.table]
        if column.table == tree.base or column.nulls or column.flag is not None or len(hops) != 1 or hops[0].to_one:
            return None
        return Absence(NamePart(condition.name.text, (Meaning(column.table),)))

    def _lacking(self, condition: Condition, tables: Sequence[str], tree: JoinTree) -> Filter | None:
        """`artists without a drawing`, if each drawing has an artist: those that no such row has."""
        question, table = self.question, self.vocabulary.table(tree.base)
        (asked, *others) = question.requested or (None,)
        lacks = condition.negated and condition.text.split()[0].lower() in _LACKING and condition.kind == "value"
        if (
            not lacks
            or others
            or question.subject is not None
            or not isinstance(asked, NamePart)
            or [*tables] != [table.name]
        ):
            return None
        column = self.resolver.column(asked) if asked.columns else None
        if column is None or column.table != table.name or column.distinct >= table.rows:
            return None
        said = len(self.said)
        inner = self._filter(replace(condition, negated=False), tree)
        self.said[said:] = [f"with no row {' '.join(self.said[said:])}"]
        place = join_column_ref(column)
        known = NullTest(column=place, op="is not null")
        return Member(
            column=place, op="not in", plan=QueryPlan(source=table.name, select=(place,), where=(inner, known))
        )

    def _check_negation(self, condition: Condition, tables: Sequence[str]) -> None:
        """Refuse `ratings of movies not reviewed by Ann`, if a movie has many reviewers: no one, or one who is not?"""
        if not condition.negated:
            return
        for near in self._near(condition)[:1]:
            if near != self.resolver.anchor and not all(near == t or self._refers_to(near, t) for t in tables):
                raise Unresolved(f"It is not clear what `{condition.text}` says about `{near}`.")

    def _kept_over_time(self, table: str, condition: Condition) -> bool:
        known = self.vocabulary.table(table)
        if condition.kind in ("compare", "between"):
            return bool(SNAPSHOT & {*known.words})
        return condition.kind == "flag" and any(c.kind in ("date", "timestamp") for c in known.columns)

    def _context_table(self, name: NamePart) -> str | None:
        table = self.resolver.table_of(name)
        return table.name if table is not None else None

    def _flag_column(self, name: NamePart) -> VocabularyColumn:
        """Return the column of a noun that describes the subject: a flag, or a number that may be zero."""
        column = self.resolver.column(name, lambda c: c.flag is not None or column_holds_counts(c))
        exact = any((m.table, m.column, m.cost) == (column.table, column.name, 0) for m in name.meanings)
        if column.flag is None and not (exact and column_holds_counts(column) and column.low == 0):
            raise Unresolved(f"It is not clear what `{name.text}` means here.")
        return column

    def _loose(self, name: NamePart, tree: JoinTree) -> Filter:
        column = self._flag_column(name)
        if not tree.reaches_one(column.table):
            raise Unresolved(f"It is not clear what `{name.text}` means here.")
        tree.add(column.table)
        return self._one_filter(Condition("flag", name.text, name), tree)

    def _near(self, condition: Condition) -> list[str]:
        """Return the table of the noun before a condition."""
        if condition.after is None or not condition.after.tables:
            return []
        return [m.table for m in condition.after.tables]

    def _exists(self, tree: JoinTree, far: list[tuple[Condition, list[str]]], needed: list[str]) -> list[Filter]:
        """Keep rows of the base with at least one related row for which the conditions hold."""
        base = self.vocabulary.table(tree.base)
        if self.question.both and len(base.key) == 1 and len(far) > 1:
            once = replace(self.question, both=False)
            whole, self.question = self.question, once
            made = [f for part in far for f in self._exists(tree, [part], needed)]
            self.question = whole
            return made
        if self.question.both:
            raise Unresolved("The rules cannot look for things that have both.")
        if len(base.key) != 1:
            # Without a key, join the rows; a list of columns then shows each combination once.
            for table in needed:
                self.said.append(f"with at least one `{table}`")
                tree.add(table)
            filters = []
            for condition, tables in far:
                for table in tables:
                    tree.add(table, self._near(condition), condition.said)
                filters.append(self._filter(condition, tree))
            return filters
        inner = self._tree(tree.base)
        before: list[str] = []
        for table in needed:
            self.said.append(f"with at least one `{table}`")
            inner.add(table, before)
            before = [table]
        filters = []
        for condition, tables in far:
            for table in tables:
                inner.add(table, self._near(condition), condition.said)
            filters.append(self._filter(condition, inner))
        key = join_column_ref(base.column(base.key[0]))
        lacked = [self.resolver.table_of(absence.name) for absence in self.question.absences]
        absent = {known.name for known in lacked if known is not None}
        absent &= {*inner.single}
        if not filters and absent:
            raise Unresolved(f"It is not clear what having no `{min(absent)}` means here.")
        for hop in tree.hops:
            if hop in inner.hops and not hop.to_one:
                raise Unresolved("The question restricts the same related rows twice.")
        self._check_ways(inner, exists=True)
        plan = QueryPlan(source=tree.base, joins=inner.joins(), select=(key,), where=tuple(filters) or None)
        return [Member(column=key, op="in", plan=plan)]

    def _never(self, condition: Condition, tables: Sequence[str], tree: JoinTree) -> Filter:
        """`customers who did not buy tea`: no related row matches, which is not the same as one that differs."""
        said = len(self.said)
        (made,) = self._exists(tree, [(replace(condition, negated=False), list(tables))], [])
        if not isinstance(made, Member):
            raise Unresolved(f"It is not clear what `{condition.text}` means here.")
        self.said[said:] = [f"with no `{tables[-1]}` {' and '.join(self.said[said:])}"]
        return Member(column=made.column, op="not in", plan=made.plan)

    def _absent(self, absence: Absence, tree: JoinTree) -> Filter:
        base = self.vocabulary.table(self.resolver.anchor if self.resolver.anchor in tree.single else tree.base)
        table = self.resolver.table_of(absence.name)
        if table is not None and table.name == base.name:
            return self._absent_among(absence, base, tree)
        shared = self._shared_column(base)
        if table is None or (len(base.key) != 1 and shared is None):
            raise Unresolved(f"It is not clear what having no `{absence.name.text}` means.")
        inner = self._tree(table.name)
        inner.add(base.name)
        filters, said = [], len(self.said)
        for condition in absence.conditions:
            for other in self._condition_tables(condition, inner):
                inner.add(other, self._near(condition), condition.said)
            filters.append(self._filter(condition, inner))
        key = join_column_ref(shared or base.column(base.key[0]))
        self.said[said:] = [" ".join([f"that have no `{table.name}`", " and ".join(self.said[said:])]).strip()]
        self.mentioned.add(base.name)
        self._check_ways(inner, exists=True)
        plan = QueryPlan(source=table.name, joins=inner.joins(), select=(key,), where=tuple(filters) or None)
        return Member(column=key, op="not in", plan=plan)

    def _shared_column(self, base: VocabularyTable) -> VocabularyColumn | None:
        """Return the column that is asked for if several rows share its values: `cities that no customer lives in`."""
        (asked, *others) = self.question.requested or (None,)
        alone = isinstance(asked, NamePart) and asked.columns and not asked.tables and not others
        if not alone or self.question.subject is not None or not isinstance(asked, NamePart):
            return None
        column = self.resolver.column(asked)
        own = column.table == base.name and column.name not in (*base.key, *base.label)
        return column if own and column.distinct < base.rows else None

    def _absent_among(self, absence: Absence, table: VocabularyTable, tree: JoinTree) -> Filter:
        """`locations without a cinema over 800 seats`: values of a column that no such row has."""
        (asked, *others) = self.question.requested
        column = self.resolver.column(asked) if isinstance(asked, NamePart) and asked.columns and not others else None
        if column is None or column.table != table.name or (column.name,) == table.key or not absence.conditions:
            raise Unresolved(f"It is not clear what having no `{absence.name.text}` means.")
        said = len(self.said)
        inner = self._tree(table.name)
        filters = []
        for condition in absence.conditions:
            for other in self._condition_tables(condition, inner):
                inner.add(other, self._near(condition), condition.said)
            filters.append(self._filter(condition, inner))
        filters.append(NullTest(column=join_column_ref(column), op="is not null"))
        self.said[said:] = [f"with no row of `{table.name}` {' and '.join(self.said[said:])}"]
        key = join_column_ref(column)
        plan = QueryPlan(source=table.name, joins=inner.joins(), select=(key,), where=tuple(filters))
        return Member(column=key, op="not in", plan=plan)

    def _condition_tables(self, condition: Condition, tree: JoinTree) -> list[str]:
        return list(dict.fromkeys(self._condition_column(c, tree)[0].table for c in (condition, *condition.either)))

    def _condition_column(self, condition: Condition, tree: JoinTree) -> tuple[VocabularyColumn, Hit | None]:
        match condition.kind:
            case "value":
                near = self._near(condition)
                hit = self.resolver.hit(condition, near[0] if near else None)
                self._check_adjective(condition, hit)
                self._check_acted(condition, hit)
                self.mentioned.add(hit.table)
                return self.vocabulary.table(hit.table).column(hit.column), hit
            case "span":
                return self._span_column(condition, tree), None
            case "weekday":
                near = [t for t in dict.fromkeys([*self._near(condition), *self._dated_tables(tree)])]
                column = self.resolver.date_column(near, condition.near)
                if condition.said == "must" and not self._hinted(column, condition.near):
                    # "The busiest weekday": no word before a day is ignored.
                    raise Unresolved(f"It is not clear what `{' '.join(condition.near)}` means here.")
                return column, None
            case "compare" | "average" if condition.name is None and condition.implied:
                return self._implied_column(condition), None
            case "compare" | "between" if condition.name is None:
                return self._worth_column(condition), None
            case "compare" if condition.name is not None and not condition.name.columns:
                return self._numbered_key(condition.name), None
            case "compare" | "between" | "average" | "outlier":
                assert condition.name is not None  # noqa: S101 - for the type checker
                return self.resolver.column(self._close_to(condition), lambda c: c.kind == "number"), None
        name = self._close_to(condition) if condition.name is not None else None
        if name is not None and condition.kind == "flag":
            return self._flag_column(name), None
        if name is None:
            raise Unresolved(f"It is not clear which column `{condition.text}` is about.")
        if not name.columns:
            table = self.resolver.table_of(name)
            if table is None or not table.label:
                raise Unresolved(f"It is not clear which column `{condition.text}` is about.")
            return table.column(table.label[0]), None
        return self.resolver.column(name, lambda c: condition.kind != "match" or c.kind == "text"), None

    def _numbered_key(self, name: NamePart) -> VocabularyColumn:
        """Return the key that `room 111` is about, if it is a number."""
        table = self.resolver.table_of(name)
        key = table.column(table.key[0]) if table is not None and len(table.key) == 1 else None
        if key is None or key.kind != "number":
            raise Unresolved(f"It is not clear what the number of `{name.text}` is.")
        return key

    def _check_acted(self, condition: Condition, hit: Hit) -> None:
        """Refuse `users followed by Mary`, if Mary is a user: the verb relates two of them."""
        table = self.vocabulary.table(self.resolver.anchor)
        own = hit.table == table.name and hit.column in table.label and condition.name is None
        if own and self.question.verbs and condition.said in ("by", "to", "with", "from"):
            raise Unresolved(f"It is not clear how `{condition.text}` relates to the other rows of `{table.name}`.")

    def _check_adjective(self, condition: Condition, hit: Hit) -> None:
        """`active employees per project` does not ask for active projects."""
        tables = [m.table for m in condition.of.tables] if condition.of is not None else []
        if tables and not any(
            join_distance(self.vocabulary, t, hit.table) <= 1 or self._refers_to(t, hit.table) for t in tables
        ):
            raise Unresolved(f"It is not clear what `{condition.text}` says about `{tables[0]}`.")

    def _worth_column(self, condition: Condition) -> VocabularyColumn:
        """Return the column that a bare number compares: the age of people, else what a row is worth.

        If several columns may be meant, the user is asked.
        """
        name = next(iter(self._near(condition)), self.resolver.anchor)
        columns = [c for c in self.vocabulary.table(name).columns if is_numeric_column(c)]
        table = self.vocabulary.table(name)
        own = find_own_measure(table, " ".join(table.words))
        found = [own] if own is not None else [c for c in columns if MONEY & {*c.words}]
        if condition.unit and not is_money_unit(condition.unit):
            found = [c for c in columns if {condition.unit, word_base_form(condition.unit)} & {*c.words}]
        elif not condition.unit and self._may_be_age(condition, name):
            ages = [c for c in columns if "age" in c.words]
            found = ages or (columns if len(columns) > 1 else [])
        found = [c for c in found if (c.table, c.name) in self.prefer] or found
        if not 1 <= len(found) <= MOST_CHOICES:
            raise Unresolved(f"It is not clear which column of `{name}` is meant by `{condition.text}`.")
        if len(found) > 1:
            raise Ambiguous(condition.text, [Meaning(c.table, c.name) for c in found])
        self.notes.append(f"`{condition.text}` is read as a condition on `{name}.{found[0].name}`.")
        return found[0]

    def _may_be_age(self, condition: Condition, table: str) -> bool:
        """Return whether a condition follows a word for people, and its number may be an age."""
        said = condition.after.text if condition.after is not None else table
        words = split_identifier_words(said)
        possible = all(isinstance(value, int | float) and 0 <= value <= OLDEST for value in condition.values)
        return possible and bool(words) and names_people(words[-1].lower())

    def _implied_column(self, condition: Condition) -> VocabularyColumn:
        """Return the column that an adjective compares: the age for `older than 56`."""
        near = next(iter(self._near(condition)), self.resolver.anchor)
        for names in ([near], [self.resolver.anchor], self._referred_tables(near)):
            for word in condition.implied:
                columns = [c for name in names for c in self.vocabulary.table(name).columns]
                fitting = [c for c in columns if is_numeric_column(c) and word in c.words]
                if len(fitting) == 1:
                    return fitting[0]
                if fitting:
                    raise Ambiguous(condition.text, [Meaning(c.table, c.name) for c in fitting])
        raise Unresolved(f"It is not clear which column `{condition.text}` is about.")

    def _referred_tables(self, table: str) -> list[str]:
        """Return the tables that each row of a table refers to."""
        return list(dict.fromkeys(hop.to_table for hop in join_hops(self.vocabulary).get(table, ()) if hop.to_one))

    def _close_to(self, condition: Condition) -> NamePart:
        """Return the condition's noun, narrowed to the table it follows: `states with an area over 1000`."""
        name = condition.name
        assert name is not None  # noqa: S101 - for the type checker
        near = self._near(condition)
        own = tuple(m for m in name.columns if m.table in near)
        return replace(name, meanings=own) if own and name.owner is None else name

    def _dated_tables(self, tree: JoinTree) -> list[str]:
        tables = list(dict.fromkeys([tree.base, self.resolver.anchor, *tree.single]))
        return [*tables, *find_dated_parent(self.vocabulary, tree.base)]

    def _span_column(self, condition: Condition, tree: JoinTree) -> VocabularyColumn:
        span = condition.span
        assert span is not None  # noqa: S101 - for the type checker
        near = [t for t in self._near(condition) if not self._refers_to(tree.base, t)]
        context = [t for t in (self._loose_table(name) for name in self.question.context) if t]
        tables = [t for t in dict.fromkeys([*near, *self._dated_tables(tree), *self._near(condition), *context])]
        if condition.name is not None:
            column = self.resolver.column(condition.name, lambda c: _dated(c, span))
            if not _dated(column, span):
                raise Unresolved(
                    f"`{column.table}.{column.name}` is {column.kind}, not dates; `etude sources show` says why if "
                    "some values are not dates."
                )
            return column
        if year := self._hinted_year(tables, condition):
            return year
        try:
            column = self.resolver.date_column(tables, condition.near)
        except Unresolved:
            year = self.resolver.year_column(tables) if _whole_years(span) else None
            hidden = condition.said == "must" and span.year is None and not {*condition.near} & _MADE
            if year is None or hidden:
                raise
            return year
        acts = {near.lower() for near in condition.near} & LINKING - IDLE
        if acts and TECHNICAL & {*column.words} and not self._hinted(column, condition.near):
            raise Unresolved(f"It is not clear which date says when it was `{min(acts)}`.")
        if condition.said == "must" and not self._hinted(column, condition.near):
            raise Unresolved(f"It is not clear what `{' '.join(condition.near)}` means here.")
        if span.year is not None and column.table != tables[0]:
            year = self.resolver.year_column(tables[:1])
            return year or column
        return column

    def _hinted_year(self, tables: Sequence[str], condition: Condition) -> VocabularyColumn | None:
        """Return the year that the verb names: `year_made` for `made after 1900`."""
        columns = [c for name in tables for c in self.vocabulary.table(name).columns]
        years = [c for c in columns if c.kind == "number" and "year" in c.words and len(c.words) > 1]
        if condition.span is not None and _whole_years(condition.span):
            years += [c for c in columns if holds_years(c)]
        return next((c for c in years if self._hinted(c, condition.near)), None)

    def _refers_to(self, base: str, table: str) -> bool:
        """Return whether a row of the base refers to one row of the table; a date is then probably the base's own."""
        paths = find_join_paths(self.vocabulary, base, table)[1]
        return base != table and bool(paths) and all(join_path_leads_to_one(path) for path in paths)

    def _hinted(self, column: VocabularyColumn, near: Sequence[str]) -> bool:
        return bool({stem_word(word.lower()) for word in near} & {stem_word(word) for word in column.words})

    def _filter(self, condition: Condition, tree: JoinTree) -> Filter:
        """Return the condition as a filter of the plan."""
        if not condition.either:
            return self._one_filter(condition, tree)
        parts = [replace(condition, either=()), *condition.either]
        if condition.op == "and" and self.question.both:
            raise Unresolved("The rules cannot look for things that have both.")
        parts = [replace(part, op="=") if part.op == "and" else part for part in parts]
        parts = [replace(part, after=condition.after, negated=False) for part in parts]
        said = len(self.said)
        made = tuple(self._one_filter(replace(part, negated=condition.negated), tree) for part in parts)
        pieces = [piece.removeprefix("where ") for piece in self.said[said:]]
        self.said[said:] = ["where " + (", and " if condition.negated else " or ").join(pieces)]
        return And(filters=made) if condition.negated else Or(filters=made)

    def _one_filter(self, condition: Condition, tree: JoinTree) -> Filter:
        column, hit = self._condition_column(condition, tree)
        place = join_column_ref(column)
        if condition.kind in ("value", "match"):
            place = stored_column_ref(column)
        made: Filter
        if (none := zero_condition(condition, column)) is not None:
            if not condition.negated:
                self.notes.append(zero_note(none, column))
            condition = none
        if condition.op in ("better", "worse"):
            shown = " and ".join(str(value) for value in condition.values if condition.kind == "compare") or "average"
            condition = replace(condition, op=self._better(column, condition.op, shown, condition.text))
        numbers = all(isinstance(value, int | float) for value in condition.values)
        if numbers and column.kind == "number" and condition.kind in ("compare", "between"):
            condition = replace(condition, values=self._in_unit(column, condition))
        match condition.kind:
            case "value":
                assert hit is not None  # noqa: S101 - for the type checker
                table = self.vocabulary.table(column.table)
                if (
                    column.name in table.label[:1]
                    and len(table.label) == 1
                    and column.distinct < table.rows - column.nulls
                ):
                    self.notes.append(f"`{column.name}` is not unique in `{table.name}`: all rows of that name count.")
                if condition.near and hit.values:
                    self.notes.append(f"`{condition.near[0]}` is read as `{hit.values[0]}`.")
                made = _one_of(place, hit.values)
            case "span":
                made = self._span_filter(place, column, condition)
            case "weekday":
                made = InList(column=DatePart(part="weekday", of=place), op="in", value=condition.values)
            case "between":
                made = Between(column=place, op="between", value=condition.values)
            case "compare":
                text = str(condition.values[0])
                if column.kind == "text" and condition.op in ("=", "!=") and text in column.values:
                    made = Compare(column=place, op=condition.op, value=text)  # a code that looks like a number
                elif column.kind != "number":
                    raise Unresolved(f"`{column.name}` is not a number, so it cannot be compared.")
                else:
                    made = Compare(column=place, op=condition.op, value=condition.values[0])
            case "average":
                if not is_numeric_column(column):
                    raise Unresolved(f"`{column.name}` has no average.")
                fn: AggregateFn = "median" if condition.values == ("median",) else "avg"
                whole = QueryPlan(source=column.table, aggregate=(Aggregate(fn=fn, of=place),))
                made = Compare(column=place, op=condition.op, value=Single(plan=whole))
            case "outlier":
                if not is_numeric_column(column):
                    raise Unresolved(f"`{column.name}` does not hold amounts, so it has no outliers.")
                made = _outlies(place, column.table)
            case "match":
                text = str(condition.values[0])
                number = parse_plain_number(text) if column.kind == "number" and condition.op == "is" else None
                if number is not None:
                    made = Compare(column=place, op="=", value=number)  # the major "600"
                else:
                    made = _pattern(place, condition.op, text)
            case "null" if column.flag is not None:
                made = Compare(column=place, op="=", value=column.flag[1])
            case "flag" if column.flag is not None:
                made = Compare(column=place, op="=", value=column.flag[0])
            case "flag":
                made = Compare(column=place, op=">", value=0)
            case _ if not column.nulls:
                raise Unresolved(f"Every row has a `{column.name}`; it is not clear what `{condition.text}` means.")
            case _:
                made = NullTest(column=place, op="is null")
        described = _describe(condition, hit)
        opposite = condition.negated
        if condition.kind == "null" and column.flag is not None:
            described, opposite = "is false", True
        elif condition.kind == "flag" and column.flag is not None:
            described = "is true"
        if condition.negated:
            described = f"is not {described[3:]}" if described.startswith("is ") else f"is not {described}"
            made = Not(filter=made)
        # Yes, no and values cover rows without a value, too; an unknown number is neither above nor below.
        if opposite and column.nulls and condition.kind in ("value", "match", "flag", "null"):
            made = Or(filters=(made, NullTest(column=place, op="is null")))
            described += " or is missing"
        elif opposite and column.nulls and condition.kind != "null":
            self.notes.append(f"Rows without a `{column.name}` are left out.")
        self.said.append(f"where `{column.table}.{column.name}` {described}")
        return made

    def _better(self, column: VocabularyColumn, op: str, number: str, text: str) -> str:
        """Return the comparison that `better than` means for a column; ask back if nothing says which end is better."""
        more = more_is_better(column)
        if more is None and TAKE_HIGH not in self.prefer and TAKE_LOW not in self.prefer:
            choices = ((f"`{column.name}` above {number}", TAKE_HIGH), (f"`{column.name}` below {number}", TAKE_LOW))
            raise Ambiguous(text, choices=choices)
        up = TAKE_HIGH in self.prefer if more is None else more == (op == "better")
        self.notes.append(f"`{text}` is taken as {'above' if up else 'below'} {number}.")
        return ">" if up else "<"

    def _in_unit(self, column: VocabularyColumn, condition: Condition) -> tuple[float | int, ...]:
        """Return the numbers of a condition as the column holds them."""
        table = self.vocabulary.table(column.table)
        made = [number_in_unit(column, table, value, condition.unit) for value in condition.values]  # type: ignore[arg-type]
        self.notes.extend(note for _, note in made if note)
        return tuple(value for value, _ in made)

    def _span_filter(self, place: Place, column: VocabularyColumn, condition: Condition) -> Filter:
        span = condition.span
        assert span is not None  # noqa: S101 - for the type checker
        if column.kind == "number":
            if span.year is not None:
                return Compare(column=place, op="=", value=span.year)
            bounds: list[Filter] = []
            if span.start:
                bounds.append(Compare(column=place, op=">=", value=span.start.year))
            if span.end:
                bounds.append(Compare(column=place, op="<", value=span.end.year))
            return _all(bounds)
        bounds = []
        if span.start:
            bounds.append(Compare(column=place, op=">=", value=span.start.isoformat()))
        if span.end:
            bounds.append(Compare(column=place, op="<", value=span.end.isoformat()))
        return _all(bounds)

    def _check_ways(self, tree: JoinTree, exists: bool = False) -> None:
        """Refuse joins through tables that the question does not name, unless these only relate others."""
        verbs = {stem_word(verb) for verb in self.question.verbs}
        if all(hop.back for hop in tree.hops):
            return
        for at, hop in enumerate(tree.hops):
            onward = any(other.table == hop.to_table for other in tree.hops)
            missing = any(self.vocabulary.table(hop.table).column(name).nulls for name in hop.columns)
            if not hop.back and onward and missing and hop.to_table not in self.mentioned:
                raise Unresolved(f"Rows without `{hop.to_table}`, which the question does not name, would be left out.")
            following = tree.hops[at + 1] if at + 1 < len(tree.hops) else None
            if following is not None and following.back and following.to_table in self.nouns:
                # The tracks of an artist, through the albums.
                continue
            if exists and verbs and tree.hops[-1].to_table in self.nouns:
                # The question names two things and a verb between them: these tables relate them.
                continue
            between = following is not None and following.table == hop.to_table and not following.back
            if verbs and between and following is not None and following.to_table in self.nouns:
                continue
            named = (
                hop.to_table in self.mentioned
                or bool(verbs & {stem_word(w) for w in self.vocabulary.table(hop.to_table).words})
                or any(hop.to_table in find_act_tables(verb, self.vocabulary) for verb in self.question.verbs)
            )
            if hop.back and not named and not self._pairs(hop.to_table, exists):
                raise Unresolved(f"The join would go through `{hop.to_table}`, which the question does not name.")

    def _pairs(self, table: str, exists: bool = False) -> bool:
        """Return whether a table only relates others: it has little else, or is named after two of them."""
        links = [hop for hop in join_hops(self.vocabulary).get(table, ()) if hop.to_one]
        known = self.vocabulary.table(table)
        if len(links) < 2 or len(known.columns) <= 4 or not exists:
            return len(links) >= 2 and len(known.columns) <= 4
        ends = [{*self.vocabulary.table(hop.to_table).words} & {*known.words} for hop in links]
        several = sum(map(bool, ends)) > 1 or bool(_LINES & {*known.words})
        return len(known.words) > 1 and {*known.words} - _LINES <= set[str]().union(*ends) and several

    def _plan(
        self, tree: JoinTree, select: tuple[Any, ...], where: Sequence[Filter], group_by: Sequence[Any],
        aggregates: Sequence[Aggregate], having: Sequence[Filter], order: Sequence[Order], limit: int | None,
    ) -> QueryPlan:  # fmt: skip
        self._check_ways(tree)
        for hop in tree.hops:
            missing = [name for name in hop.columns if self.vocabulary.table(hop.table).column(name).nulls]
            if hop.to_one and missing:
                self.notes.append(f"Rows of `{hop.table}` without a `{missing[0]}` are left out.")
        return QueryPlan(
            source=tree.base,
            joins=tree.joins(),
            select=select,
            where=tuple(where) or None,
            group_by=tuple(group_by),
            aggregate=tuple(aggregates),
            having=tuple(having) or None,
            order_by=tuple(order),
            limit=limit,
        )


def _outlies(place: Place, table: str) -> Filter:
    """Return that a number lies further from the quartiles than one and a half times the distance between them."""
    low, high = (
        Single(plan=QueryPlan(source=table, aggregate=(Aggregate(fn="quantile", of=place, at=part),)))
        for part in (0.25, 0.75)
    )

    def beyond(near: Single, far: Single) -> Arithmetic:
        return Arithmetic(op="-", args=(Arithmetic(op="*", args=(near, 2.5)), Arithmetic(op="*", args=(far, 1.5))))

    below = Compare(column=place, op="<", value=beyond(low, high))
    return Or(filters=(below, Compare(column=place, op=">", value=beyond(high, low))))


def _dated(column: VocabularyColumn, span: Span) -> bool:
    if column.kind in ("date", "timestamp") or (_whole_years(span) and holds_years(column)):
        return True
    if column.kind == "number" and _whole_years(span) and column.words == ("birth", "year"):
        return True  # "born after 1990"
    return span.year is not None and column.words[-1:] in (("year",), ("season",))


def _whole_years(span: Span) -> bool:
    """Return whether the span begins and ends with a year, so that the number of the year decides."""
    return all(day is None or (day.month, day.day) == (1, 1) for day in (span.start, span.end))


def _at_once(first: Condition, second: Condition) -> bool:
    if first.span is None or second.span is None:
        return first.kind != second.kind or bool({*first.values} & {*second.values})
    (start, end), (begin, close) = ((s.start or date.min, s.end or date.max) for s in (first.span, second.span))
    apart = max(start, begin) >= min(end, close)
    within = (start <= begin and close <= end) or (begin <= start and end <= close)
    halves = all(None in (s.start, s.end) for s in (first.span, second.span))
    return within or (halves and not apart)


def _all(filters: Sequence[Filter]) -> Filter:
    return filters[0] if len(filters) == 1 else And(filters=tuple(filters))


def _one_of(place: Place, values: Sequence[str]) -> Filter:
    return (
        Compare(column=place, op="=", value=values[0])
        if len(values) == 1
        else InList(column=place, op="in", value=tuple(values))
    )


def _pattern(place: Place, op: str, text: str) -> Filter:
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    pattern = {"starts_with": f"{escaped}%", "ends_with": f"%{escaped}", "is": escaped}.get(op, f"%{escaped}%")
    return Match(column=place, op="ilike", value=pattern)


def _describe(condition: Condition, hit: Hit | None) -> str:
    if hit is not None:
        return "is " + " or ".join(f"`{value}`" for value in hit.values[:4])
    if condition.span is not None:
        return f"is {condition.span.text}{dates_of_span(condition.span)}"
    if condition.kind == "match":
        op = condition.op if condition.op == "is" else condition.op.replace("_", " ").removeprefix("i")
        return f"{op} `{condition.values[0]}`"
    if condition.kind == "average":
        return f"{condition.op} the {'median' if condition.values == ('median',) else 'average'} of all"
    if condition.kind == "outlier":
        return "is more than 1.5 times the distance between the quartiles away from them"
    if condition.kind == "weekday":
        return f"is {condition.text}"
    if condition.kind == "flag":
        return "> 0"
    if condition.kind == "null":
        return "is missing"
    return f"{condition.op} " + " and ".join(str(value) for value in condition.values)
