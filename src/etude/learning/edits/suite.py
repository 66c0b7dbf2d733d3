"""A test suite: a command that is run in the sandbox, and the outcome of each of its tests."""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import os
import re
import secrets
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from etude.errors import Invalid, Refused
from etude.learning.edits.program_sandbox import MESSAGES, RESULT, Program, ProgramLimits, run_program_in_sandbox
from etude.learning.edits.workspace import RESULT_FILE, Workspace

JUNIT = "{junit}"
"""The part of a command that is replaced by the path of the JUnit XML file to write."""
_PLUGIN = "etude_suite_plugin"
_SUITE = "/etude-suite"
_CANARY = "etude_canary"
"""The test that the plugin adds, which must fail."""


@dataclass(frozen=True)
class Failure:
    """Why a test failed: the error, and the places of the traceback, innermost last."""

    message: str
    error: str = ""
    """The class of the exception, with its module unless it is built in."""
    frames: tuple[tuple[str, int], ...] = ()
    """Files of the repository, by relative path, and lines."""
    text: str = ""


@dataclass(frozen=True)
class TestOutcome:
    """The outcome of one test."""

    __test__ = False  # not a test of pytest
    passed: bool
    seconds: float = 0.0
    failure: Failure | None = None
    skipped: bool = False


@dataclass(frozen=True)
class SuiteRun:
    """One run of a suite: the outcome of each test by its id."""

    seed: int
    outcomes: dict[str, TestOutcome]
    seconds: float
    output: str = ""
    problem: str = ""
    """Why the run does not count, in a sentence; empty if it does."""

    @property
    def total(self) -> int:
        """The number of tests that were not skipped."""
        return sum(not o.skipped for o in self.outcomes.values())

    @property
    def passed(self) -> int:
        """The number of tests that passed."""
        return sum(o.passed for o in self.outcomes.values())

    @property
    def failures(self) -> dict[str, Failure]:
        """The failures by test."""
        return {name: o.failure or Failure("") for name, o in self.outcomes.items() if not (o.passed or o.skipped)}


