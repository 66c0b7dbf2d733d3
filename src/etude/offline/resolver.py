"""Choose which table, column or value each noun of a question means: what the column holds, and the shortest joins."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from etude.offline.column_traits import is_period_column
from etude.offline.deadline import check_deadline
from etude.offline.joins import FAR, join_distance, join_distances, join_hops
from etude.offline.phrase_index import SYNONYM, Hit, Meaning
from etude.offline.question_parts import Condition, Measure, NamePart, Question
from etude.offline.vocabulary import Vocabulary, VocabularyColumn, VocabularyTable, once_per_vocabulary
from etude.offline.words import stem_word, word_base_form

TECHNICAL = frozenset(["created", "updated", "modified", "inserted", "timestamp", "loaded", "deleted", "epoch"])
MONEY = frozenset(
    [
        "amount",
        "price",
        "cost",
        "revenue",
        "value",
        "fare",
        "fee",
        "payment",
        "salary",
        "total",
        "balance",
        "charge",
        "budget",
        "spending",
    ]
)


GENERAL = frozenset(("name", "title", "id", "number", "date", "type", "code", "description", "status"))

_OF_PEOPLE = frozenset(("first", "last", "middle", "full", "given", "family"))
"""Words for the names of people: they do not say whose name it is."""

_LIKE_A_DATE = re.compile(r"\s*(\d{4}([/.-])\d{1,2}\2\d{1,2}|\d{1,2}([/.-])\d{1,2}\3\d{4})(?![^\sT])")


class Unresolved(Exception):
    """The question cannot be answered; `reason` says why in plain words."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


_ANY_DATE = frozenset(("date", "day", "time", "datetime"))
"""Words of a date that is the date of the row itself, whatever the row is."""


def dates_with_created(
    plain: list[VocabularyColumn], dates: Sequence[VocabularyColumn], table: VocabularyTable
) -> list[VocabularyColumn]:
    """Return the dates that a question may mean, with the one on which the row was created.

    Beside `closed_at` or `paid_at`, `created_at` says when the thing began. Beside `date`, or the order's own
    `order_date`, it only says when the row was written.
    """
    own = _ANY_DATE | {*table.words}
    if any({*c.words} <= own for c in plain):
        return plain
    return [c for c in dates if c in plain or "created" in c.words]


def list_unresolved_words(words: Sequence[str]) -> str:
    """Return words with their verb: `a` means, `a` and `b` mean, `a`, `b` and `c` mean."""
    quoted = [f"`{word}`" for word in words]
    if len(quoted) == 1:
        return f"{quoted[0]} means"
    return f"{', '.join(quoted[:-1])} and {quoted[-1]} mean"


class Ambiguous(Exception):
    """A word has several equally good meanings; `meanings` or `choices`, with their labels, lists them."""

    def __init__(
        self,
        text: str,
        meanings: Sequence[Meaning | Hit] = (),
        choices: Sequence[tuple[str, tuple[str, str]]] = (),
    ) -> None:
        super().__init__(text)
        self.text, self.meanings, self.choices = text, tuple(meanings), tuple(choices)


