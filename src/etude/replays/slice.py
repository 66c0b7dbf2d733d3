"""Slices: the statements of a session that an output depends on.

Statements are kept backwards from the shown ones by the names that they define, change and use. The syntax does not
show every change: a list may have two names, a function may change what it was given. So the slice runs in a fresh
session and must give the same output. If it does not, the names that each cell was seen to change are used as well, and
after that cells are taken away one group at a time from all that ran (delta debugging), always under the same check.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

RUNS = 30
"""How often a session may run to find its slice."""
_BUILTINS = frozenset(dir(builtins))
_CHANGES = frozenset(
    {
        "append", "extend", "insert", "remove", "pop", "popitem", "clear", "sort", "reverse", "update", "add",
        "discard",
        "setdefault", "appendleft", "popleft", "extendleft", "rotate", "subtract", "write", "writelines", "seed",
        "shuffle", "put", "fill", "resize", "setflags", "set_index", "rename", "drop", "dropna", "fillna",
        "reset_index",
        "sort_values", "sort_index", "replace", "drop_duplicates", "eval", "set_axis", "move_to_end",
    }
)  # fmt: skip
"""Methods that may change their object. Those of pandas do so only with `inplace`."""
_PANDAS = frozenset(
    {
        "set_index", "rename", "drop", "dropna", "fillna", "reset_index", "sort_values", "sort_index", "replace",
        "drop_duplicates", "eval", "set_axis", "put", "resize", "fill",
    }
)  # fmt: skip
_OPAQUE = frozenset({"exec", "eval", "globals", "locals", "vars", "setattr", "delattr", "__import__"})


@dataclass(frozen=True)
class CellCode:
    """A cell that ran, or the part of one that ran before its error."""

    code: str
    shown: bool = False
    """Whether its output is wanted."""


@dataclass(frozen=True)
class Statement:
    """A statement at the top level of a cell: what it defines, changes and uses."""

    cell: int
    code: str
    defines: frozenset[str]
    """Names that it sets whatever happens."""
    changes: frozenset[str]
    """Names that it may set, or whose objects it may change."""
    uses: frozenset[str]
    shows: bool
    """Whether it only evaluates or prints something."""
    opaque: bool = False
    """Whether it may define or change any name."""
    calls: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The functions that it calls by name, and the names that each is given."""


@dataclass(frozen=True)
class CellSlice:
    """The cells of a slice: by number, the code that is kept of each."""

    cells: Mapping[int, str]
    runs: int
    """How often it was run to check it."""
    how: str
    """What was enough: `syntax`, `observed`, `reduced` or `all`."""


Check = Callable[[Mapping[int, str]], bool]
"""Runs these cells in a fresh session; returns whether the shown ones give the same output."""
Observe = Callable[[Mapping[int, str]], Mapping[int, frozenset[str]]]
"""Runs these cells; returns the names that each was seen to change."""


def slice_session(cells: Sequence[CellCode], check: Check, observe: Observe | None = None) -> CellSlice | None:
    """Return the smallest slice found that gives the same output; None if not even all cells do."""
    statements = [s for number, cell in enumerate(cells) for s in read_statements_to_slice(number, cell.code)]
    runs = 1
    kept = _kept(statements, cells, {})
    if check(kept):
        return CellSlice(kept, runs, "syntax")
    everything = {number: cell.code for number, cell in enumerate(cells)}
    if observe is not None:
        runs += 2
        kept = _kept(statements, cells, observe(everything))
        if check(kept):
            return CellSlice(kept, runs, "observed")
    runs += 1
    if not check(everything):
        return None
    reduced, used = _reduce(everything, frozenset(n for n, c in enumerate(cells) if c.shown), check, RUNS - runs)
    return CellSlice(reduced, runs + used, "reduced" if len(reduced) < len(everything) else "all")


# -- by syntax


