"""Edits written by a model: it sees the failures and the files, and replies with exact replacements."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

from pydantic import TypeAdapter, ValidationError

from etude.cancellation import Cancellation
from etude.learning.edits.suite_diagnosis import DiagnosisProposal, SuiteDiagnosis
from etude.learning.edits.workspace import Hunk
from etude.models.base import Model, ModelRequest, UserMessage

NAME = "model"
FILES, CHARS = 4, 24_000
"""Files that the model is shown, and characters of all of them."""
PROMPT = """Tests of a program fail. Propose one edit of the program that fixes the cause. Do not edit tests.

{failures}

{files}

Reply with JSON only: a list of objects with the keys "path", "old" and "new". `old` must be in the file exactly once;
it is replaced by `new`. Use only what the file imports, or time, math, functools, itertools, collections, re, json."""
_LIST = re.compile(r"\[.*\]", re.DOTALL)
_HUNKS: TypeAdapter[tuple[Hunk, ...]] = TypeAdapter(tuple[Hunk, ...])


def propose_with_model(model: Model, cancel: Cancellation) -> Callable[[SuiteDiagnosis], Iterator[DiagnosisProposal]]:
    """Return a proposer that asks a model once for each diagnosis. A reply that is not an edit proposes nothing."""

    def propose(diagnosis: SuiteDiagnosis) -> Iterator[DiagnosisProposal]:
        request = ModelRequest(conversation=[UserMessage(text=write_model_proposer_prompt(diagnosis))], tools=[])
        reply = model.respond(request, lambda text: None, cancel)
        found = _LIST.search(reply.turn.text)
        try:
            hunks = _HUNKS.validate_python(json.loads(found[0])) if found else ()
        except (ValueError, ValidationError):
            hunks = ()
        if hunks:
            yield DiagnosisProposal(NAME, f"{model.name} proposes a change of `{hunks[0].path}`", hunks)

    return propose


def write_model_proposer_prompt(diagnosis: SuiteDiagnosis) -> str:
    """Return the failures and the files that they lead to, as a model reads them."""
    failures = "\n".join(
        f"{test}: {failure.error}: {failure.message[:300]} at "
        + ", ".join(f"{path}:{line}" for path, line in diagnosis.places(failure))
        for test, failure in diagnosis.failures[:10]
    )
    files, left = [], CHARS
    for path in diagnosis.sources()[:FILES]:
        text = diagnosis.workspace.read(path)
        if len(text) <= left:
            left -= len(text)
            files.append(f"File {path}:\n```python\n{text}\n```")
    return PROMPT.format(failures=failures, files="\n\n".join(files))
