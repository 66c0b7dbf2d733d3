"""The tables that a plan reads: how column names are resolved, and how tables join along foreign keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from sqlglot import exp

from etude.entities import Catalog, Column, Table
from etude.errors import Invalid
from etude.similar_names import similar_names
from etude.sources.column_kind import column_kind
from etude.sources.plan.query_plan import ColumnRef, Join, JoinPlan, PlanRef, QueryPlan, TableRef
from etude.sources.plan.sql_expressions import TYPES, Typed, identifier_expression, require_same_expression_kind

MAX_CHOICES = 8


@dataclass(frozen=True)
class Joined:
    """A table as the query reads it: under which name, and on which pairs of columns."""

    name: str
    table: Table
    kind: str = ""
    on: tuple[tuple[Typed, Typed], ...] = ()
    query: exp.Select | None = None
    """The query whose rows it holds, if it is not a table of the catalog."""


Compile = Callable[[QueryPlan], tuple[exp.Select, list[Typed]]]
"""Compiles a nested plan to SQL, and returns its columns too."""


@dataclass
class PlanScope:
    """The tables of a query by their name in it, in the order in which they join."""

    catalog: Catalog
    joined: list[Joined] = field(default_factory=list)
    implied: set[str] = field(default_factory=set)
    """Tables that no join names, but that are on the path to one that is named."""

    def find(self, ref: str | ColumnRef) -> Typed:
        """Return the column; `Invalid` names the nearest one or the candidates."""
        if isinstance(ref, ColumnRef) and ref.table is None:
            ref = ref.column
        found = list(self._candidates(ref))
        exact = [c for c in found if _written(ref) in (c[1].name, f"{c[0].name}.{c[1].name}")]
        if len(found) > 1 and len(exact) == 1:
            found = exact
        if not found:
            raise self._unknown(ref)
        if len(found) > 1:
            choices = _listed(f"{joined.name}.{column.name}" for joined, column in found)
            raise Invalid(f"Column `{_written(ref)}` is ambiguous.", hint=f"Write one of {choices}.")
        return plan_scope_column(*found[0])

    def _candidates(self, ref: str | ColumnRef) -> Iterator[tuple[Joined, Column]]:
        for joined in self.joined:
            prefixes = self._prefixes(joined)
            for column in joined.table.columns:
                name = column.name.lower()
                if isinstance(ref, ColumnRef):
                    fits = ref.column.lower() == name and (ref.table or "").lower() in prefixes
                else:
                    fits = ref.lower() in (name, *(f"{prefix}.{name}" for prefix in prefixes))
                if fits:
                    yield joined, column

    def _prefixes(self, joined: Joined) -> tuple[str, ...]:
        """Return the prefixes of a column: the table's name in the query, and its own if it is read only once."""
        once = sum(other.table.name == joined.table.name for other in self.joined) == 1
        return (joined.name.lower(), joined.table.name.lower()) if once else (joined.name.lower(),)

    def _unknown(self, ref: str | ColumnRef) -> Invalid:
        table, column = self._split(_written(ref))
        if table:
            return Invalid(f"Column `{column}` is not in `{table.name}`.", hint=self._hint(column, [table]))
        prefix, _, _ = column.rpartition(".")
        if found := self.catalog.table(prefix):
            return Invalid(f"Table `{found.name}` is not in the plan.", hint="Add it to `joins`.")
        shown = _listed(joined.name for joined in self.joined)
        return Invalid(f"Column `{column}` is in none of {shown}.", hint=self._hint(column, self.joined))

    def _split(self, written: str) -> tuple[Joined | None, str]:
        """Return the table that a reference names, if that is clear, and the rest of the reference."""
        for joined in self.joined:
            for prefix in self._prefixes(joined):
                if written.lower().startswith(f"{prefix}."):
                    return joined, written[len(prefix) + 1 :]
        return (self.joined[0] if len(self.joined) == 1 and "." not in written else None), written

    def _hint(self, column: str, among: Sequence[Joined]) -> str:
        if (written := _as_expression(column)) is not None:
            return f"A name is one column; write an expression as an object: {written}."
        wanted = column.lower()
        if wanted == "*":
            return "Leave `select` out to take every column."
        elsewhere = [t.name for t in self.catalog.tables if any(c.name.lower() == wanted for c in t.columns)]
        if elsewhere and not any(joined.table.name in elsewhere for joined in self.joined):
            return f"It is in {_listed(elsewhere)}: add the table to `joins`."
        names = {c.name.lower(): (joined, c.name) for joined in among for c in joined.table.columns}
        if near := similar_names(wanted.rpartition(".")[2], names, n=1):
            joined, name = names[near[0]]
            return f"Did you mean `{name if len(among) == 1 else f'{joined.name}.{name}'}`?"
        return f"There are {_listed(name for _, name in names.values())}."

    def add(self, joined: Joined) -> None:
        """Add a table; its name must be free."""
        self.check_free(joined.name)
        self.joined.append(joined)

    def check_free(self, name: str) -> None:
        """Refuse a second table of the same name."""
        taken = next((joined for joined in self.joined if joined.name.lower() == name.lower()), None)
        if taken and taken.name in self.implied:
            raise Invalid(
                f"`{taken.name}` is already joined, on the path to another table.",
                hint="Put it before that table in `joins`.",
            )
        if taken:
            raise Invalid(f"Two tables are named `{name}`.", hint='Give one of them another name with "as".')


