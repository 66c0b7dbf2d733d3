"""Ranks: which column says what is the highest, the best or the most sold, and which end of it is meant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from etude.offline.better_direction import more_is_better
from etude.offline.column_traits import column_sorts_as_numbers, is_numeric_column, is_period_column, is_rate_column
from etude.offline.conditions import TAKE_HIGH, TAKE_LOW
from etude.offline.joins import join_hops
from etude.offline.measures import TEMPORAL
from etude.offline.part_references import (
    LEVELS,
    is_repeated_part,
    part_adds_up,
)
from etude.offline.phrase_index import Meaning
from etude.offline.question_parts import Direction, Fn, Measure, NamePart, Rank
from etude.offline.ratios import Ratios
from etude.offline.resolver import (
    MONEY,
    TECHNICAL,
    Ambiguous,
    Unresolved,
    dates_with_created,
    nouns_to_resolve,
)
from etude.offline.revenue import MONEY_WORDS, rows_are_sales
from etude.offline.selling import SALES, sold_units
from etude.offline.vocabulary import VocabularyColumn, VocabularyTable
from etude.sources.plan.query_plan import (
    ColumnRef,
    Order,
)

TAKE_SUM, TAKE_BEST, TAKE_AVERAGE = ("the sum", ""), ("the best", ""), ("the average", "")
TAKE_ROWS = ("the rows", "")
"""Choices of a question back, in the form of a table and a column that were chosen."""
PLACES = frozenset(("rank", "ranking", "position", "place", "standing"))
"""Last words of columns' names whose highest value may be 1."""
_RECENT = ("newest", "latest", "most recent")
"""Words for what came last: the newest customer is not the youngest."""
_BY_WORTH = frozenset(("best", "worst", "highest", "lowest", "top"))
_OPPOSITE: dict[Direction, Direction] = {"asc": "desc", "desc": "asc"}


class Ranks(Ratios):
    """Adds ranks."""

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
            turned = (rank.direction == "desc") != rank_descends(rank, column)
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
        column: VocabularyColumn | None = None
        if fn is None and rank is not None and isinstance(rank.by, NamePart) and rank.by.text.lower() in MONEY_WORDS:
            # Revenue is what all sales brought in, never the highest of one line.
            column = self._rank_column(rank, self.vocabulary.table(self.resolver.anchor))
            nouns = [name for name in nouns_to_resolve(self.question) if name != rank.by]
            named = {m.table for name in nouns for m in name.tables}
            several = column.table != self.resolver.anchor and column.table not in named and not self.question.groups
            fn = "sum" if several and not self._tree(self.resolver.anchor).reaches_one(column.table) else None
        if rank is None:
            self._take_fold_of_groups()
        if rank is None or fn is None or (isinstance(rank.by, Measure) and not self._measured(rank.by).raw):
            return
        column = column or self._rank_column(rank, self.vocabulary.table(self.resolver.anchor))
        if fn == "max" and not rank_descends(rank, column):
            fn = "min"
        by = Measure(fn, NamePart(rank.text, (Meaning(column.table, column.name),)), text=rank.text)
        direction: Direction = "desc" if rank_descends(rank, column) else "asc"
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
        subject = self.question.subject
        own = subject is not None and any(m.table == column.table for m in subject.tables)
        if own and not self.question.plural and self.question.top is None and not most:
            return False  # "the city of the firm with the largest sales": one firm is named, with its own sales
        return self.question.top is not None or most or (rank.by is not None and part_adds_up(column))

    def _ask_fold(self, rank: Rank, column: VocabularyColumn) -> Ambiguous:
        """Return the question whether the sum or the highest of several numbers ranks."""
        best = "highest" if rank_descends(rank, column) else "lowest"
        whole = (f"the total `{column.name}` of each", TAKE_SUM)
        if LEVELS & {*column.words} and not part_adds_up(column):
            whole = (f"the average `{column.name}` of each", TAKE_AVERAGE)
        return Ambiguous(rank.text, choices=(whole, (f"the {best} single `{column.name}` of each", TAKE_BEST)))

    def _one_or_ask(self, rank: Rank) -> int | None:
        if self.question.plural and self.question.groups:
            return None
        if self.question.plural and rank.text.lower().startswith(("top", "best", "worst")):
            raise Unresolved(f"It does not say how many with `{rank.text}` to return; say, for example, top 5.")
        return 1

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
                    and not (rank.text.lower().startswith(_RECENT) and {"birth", "born", "birthday"} & {*c.words})
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


def rank_descends(rank: Rank, column: VocabularyColumn) -> bool:
    """Return whether the highest come first: the oldest have the highest age, but the lowest date of birth."""
    turned = rank.by is None and any(word[1:] in column.words for word in rank.implied if word.startswith("!"))
    return (rank.direction == "desc") != turned