@dataclass(frozen=True)
class Resolver:
    """Finds meanings near an anchor: the table that the question is about."""

    vocabulary: Vocabulary
    anchor: str
    joined: tuple[str, ...] = ()
    """Other tables that the question names."""
    prefer: frozenset[tuple[str, str]] = frozenset()
    notes: list[str] = field(default_factory=list, compare=False)
    """What to tell the user about words that were read as something with another name."""

    def table_of(self, name: NamePart) -> VocabularyTable | None:
        """Return the table that a noun means, or None."""
        best = self._best(name.text, name.tables) if name.tables else None
        return self.vocabulary.table(best.table) if best else None

    def column(self, name: NamePart, fits: Callable[[VocabularyColumn], bool] | None = None) -> VocabularyColumn:
        """Return the column that a noun means; those that fit come first."""
        found = self.meaning(name, fits)
        if found.column is None:
            table = self.vocabulary.table(found.table)
            if found.label and len(table.label) == 1:
                return table.column(table.label[0])
            raise Unresolved(f"`{name.text}` is not a single column.")
        return self.vocabulary.table(found.table).column(found.column)

    def meaning(self, name: NamePart, fits: Callable[[VocabularyColumn], bool] | None = None) -> Meaning:
        """Return the column or label that a noun means."""
        check_deadline()
        columns = [m for m in name.columns if self._holds(m, name.owner)] or self._named_with_table(name)
        if not columns and name.owner is not None and word_base_form(name.text.lower().split()[-1]) in GENERAL:
            columns = self._named_by(name, name.owner) or self._columns_of_referred(name, name.owner)
            if not columns:
                raise Unresolved(f"`{name.owner.text}` has no `{name.text}`.")
        columns = columns or list(name.columns)
        if fits is not None:
            fitting = [m for m in columns if m.column and fits(self.vocabulary.table(m.table).column(m.column))]
            if fitting and len(fitting) < len(columns) and self._cost(fitting) - self._cost(columns) > 5:
                raise Unresolved(f"`{name.text}` does not hold numbers or dates, which are needed here.")
            columns = fitting or columns
        if not columns:
            raise Unresolved(f"`{name.text}` is not a column.")
        return self._best(name.text, columns)

    def _named_with_table(self, name: NamePart) -> list[Meaning]:
        """`driver names for buses`: return the columns of the only table whose words stand in the column's name."""
        words = [word_base_form(word) for word in name.text.lower().split()]
        exact = [m for m in name.columns if m.cost == 0]
        own = [m for m in exact if any({*o} <= {*words[:-1]} for o in self._owner_words(m.table))]
        return own if len({m.table for m in own}) == 1 else []

    def _owner_words(self, table: str) -> list[tuple[str, ...]]:
        known = self.vocabulary.table(table)
        return [words for words in (known.words, *known.aliases) if words]

    def _named_by(self, name: NamePart, owner: NamePart) -> list[Meaning]:
        """`the names of festivals`: return the only column of the owner that ends so, such as `festival_name`."""
        word = word_base_form(name.text.lower().split()[-1])
        if word not in ("name", "title") or len(_own_words(name, owner)) > 1:
            return []
        found = []
        for table in _clear_tables(owner):
            texts = [c for c in self.vocabulary.table(table).columns if c.kind == "text"]
            fitting = [c for c in texts if c.words[-1:] == (word,) or re.fullmatch(f"[a-z]{word}", c.name.lower())]
            if len(fitting) == 1:
                found.append(Meaning(table, fitting[0].name))
        return found if len(found) == 1 else []

    def _columns_of_referred(self, name: NamePart, owner: NamePart) -> list[Meaning]:
        """`the names of gymnasts`, if each is one of the people; `the department name of courses`, if each has one."""
        words = _own_words(name, owner)
        found: list[Meaning] = []
        for table in dict.fromkeys(m.table for m in owner.tables if m.cost <= 1):
            for hop in join_hops(self.vocabulary).get(table, ()):
                held = [m for m in name.columns if m.table == hop.to_table and m.cost <= 1 and m.column]
                if not hop.to_one or hop.back or not held:
                    continue
                known = self.vocabulary.table(table)
                same = all(_is_unique(known, column) for column in hop.columns) and len(hop.columns) == 1
                named = {*words} & {*self.vocabulary.table(hop.to_table).words}
                special = not {*words} <= GENERAL | _OF_PEOPLE
                if same or named or special:
                    found.extend(held)
        tables = [hop.to_table for m in owner.tables for hop in join_hops(self.vocabulary).get(m.table, ())]
        once = len(found) == 1 and tables.count(found[0].table) == 1
        return found if once else []

    def _cost(self, meanings: Sequence[Meaning]) -> float:
        return min(self._costs(meanings))

    def _costs(self, meanings: Sequence[Meaning]) -> list[float]:
        away = self._all_away([m.table for m in meanings])
        return [3 * m.cost + 4 * distance for m, distance in zip(meanings, away, strict=True)]

    def _holds(self, meaning: Meaning, owner: NamePart | None) -> bool:
        return owner is None or not owner.tables or any(meaning.table == m.table for m in owner.tables)

    def _best(self, text: str, meanings: Sequence[Meaning]) -> Meaning:
        costs = self._costs(meanings)
        low = min(costs)
        if low >= 4 * FAR:
            raise Unresolved(f"Nothing connects `{text}` to `{self.anchor}`.")
        best = [m for m, cost in zip(meanings, costs, strict=True) if cost == low]
        if len(best) > 1 and not self._same(best):
            chosen = [m for m in best if (m.table, m.column or "") in self.prefer]
            if chosen:
                return chosen[0]
            named = [m for m in best if m.table == self.anchor] or [m for m in best if m.table in self.joined]
            if len(named) != 1:
                raise Ambiguous(text, named or best)
            best = named
        self._check_formula(best[0])
        alone = best[0].column is None and not best[0].label and len({m.table for m in meanings}) == 1
        if best[0].cost > SYNONYM and best[0].table not in (self.anchor, *self.joined) and not alone:
            if self._is_head(text, best[0], meanings):
                return best[0]
            # It is only the last word of a column's name, in a table that the question does not name.
            raise Unresolved(f"It is not clear what `{text}` means here.")
        if best[0].cost > 1:
            place = f"{best[0].table}.{best[0].column}" if best[0].column else best[0].table
            self.notes.append(f"`{text}` is read as `{place}`.")
        return best[0]

    def _is_head(self, text: str, meaning: Meaning, meanings: Sequence[Meaning]) -> bool:
        """Return whether only one table ends with the noun: `orders` are `customer_orders`, not `order_items`."""
        noun = word_base_form(text.lower().split()[-1])
        tables = {m.table for m in meanings if m.column is None and not m.label}
        heads = [table for table in tables if self.vocabulary.table(table).words[-1:] == (noun,)]
        return meaning.column is None and not meaning.label and heads == [meaning.table]

    def _check_formula(self, meaning: Meaning) -> None:
        formula = self.vocabulary.table(meaning.table).column(meaning.column).formula if meaning.column else None
        if formula is not None and formula.doubt:
            raise Unresolved(formula.doubt)

    def _away(self, table: str) -> float:
        return self._all_away([table])[0]

    def _same(self, meanings: Sequence[Meaning]) -> bool:
        """Return whether the columns are equal by a key."""
        first, *others = meanings
        return all(self._linked(first, other) for other in others)

    def _linked(self, left: Meaning, right: Meaning) -> bool:
        ends = frozenset(((left.table, (left.column,)), (right.table, (right.column,))))
        return ends in _linked_ends(self.vocabulary)

    def hit(self, condition: Condition, nearest: str | None = None) -> Hit:
        """Return the column whose values the condition means."""
        hits = list(condition.hits)
        if condition.name is not None:
            wanted = {(m.table, m.column) for m in condition.name.columns}
            hits = [hit for hit in hits if (hit.table, hit.column) in wanted] or hits
        if condition.beside and nearest != self.anchor:
            hits = [hit for hit in hits if hit.table == nearest] or hits
        costs = self._hit_costs(hits, condition, nearest)
        low = min(costs)
        if low >= 4 * FAR:
            raise Unresolved(f"Nothing connects `{condition.text}` to `{self.anchor}`.")
        best = [hit for hit, cost in zip(hits, costs, strict=True) if cost == low]
        close = [hit for hit, cost in zip(hits, costs, strict=True) if cost <= low + 4.5]
        rivals = [hit for hit in close if self._names(hit) and hit.table != best[0].table]
        if rivals and self._names(best[0]) and condition.name is None and not self._chosen(best[0]):
            raise Ambiguous(condition.text, [best[0], *rivals])
        self._check_rivals(condition, best[0], hits, nearest)
        if best[0].cost > 1 and best[0].table not in (self.anchor, nearest, *self.joined):
            # A word that only resembles a value is read as one only if the question expects a value there.
            raise Unresolved(f"It is not clear what `{condition.text}` means here.")
        if len(best) > 1:
            chosen = [hit for hit in best if (hit.table, hit.column) in self.prefer]
            if chosen:
                return chosen[0]
            meanings = [Meaning(hit.table, hit.column) for hit in best]
            if not self._same(meanings):
                raise Ambiguous(condition.text, best)
        return best[0]

    def _check_rivals(self, condition: Condition, best: Hit, hits: Sequence[Hit], nearest: str | None) -> None:
        """Ask back if another table in reach has the value too, unless the noun beside it says which is meant."""
        words = self.vocabulary.table(best.table).column(best.column).words
        settled = condition.name is not None or self._chosen(best) or condition.said.split()[:1] == list(words[:1])
        # Prefer the city of the anchor to any other city; its billing city is only one of several.
        plain = best.table == self.anchor and len([word for word in words if word != "name"]) == 1
        if settled or (best.table == nearest != self.anchor and condition.beside):
            return
        own = Meaning(best.table, best.column)
        tables = [hit.table for hit in hits]
        near = join_distances(self.vocabulary, nearest or self.anchor, tables)
        for hit, distances in zip(hits, zip(near, self._all_away(tables), strict=True), strict=True):
            # Distances first: of the many tables that have the value, few are near.
            if min(distances) > 2 or hit.table == best.table or hit.cost > best.cost:
                continue
            # Two tables away, only the name of a row is a rival: `songs by Abel`, the artist or the composer.
            if min(distances) > 1 and (self._names(best) or not self._names(hit)):
                continue
            if not (plain and not self._names(hit)) and not self._linked(own, Meaning(hit.table, hit.column)):
                raise Ambiguous(condition.text, [best, hit])

    def _names(self, hit: Hit) -> bool:
        """Return whether the value is the name of a row."""
        return hit.cost == 0 and hit.column in self.vocabulary.table(hit.table).label

    def _chosen(self, hit: Hit) -> bool:
        return (hit.table, hit.column) in self.prefer

    def _hit_costs(self, hits: Sequence[Hit], condition: Condition, nearest: str | None) -> list[float]:
        """Return how well each hit fits, the best lowest: how far its table is, and what its column is called."""
        tables = [hit.table for hit in hits]
        away = self._all_away(tables)
        if nearest is not None:
            near = join_distances(self.vocabulary, nearest, tables)
            away = [min(one, other + 0.25) for one, other in zip(away, near, strict=True)]
        said = condition.said.split()[0] if condition.said else None
        columns, costs = _column_bonuses(self.vocabulary), []
        for hit, distance in zip(hits, away, strict=True):
            words, bonus = columns[hit.table, hit.column]
            cost = 3 * hit.cost + 4 * distance - bonus
            if said is not None and said in words:
                cost -= 3
            if (hit.table, hit.column) in self.prefer:
                cost -= 100
            costs.append(cost)
        return costs

    def _all_away(self, tables: Sequence[str]) -> list[float]:
        found: list[float] = [*join_distances(self.vocabulary, self.anchor, tables)]
        # A table that the question names counts as near.
        if not self.joined:
            return found
        return [
            min(near, 0.5) if table in self.joined and near < FAR else near
            for table, near in zip(tables, found, strict=True)
        ]

    # --- dates

    def date_column(self, tables: Iterable[str], near: Sequence[str] = ()) -> VocabularyColumn:
        """Return the date column for a span: the one a verb hints at, else the only one that is not technical."""
        hints = {stem_word(word.lower()) for word in near} - {""}
        for name in tables:
            table = self.vocabulary.table(name)
            dates = [c for c in table.columns if c.kind in ("date", "timestamp")]
            hinted = [c for c in dates if hints & {stem_word(word) for word in c.words}]
            if hinted:
                return hinted[0]
        for name in tables:
            table = self.vocabulary.table(name)
            dates = [c for c in table.columns if c.kind in ("date", "timestamp")]
            plain = [c for c in dates if not TECHNICAL & {*c.words}] or dates
            if len(plain) > 1:
                own = [c for c in plain if {*c.words} & {*table.words}]
                plain = own if len(own) == 1 else plain
            plain = dates_with_created(plain, dates, table)
            chosen = [c for c in plain if (c.table, c.name) in self.prefer]
            if chosen:
                return chosen[0]
            if len(plain) > 1:
                raise Ambiguous("date", [Meaning(c.table, c.name) for c in plain])
            if plain:
                return plain[0]
        raise Unresolved(f"`{self.anchor}` has no date column{self._dates_as_text(tables)}.")

    def _dates_as_text(self, tables: Iterable[str]) -> str:
        """Return a clause that names the text columns whose values look like dates, or an empty text."""
        columns = [c for name in tables for c in self.vocabulary.table(name).columns if c.kind == "text" and c.values]
        names = [f"`{c.name}`" for c in columns if all(map(_LIKE_A_DATE.match, c.values))]
        if not names:
            return ""
        verb = "hold" if len(names) > 1 else "holds"
        return f": {' and '.join(names)} {verb} dates as text; `etude sources show` says why"

    def year_column(self, tables: Iterable[str]) -> VocabularyColumn | None:
        """Return a column that holds the year as a number, or None."""
        for name in tables:
            columns = [c for c in self.vocabulary.table(name).columns if c.kind == "number"]
            years = [c for c in columns if c.words[-1:] == ("year",)]
            years = years or [c for c in columns if c.words == ("season",) and is_period_column(c)]
            if years:
                return years[0]
        return None


