"""The tables a plan reads and their columns: how names are found, and how tables join along foreign keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import islice

from sqlglot import exp

from etude.entities import Catalog, Column, Table
from etude.errors import Invalid
from etude.sources.plan import ColumnRef, Join, QueryPlan, TableRef
from etude.sources.plan_dialect import Typed, kind_of, quote, require_same

MAX_CHOICES = 8


@dataclass(frozen=True)
class Joined:
    """A table as the query reads it: under which name, and on which pairs of columns."""

    name: str
    table: Table
    kind: str = ""
    on: tuple[tuple[Typed, Typed], ...] = ()


@dataclass
class Scope:
    """The tables of a query by their name in it, in the order in which they join."""

    catalog: Catalog
    joined: list[Joined] = field(default_factory=list)
    implied: set[str] = field(default_factory=set)
    """Tables that no join names, but that stand on the way to one that is named."""

    def find(self, ref: str | ColumnRef) -> Typed:
        """The column, or `Invalid` that names the nearest one or the candidates."""
        found = list(self._candidates(ref))
        exact = [c for c in found if _written(ref) in (c[1].name, f"{c[0].name}.{c[1].name}")]
        if len(found) > 1 and len(exact) == 1:
            found = exact
        if not found:
            raise self._unknown(ref)
        if len(found) > 1:
            choices = _listed(f"{joined.name}.{column.name}" for joined, column in found)
            raise Invalid(f"Column `{_written(ref)}` is ambiguous.", hint=f"Write one of {choices}.")
        return column_of(*found[0])

    def _candidates(self, ref: str | ColumnRef) -> Iterator[tuple[Joined, Column]]:
        wanted = (ref if isinstance(ref, str) else ref.column).lower()
        for joined in self.joined:
            prefixes = self._prefixes(joined)
            if isinstance(ref, ColumnRef) and ref.table is not None and ref.table.lower() not in prefixes:
                continue
            spellings = {""} | ({f"{p}." for p in prefixes} if isinstance(ref, str) else set())
            for column in joined.table.columns:
                if any(f"{prefix}{column.name.lower()}" == wanted for prefix in spellings):
                    yield joined, column

    def _prefixes(self, joined: Joined) -> set[str]:
        same = [j for j in self.joined if j.table.name == joined.table.name]
        return {joined.name.lower()} | ({joined.table.name.lower()} if len(same) == 1 else set())

    def _unknown(self, ref: str | ColumnRef) -> Invalid:
        table, column = self._split(ref)
        if table:
            near = get_close_matches(column.lower(), [c.name.lower() for c in table.table.columns], n=1)
            names = [c.name for c in table.table.columns if near and c.name.lower() == near[0]]
            hint = (
                f"Did you mean `{names[0]}`?"
                if names
                else f"It has {_listed(c.name for c in table.table.columns)}."
            )
            return Invalid(f"Column `{column}` is not in `{table.name}`.", hint=hint)
        return Invalid(
            f"Column `{column}` is in none of {_listed(j.name for j in self.joined)}.",
            hint=self._hint(column),
        )

    def _split(self, ref: str | ColumnRef) -> tuple[Joined | None, str]:
        """The table that a reference means, if that much is clear, and the rest of it."""
        written = _written(ref).lower()
        for joined in self.joined:
            for prefix in self._prefixes(joined):
                if written.startswith(f"{prefix}."):
                    return joined, _written(ref)[len(prefix) + 1 :]
        return (self.joined[0] if len(self.joined) == 1 and "." not in written else None), _written(ref)

    def _hint(self, column: str) -> str:
        last = column.rsplit(".", 1)[-1].lower()
        elsewhere = [t.name for t in self.catalog.tables if any(c.name.lower() == last for c in t.columns)]
        missing = [name for name in elsewhere if name not in {j.table.name for j in self.joined}]
        if missing and not any(j.table.name in elsewhere for j in self.joined):
            return f"It is in {_listed(missing)}: add the table to `joins`."
        known = {
            f"{j.name}.{c.name}".lower(): f"{j.name}.{c.name}" for j in self.joined for c in j.table.columns
        }
        short = {c.name.lower(): f"{j.name}.{c.name}" for j in self.joined for c in j.table.columns}
        near = get_close_matches(column.lower(), [*known, *short], n=1)
        return f"Did you mean `{(known | short)[near[0]]}`?" if near else "Write it as `table.column`."

    def add(self, joined: Joined) -> None:
        """Add a table under a name that no other has."""
        if any(j.name.lower() == joined.name.lower() for j in self.joined):
            raise Invalid(
                f"Two tables are called `{joined.name}`.", hint='Give one of them another name with "as".'
            )
        self.joined.append(joined)


def _written(ref: str | ColumnRef) -> str:
    if isinstance(ref, str):
        return ref
    return f"{ref.table}.{ref.column}" if ref.table is not None else ref.column


def _listed(names: Iterable[str]) -> str:
    shown = [f"`{name}`" for name in names]
    return ", ".join(shown[:MAX_CHOICES]) + (", ..." if len(shown) > MAX_CHOICES else "")


def column_of(joined: Joined, column: Column) -> Typed:
    """A column as SQL names it: always with its table, always quoted."""
    ast = exp.Column(this=quote(column.name), table=quote(joined.name))
    return Typed(ast, kind_of(column.type), f"`{joined.name}.{column.name}`", column.name)


def table_ast(joined: Joined) -> exp.Table:
    """The table after FROM or JOIN. A name in the catalog may be `schema.table`."""
    parts = joined.table.name.split(".")
    names = dict(zip(("this", "db", "catalog"), [quote(part) for part in reversed(parts)], strict=False))
    alias = None if joined.name == joined.table.name else exp.TableAlias(this=quote(joined.name))
    return exp.Table(**names, alias=alias)


def open_scope(plan: QueryPlan, catalog: Catalog) -> Scope:
    """The tables the plan reads, with those that joins along keys pass through."""
    scope = Scope(catalog)
    source = TableRef(table=plan.source) if isinstance(plan.source, str) else plan.source
    table = find_table(source.table, catalog)
    scope.add(Joined(source.alias or _short_name(table.name), table))
    for item in plan.joins:
        _join(scope, Join(table=item) if isinstance(item, str) else item)
    return scope


def find_table(name: str, catalog: Catalog) -> Table:
    """The table of that name, or `Invalid` that names the nearest one."""
    exact = next((table for table in catalog.tables if table.name == name), None)
    if found := exact or catalog.table(name):
        return found
    known = {table.name.lower(): table.name for table in catalog.tables}
    near = get_close_matches(name.lower(), known, n=1)
    hint = (
        f"Did you mean `{known[near[0]]}`?"
        if near
        else f"There are {_listed(known.values()) or 'no tables'}."
    )
    raise Invalid(f"Table `{name}` is not in `{catalog.source}`.", hint=hint)


def _short_name(table: str) -> str:
    return table.rsplit(".", 1)[-1]


def _join(scope: Scope, join: Join) -> None:
    table = find_table(join.table, scope.catalog)
    name = join.alias or _short_name(table.name)
    if not join.alias and name in scope.implied:
        scope.implied.discard(name)
        return
    joined = Joined(name, table, join.kind)
    if not join.on:
        _join_along_keys(scope, joined)
        return
    scope.add(joined)
    pairs = tuple((scope.find(left), scope.find(right)) for left, right in join.on)
    for left, right in pairs:
        _check_pair(left, right, name)
    scope.joined[-1] = replace(joined, on=pairs)


def _check_pair(left: Typed, right: Typed, name: str) -> None:
    if (left.ast.text("table") == name) == (right.ast.text("table") == name):
        raise Invalid(
            f"{left.label} = {right.label} does not join `{name}`.",
            hint=f"One side must be a column of `{name}`, the other of a table before it.",
        )
    require_same(left, right)


# --- joins along keys


@dataclass(frozen=True)
class Edge:
    """A foreign key seen from one of its ends: pairs of (own column, other table's column)."""

    to: str
    pairs: tuple[tuple[str, str], ...]


Graph = dict[str, list[Edge]]
Path = tuple[tuple[str, Edge], ...]
"""Hops, each with the name of the table it leaves from."""


def _graph(catalog: Catalog) -> Graph:
    graph: Graph = {table.name: [] for table in catalog.tables}
    for table in catalog.tables:
        for key in table.foreign_keys:
            target = catalog.table(key.to_table)
            columns = key.to_columns or (target.primary_key if target else ())
            if target is None or len(columns) != len(key.columns):
                continue
            pairs = tuple(zip(key.columns, columns, strict=True))
            ends = ((table.name, Edge(target.name, pairs)), (target.name, Edge(table.name, _turned(pairs))))
            for start, edge in ends:
                if edge not in graph[start]:
                    graph[start].append(edge)
    return graph


def _turned(pairs: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return tuple((right, left) for left, right in pairs)


def _distances(graph: Graph, target: str, closed: set[str]) -> dict[str, int]:
    """Hops from each table to the target, on ways that pass through no closed table."""
    distance, level = {target: 0}, [target]
    while level:
        edges = [(table, edge) for table in level for edge in graph[table]]
        level = []
        for table, edge in edges:
            if edge.to not in distance and edge.to not in closed:
                distance[edge.to] = distance[table] + 1
                level.append(edge.to)
    return distance


def _shortest_paths(scope: Scope, target: Table) -> list[Path]:
    graph = _graph(scope.catalog)
    distance = _distances(graph, target.name, {j.table.name for j in scope.joined})

    def walk(name: str, table: str, hops: int) -> Iterator[Path]:
        for edge in graph[table]:
            if distance.get(edge.to) != hops - 1:
                continue
            if hops == 1:
                yield ((name, edge),)
            else:
                following = walk(_short_name(edge.to), edge.to, hops - 1)
                yield from (((name, edge), *rest) for rest in following)

    reach = [
        distance[edge.to] + 1 for j in scope.joined for edge in graph[j.table.name] if edge.to in distance
    ]
    found = (path for j in scope.joined for path in walk(j.name, j.table.name, min(reach, default=0)))
    return list(islice(found, MAX_CHOICES))


def _join_along_keys(scope: Scope, joined: Joined) -> None:
    paths = _shortest_paths(scope, joined.table)
    if not paths:
        raise Invalid(
            f"No foreign key leads from {_listed(j.name for j in scope.joined)} to `{joined.table.name}`.",
            hint=f'Name the columns: {{"table": "{joined.table.name}", "on": [["left", "right"]]}}.',
        )
    if len(paths) > 1:
        ways = "; ".join(_describe(path, joined.name) for path in paths)
        raise Invalid(
            f"`{joined.name}` can be joined along keys in more than one way.",
            hint=f'Give "on" for one of: {ways}.',
        )
    *between, (start, edge) = paths[0]
    for name, hop in between:
        passed = find_table(hop.to, scope.catalog)
        _add_hop(scope, name, hop, Joined(_short_name(passed.name), passed, joined.kind))
        scope.implied.add(_short_name(passed.name))
    _add_hop(scope, start, edge, joined)


def _add_hop(scope: Scope, start: str, edge: Edge, joined: Joined) -> None:
    scope.add(joined)
    pairs = tuple(
        (
            scope.find(ColumnRef(table=start, column=left)),
            scope.find(ColumnRef(table=joined.name, column=right)),
        )
        for left, right in edge.pairs
    )
    scope.joined[-1] = replace(joined, on=pairs)


def _describe(path: Path, name: str) -> str:
    hops: list[str] = []
    for index, (start, edge) in enumerate(path, start=1):
        end = name if index == len(path) else _short_name(edge.to)
        hops.extend(f"`{start}.{left} = {end}.{right}`" for left, right in edge.pairs)
    return " and ".join(hops)
