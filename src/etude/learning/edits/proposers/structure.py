"""Edits of structure: smaller chunks, another order of fallbacks, wider handlers, and caches of pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from etude.learning.edits.proposers.retry import name_retried_error
from etude.learning.edits.python_rewriting import PythonTree, add_python_import, parse_python_tree
from etude.learning.edits.suite_diagnosis import DiagnosisProposal, SuiteDiagnosis

CHUNKS, FALLBACKS, HANDLERS, CACHES = "chunks", "fallbacks", "handlers", "caches"
SIZES = (100, 10)
_TOO_MUCH = re.compile(r"memory|too many|too large|too big|too long|exceed|limit|413|payload", re.IGNORECASE)
_IMPURE = re.compile(
    r"\b(?:open|print|input|random|time|datetime|now|today|requests|urlopen|socket|os|sys|global|nonlocal|yield|await|"
    r"execute|connect|write|append|extend|update|pop|remove|insert|setattr|environ|self|cls|log|logger|next)\b"
)
MOST = 20


def propose_chunks(diagnosis: SuiteDiagnosis) -> Iterator[DiagnosisProposal]:
    """Yield edits that pass a list to a call in pieces, if the error says that it was too much at once."""
    for test, failure in diagnosis.failures:
        if not _TOO_MUCH.search(f"{failure.error} {failure.message[:300]}"):
            continue
        for path, line in diagnosis.places(failure):
            tree = parse_python_tree(diagnosis.workspace.read(path))
            statement = tree.statement(line) if tree else None
            if tree is None or statement is None or len(statement.body) != 1:
                continue
            for size in SIZES:
                for new in _in_chunks(tree, statement.body[0], size):
                    why = f"{failure.error} in `{test}`: `{path}` line {line} in pieces of {size}"
                    yield from diagnosis.propose(CHUNKS, path, tree.replace(statement, new), why)


def _in_chunks(tree: PythonTree, small: cst.BaseSmallStatement, size: int) -> Iterator[str]:
    match small:
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))], value=cst.Call() as call):
            keep, end = name, ""
        case cst.Return(value=cst.Call() as call):
            keep, end = "collected", "return collected\n"
        case cst.Expr(value=cst.Call() as call):
            keep, end = "", ""
        case _:
            return
    for arg in call.args:
        if isinstance(arg.value, cst.Name) and arg.star == "":
            items = arg.value.value
            part = arg.with_changes(value=cst.parse_expression(f"{items}[start : start + {size}]"))
            piece = tree.code(call.deep_replace(arg, part))
            body = f"{keep}.extend({piece})" if keep else piece
            start = f"{keep} = []\n" if keep else ""
            yield f"{start}for start in range(0, len({items}), {size}):\n    {body}\n{end}"


def propose_fallbacks(diagnosis: SuiteDiagnosis) -> Iterator[DiagnosisProposal]:
    """Yield edits that try alternatives in another order: the last one first, or neighbours exchanged."""
    for path in diagnosis.sources()[:MOST]:
        tree = parse_python_tree(diagnosis.workspace.read(path))
        if tree is None:
            continue
        for loop in tree.nodes(cst.For):
            alternatives = loop.iter
            handled = any(isinstance(n, cst.Try) for n in loop.body.body)
            if handled and isinstance(alternatives, cst.Tuple | cst.List) and 2 <= len(alternatives.elements) <= 6:
                values = [e.value for e in alternatives.elements]
                for order in {tuple([values[-1], *values[:-1]]), tuple(reversed(values))}:
                    made = [e.with_changes(value=v) for e, v in zip(alternatives.elements, order)]
                    text = tree.replace(alternatives, alternatives.with_changes(elements=made))
                    why = f"`{path}` line {tree.line(loop)}: alternatives in another order"
                    yield from diagnosis.propose(FALLBACKS, path, text, why)
        for attempt in tree.nodes(cst.Try):
            if len(attempt.handlers) == 1 and attempt.orelse is None and attempt.finalbody is None:
                handler = attempt.handlers[0]
                if handler.name is None and not any("raise" in tree.code(n) for n in handler.body.body):
                    swapped = attempt.with_changes(
                        body=handler.body, handlers=[handler.with_changes(body=attempt.body)]
                    )
                    why = f"`{path}` line {tree.line(attempt)}: the fallback first"
                    yield from diagnosis.propose(FALLBACKS, path, tree.replace(attempt, swapped), why)


def propose_handlers(diagnosis: SuiteDiagnosis) -> Iterator[DiagnosisProposal]:
    """Yield edits that let an existing handler also handle the error that passed it."""
    for test, failure in diagnosis.failures:
        needed, name = name_retried_error(failure.error)
        if not failure.error or name in ("Exception", "AssertionError"):
            continue
        for path, line in diagnosis.places(failure):
            text = diagnosis.workspace.read(path)
            tree = parse_python_tree(text)
            if tree is None:
                continue
            for attempt in tree.nodes(cst.Try, line):
                for handler in attempt.handlers:
                    if handler.type is None:
                        continue
                    both = f"({tree.code(handler.type).strip('()')}, {name})"
                    made = handler.with_changes(type=cst.parse_expression(both))
                    new = tree.replace(handler, made)
                    new = add_python_import(new, needed) if needed else new
                    why = f"{failure.error} in `{test}` passes the handler at `{path}` line {tree.line(handler)}"
                    yield from diagnosis.propose(HANDLERS, path, new, why)


def propose_caches(diagnosis: SuiteDiagnosis) -> Iterator[DiagnosisProposal]:
    """Yield edits that cache functions which only compute from their arguments."""
    for path in diagnosis.sources()[:MOST]:
        tree = parse_python_tree(diagnosis.workspace.read(path))
        if tree is None:
            continue
        for function in tree.nodes(cst.FunctionDef):
            in_module = isinstance(next(tree.parents(function), None), cst.Module)
            plain = not function.decorators and function.asynchronous is None and function.params.params
            body = tree.code(function.body)
            if in_module and plain and not _IMPURE.search(body) and "return" in body and _repeats(body):
                decorator = cst.Decorator(cst.parse_expression("functools.lru_cache(maxsize=1024)"))
                made = function.with_changes(decorators=[decorator])
                new = add_python_import(tree.replace(function, made), "import functools")
                why = f"`{function.name.value}` in `{path}` only computes from its arguments"
                yield from diagnosis.propose(CACHES, path, new, why)


def _repeats(body: str) -> bool:
    return any(word in body for word in ("for ", "while ", "sum(", "sorted(", "re.", "(n - 1)"))
