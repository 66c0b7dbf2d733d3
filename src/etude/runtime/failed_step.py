"""The end of a step that failed: its outcome, its error, and a key that equal failures share."""

from __future__ import annotations

import re
import time
from typing import Any

from etude.entities import Estimate, Outcome
from etude.errors import Cancelled, LimitExceeded, Refused, problem
from etude.events import StepFinished
from etude.runtime.run_log import as_run_error


def failed_step(step_id: str, error: BaseException, elapsed_ms: float) -> StepFinished:
    """Return the end of a query, a cell, a tool call or a turn of a model that failed."""
    body = problem(as_run_error(error))
    estimate = body.get("estimate")
    return StepFinished(
        step_id=step_id,
        outcome=_outcome(as_run_error(error)),
        estimate=Estimate.model_validate(estimate) if estimate else None,
        error=body,
        error_key=step_error_key(body),
        elapsed_ms=elapsed_ms,
    )


def ms_since(started: float) -> float:
    """Return the milliseconds since a moment of `time.perf_counter`."""
    return round((time.perf_counter() - started) * 1000, 3)


def _outcome(error: BaseException) -> Outcome:
    match error:
        case Refused():
            return "refused"
        case LimitExceeded():
            return "limit"
        case Cancelled():
            return "cancelled"
        case _:
            return "error"


_VALUES = re.compile(r"`[^`]*`|\"[^\"]*\"|'[^']*'|\d[\d,.]*")


def step_error_key(body: dict[str, Any]) -> str:
    """Return the error with its values masked: failures with equal keys are the same failure."""
    return f"{body['code']}: {mask_error_values(str(body.get('detail', '')))}"[:200]


def mask_error_values(text: str) -> str:
    """Return a text with its quoted texts, names and numbers masked."""
    return _VALUES.sub("?", text)
