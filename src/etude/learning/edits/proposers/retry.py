"""Bounded retries of statements that fail with errors that pass by themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from etude.learning.edits.proposers.constants import lengthen_waits
from etude.learning.edits.python_rewriting import add_python_import, indent_python_code, parse_python_tree
from etude.learning.edits.suite import Failure
from etude.learning.edits.suite_diagnosis import DiagnosisProposal, SuiteDiagnosis

NAME = "retry"
ATTEMPTS = (3, 5)
LONGER = 10.0
_TRANSIENT = re.compile(
    r"timeout|timed out|connection|temporar|unavailable|reset by|broken ?pipe|operationalerror|urlerror|httperror|"
    r"incompleteread|remotedisconnected|protocolerror|locked|busy|throttl|ratelimit|too ?many ?requests|net::err|"
    r"\b(?:429|500|502|503|504)\b|try again|transient|flaky",
    re.IGNORECASE,
)
_PUBLIC = {
    "playwright._impl._errors.TimeoutError": ("from playwright.sync_api import Error as PageError", "PageError"),
    "playwright._impl._errors.Error": ("from playwright.sync_api import Error as PageError", "PageError"),
    "playwright._impl._errors.TargetClosedError": ("from playwright.sync_api import Error as PageError", "PageError"),
}
"""Classes that are not public in their own module: how to import them, and their names."""


def is_retryable_failure(failure: Failure) -> bool:
    """Return whether an error may pass by itself."""
    return bool(_TRANSIENT.search(f"{failure.error} {failure.message[:300]}"))


def name_retried_error(error: str) -> tuple[str, str]:
    """Return the import that an exception class needs, and its name in code."""
    if error in _PUBLIC:
        return _PUBLIC[error]
    module, _, name = error.rpartition(".")
    if not module:
        return "", name if name.isidentifier() else "Exception"
    if any(part.startswith("_") for part in module.split(".")) or "<" in error:
        return "", "Exception"
    return f"import {module}", error


def propose_retries(diagnosis: SuiteDiagnosis) -> Iterator[DiagnosisProposal]:
    """Yield edits that repeat a failing statement a few times, with growing waits in between."""
    for attempts in ATTEMPTS:
        for test, failure in diagnosis.failures:
            if is_retryable_failure(failure):
                for path, line in diagnosis.places(failure):
                    yield from _retry(diagnosis, path, line, failure, attempts, test)


def _retry(
    diagnosis: SuiteDiagnosis, path: str, line: int, failure: Failure, attempts: int, test: str
) -> Iterator[DiagnosisProposal]:
    tree = parse_python_tree(diagnosis.workspace.read(path))
    statement = tree.statement(line) if tree else None
    if tree is None or statement is None:
        return
    code = tree.code(statement).strip("\n")
    function = tree.function(statement)
    # In a coroutine a wait would stop all others, and an edit may not add `await`.
    wait = "time.sleep(0.1 * 2**attempt)" if function is None or function.asynchronous is None else ""
    needed, name = name_retried_error(failure.error)
    texts = []
    if not code.startswith(("import ", "from ", "raise", "yield", "break", "continue", "global")):
        ending = "" if code.startswith("return") else "\n        break"
        loop = _loop(code + ending.replace("        ", ""), name, attempts, wait)
        texts.append((tree.replace(statement, loop), code))
    if function is not None:
        body = _without_docstring(function)
        inside = "".join(tree.code(each) for each in body).strip("\n")
        if "yield" not in inside and f"for attempt in range({attempts})" not in inside:
            ends = inside.splitlines()[-1].startswith("return")
            loop = _loop(inside + ("" if ends else "\nreturn None"), name, attempts, wait)
            made = cst.parse_module(loop, config=tree.module.config_for_parsing).body
            kept = list(function.body.body)[: len(function.body.body) - len(body)]
            block = function.body.with_changes(body=[*kept, *made])
            texts.append((tree.replace(function, function.with_changes(body=block)), f"def {function.name.value}"))
    for text, what in reversed(texts):
        made_text = add_python_import(text, "import time") if wait else text
        if needed and not _has_import(text, needed):
            made_text = add_python_import(made_text, needed)
        first = what.splitlines()[0].strip()
        why = f"`{first[:80]}` fails with {failure.error or 'an error'} in `{test}`: try it up to {attempts} times"
        if "timeout" in failure.error.lower():
            # A wait that is too short is too short every time.
            patient = lengthen_waits(tree.module.code, made_text, LONGER)
            yield from diagnosis.propose(NAME, path, patient, f"{why}, and wait {LONGER:g} times as long")
        yield from diagnosis.propose(NAME, path, made_text, why)


def _loop(code: str, error: str, attempts: int, wait: str) -> str:
    return f"""for attempt in range({attempts}):
    try:
{indent_python_code(code, 2)}
    except {error}:
        if attempt == {attempts - 1}:
            raise
{indent_python_code(wait, 2)}
"""


def _without_docstring(function: cst.FunctionDef) -> list[cst.BaseStatement]:
    statements = [s for s in function.body.body if isinstance(s, cst.BaseStatement)]
    return statements[1:] if function.get_docstring() is not None else statements


def _has_import(text: str, statement: str) -> bool:
    return re.search(rf"^{re.escape(statement)}\b", text, re.MULTILINE) is not None