def _as_expression(text: str) -> str | None:
    """Return how a plan writes arithmetic such as `a * b` or a call such as `sum(a)`; None if the text is neither."""
    call = re.fullmatch(r"\s*(count|sum|avg|min|max|median|stddev)\s*\(\s*([\w.]+)\s*\)\s*", text, re.I)
    if call is not None:
        return f'{{"fn": "{call[1].lower()}", "of": "{call[2]}"}} in "aggregate"'
    parts = re.fullmatch(r"\s*([\w.]+)\s*([-+*/])\s*([\w.]+)\s*", text)
    if parts is None:
        return '{"op": "*", "args": ["a", "b"]}' if re.search(r"\w\s*[+*/()]\s*\w|\w\s+-\s+\w", text) else None
    sides = ", ".join(side if re.fullmatch(r"[\d.]+", side) else f'"{side}"' for side in (parts[1], parts[3]))
    return f'{{"op": "{parts[2]}", "args": [{sides}]}}'


def _written(ref: str | ColumnRef) -> str:
    if isinstance(ref, str):
        return ref
    return f"{ref.table}.{ref.column}" if ref.table is not None else ref.column


def _listed(names: Iterable[str]) -> str:
    shown = [f"`{name}`" for name in names]
    return ", ".join(shown[:MAX_CHOICES]) + (" and more" if len(shown) > MAX_CHOICES else "")


def plan_scope_column(joined: Joined, column: Column) -> Typed:
    """Return a column as SQL: always with its table, always quoted."""
    ast = exp.Column(this=identifier_expression(column.name), table=identifier_expression(joined.name))
    return Typed(ast, column_kind(column.type), f"`{joined.name}.{column.name}`", column.name)


def plan_scope_table(joined: Joined) -> exp.Table | exp.Subquery:
    """Return the table after FROM or JOIN. A name in the catalog may be `schema.table`."""
    if joined.query is not None:
        return joined.query.subquery(identifier_expression(joined.name), copy=False)
    parts = joined.table.name.split(".")
    names = dict(
        zip(("this", "db", "catalog"), [identifier_expression(part) for part in reversed(parts)], strict=False)
    )
    alias = None if joined.name == joined.table.name else exp.TableAlias(this=identifier_expression(joined.name))
    return exp.Table(**names, alias=alias)


def open_plan_scope(plan: QueryPlan, catalog: Catalog, inner: Compile) -> PlanScope:
    """Return the tables that the plan reads, with those that joins along keys pass through."""
    scope = PlanScope(catalog)
    if isinstance(plan.source, PlanRef):
        scope.add(_made_table(plan.source, inner))
    else:
        scope.add(_named_table(plan.source, catalog))
    for item in plan.joins:
        if isinstance(item, JoinPlan):
            _join_on(scope, replace(_made_table(item, inner), kind=item.kind), item)
        else:
            _join(scope, Join(table=item) if isinstance(item, str) else item)
    return scope


def _made_table(ref: PlanRef | JoinPlan, inner: Compile) -> Joined:
    query, outputs = inner(ref.plan)
    columns = tuple(Column(name=output.name, type=TYPES[output.kind]) for output in outputs)
    return Joined(ref.alias, Table(name=ref.alias, columns=columns), query=query)


def _named_table(written: str | TableRef, catalog: Catalog) -> Joined:
    source = TableRef(table=written) if isinstance(written, str) else written
    table = find_plan_table(source.table, catalog)
    return Joined(source.alias or _short_name(table.name), table)


def find_plan_table(name: str, catalog: Catalog) -> Table:
    """Return the table of that name; `Invalid` names the nearest one."""
    exact = next((table for table in catalog.tables if table.name == name), None)
    if found := exact or catalog.table(name):
        return found
    known = {table.name.lower(): table.name for table in catalog.tables}
    near = similar_names(name.lower(), known, n=1)
    hint = f"Did you mean `{known[near[0]]}`?" if near else f"There are {_listed(known.values()) or 'no tables'}."
    raise Invalid(f"Table `{name}` is not in `{catalog.source}`.", hint=hint)


