"""Checks for missing values where a traceback points: None, absent keys, empty lists, zero, and bad text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import libcst as cst

from etude.learning.edits.python_rewriting import PythonTree, indent_python_code, parse_python_tree
from etude.learning.edits.suite import Failure
from etude.learning.edits.suite_diagnosis import DiagnosisProposal, SuiteDiagnosis

NAME = "checks"
INSTEAD = ("0", '""', "None")
"""What a missing value becomes, in the order in which it is tried."""
Change = Iterator[tuple[str, str]]
"""New texts of a file, each with a reason."""


def propose_checks(diagnosis: SuiteDiagnosis) -> Iterator[DiagnosisProposal]:
    """Yield edits for each failure whose error says that a value is missing or malformed."""
    for test, failure in diagnosis.failures:
        kind = failure.error.rpartition(".")[2]
        for path, line in diagnosis.places(failure):
            tree = parse_python_tree(diagnosis.workspace.read(path))
            if tree is None:
                continue
            for change in _CHANGES.get(kind, (_skip,)):
                for text, why in change(tree, line, failure):
                    reason = f"{kind or 'an error'} in `{test}` at `{path}` line {line}: {why}"
                    yield from diagnosis.propose(NAME, path, text, reason)


def _use_get(tree: PythonTree, line: int, failure: Failure) -> Change:
    """An absent key: `d["k"]` becomes `d.get("k", ...)`."""
    for node in tree.nodes(cst.Subscript, line):
        index = node.slice[0].slice if len(node.slice) == 1 else None
        if isinstance(index, cst.Index) and not _is_stored(tree, node):
            for instead in INSTEAD:
                default = "" if instead == "None" else f", {instead}"
                made = f"{tree.code(node.value)}.get({tree.code(index)}{default})"
                yield tree.replace(node, cst.parse_expression(made)), f"an absent key gives {instead}"


def _use_first(tree: PythonTree, line: int, failure: Failure) -> Change:
    """An index beyond the end: nothing is there instead."""
    for node in tree.nodes(cst.Subscript, line):
        index = node.slice[0].slice if len(node.slice) == 1 else None
        if isinstance(index, cst.Index) and not _is_stored(tree, node):
            value, place = tree.code(node.value), tree.code(index)
            fits = value if place in ("0", "-1") else f"len({value}) > {place}"
            for instead in INSTEAD:
                made = f"({tree.code(node)} if {fits} else {instead})"
                yield tree.replace(node, cst.parse_expression(made)), f"a missing element is {instead}"


def _guard_none(tree: PythonTree, line: int, failure: Failure) -> Change:
    """An attribute, an index or a call of None: check the value first."""
    found = re.search(r"has no attribute '(\w+)'", failure.message)
    owners: dict[str, cst.BaseExpression] = {}
    for attribute in tree.nodes(cst.Attribute, line):
        if found is None or attribute.attr.value == found[1]:
            owners[tree.code(attribute.value)] = attribute.value
    if found is None:
        owners |= {tree.code(node.value): node.value for node in tree.nodes(cst.Subscript, line)}
        owners |= {tree.code(node): node for node in _operands(tree, line)}
    statement = tree.statement(line)
    for owner, node in owners.items():
        if statement is not None:
            yield from _leave_early(tree, statement, f"{owner} is None", f"`{owner}` is None")
        for instead in ('""', "0", "[]", "{}"):
            made = cst.parse_expression(f"({owner} or {instead})")
            yield tree.replace(node, made), f"`{owner}` counts as {instead} if it is None"


def _operands(tree: PythonTree, line: int) -> list[cst.BaseExpression]:
    found: list[cst.BaseExpression] = []
    for node in tree.nodes(cst.BinaryOperation, line):
        found += [node.left, node.right]
    for call in tree.nodes(cst.Call, line):
        found += [a.value for a in call.args if not isinstance(a.value, cst.BaseString | cst.BaseNumber)]
    # Of a loop and a comprehension only the line of the loop itself counts.
    found += [n.iter for n in tree.nodes(cst.For, line) if tree.line(n.iter) == line]
    found += [n.iter for n in tree.nodes(cst.CompFor, line)]
    for comparison in tree.nodes(cst.Comparison, line):
        found += [comparison.left, *(c.comparator for c in comparison.comparisons)]
    simple = (cst.Name, cst.Attribute, cst.Subscript, cst.Call)
    return [node for node in found if isinstance(node, simple)]


def _guard_zero(tree: PythonTree, line: int, failure: Failure) -> Change:
    """A division by zero: another value instead."""
    for node in tree.nodes(cst.BinaryOperation, line):
        if isinstance(node.operator, cst.Divide | cst.FloorDivide | cst.Modulo):
            for instead in ("0", "None", "0.0"):
                made = f"({tree.code(node)} if {tree.code(node.right)} else {instead})"
                yield tree.replace(node, cst.parse_expression(made)), f"a division by zero gives {instead}"


def _give_default(tree: PythonTree, line: int, failure: Failure) -> Change:
    """The largest, smallest or next of nothing: a default."""
    for node in tree.nodes(cst.Call, line):
        name = tree.code(node.func)
        if name in ("max", "min") and len(node.args) == 1:
            for instead in ("0", "None"):
                args = [*node.args, cst.Arg(cst.parse_expression(instead), keyword=cst.Name("default"), equal=_EQUAL)]
                yield tree.replace(node, node.with_changes(args=_spaced(args))), f"`{name}` of nothing is {instead}"
        if name == "next" and len(node.args) == 1:
            args = [*node.args, cst.Arg(cst.Name("None"))]
            yield tree.replace(node, node.with_changes(args=_spaced(args))), "`next` of nothing is None"


_EQUAL = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))


def _spaced(args: list[cst.Arg]) -> list[cst.Arg]:
    comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    return [a.with_changes(comma=comma) for a in args[:-1]] + args[-1:]


def _clean_number(tree: PythonTree, line: int, failure: Failure) -> Change:
    """Text that is not a number: without separators and spaces, or zero if it is empty."""
    for node in tree.nodes(cst.Call, line):
        name = tree.code(node.func)
        if name in ("int", "float", "Decimal", "decimal.Decimal") and len(node.args) == 1:
            value = tree.code(node.args[0].value)
            for made, why in (
                (f'{name}({value}.strip().replace(",", ""))', "spaces and thousands separators are removed"),
                (f"{name}({value} or 0)", "an empty text counts as 0"),
                (
                    f'{name}({value}.strip().replace(",", "") or 0)',
                    "separators are removed, and empty text counts as 0",
                ),
            ):
                yield tree.replace(node, cst.parse_expression(made)), why


def _read_leniently(tree: PythonTree, line: int, failure: Failure) -> Change:
    """Bytes that are not UTF-8: another encoding, or replaced characters."""
    for node in tree.nodes(cst.Call):
        name = tree.code(node.func)
        if name.rpartition(".")[2] not in ("open", "read_text", "decode"):
            continue
        known = {a.keyword.value for a in node.args if a.keyword is not None}
        for keyword, value in (("errors", '"replace"'), ("encoding", '"latin-1"')):
            kept = [a for a in node.args if a.keyword is None or a.keyword.value != keyword]
            if keyword == "encoding" and name.rpartition(".")[2] == "decode" and "encoding" not in known:
                kept = []
            made = [*kept, cst.Arg(cst.parse_expression(value), keyword=cst.Name(keyword), equal=_EQUAL)]
            yield tree.replace(node, node.with_changes(args=_spaced(made))), f"{keyword}={value}"


def _skip(tree: PythonTree, line: int, failure: Failure) -> Change:
    """Any other error at a statement: in a loop skip the element, otherwise return nothing."""
    statement = tree.statement(line)
    kind = failure.error
    if statement is None or not kind or "." in kind or kind in ("AssertionError", "SyntaxError", "ImportError"):
        return
    if kind in ("NameError", "ModuleNotFoundError", "NotImplementedError", "RecursionError"):
        return
    code = tree.code(statement).strip("\n")
    for otherwise in ("continue",) if tree.in_loop(statement) else ("return None", "return 0", 'return ""'):
        if tree.function(statement) is None and otherwise != "continue":
            continue
        new = f"try:\n{indent_python_code(code, 1)}\nexcept {kind}:\n    {otherwise}\n"
        yield tree.replace(statement, new), f"`{otherwise}` if it fails"


def _leave_early(tree: PythonTree, statement: cst.SimpleStatementLine, condition: str, why: str) -> Change:
    code = tree.code(statement).strip("\n")
    if tree.in_loop(statement):
        yield tree.replace(statement, f"if {condition}:\n    continue\n{code}\n"), f"skip the element if {why}"
    elif tree.function(statement) is not None:
        for instead in INSTEAD:
            new = f"if {condition}:\n    return {instead}\n{code}\n"
            yield tree.replace(statement, new), f"return {instead} if {why}"


def _is_stored(tree: PythonTree, node: cst.CSTNode) -> bool:
    parent = next(tree.parents(node), None)
    return isinstance(parent, cst.AssignTarget | cst.AugAssign | cst.Del)


_CHANGES: dict[str, tuple[Callable[[PythonTree, int, Failure], Change], ...]] = {
    "KeyError": (_use_get, _skip),
    "IndexError": (_use_first, _skip),
    "AttributeError": (_guard_none, _skip),
    "TypeError": (_guard_none, _skip),
    "ZeroDivisionError": (_guard_zero, _skip),
    "ValueError": (_give_default, _clean_number, _skip),
    "InvalidOperation": (_clean_number,),
    "StopIteration": (_give_default,),
    "UnicodeDecodeError": (_read_leniently, _skip),
}
