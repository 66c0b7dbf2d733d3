"""Parameters of cells: literals of the question that Python code compares with, cuts a list by, or has in a query.

The same strictness as for queries: the question has the literal once, the code has it nowhere else, and the data say
which column it is a value of.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from etude.replays.guards import guard_family
from etude.replays.script import Parameter, ScriptStep, Slot
from etude.replays.script_parameters import count_parameter_in_query, find_script_parameters
from etude.sources.quoting import quote_identifier, quote_literal, quote_table

if TYPE_CHECKING:
    from etude.entities import Catalog
    from etude.replays.asked_question import QuestionUnit

_FIRST = frozenset({"head", "nlargest", "nsmallest", "most_common", "tail"})
"""Methods whose first argument is a number of rows."""
_YEAR = re.compile(r"(19|20)\d\d")


@dataclass(frozen=True)
class _Place:
    """Where a literal is in a cell, and what that says of it."""

    cell: int
    slot: Slot
    column: tuple[str, str] | None
    limit: bool = False
    in_query: bool = False


def find_cell_parameters(
    steps: Sequence[ScriptStep],
    units: Sequence[QuestionUnit],
    used: Mapping[str, frozenset[str]],
    catalog: Catalog,
    run: Callable[[str], Any],
) -> tuple[list[Parameter], list[ScriptStep]]:
    """Return the parameters of cells, and the cells with their places. `used` are the columns that queries read."""
    try:
        cells = [_Cell(number, step.code) for number, step in enumerate(steps) if step.kind == "python"]
    except SyntaxError:
        return [], list(steps)
    tables = {name: table for name in used if (table := catalog.table(name)) is not None}
    parameters: list[Parameter] = []
    slots: dict[int, list[Slot]] = {}
    code = "\n".join(step.code for step in steps)
    for position, unit in enumerate(units):
        if unit.kind not in ("number", "date", "quoted", "name"):
            continue
        if sum(other.value.lower() == unit.value.lower() for other in units) != 1:
            continue
        places = [place for cell in cells for place in cell.queries(unit, position, units, catalog, tables)]
        in_queries = len(places)
        places += [place for cell in cells for place in cell.literals(unit)]
        value = unit.value.replace(",", "")
        # The first day of the next year is a place of the year as well, but does not contain it.
        written = sum(value in steps[p.cell].code[p.slot.start : p.slot.end] for p in places)
        if not places or count_parameter_in_query(code, value) != written:
            continue
        made = _make(position, unit, places, used, catalog, run, only_queries=in_queries == len(places))
        if made is None or made.name in {p.name for p in parameters}:
            continue
        parameters.append(made)
        for place in places:
            slots.setdefault(place.cell, []).append(place.slot.model_copy(update={"parameter": made.name}))
    filled = [
        step.model_copy(update={"slots": tuple(sorted(slots[n], key=lambda s: s.start))}) if n in slots else step
        for n, step in enumerate(steps)
    ]
    return parameters, filled


def _make(
    position: int,
    unit: QuestionUnit,
    places: Sequence[_Place],
    used: Mapping[str, frozenset[str]],
    catalog: Catalog,
    run: Callable[[str], Any],
    only_queries: bool,
) -> Parameter | None:
    value = unit.value
    if all(place.limit for place in places):
        kept = re.fullmatch(r"\d{1,4}", value)
        return Parameter(name="limit", kind="limit", default=value, position=position) if kept else None
    if any(place.limit for place in places):
        return None
    columns = {place.column for place in places if place.in_query}
    if len(columns) > 1 or (only_queries and None in columns):
        return None
    is_year = unit.kind == "number" and _YEAR.fullmatch(value) is not None
    if unit.kind == "number" and not is_year and not only_queries:
        return None  # which column a number in Python is compared with is not known
    family = "time" if is_year or unit.kind == "date" else "number" if unit.kind == "number" else "text"
    found = next(iter(columns)) if columns else _column_of(value, family, used, catalog, run)
    if found is None:
        return None
    kind: Any = "year" if is_year else {"number": "integer", "date": "date"}.get(unit.kind, "text")
    name = "year" if is_year else re.sub(r"\W", "_", found[1].lower())
    return Parameter(name=name, kind=kind, default=value, position=position, table=found[0], column=found[1])


def _column_of(
    value: str, family: str, used: Mapping[str, frozenset[str]], catalog: Catalog, run: Callable[[str], Any]
) -> tuple[str, str] | None:
    """Return the one column that the code reads and that holds this value; for a time, the only one that it reads."""
    found = []
    for name, columns in used.items():
        table = catalog.table(name)
        for column in table.columns if table else ():
            if column.name not in columns or guard_family(column.type) != family:
                continue
            if family == "text":
                wanted = f"{quote_identifier(column.name, catalog.dialect)} = {quote_literal(value, catalog.dialect)}"
                place = quote_table(name, catalog.dialect)
                if not run(f"SELECT count(CASE WHEN {wanted} THEN 1 END) AS n FROM {place}")[0][0]:
                    continue
            found.append((name, column.name))
    return found[0] if len(found) == 1 else None


class _Cell:
    """A cell as a syntax tree, with the places of its nodes in the text."""

    def __init__(self, number: int, code: str) -> None:
        self._number = number
        self._code = code
        self._tree = ast.parse(code)
        self._starts = [0]
        for line in code.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._parents = {child: node for node in ast.walk(self._tree) for child in ast.iter_child_nodes(node)}

    def _span(self, node: ast.expr) -> tuple[int, int]:
        """Return where a node is, in characters; `ast` counts bytes."""
        lines = self._code.splitlines(keepends=True)

        def place(line: int, column: int) -> int:
            return self._starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

        return place(node.lineno, node.col_offset), place(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def queries(
        self,
        unit: QuestionUnit,
        position: int,
        units: Sequence[QuestionUnit],
        catalog: Catalog,
        tables: Mapping[str, Any],
    ) -> Iterator[_Place]:
        """Yield the places of a literal in queries that are plain texts."""
        for node in ast.walk(self._tree):
            if not _is_query(self._parents.get(node), node):
                continue
            assert isinstance(node, ast.Constant)  # noqa: S101 - for the type checker
            start, end = self._span(node)
            written, text = self._code[start:end], str(node.value)
            opening = re.match(r"[rRuU]?(\"\"\"|'''|\"|')", written)
            if opening is None or written.count(text) != 1:
                continue  # with escapes, or put together from several texts
            at = start + written.index(text)
            found, slots = find_script_parameters(text, catalog.dialect, units, tables)
            for parameter in found:
                if parameter.position != position:
                    continue
                column = (parameter.table, parameter.column) if parameter.column else None
                for slot in slots:
                    if slot.parameter == parameter.name:
                        moved = {"start": slot.start + at, "end": slot.end + at, "quotes": opening.group()}
                        limit = parameter.kind == "limit"
                        yield _Place(self._number, slot.model_copy(update=moved), column, limit, in_query=True)

    def literals(self, unit: QuestionUnit) -> Iterator[_Place]:
        """Yield the places of a literal in Python where another value means the same question."""
        for node in ast.walk(self._tree):
            if not isinstance(node, ast.Constant) or isinstance(node.value, bool):
                continue
            number = isinstance(node.value, int | float) and unit.kind == "number"
            if number and str(node.value) != unit.value.replace(",", ""):
                continue
            if not number and (unit.kind == "number" or node.value != unit.value):
                continue
            parent = self._parents.get(node)
            start, end = self._span(node)
            limit = number and _is_limit(node, parent, self._parents)
            year = number and isinstance(parent, ast.Compare) and any(map(_is_year, ast.walk(parent)))
            text = not number and isinstance(parent, ast.Compare) and isinstance(parent.ops[0], ast.Eq)
            if limit or year or text:
                form: Any = "number" if limit else "year" if year else "python"
                yield _Place(self._number, Slot(start=start, end=end, parameter="", form=form), None, limit)


def _is_query(parent: ast.AST | None, node: ast.AST) -> bool:
    """Return whether a node is the text of a query: the first argument of `db.sql`."""
    called = isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) and parent.func.attr == "sql"
    first = called and isinstance(parent, ast.Call) and parent.args[:1] == [node]
    return first and isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_limit(node: ast.AST, parent: ast.AST | None, parents: Mapping[ast.AST, ast.AST]) -> bool:
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute):
        return parent.func.attr in _FIRST and parent.args[:1] == [node]
    return isinstance(parent, ast.Slice) and parent.upper is node and parent.lower is None and parent.step is None


def _is_year(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "year"