def read_statements_to_slice(number: int, code: str) -> list[Statement]:
    """Return the statements of a cell."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return []
    return [_read(number, code, node) for node in tree.body]


def _read(number: int, code: str, node: ast.stmt) -> Statement:
    names = _Names()
    names.visit(node)
    certain = isinstance(
        node, ast.Assign | ast.AnnAssign | ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef
    )
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
    lines = code.splitlines(keepends=True)[first - 1 : node.end_lineno]
    # Two statements on one line are distinguished by their columns, which count bytes.
    text = "".join(lines) if first != node.end_lineno else ast.get_source_segment(code, node) or "".join(lines)
    return Statement(
        cell=number,
        code=text.strip("\n"),
        defines=frozenset(names.sets) if certain else frozenset(),
        changes=frozenset(names.changes if certain else names.changes | names.sets),
        uses=frozenset(names.uses - _BUILTINS),
        shows=isinstance(node, ast.Expr),
        opaque=names.opaque,
        calls={name: frozenset(given) for name, given in names.calls.items()},
    )


class _Names(ast.NodeVisitor):
    """Collects the names of one statement. Names inside of functions count as used: they are when it is called."""

    def __init__(self) -> None:
        self.sets: set[str] = set()
        self.changes: set[str] = set()
        self.uses: set[str] = set()
        self.calls: dict[str, set[str]] = {}
        """The names that each function is given."""
        self.opaque = False
        self._depth = 0

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.uses.add(node.id)
        elif not self._depth:
            self.sets.add(node.id)
            if isinstance(node.ctx, ast.Del):
                self.uses.add(node.id)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        if not self._depth:
            self.sets.add(node.name)
        self._depth += 1
        self.generic_visit(node)
        self._depth -= 1

    visit_AsyncFunctionDef = visit_FunctionDef
    visit_ClassDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._depth += 1
        self.generic_visit(node)
        self._depth -= 1

    def visit_comprehension_scope(self, node: ast.AST) -> None:
        self._depth += 1
        self.generic_visit(node)
        self._depth -= 1

    visit_ListComp = visit_comprehension_scope
    visit_SetComp = visit_comprehension_scope
    visit_DictComp = visit_comprehension_scope
    visit_GeneratorExp = visit_comprehension_scope

    def visit_Global(self, node: ast.Global) -> None:
        self.changes.update(node.names)
        self.uses.update(node.names)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        base = _base(node.target)
        if base is not None:
            self.uses.add(base)
            self.changes.add(base)
        self.generic_visit(node)

    def _target(self, node: ast.Attribute | ast.Subscript) -> None:
        base = _base(node)
        if base is not None and not isinstance(node.ctx, ast.Load):
            self.changes.add(base)
            self.uses.add(base)
        self.generic_visit(node)

    visit_Attribute = _target
    visit_Subscript = _target

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for name in node.names:
            self.sets.add(name.asname or name.name.partition(".")[0])
            self.opaque = self.opaque or name.name == "*"

    visit_ImportFrom = visit_Import

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name and not self._depth:
            self.sets.add(node.name)
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        # A call as a statement of its own is made for what it does: plt.title("x"), count(1).
        if isinstance(node.value, ast.Call):
            base = _base(node.value.func)
            if base is not None and base not in _BUILTINS:
                self.changes.add(base)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        match node.func:
            case ast.Attribute(attr=method) as target if method in _CHANGES:
                base = _base(target)
                inplace = any(k.arg == "inplace" for k in node.keywords)
                if base is not None and (inplace or method not in _PANDAS):
                    self.changes.add(base)
            case ast.Name(id=name) if name in _OPAQUE:
                self.opaque = True
            case ast.Name(id=name):
                bases = (_base(argument) for argument in [*node.args, *(k.value for k in node.keywords)])
                self.calls.setdefault(name, set()).update(base for base in bases if base is not None)
        self.generic_visit(node)


def _base(node: ast.AST) -> str | None:
    """Return the name that an attribute, an item or a call of a method begins with."""
    while True:
        match node:
            case ast.Name(id=name):
                return name
            case ast.Attribute(value=inner) | ast.Subscript(value=inner) | ast.Starred(value=inner):
                node = inner
            case ast.Call(func=ast.Attribute(value=inner)):
                node = inner
            case _:
                return None


def _kept(
    statements: Sequence[Statement], cells: Sequence[CellCode], observed: Mapping[int, frozenset[str]]
) -> dict[int, str]:
    """Return the code of each cell that is kept."""
    statements = _with_calls(statements)
    aliases = _Aliases(statements)
    needed: set[str] = set()
    kept: list[Statement] = []
    for statement in reversed(statements):
        wanted = cells[statement.cell].shown and statement.shows
        touched = statement.defines | aliases.of(statement.changes)
        if observed:
            # Seen for the cell as a whole: any of its statements may have done it.
            touched |= observed.get(statement.cell, frozenset())
        if wanted or statement.opaque or touched & needed:
            kept.append(statement)
            needed = (needed - statement.defines) | statement.uses
    kept.reverse()
    code: dict[int, list[str]] = {}
    for statement in kept:
        code.setdefault(statement.cell, []).append(statement.code)
    return {number: "\n".join(parts) for number, parts in sorted(code.items())}


def _with_calls(statements: Sequence[Statement]) -> list[Statement]:
    """Let a statement that calls a function of the session also change what that function changes."""
    bodies: dict[str, set[str]] = {}
    result = []
    for statement in statements:
        more: set[str] = set()
        for called in statement.uses & bodies.keys():
            # A function of the session may change what it is given, and itself if it is a closure.
            more |= bodies[called] | {called} | statement.calls.get(called, frozenset())
        # The next item of an iterator is taken from it.
        more |= statement.calls.get("next", frozenset())
        if statement.code.lstrip().startswith(("def ", "async def ", "class ", "@")) or "lambda" in statement.code:
            for name in statement.defines:
                bodies[name] = set(statement.changes) | more
            result.append(replace(statement, changes=frozenset(), uses=statement.uses | statement.changes))
            continue
        result.append(replace(statement, changes=statement.changes | more, uses=statement.uses))
    return result


@dataclass
class _Aliases:
    """Names that may refer to one object: `b = a`, and containers that hold it."""

    statements: Sequence[Statement]
    _group: dict[str, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for statement in self.statements:
            for target, source in _assigned(statement.code):
                merged = self._group.get(target, {target}) | self._group.get(source, {source})
                for name in merged:
                    self._group[name] = merged

    def of(self, names: Iterable[str]) -> frozenset[str]:
        """Return the names with all their aliases."""
        return frozenset(alias for name in names for alias in self._group.get(name, {name}))


def _assigned(code: str) -> Iterator[tuple[str, str]]:
    try:
        tree = ast.parse(code.strip())
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            targets = [base for target in node.targets if (base := _base(target)) is not None]
            for source in _held(node.value):
                for target in targets:
                    yield target, source


def _held(value: ast.expr) -> Iterator[str]:
    """Yield the names whose objects an expression may refer to afterwards."""
    match value:
        case ast.Name(id=name):
            yield name
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            for part in parts:
                yield from _held(part)
        case ast.Dict(values=parts):
            for part in parts:
                yield from _held(part)
        case ast.IfExp(body=one, orelse=other):
            yield from _held(one)
            yield from _held(other)


# -- by running


def _reduce(cells: Mapping[int, str], shown: frozenset[int], check: Check, runs: int) -> tuple[dict[int, str], int]:
    """Take cells away in groups, halving the groups, as long as the output stays the same."""
    kept, used = dict(cells), 0
    size = max(len(kept) // 2, 1)
    while size >= 1 and used < runs:
        removed = False
        for start in range(0, len(kept), size):
            group = [n for n in list(kept)[start : start + size] if n not in shown]
            if not group or used >= runs:
                continue
            trial = {n: code for n, code in kept.items() if n not in group}
            used += 1
            if check(trial):
                kept, removed = trial, True
                break
        if not removed:
            size //= 2
    return kept, used


PROBE = """
def _etude_probe():
    import hashlib, types
    def mark(value):
        kind = type(value).__module__.partition(".")[0]
        try:
            if kind == "pandas":
                from pandas.util import hash_pandas_object
                extra = repr(getattr(value, "columns", ""))
                return str(hash_pandas_object(value).sum()) + extra + str(len(value))
            if kind == "numpy" and hasattr(value, "tobytes"):
                return hashlib.sha1(value.tobytes()).hexdigest()
            text = repr(value) if not hasattr(value, "__dict__") else repr(vars(value))
            return hashlib.sha1(text[:200_000].encode(errors="replace")).hexdigest()
        except Exception:
            return "?"
    skipped = (types.ModuleType, types.FunctionType, type)
    names = {n: v for n, v in globals().items() if not n.startswith("_") and not isinstance(v, skipped)}
    return {n: str(id(v)) + mark(v) for n, v in names.items()}
"""
"""Defines a function that returns a digest of every variable; run between cells, it shows what each cell changed."""
