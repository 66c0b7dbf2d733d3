"""Rewriting Python by libcst: the statement at a line, replaced by other statements; imports added."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import libcst as cst
from libcst.metadata import MetadataWrapper, ParentNodeProvider, PositionProvider

N = TypeVar("N", bound=cst.CSTNode)


@dataclass
class PythonTree:
    """A parsed file."""

    module: cst.Module
    _positions: dict[cst.CSTNode, tuple[int, int]]
    _parents: dict[cst.CSTNode, cst.CSTNode]

    def nodes(self, kind: type[N], line: int | None = None) -> Iterator[N]:
        """Yield the nodes of a kind, or those that span a line, innermost last."""
        for node, (start, end) in self._positions.items():
            if isinstance(node, kind) and (line is None or start <= line <= end):
                yield node

    def line(self, node: cst.CSTNode) -> int:
        """Return the first line of a node."""
        return self._positions[node][0]

    def statement(self, line: int) -> cst.SimpleStatementLine | None:
        """Return the simple statement at a line."""
        return next(iter(self.nodes(cst.SimpleStatementLine, line)), None)

    def parents(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Yield what a node is in, innermost first."""
        while (found := self._parents.get(node)) is not None:
            yield found
            node = found

    def function(self, node: cst.CSTNode) -> cst.FunctionDef | None:
        """Return the function that a node is in."""
        return next((p for p in self.parents(node) if isinstance(p, cst.FunctionDef)), None)

    def in_loop(self, node: cst.CSTNode) -> bool:
        """Return whether a node is in a loop of its function."""
        for parent in self.parents(node):
            if isinstance(parent, cst.FunctionDef | cst.Lambda | cst.ClassDef):
                return False
            if isinstance(parent, cst.For | cst.While):
                return True
        return False

    def code(self, node: cst.CSTNode) -> str:
        """Return the source of a node, without comments and empty lines before it."""
        if isinstance(node, cst.SimpleStatementLine):
            node = node.with_changes(leading_lines=[])
        return self.module.code_for_node(node)

    def replace(self, target: cst.CSTNode, new: cst.CSTNode | str) -> str:
        """Return the source with a node replaced: by a node, or a statement by the statements of a text."""
        if isinstance(new, str):
            parsed = cst.parse_module(textwrap.dedent(new), config=self.module.config_for_parsing)
            statements = list(parsed.body)
            if isinstance(target, cst.SimpleStatementLine) and statements:
                statements[0] = statements[0].with_changes(leading_lines=target.leading_lines)
            made: cst.CSTNode | cst.FlattenSentinel[cst.CSTNode] = cst.FlattenSentinel(statements)
        else:
            made = new
        return self.module.visit(_Replacement(target, made)).code


class _Replacement(cst.CSTTransformer):
    def __init__(self, target: cst.CSTNode, new: cst.CSTNode | cst.FlattenSentinel[cst.CSTNode]) -> None:
        super().__init__()
        self._target, self._new = target, new

    def on_leave(  # type: ignore[override]
        self, original_node: cst.CSTNode, updated_node: cst.CSTNode
    ) -> cst.CSTNode | cst.FlattenSentinel[cst.CSTNode]:
        return self._new if original_node is self._target else updated_node


def parse_python_tree(text: str) -> PythonTree | None:
    """Parse a file; None if it is not valid Python."""
    try:
        wrapper = MetadataWrapper(cst.parse_module(text))
    except (cst.ParserSyntaxError, cst.CSTValidationError, RecursionError):
        return None
    found: Any = wrapper.resolve_many([PositionProvider, ParentNodeProvider])
    positions = {node: (p.start.line, p.end.line) for node, p in found[PositionProvider].items()}
    return PythonTree(wrapper.module, positions, dict(found[ParentNodeProvider]))


def add_python_import(text: str, statement: str) -> str:
    """Return a file with an import after its docstring and future imports, unless it has it already."""
    if re.search(rf"^{re.escape(statement)}\s*(#.*)?$", text, re.MULTILINE):
        return text
    module = cst.parse_module(text)
    position = 0
    for number, node in enumerate(module.body):
        first = node.body[0] if isinstance(node, cst.SimpleStatementLine) and node.body else None
        is_docstring = number == 0 and isinstance(first, cst.Expr) and isinstance(first.value, cst.SimpleString)
        future = isinstance(first, cst.ImportFrom) and module.code_for_node(first).startswith("from __future__")
        if not (is_docstring or future):
            break
        position = number + 1
    made = cst.parse_statement(statement)
    if position < len(module.body) and position > 0:
        made = made.with_changes(leading_lines=[cst.EmptyLine(indent=False)])
    return module.with_changes(body=[*module.body[:position], made, *module.body[position:]]).code


def indent_python_code(text: str, by: int) -> str:
    """Indent the lines of a text by some levels."""
    return textwrap.indent(text.rstrip("\n"), "    " * by)
