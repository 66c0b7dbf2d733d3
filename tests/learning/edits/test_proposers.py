"""Each proposer turns a failure into edits; here the edit that helps is among them, and runs."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from etude.cancellation import Cancellation
from etude.learning.edits.learner import apply_learned_edit
from etude.learning.edits.proposers.model_proposer import propose_with_model
from etude.learning.edits.proposers.offline_proposers import OFFLINE
from etude.learning.edits.suite import Failure
from etude.learning.edits.suite_diagnosis import DiagnosisProposal, SuiteDiagnosis
from etude.learning.edits.workspace import open_workspace
from etude.models.scripted import Line, Scripted


def edited(
    folder: Path, proposer: str, source: str, failure: Failure | None
) -> Iterator[tuple[DiagnosisProposal, dict[str, Any]]]:
    """Yield each proposal with the module as it is after the edit."""
    (folder / "a.py").write_text(source)
    failures = (("test_a.py::test", failure),) if failure else ()
    diagnosis = SuiteDiagnosis(open_workspace(folder), failures)
    for proposal in OFFLINE[proposer](diagnosis):
        text = apply_learned_edit(diagnosis.workspace, proposal.hunks).read("a.py")
        module: dict[str, Any] = {}
        exec(compile(text, "a.py", "exec"), module)
        yield proposal, module


def failed(error: str, line: int, message: str = "") -> Failure:
    return Failure(message, error, (("test_a.py", 1), ("a.py", line)))


@pytest.mark.parametrize(
    ("source", "failure", "call", "expected"),
    [
        ("def f(d):\n    return d['a'] + 1\n", failed("KeyError", 2), "f({})", 1),
        ("def f(d):\n    return d[0]\n", failed("IndexError", 2), "f([])", None),
        ("def f(a, b):\n    return a / b\n", failed("ZeroDivisionError", 2), "f(1, 0)", 0),
        ("def f(a):\n    return max(a)\n", failed("ValueError", 2), "f([])", 0),
        ("def f(a):\n    return float(a)\n", failed("ValueError", 2), "f(' 1,200 ')", 1200.0),
        (
            "def f(a):\n    return a.strip()\n",
            failed("AttributeError", 2, "'NoneType' object has no attribute 'strip'"),
            "f(None)",
            "",
        ),
        (
            "def f(rows):\n    total = 0\n    for row in rows:\n        total += int(row)\n    return total\n",
            failed("ValueError", 4),
            "f(['1', 'x', '2'])",
            3,
        ),
    ],
)
def test_checks_for_missing_and_malformed_values(
    tmp_path: Path, source: str, failure: Failure, call: str, expected: object
) -> None:
    results = []
    for _, module in edited(tmp_path, "checks", source, failure):
        try:
            results.append(eval(call, module))
        except Exception as error:  # another proposal helps
            results.append(error)
    assert expected in results


@pytest.mark.parametrize(
    "source",
    [
        "def fetch():\n    CALLS.append(1)\n"
        "    if len(CALLS) < 3:\n        raise ConnectionError('reset')\n    return 7\n",
        "def fetch():\n    value = ask()\n    return value\n\n\ndef ask():\n    CALLS.append(1)\n"
        "    if len(CALLS) < 3:\n        raise ConnectionError('reset')\n    return 7\n",
    ],
)
def test_a_retry_passes_over_errors_that_pass_by_themselves(tmp_path: Path, source: str) -> None:
    line = source.splitlines().index("        raise ConnectionError('reset')") + 1
    failure = Failure("reset", "ConnectionError", (("test_a.py", 1), ("a.py", 5), ("a.py", line + 3)))
    answers = []
    for _, module in edited(tmp_path, "retry", "CALLS = []\n\n\n" + source, failure):
        try:
            answers.append(module["fetch"]())
        except ConnectionError:
            answers.append(None)
    assert 7 in answers


def test_a_retry_in_a_coroutine_blocks_no_other(tmp_path: Path) -> None:
    fails = "    CALLS.append(1)\n    if len(CALLS) < 3:\n        raise ConnectionError('reset')\n    return 7\n"
    fetch = "async def fetch():\n    value = await ask()\n    return value\n\n\n"
    source = f"CALLS = []\n\n\n{fetch}async def ask():\n{fails}"
    line = source.splitlines().index("    value = await ask()") + 1
    answers = []
    for proposal, module in edited(tmp_path, "retry", source, failed("ConnectionError", line, "reset")):
        assert "sleep" not in "".join(hunk.new for hunk in proposal.hunks)
        answers.append(asyncio.run(module["fetch"]()))
    assert answers == [7] * len(answers) != []


def test_a_retry_gives_up_in_the_end(tmp_path: Path) -> None:
    source = "def fetch():\n    ask()\n\n\ndef ask():\n    raise TimeoutError('slow')\n"
    failure = Failure("slow", "TimeoutError", (("a.py", 2),))
    for _, module in edited(tmp_path, "retry", source, failure):
        with pytest.raises(TimeoutError):
            module["fetch"]()


def test_waits_are_lengthened_together_and_alone(tmp_path: Path) -> None:
    source = "import time\n\nTIMEOUT = 50\nSIZE = 3\n\n\ndef f(page, wait=0.5):\n    page.goto('x', timeout=100)\n"
    (tmp_path / "a.py").write_text(source)
    texts = [p.hunks for p in OFFLINE["waits"](SuiteDiagnosis(open_workspace(tmp_path), ()))]
    values = {(h.old.strip(), h.new.strip()) for hunks in texts for h in hunks}
    assert any("TIMEOUT = 200" in new for _, new in values)
    assert any("timeout=400" in new and "wait=2" in new for _, new in values)
    assert not any("SIZE = 12" in new for _, new in values)


def test_constants_that_are_marked_are_searched(tmp_path: Path) -> None:
    source = "def f(x):\n    return x[: 4]  # tunable\n\n\nLIMIT = 10\n"
    (tmp_path / "a.py").write_text(source)
    found = [h.new for p in OFFLINE["constants"](SuiteDiagnosis(open_workspace(tmp_path), ())) for h in p.hunks]
    assert any(": 8]" in text for text in found)
    assert any("LIMIT = 5\n" in text for text in found)


def test_a_list_that_is_too_long_is_passed_in_pieces(tmp_path: Path) -> None:
    source = (
        "def fetch(ids):\n    if len(ids) > 150:\n        raise MemoryError('too many')\n    return list(ids)\n\n\n"
        "def load(ids):\n    rows = fetch(ids)\n    return rows\n"
    )
    failure = failed("MemoryError", 8, "too many")
    made = [module["load"](list(range(300))) for _, module in edited(tmp_path, "chunks", source, failure)]
    assert list(range(300)) in made


def test_alternatives_are_tried_in_another_order(tmp_path: Path) -> None:
    source = (
        "def f(text):\n    for parse in (str, int):\n        try:\n            return parse(text)\n"
        "        except ValueError:\n            continue\n    return None\n"
    )
    made = [module["f"]("7") for _, module in edited(tmp_path, "fallbacks", source, None)]
    assert 7 in made


def test_a_handler_also_handles_the_error_that_passed_it(tmp_path: Path) -> None:
    source = "def f(d):\n    try:\n        return d['a'][0]\n    except KeyError:\n        return None\n"
    made = [module["f"]({"a": []}) for _, module in edited(tmp_path, "handlers", source, failed("IndexError", 3))]
    assert made == [None]


def test_only_functions_that_just_compute_are_cached(tmp_path: Path) -> None:
    source = (
        "def slow(n):\n    return sum(i * i for i in range(n))\n\n\n"
        "def stamp(n):\n    import random\n    return sum(random.random() for _ in range(n))\n"
    )
    names = [p.rationale for p, _ in edited(tmp_path, "caches", source, None)]
    assert len(names) == 1
    assert "`slow`" in names[0]


def test_a_query_is_translated_to_the_dialect_that_refused_it(tmp_path: Path) -> None:
    source = (
        'import sqlite3\n\n\ndef f():\n    db = sqlite3.connect(":memory:")\n'
        "    return db.execute(\"SELECT '3'::int + 1\").fetchone()[0]\n"
    )
    with pytest.raises(sqlite3.OperationalError):
        sqlite3.connect(":memory:").execute("SELECT '3'::int + 1")
    failure = failed("sqlite3.OperationalError", 6, "unrecognized token")
    assert 4 in [module["f"]() for _, module in edited(tmp_path, "casts", source, failure)]


def test_a_model_proposes_exact_replacements(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def f(d):\n    return d['a']\n")
    diagnosis = SuiteDiagnosis(open_workspace(tmp_path), (("test_a.py::test", failed("KeyError", 2)),))
    reply = 'Here it is:\n[{"path": "a.py", "old": "d[\'a\']", "new": "d.get(\'a\')"}]'
    (proposal,) = propose_with_model(Scripted([Line(text=reply)]), Cancellation())(diagnosis)
    assert apply_learned_edit(diagnosis.workspace, proposal.hunks).read("a.py") == "def f(d):\n    return d.get('a')\n"
    assert list(propose_with_model(Scripted([Line(text="I do not know.")]), Cancellation())(diagnosis)) == []
