"""A tree of joins: each table joins along the cheapest path from those already joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from etude.offline.joins import FAR, Hop, Path, find_join_paths, join_path_leads_to_one
from etude.offline.phrase_index import Meaning
from etude.offline.resolver import Ambiguous, Unresolved
from etude.offline.vocabulary import Formula, Vocabulary, VocabularyColumn
from etude.offline.vocabulary_names import vocabulary_name_without_schema
from etude.offline.words import stem_word, word_names_act
from etude.sources.plan.query_plan import Arithmetic, AsNumber, Case, ColumnRef, Expr, Join, Named, NullTest, When


def fit_join_alias_length(name: str) -> str:
    """Return the name, cut to a length that every engine accepts."""
    return name.encode()[:60].decode(errors="ignore")


Place = ColumnRef | Arithmetic | AsNumber


def join_column_ref(column: VocabularyColumn) -> Place:
    """Return the column as a plan refers to it, or the formula of one that the table does not have."""
    table, formula = vocabulary_name_without_schema(column.table), column.formula
    if formula is None:
        place = ColumnRef(table=table, column=column.name)
        return AsNumber(number=place) if column.as_text else place
    args: list[Expr] = [ColumnRef(table=table, column=name) for name in formula.factors]
    if formula.discount:
        args.append(_left_after(ColumnRef(table=table, column=formula.discount), formula))
    elif formula.gaps:
        missing = NullTest(column=ColumnRef(table=table, column=formula.factors[-1]), op="is null")
        args[-1] = Case(case=(When(when=missing, then=0),), otherwise=args[-1])
    return Arithmetic(op=formula.operator, args=tuple(args))


def stored_column_ref(column: VocabularyColumn) -> Place:
    """Return the column as the table stores it: its numbers as text, if they are."""
    if not column.as_text:
        return join_column_ref(column)
    return ColumnRef(table=vocabulary_name_without_schema(column.table), column=column.name)


def _left_after(discount: ColumnRef, formula: Formula) -> Expr:
    """Return the part of a price that is left after the discount."""
    part: Expr = discount if formula.whole == 1 else Arithmetic(op="/", args=(discount, formula.whole))
    left = Arithmetic(op="-", args=(1, part))
    if not formula.gaps:
        return left
    return Case(case=(When(when=NullTest(column=discount, op="is null"), then=1),), otherwise=left)


def show_column(column: VocabularyColumn) -> Place | Named:
    """Return the column as a plan shows it, by its name."""
    place = stored_column_ref(column)
    return Named(expr=place, alias=column.name) if column.formula is not None else place


@dataclass
class JoinTree:
    """Tables joined to a base, each along the cheapest path from those already joined."""

    vocabulary: Vocabulary
    base: str
    prefer: frozenset[tuple[str, str]]
    verbs: frozenset[str] = frozenset()
    named: frozenset[str] = frozenset()
    """The tables that the question names."""
    hops: list[Hop] = field(default_factory=list)
    single: dict[str, bool] = field(default_factory=dict)
    """For each joined table, whether a row of the base matches at most one of its rows."""

    def __post_init__(self) -> None:
        self.single[self.base] = True

    def path_to(self, table: str, near: Sequence[str] = (), said: str = "") -> Path:
        """Return the path to a table; if two cost the same, the one from the noun before it."""
        if table in self.single:
            return ()
        starts = [t for t in near if t in self.single] + [t for t in self.single if t not in near]
        ways = [(find_join_paths(self.vocabulary, start, table), start) for start in starts]
        low = min(cost for (cost, _), _ in ways)
        if low >= FAR:
            raise Unresolved(f"Nothing connects `{table}` to `{self.base}`.")
        nearest = [(paths, start) for (cost, paths), start in ways if cost == low]
        chosen = next((paths for paths, start in nearest if start in near), None)
        paths = list(chosen if chosen is not None else [path for paths, _ in nearest for path in paths])
        return self._choose(paths, table, said)

    def _choose(self, paths: list[Path], table: str, said: str) -> Path:
        if len(paths) == 1:
            return paths[0]
        columns = {hop: self._key_words(hop) for p in paths for hop in p}
        if said:
            fitting = [p for p in paths if any(said.split(maxsplit=1)[0] in columns[hop] for hop in p)]
            paths = fitting if len(fitting) == 1 else paths
        preferred = [p for p in paths if any((hop.table, hop.columns[0]) in self.prefer for hop in p)]
        if len(preferred) == 1:
            paths = preferred
        named = [p for p in paths if any(hop.to_table in self.named for hop in p[:-1])]
        named = named or [p for p in paths if any(self.verbs & self._roots(hop.to_table) for hop in p)]
        named = named or [p for p in paths if any(self.verbs & {*map(stem_word, columns[hop])} for hop in p)]
        named = named or [p for p in paths if any(self._is_act(hop.to_table) for hop in p)]
        paths = named if len(named) == 1 else paths
        if len(paths) > 1:
            # Prefer columns that have the same name on both sides.
            same = [p for p in paths if all(hop.columns == hop.to_columns for hop in p)]
            paths = same if len(same) == 1 else paths
        if len(paths) > 1:
            differing = [
                next((hop for hop in p if hop not in paths[0 if p is not paths[0] else 1]), p[0]) for p in paths
            ]
            meanings = [
                Meaning(hop.table, hop.columns[0]) if hop.to_one else Meaning(hop.to_table, hop.to_columns[0])
                for hop in differing
            ]
            raise Ambiguous(f"the link from {self.base} to {table}", list(dict.fromkeys(meanings)))
        return paths[0]

    def _key_words(self, hop: Hop) -> tuple[str, ...]:
        """Return the words of the column that refers: `reported_by_staff_id`, whichever way the hop leads."""
        table, column = (hop.to_table, hop.to_columns[0]) if hop.back else (hop.table, hop.columns[0])
        return self.vocabulary.table(table).column(column).words

    def _is_act(self, table: str) -> bool:
        """Return whether the table holds what a verb of the question does: attendances, for `attended`."""
        words = self.vocabulary.table(table).words
        return any(word_names_act(word, verb) for verb in self.verbs for word in words)

    def _roots(self, table: str) -> set[str]:
        words = self.vocabulary.table(table).words
        return {*words, *map(stem_word, words)}

    def add(self, table: str, near: Sequence[str] = (), said: str = "") -> None:
        """Join a table, and those on the path to it."""
        for hop in self.path_to(table, near, said):
            self.hops.append(hop)
            self.single[hop.to_table] = self.single[hop.table] and hop.to_one

    def reaches_one(self, table: str, near: Sequence[str] = (), said: str = "") -> bool:
        """Return whether joining the table would keep each row of the base once."""
        path = self.path_to(table, near, said)
        return self.single.get(path[0].table, True) and join_path_leads_to_one(path) if path else self.single[table]

    def joins(self) -> tuple[Join, ...]:
        """Return the joins of the plan."""
        made = []
        for hop in self.hops:
            pairs = tuple(
                (
                    ColumnRef(table=vocabulary_name_without_schema(hop.table), column=left),
                    ColumnRef(table=vocabulary_name_without_schema(hop.to_table), column=right),
                )
                for left, right in zip(hop.columns, hop.to_columns, strict=True)
            )
            made.append(Join(table=hop.to_table, on=pairs))
        return tuple(made)

    def fans(self) -> list[Hop]:
        """Return the hops that multiply rows."""
        return [hop for hop in self.hops if not hop.to_one]
