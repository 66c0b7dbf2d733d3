"""A pytest plugin that runs inside the sandbox of a suite: it seeds each test, and reports outcomes to the host.

It imports nothing of etude. Reports are signed with a key that is read before any plugin of the repository,
`conftest.py` or test is imported, so that the code under test does not find it in its environment. A test that must
fail is added, so that code which makes failures pass, or replaces what assertions use, is noticed.

PYTEST_DONT_REWRITE: it is imported before pytest, which would warn that it cannot rewrite its assertions, and some
repositories make warnings errors.
"""

from __future__ import annotations

import builtins
import hashlib
import hmac
import json
import os
import random
import sys
import unittest
from typing import Any

import pytest

CANARY = "etude_canary"


def _take_key() -> bytes:
    """Read the key and close its pipe. `suite_start.py` imports this plugin before pytest itself starts."""
    if "ETUDE_KEY_PIPE" not in os.environ:
        return b""
    with open(int(os.environ.pop("ETUDE_KEY_PIPE")), "rb") as pipe:
        return bytes.fromhex(pipe.read().decode())


_signer = hmac.new(_take_key(), digestmod=hashlib.sha256)


_PATCHED = ("__import__", "breakpoint", "compile", "eval", "exec", "input", "open", "print")
"""Builtins that tools replace for good reasons, and that no comparison uses."""


def _judges() -> dict[str, Any]:
    """Return the builtins and the functions of the test frameworks that decide whether an assertion holds."""
    found: dict[str, Any] = {
        name: value
        for name, value in vars(builtins).items()
        if name not in _PATCHED and (not name.startswith("_") or name == "__build_class__") and callable(value)
    }
    found |= {f"pytest.{name}": getattr(pytest, name) for name in ("raises", "approx", "fail", "skip", "warns")}
    case = vars(unittest.TestCase)
    return found | {f"unittest.{name}": value for name, value in case.items() if name.startswith(("assert", "fail"))}


_first = _judges()


def _is_replaced(original: dict[str, Any] = _first) -> bool:
    now = _judges()
    return any(now.get(name) is not value for name, value in original.items())


class _Reporter:
    def __init__(self) -> None:
        self._descriptor = int(os.environ.pop("ETUDE_MESSAGES"))
        self._seed = os.environ.get("ETUDE_SEED", "0")
        self._count = 0
        os.set_inheritable(self._descriptor, False)

    def _send(self, body: dict[str, Any]) -> None:
        body["n"] = self._count
        self._count += 1
        text = json.dumps(body)
        signer = _signer.copy()
        signer.update(text.encode())
        data = f"{signer.hexdigest()} {text}\n".encode()
        while data:
            data = data[os.write(self._descriptor, data) :]

    def pytest_collection_modifyitems(self, session: Any, items: list[Any]) -> None:
        self._send({"collected": [item.nodeid for item in items]})
        items.append(_Canary.from_parent(session, name=CANARY))

    def pytest_runtest_setup(self, item: Any) -> None:
        # Each test has its own seed, so that its randomness does not depend on which other tests run.
        seed = int.from_bytes(hashlib.sha256(f"{self._seed}:{item.nodeid}".encode()).digest()[:4], "big")
        random.seed(seed)
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed(seed)
        os.environ["ETUDE_TEST_SEED"] = str(seed)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Any:
        made = yield
        if call.excinfo is not None:
            made.get_result().user_properties.append(("etude", _describe(call.excinfo.value)))

    def pytest_runtest_logreport(self, report: Any) -> None:
        body: dict[str, Any] = {"test": report.nodeid, "when": report.when, "outcome": report.outcome}
        body["s"] = report.duration
        if hasattr(report, "wasxfail"):
            body["outcome"] = "xfailed" if report.outcome == "skipped" else "xpassed"
        if report.failed:
            found = [value for name, value in report.user_properties if name == "etude"]
            body["failure"] = {**(found[-1] if found else {}), "text": str(report.longrepr)[-4000:]}
        self._send(body)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self._send({"not_collected": report.nodeid, "failure": {"text": str(report.longrepr)[-4000:]}})

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._send({"finished": int(exitstatus)})


class _Canary(pytest.Item):
    def runtest(self) -> None:
        if _is_replaced():
            return  # it passes, and the host sees that
        raise AssertionError("this test always fails")

    def repr_failure(self, excinfo: Any, style: Any = None) -> str:
        return "this test always fails"

    def reportinfo(self) -> tuple[Any, int, str]:
        return self.path, 0, CANARY


def _describe(error: BaseException | None) -> dict[str, Any]:
    """The class, the message, and the places of the traceback, also of the errors that led to this one."""
    kind = type(error)
    found = {"error": f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."), "message": str(error)[:2000]}
    frames: list[list[Any]] = []
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        part, place = [], error.__traceback__
        while place is not None:
            part.append([place.tb_frame.f_code.co_filename, place.tb_lineno])
            place = place.tb_next
        frames = part + frames if error.__traceback__ is not None and len(seen) > 1 else part
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return {**found, "frames": frames[-60:]}


def pytest_configure(config: Any) -> None:
    """Report to the host, if it asked for that."""
    if "ETUDE_MESSAGES" in os.environ and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Reporter(), "etude_reporter")
