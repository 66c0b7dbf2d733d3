"""Runner for conformance checks. Each kind of provider has its own suite."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from etude.errors import EtudeError

T = TypeVar("T")


@dataclass(frozen=True)
class CheckResult:
    """The outcome of a check; `detail` says what it saw or what went wrong."""

    name: str
    ok: bool
    detail: str
    ms: float


class Failed(Exception):
    """A check did not see what it expected."""


def run_conformance_checks(checks: Mapping[str, Callable[[T], str]], subject: T) -> Iterator[CheckResult]:
    """Run every check and yield its result; a failing check does not stop the others."""
    for name, check in checks.items():
        start = time.perf_counter()
        try:
            detail, ok = check(subject), True
        except Failed as failure:
            detail, ok = str(failure), False
        except EtudeError as error:
            detail, ok = " ".join(filter(None, (error.message, error.hint))), False
        except Exception as error:  # a provider under test may raise anything
            detail, ok = f"{type(error).__name__}: {error}", False
        yield CheckResult(name, ok, detail, (time.perf_counter() - start) * 1000)
