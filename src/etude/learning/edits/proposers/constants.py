"""Other values for numbers: timeouts and waits, and constants of modules."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from etude.learning.edits.python_rewriting import PythonTree, parse_python_tree
from etude.learning.edits.suite_diagnosis import DiagnosisProposal, SuiteDiagnosis

WAITS, CONSTANTS = "waits", "constants"
LONGER = (4.0, 10.0, 2.0)
FACTORS = (2.0, 0.5, 5.0, 10.0)
_WAIT = re.compile(r"timeout|wait|delay|sleep|deadline|patience|interval|pause|retries|attempts|tries", re.IGNORECASE)
_CONSTANT = re.compile(r"[A-Z][A-Z0-9_]*\Z")
MOST = 40
"""Numbers of all files that are tried."""


def propose_waits(diagnosis: SuiteDiagnosis) -> Iterator[DiagnosisProposal]:
    """Yield edits that lengthen all waits of a file together, and then each alone."""
    for factor in LONGER:
        for path in diagnosis.sources()[:MOST]:
            tree = parse_python_tree(diagnosis.workspace.read(path))
            if tree is None:
                continue
            found = [n for n in _numbers(tree) if _is_wait(tree, n)]
            if len(found) > 1:
                new = tree.module.visit(_Scaling({id(n) for n in found}, factor)).code
                why = f"all {len(found)} waits of `{path}` times {factor:g}"
                yield from diagnosis.propose(WAITS, path, new, why)
            for node in found[:MOST]:
                yield from _scale(diagnosis, tree, path, node, factor, WAITS)


def lengthen_waits(known: str, text: str, factor: float) -> str:
    """Return a file with the waits lengthened that an earlier version of it had already."""
    tree, before = parse_python_tree(text), parse_python_tree(known)
    if tree is None or before is None:
        return text
    old = {(n.value, _context(before, n)) for n in _numbers(before) if _is_wait(before, n)}
    found = {id(n) for n in _numbers(tree) if _is_wait(tree, n) and (n.value, _context(tree, n)) in old}
    return tree.module.visit(_Scaling(found, factor)).code


def _context(tree: PythonTree, node: cst.CSTNode) -> str:
    parent = next(tree.parents(node), None)
    return tree.code(parent) if parent is not None else ""


def propose_constants(diagnosis: SuiteDiagnosis) -> Iterator[DiagnosisProposal]:
    """Yield edits that change one number: a constant of a module, or one that is marked `tunable`."""
    for factor in FACTORS:
        for path in diagnosis.sources()[:MOST]:
            text = diagnosis.workspace.read(path)
            tree = parse_python_tree(text)
            if tree is None:
                continue
            marked = {n for n, line in enumerate(text.splitlines(), 1) if "tunable" in line.partition("#")[2]}
            for node in _numbers(tree):
                if tree.line(node) in marked or _CONSTANT.match(_target(tree, node)):
                    yield from _scale(diagnosis, tree, path, node, factor, CONSTANTS)


def _numbers(tree: PythonTree) -> list[cst.Integer | cst.Float]:
    return [*tree.nodes(cst.Integer), *tree.nodes(cst.Float)]


def _is_wait(tree: PythonTree, node: cst.CSTNode) -> bool:
    """Return whether a number is a wait by the name that it is given, passed as, or called with."""
    if _WAIT.search(_target(tree, node)):
        return True
    for parent in tree.parents(node):
        if isinstance(parent, cst.Arg) and parent.keyword is not None:
            return bool(_WAIT.search(parent.keyword.value))
        if isinstance(parent, cst.Param):
            return bool(_WAIT.search(parent.name.value))
        if isinstance(parent, cst.Call):
            return bool(_WAIT.search(tree.code(parent.func)))
        if isinstance(parent, cst.BaseSmallStatement | cst.BaseCompoundStatement):
            return False
    return False


def _target(tree: PythonTree, node: cst.CSTNode) -> str:
    """Return the name that a number is assigned to directly."""
    parent = next(tree.parents(node), None)
    if isinstance(parent, cst.Assign) and len(parent.targets) == 1:
        return tree.code(parent.targets[0].target)
    if isinstance(parent, cst.AnnAssign):
        return tree.code(parent.target)
    return ""


def _scale(
    diagnosis: SuiteDiagnosis, tree: PythonTree, path: str, node: cst.Integer | cst.Float, factor: float, proposer: str
) -> Iterator[DiagnosisProposal]:
    made = _scaled(node, factor)
    if made.value != node.value:
        why = f"`{path}` line {tree.line(node)}: {node.value} becomes {made.value}"
        yield from diagnosis.propose(proposer, path, tree.replace(node, made), why)


def _scaled(node: cst.Integer | cst.Float, factor: float) -> cst.Integer | cst.Float:
    if isinstance(node, cst.Integer):
        old = int(node.value.replace("_", ""), 0)
        # A number of attempts that is 1 becomes 2 and not 0.
        return node.with_changes(value=str(max(1, round(old * factor)) if old else round(factor)))
    return node.with_changes(value=repr(round(float(node.value) * factor, 6)))


class _Scaling(cst.CSTTransformer):
    def __init__(self, targets: set[int], factor: float) -> None:
        super().__init__()
        self._targets, self._factor = targets, factor

    def leave_Integer(self, original_node: cst.Integer, updated_node: cst.Integer) -> cst.BaseExpression:
        """Scale a whole number."""
        return _scaled(updated_node, self._factor) if id(original_node) in self._targets else updated_node

    def leave_Float(self, original_node: cst.Float, updated_node: cst.Float) -> cst.BaseExpression:
        """Scale a decimal number."""
        return _scaled(updated_node, self._factor) if id(original_node) in self._targets else updated_node
