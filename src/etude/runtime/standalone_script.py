"""Cells, or the code of a run, as one file that runs alone."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from etude.entities import Run
from etude.errors import Invalid, NotFound
from etude.sources.query_parameters import decode_query_params
from etude.sources.registered_tables import NAME as FRAMES

if TYPE_CHECKING:
    from etude.sessions.base import Cell

PREAMBLE = "import etude\n\ndb = etude.connect()\n"


def write_standalone_script(cells: Iterable[Cell], failed: Literal["omit", "comment"]) -> str:
    """Return the cells that succeeded, after the connection. Failed cells are left out or become comments."""
    if failed not in ("omit", "comment"):
        raise Invalid(f"`failed={failed!r}` is not valid.", hint="Give 'omit' or 'comment'.")
    codes = []
    for cell in cells:
        if cell.ok:
            codes.append(cell.code)
        elif failed == "comment":
            lines = [f"# cell {cell.id} did not run to its end ({cell.outcome})", *cell.code.splitlines()]
            codes.append("\n".join([lines[0], *(f"# {line}".rstrip() for line in lines[1:])]))
    return join_standalone_script(PREAMBLE, codes)


def join_standalone_script(opening: str, codes: Iterable[str]) -> str:
    """Return the code of cells as one file that begins with the opening."""
    parts, futures = [opening], set[str]()
    for number, each in enumerate(codes, 1):
        code, found = _without_futures(each.strip("\n"))
        futures |= found
        parts.append(_as_statements(code, number) + "\n")
    if futures:
        parts.insert(0, f"from __future__ import {', '.join(sorted(futures))}\n")
    return "\n".join(parts)


def standalone_script_of_run(run: Run) -> str:
    """Return what a run computed as a Python file that runs alone."""
    code = run.code or (run.text if run.kind in ("sql", "python") else "")
    if run.kind == "plan" and run.code is None:
        code = next((s.code for s in run.steps if s.kind == "sql"), "")
    if not code:
        raise NotFound(f"Run `{run.id}` is {run.status} and computed nothing.", hint="Look at its events.")
    opening = standalone_script_opening(run)
    if code.startswith("import etude"):
        return code.replace(PREAMBLE, opening, 1)
    if run.kind == "python":
        return f"{opening}\n{code}\n"
    values = decode_query_params(next((s.params.get("values") for s in run.steps if s.kind == "sql"), None))
    bound = f", {values!r}" if values else ""
    if any(
        type(v).__module__ != "builtins" for v in (values.values() if isinstance(values, Mapping) else values or ())
    ):
        opening = f"import datetime\nimport uuid\nfrom decimal import Decimal\n{opening}"
        bound = bound.replace("UUID(", "uuid.UUID(")
    return f"{opening}\nprint(db.sql({code!r}{bound}))\n"


def standalone_script_opening(run: Run) -> str:
    """Return the first lines: they connect to the source of the run, unless `ETUDE_SOURCE` names another."""
    if run.location is None and run.source is None:
        return PREAMBLE
    if run.location is None and run.source == FRAMES:
        why = "The run read tables that a program had registered: register them again, with `db.register`."
        return f"# {why}\n{PREAMBLE}"
    place = run.location or run.source
    note = "" if run.location else f"# `{run.source}` is a named source; elsewhere, set ETUDE_SOURCE to its URL.\n"
    connect = f"{note}db = etude.connect(os.environ.get('ETUDE_SOURCE', {place!r}))"
    return f"import os\n\nimport etude\n\n{connect}\n"


def standalone_code_of_answer(run: Run, shown: str | None = None) -> str:
    """Return the code of the answer: the query of the tool call `shown`, else the last one.

    If Python ran instead, it is all cells as one script.
    """
    steps = [s for s in run.steps if s.outcome == "ok" and s.kind in ("sql", "python")]
    cells = [s for s in steps if s.kind == "python"]
    tools = [s for s in steps if s.kind == "sql" and s.parent not in {c.id for c in cells}]
    if shown is not None and (made := [s for s in tools if s.parent == shown]):
        return made[-1].code
    if cells and (not tools or tools[-1].started_at < cells[-1].started_at):
        own = [c.code.strip("\n") for c in cells if c.code != PREAMBLE]
        return "\n\n".join([PREAMBLE.strip("\n"), *own]) + "\n"
    return tools[-1].code if tools else ""


def _without_futures(code: str) -> tuple[str, set[str]]:
    """Return the code without its `from __future__` imports, which must come first in a file, and their names."""
    lines, found = io.StringIO(code).readlines(), set[str]()
    for node in ast.parse(code).body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            found |= {name.name for name in node.names}
            first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
            # Columns are counted in bytes.
            before = lines[first].encode()[: node.col_offset].decode()
            after = lines[last].encode()[node.end_col_offset :].decode()
            lines[first : last + 1] = [f"{before}pass{after}", *[""] * (last - first)]
    return "".join(lines), found


def _as_statements(code: str, number: int) -> str:
    """Return the code of a cell for a script. Top-level `await`, which only a session can run, is wrapped."""
    try:
        compile(code, "<cell>", "exec", dont_inherit=True)
    except SyntaxError:
        names = sorted(_bound_names(ast.parse(code).body))
        body = f"    global {', '.join(names)}\n" if names else ""
        call = f"import asyncio\n\nasyncio.run(cell_{number}())"
        return f"async def cell_{number}():\n{body}{_indented(code)}\n\n\n{call}"
    return code


def _bound_names(statements: Sequence[ast.AST]) -> set[str]:
    """Return the names that top-level statements assign. They are global in a session."""
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
    """Indent the code by four columns, except inside of strings, which are data."""
    inside: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        inside.update(range(token.start[0] + 1, token.end[0] + 1))  # nearly all tokens of several lines are strings
    lines = io.StringIO(code).readlines()
    return "".join(line if n in inside else f"    {line}" for n, line in enumerate(lines, 1))