@dataclass(frozen=True)
class Suite:
    """A command that runs tests: pytest, or any other that writes JUnit XML to `{junit}`."""

    command: str
    limits: ProgramLimits = field(default_factory=ProgramLimits)

    def __post_init__(self) -> None:
        if not self.words:
            raise Invalid("The suite is empty.", hint='Give a command, such as `--suite "pytest -q"`.')
        if not self.is_pytest and JUNIT not in self.command:
            if shutil.which(self.words[0]) is None:
                raise Invalid(f"There is no command `{self.words[0]}`.", hint="Check the spelling of the suite.")
            raise Invalid(
                f"The suite `{self.command}` neither runs pytest nor writes JUnit XML.",
                hint='Have it write JUnit XML to `{junit}`, such as `--suite "npm test -- --output {junit}"`.',
            )

    @property
    def words(self) -> list[str]:
        """The command as a list of words."""
        try:
            return shlex.split(self.command)
        except ValueError as error:
            raise Invalid(f"The suite `{self.command}` cannot be read: {error}.", hint="Check its quotes.") from None

    @property
    def is_pytest(self) -> bool:
        """True if the command runs pytest itself."""
        names = [os.path.basename(word) for word in self.words[:4]]
        return "pytest" in names or "py.test" in names

    def run(self, workspace: Workspace, seed: int, tests: Sequence[str] = ()) -> SuiteRun:
        """Run the suite on a workspace, or only these tests of it; all randomness comes from the seed."""
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="etude-suite-") as name:
            folder = Path(name)
            folder.chmod(0o755)
            copy = workspace.copy_to(folder / "copy")
            kit = _write_kit(folder / "kit")
            key = secrets.token_hex(16)
            junit = f"{workspace.folder}/{RESULT_FILE}"
            words = [word.replace(JUNIT, junit) for word in self.words]
            if self.is_pytest and tests:
                words += tests
            program = Program(
                words,
                copy,
                str(workspace.folder),
                result="" if self.is_pytest else RESULT_FILE,
                readable=workspace.readable,
                mounts={_SUITE: str(kit), "/etc/hosts": str(kit / "hosts"), **workspace.protected_mounts(copy)},
                environment=self._environment(workspace, seed),
                key=key if self.is_pytest else "",
                limits=self.limits,
            )
            ended = run_program_in_sandbox(program)
        if self.is_pytest:
            run = read_suite_reports(ended.messages, key, seed, str(workspace.folder))
        elif ended.result is None:
            run = SuiteRun(seed, {}, 0.0, problem="the command wrote no JUnit XML")
        elif len(ended.result) > RESULT:
            run = SuiteRun(seed, {}, 0.0, problem=f"it wrote more than {RESULT >> 20} MiB of JUnit XML")
        else:
            run = SuiteRun(seed, read_suite_junit(ended.result.decode("utf-8", "replace"), str(workspace.folder)), 0.0)
        problem = run.problem
        if ended.timed_out:
            problem = f"it took longer than {self.limits.wall_s:g} s"
        elif ended.too_many_messages:
            problem = f"it sent more than {MESSAGES >> 20} MiB of reports"
        elif ended.code in (126, 127) and not run.outcomes:
            problem = "the command could not be started"
        return SuiteRun(seed, run.outcomes, time.monotonic() - started, ended.output[-20_000:], problem)

    def _environment(self, workspace: Workspace, seed: int) -> dict[str, str]:
        folders = [
            f"{workspace.folder}/.venv/bin",
            os.path.dirname(sys.executable),
            "/usr/local/bin",
            "/usr/bin",
            "/bin",
        ]
        found = {
            "PATH": os.pathsep.join(folders),
            "ETUDE_SEED": str(seed),
            "PYTHONHASHSEED": str(seed % 4_294_967_295),
        }
        if self.is_pytest:
            found |= {
                "PYTHONPATH": _SUITE,
                "PYTEST_ADDOPTS": f"-p {_PLUGIN} -p no:cacheprovider",
            }
        return found