def _clear_tables(owner: NamePart) -> list[str]:
    """Return the tables that a noun names as they are called, or the only one that it may mean."""
    tables = list(dict.fromkeys(m.table for m in owner.tables))
    return tables if len(tables) == 1 else list(dict.fromkeys(m.table for m in owner.tables if m.cost <= 1))


def _own_words(name: NamePart, owner: NamePart) -> list[str]:
    """Return the words of a column's name that do not repeat those of its owner."""
    said = {word_base_form(word) for word in owner.text.lower().split()}
    return [word for word in (word_base_form(each) for each in name.text.lower().split()) if word not in said]


def _is_unique(table: VocabularyTable, column: str) -> bool:
    known = table.column(column)
    return bool(table.rows) and known.distinct == table.rows and not known.nulls


@once_per_vocabulary
def _linked_ends(vocabulary: Vocabulary) -> frozenset[frozenset[tuple[str, tuple[str | None, ...]]]]:
    """Return the two ends of each link."""
    return frozenset(frozenset(((k.table, k.columns), (k.to_table, k.to_columns))) for k in vocabulary.links)


@once_per_vocabulary
def _column_bonuses(vocabulary: Vocabulary) -> dict[tuple[str, str], tuple[tuple[str, ...], float]]:
    """Return the words of each column, and how much it is preferred to others: if it names rows, or is one word."""
    return {
        (table.name, column.name): (
            column.words,
            (0.5 if column.name in table.label else 0)
            + (0.25 if len(column.words) == 1 or column.words[-1:] == ("name",) else 0),
        )
        for table in vocabulary.tables
        # If two columns share a name, the first wins.
        for column in reversed((*table.columns, *table.derived))
    }