def _short_name(table: str) -> str:
    return table.rsplit(".", 1)[-1]


def _join(scope: PlanScope, join: Join) -> None:
    table = find_plan_table(join.table, scope.catalog)
    name = join.alias or _short_name(table.name)
    joined = Joined(name, table, join.kind)
    implied = name in scope.implied and any(j.name == name and j.kind == join.kind for j in scope.joined)
    if implied and not join.alias and not join.on:
        scope.implied.discard(name)
        return
    scope.check_free(name)
    if not join.on:
        _join_along_keys(scope, joined)
        return
    _join_on(scope, joined, join)


def _join_on(scope: PlanScope, joined: Joined, join: Join | JoinPlan) -> None:
    scope.add(joined)
    pairs = tuple((scope.find(left), scope.find(right)) for left, right in join.on)
    for left, right in pairs:
        _check_pair(left, right, joined.name)
        if not _is_declared(scope, left, right):
            require_same_expression_kind(left, right)
    scope.joined[-1] = replace(joined, on=pairs)


def _check_pair(left: Typed, right: Typed, name: str) -> None:
    if (left.ast.text("table") == name) == (right.ast.text("table") == name):
        raise Invalid(
            f"{left.label} = {right.label} does not join `{name}`.",
            hint=f"One side must be a column of `{name}`, the other of a table before it.",
        )


def _is_declared(scope: PlanScope, left: Typed, right: Typed) -> bool:
    """Return whether a foreign key of SQLite connects a number and a text: SQLite compares the digits."""
    if scope.catalog.dialect != "sqlite" or {left.kind, right.kind} != {"number", "text"}:
        return False
    tables = {joined.name: joined.table for joined in scope.joined if joined.query is None}
    ends = [(tables.get(side.ast.text("table")), side.name.lower()) for side in (left, right)]
    for (table, own), (other, column) in (ends, ends[::-1]):
        if table is None or other is None:
            continue
        for key in table.foreign_keys:
            columns = key.to_columns or other.primary_key
            pairs = {(a.lower(), b.lower()) for a, b in zip(key.columns, columns, strict=False)}
            if key.to_table.lower() == other.name.lower() and (own, column) in pairs:
                return True
    return False


# --- joins along keys


@dataclass(frozen=True)
class KeyEdge:
    """A foreign key seen from one end: pairs of (own column, other table's column)."""

    to: str
    pairs: tuple[tuple[str, str], ...]


Graph = dict[str, list[KeyEdge]]
Path = tuple[tuple[str, KeyEdge], ...]
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
            ends = ((table.name, KeyEdge(target.name, pairs)), (target.name, KeyEdge(table.name, _turned(pairs))))
            for start, edge in ends:
                if edge not in graph[start]:
                    graph[start].append(edge)
    return graph


def _turned(pairs: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return tuple((right, left) for left, right in pairs)


def _distances(graph: Graph, target: str, closed: set[str]) -> dict[str, int]:
    """Return the hops from each table to the target, on paths that pass through no closed table."""
    distance, level = {target: 0}, [target]
    while level:
        edges = [(table, edge) for table in level for edge in graph[table]]
        level = []
        for table, edge in edges:
            if edge.to not in distance and edge.to not in closed:
                distance[edge.to] = distance[table] + 1
                level.append(edge.to)
    return distance


def _shortest_paths(scope: PlanScope, target: Table) -> list[Path]:
    graph = _graph(scope.catalog)
    # The rows of a nested plan have no keys.
    tables = [j for j in scope.joined if j.query is None]
    distance = _distances(graph, target.name, {j.table.name for j in tables})

    def walk(name: str, table: str, hops: int) -> Iterator[Path]:
        for edge in graph[table]:
            if distance.get(edge.to) != hops - 1:
                continue
            if hops == 1:
                yield ((name, edge),)
            else:
                following = walk(_short_name(edge.to), edge.to, hops - 1)
                yield from (((name, edge), *rest) for rest in following)

    reach = [distance[edge.to] + 1 for j in tables for edge in graph[j.table.name] if edge.to in distance]
    found = (path for j in tables for path in walk(j.name, j.table.name, min(reach, default=0)))
    return list(islice(found, MAX_CHOICES))


def _join_along_keys(scope: PlanScope, joined: Joined) -> None:
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
        passed = find_plan_table(hop.to, scope.catalog)
        _add_hop(scope, name, hop, Joined(_short_name(passed.name), passed, joined.kind))
        scope.implied.add(_short_name(passed.name))
    _add_hop(scope, start, edge, joined)


def _add_hop(scope: PlanScope, start: str, edge: KeyEdge, joined: Joined) -> None:
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