def _write_kit(folder: Path) -> Path:
    folder.mkdir(mode=0o755)
    shutil.copy(Path(__file__).with_name("suite_plugin.py"), folder / f"{_PLUGIN}.py")
    shutil.copy(Path(__file__).with_name("suite_start.py"), folder / "sitecustomize.py")
    (folder / "hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
    for path in folder.iterdir():
        path.chmod(0o644)
    return folder


def read_suite_reports(messages: bytes, key: str, seed: int, root: str) -> SuiteRun:
    """Read the signed reports of a run of pytest. A run whose reports are not in order does not count."""
    reports = _Reports(root)
    for expected, line in enumerate(io.BytesIO(messages)):
        try:
            reports.add(_verify(line.rstrip(b"\n"), key, expected))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return SuiteRun(seed, {}, 0.0, problem="its reports were tampered with")
    outcomes, problem = reports.outcomes, ""
    if not reports.finished:
        problem = "it ended before it had reported all tests"
    elif reports.collected and not reports.canary and len(outcomes) >= len(reports.collected):
        problem = "a test that must fail passed"
    for test in reports.collected:
        outcomes.setdefault(test, TestOutcome(False, 0.0, Failure("it did not run")))
    return SuiteRun(seed, outcomes, 0.0, problem=problem)


def _verify(line: bytes, key: str, expected: int) -> dict[str, Any]:
    """Return the body of a report; raise `ValueError` if it is not signed, or not the one expected."""
    sign, _, text = line.partition(b" ")
    good = hmac.new(bytes.fromhex(key), text, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(sign.decode("ascii"), good):
        raise ValueError("the signature is wrong")
    body: dict[str, Any] = json.loads(text)
    if body["n"] != expected:
        raise ValueError("a report is missing")
    return body


class _Reports:
    """The reports of one run, in order."""

    def __init__(self, root: str) -> None:
        self._root = root
        self.collected: list[str] = []
        self.outcomes: dict[str, TestOutcome] = {}
        self.canary = self.finished = False

    def add(self, body: dict[str, Any]) -> None:
        """Take one more report into account."""
        if "collected" in body:
            self.collected = [str(test) for test in body["collected"]]
        elif "finished" in body:
            self.finished = True
        elif "not_collected" in body:
            failure = _failure(body["failure"], self._root)
            self.outcomes[str(body["not_collected"])] = TestOutcome(False, 0.0, failure)
        elif str(body["test"]).endswith(_CANARY):
            self.canary = self.canary or (body["when"] == "call" and body["outcome"] == "failed")
        else:
            _note(self.outcomes, body, self._root)


def _note(outcomes: dict[str, TestOutcome], body: dict[str, object], root: str) -> None:
    """Take one phase of a test into account: it passes if its call passes and no phase fails."""
    name, seconds = str(body["test"]), float(str(body["s"]))
    before = outcomes.get(name)
    if body["outcome"] == "failed":
        failure = before.failure if before and before.failure else _failure(body["failure"], root)
        outcomes[name] = TestOutcome(False, seconds + (before.seconds if before else 0.0), failure)
    elif body["outcome"] == "skipped":
        outcomes[name] = TestOutcome(False, seconds, Failure("skipped"), skipped=True)
    elif body["when"] == "call":
        outcomes[name] = TestOutcome(before is None or before.passed, seconds)


def _failure(found: object, root: str) -> Failure:
    body = found if isinstance(found, dict) else {}
    places = ((_relative(str(path), root), int(line)) for path, line in body.get("frames", ()))
    frames = tuple((path, line) for path, line in places if not os.path.isabs(path))
    text = str(body.get("text", ""))
    return Failure(str(body.get("message", text[-500:])), str(body.get("error", "")), frames, text)


def _relative(path: str, root: str) -> str:
    return path.removeprefix(f"{root}/")


_FRAME = re.compile(r'File "([^"]+)", line (\d+)|^(\S+\.py):(\d+): ', re.MULTILINE)


def read_suite_junit(text: str, root: str = "") -> dict[str, TestOutcome]:
    """Read the outcomes of tests from JUnit XML."""
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise Refused("The JUnit XML has a document type.", hint="Write JUnit XML without `<!DOCTYPE`.")
    try:
        tree = ElementTree.fromstring(text)  # noqa: S314 - without a document type there are no entities
    except ElementTree.ParseError as error:
        raise Invalid(f"The JUnit XML cannot be read: {error}.", hint="Have the suite write it to `{junit}`.") from None
    outcomes = {}
    for case in tree.iter("testcase"):
        name = "::".join(part for part in (case.get("classname", ""), case.get("name", "")) if part)
        failed = [e for e in case if e.tag in ("failure", "error")]
        skipped = any(e.tag == "skipped" for e in case)
        failure = _junit_failure(failed[0], root) if failed else None
        outcomes[name] = TestOutcome(not failed and not skipped, float(case.get("time") or 0), failure, skipped)
    return outcomes


def _junit_failure(element: ElementTree.Element, root: str) -> Failure:
    text = element.text or ""
    found = (m.groups() for m in _FRAME.finditer(text))
    places = ((_relative(a or c, root), int(b or d)) for a, b, c, d in found)
    frames = tuple((path, line) for path, line in places if not os.path.isabs(path))
    message = element.get("message") or text.strip().rpartition("\n")[2]
    named = re.match(r"\s*([A-Za-z_][\w.]*(?:Error|Exception|Timeout|Warning)\b)", message)
    return Failure(message, element.get("type") or (named[1] if named else ""), frames, text[-4000:])


def union_of_suite_tests(runs: Iterable[SuiteRun]) -> list[str]:
    """Return the tests that any of these runs has, sorted."""
    return sorted({name for run in runs for name in run.outcomes})