def resolve_anchor(question: Question, vocabulary: Vocabulary) -> str:
    """Return the table that the question is about: the one it counts or lists, else the one nearest to all nouns."""
    candidates = _anchor_candidates(question)
    if not candidates:
        raise Unresolved("The question names no table or column of the data.")
    names = [n for n in nouns_to_resolve(question) if n.meanings]
    hits = [c.hits for c in question.conditions if c.hits]

    wanted = [_by_cost(name.meanings) for name in names] + [_by_cost(found) for found in hits]
    least = {table: 3.0 * own + sum(_least(table, costs) for costs in wanted) for table, own in candidates.items()}
    # Try the most promising first: in a source with thousands of tables, the rest need not be measured.
    costs, low = dict.fromkeys(candidates, math.inf), math.inf
    for table in sorted(candidates, key=lambda table: least[table]):
        if least[table] > low:
            break
        check_deadline()
        costs[table] = 3.0 * candidates[table] + sum(_nearest(vocabulary, table, found) for found in wanted)
        low = min(low, costs[table])
    best = [table for table, cost in costs.items() if cost == low]
    best = _ask_for_number(question, best, vocabulary)
    if len(best) > 1:
        # On a tie, prefer a table with a key: one without a key only relates things.
        keyed = [table for table in best if vocabulary.table(table).key]
        best = keyed or best
    if len(best) > 1:
        # A verb of the question is in the name of the table: payments received.
        fitting = [table for table in best if {*question.verbs} & {*vocabulary.table(table).words}]
        best = fitting if len(fitting) == 1 else best
        chosen = [table for table in best if (table, "") in question.prefer]
        best = chosen or best
    if len(best) > 1:
        text = question.subject.text if question.subject else names[0].text
        raise Ambiguous(text, [Meaning(table) for table in best])
    return best[0]


