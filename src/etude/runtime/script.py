"""Cells as one file that runs alone."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable, Sequence
from typing import Literal

from etude.errors import Invalid
from etude.sessions.base import Cell

PREAMBLE = "import etude\n\ndb = etude.connect()\n"


def write_script(cells: Iterable[Cell], failed: Literal["omit", "comment"]) -> str:
    """The cells that worked, after what connects; those that did not are left out, or stand as comments."""
    if failed not in ("omit", "comment"):
        raise Invalid(f"`failed={failed!r}` is not known.", hint="Give 'omit' or 'comment'.")
    parts = [PREAMBLE]
    for cell in cells:
        if cell.ok:
            parts.append(_as_statements(cell) + "\n")
        elif failed == "comment":
            lines = [f"# cell {cell.id} did not run to its end ({cell.outcome})", *cell.code.splitlines()]
            parts.append("\n".join([lines[0], *(f"# {line}".rstrip() for line in lines[1:])]) + "\n")
    return "\n".join(parts)


def _as_statements(cell: Cell) -> str:
    """The cell as a script can hold it: `await` outside a function, which only a session runs, is wrapped."""
    code = cell.code.strip("\n")
    try:
        compile(code, "<cell>", "exec", dont_inherit=True)
    except SyntaxError:
        names = sorted(_bound_names(ast.parse(code).body))
        body = f"    global {', '.join(names)}\n" if names else ""
        call = f"import asyncio\n\nasyncio.run(cell_{cell.id}())"
        return f"async def cell_{cell.id}():\n{body}{_indented(code)}\n\n\n{call}"
    return code


def _bound_names(statements: Sequence[ast.AST]) -> set[str]:
    """The names that statements give a value to, which are global in a session; not those inside of functions."""
    found: set[str] = set()
    for node in statements:
        inner: Iterable[ast.AST] = ast.iter_child_nodes(node)
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
                inner = ()
            case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                inner = ()
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                found |= {a.asname or a.name.partition(".")[0] for a in names}
            case ast.Name(id=name, ctx=ast.Store()) | ast.ExceptHandler(name=str(name)):
                found.add(name)
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                found.add(name)
        found |= _bound_names([*inner])
    return found


def _indented(code: str) -> str:
    """The code four columns further in, but for what lies inside of a text, which is data."""
    inside: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        inside.update(range(token.start[0] + 1, token.end[0] + 1))  # few but texts have more than one line
    lines = io.StringIO(code).readlines()
    return "".join(line if n in inside else f"    {line}" for n, line in enumerate(lines, 1))