def _ask_for_number(question: Question, tables: list[str], vocabulary: Vocabulary) -> list[str]:
    """Ask back for `average price`, if it is only part of the names of two numbers: `list_price` and `unit_price`."""
    (part, *others) = question.requested or (None,)
    if len(tables) < 2 or others or question.subject is not None or not isinstance(part, Measure) or part.name.tables:
        return tables
    found = [m for m in part.name.columns if m.table in tables and m.column and m.cost > SYNONYM]
    least = min((m.cost for m in found), default=0)
    found = [m for m in found if m.cost == least]
    numbers = [m for m in found if vocabulary.table(m.table).column(str(m.column)).kind == "number"]
    chosen = [m.table for m in numbers if (m.table, m.column) in question.prefer]
    if len({m.table for m in numbers}) < len(tables) or part.name.owner is not None:
        return tables
    if not chosen:
        raise Ambiguous(part.name.text, numbers)
    return chosen[:1]


def _by_cost(meanings: Iterable[Meaning | Hit]) -> dict[str, int]:
    """Return the tables that a word may mean with the costs of the readings, the cheapest first."""
    found: dict[str, int] = {}
    for meaning in sorted(meanings, key=lambda m: m.cost):
        found.setdefault(meaning.table, meaning.cost)
    return found


def _least(table: str, costs: Mapping[str, int]) -> int:
    """Return a lower bound of a word's cost from this table: it is there, or one hop away."""
    cheapest = 3 * next(iter(costs.values())) + 4
    return min(3 * costs[table], cheapest) if table in costs else cheapest


def _nearest(vocabulary: Vocabulary, table: str, costs: Mapping[str, int]) -> int:
    """Return a word's cost from this table: that of the reading plus that of the path to it."""
    lowest = 3 * costs[table] if table in costs else 4 * FAR + 3 * max(costs.values())
    for other, cost in costs.items():
        if 3 * cost + 4 >= lowest:
            break
        if other != table:
            lowest = min(lowest, 3 * cost + 4 * join_distance(vocabulary, table, other))
    return lowest


def _anchor_candidates(question: Question) -> dict[str, int]:
    name = question.subject
    if name is None:
        first = next(iter((*question.asked, *question.requested)), None)
        if first is None and question.ratio is not None:
            first = question.ratio.upper.subject
        if first is None and question.rank is not None:
            first = question.rank.by
        name = first.name if isinstance(first, Measure) else first
    if name is None and question.groups:
        name = question.groups[0].name
    if name is None:
        return {}
    meanings = name.tables if question.subject is not None and name.tables else name.meanings
    found: dict[str, int] = {}
    for meaning in meanings:
        found[meaning.table] = min(meaning.cost, found.get(meaning.table, FAR))
    if name.owner is not None:
        owned = {m.table for m in name.owner.tables}
        found = {table: cost for table, cost in found.items() if table in owned} or found
    return found


def nouns_to_resolve(question: Question) -> list[NamePart]:
    """Return all nouns of the question that name things in the data."""
    found: list[NamePart] = []

    def take(part: Measure | NamePart | None) -> None:
        if isinstance(part, Measure):
            found.append(part.name)
        elif part is not None:
            found.append(part)

    for part in (*question.requested, *question.asked, question.subject, *question.context):
        take(part)
    for group in question.groups:
        take(group.name)
    for condition in question.conditions:
        if not condition.hits:
            take(condition.name)
    for threshold in question.thresholds:
        take(threshold.measure)
    for absence in question.absences:
        take(absence.name)
    if question.rank is not None:
        take(question.rank.by)
    if question.ordering is not None:
        take(question.ordering.by)
    if question.ratio is not None:
        take(question.ratio.upper.subject)
        take(question.ratio.lower.subject)
    return list(dict.fromkeys(found))
