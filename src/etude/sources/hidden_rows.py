"""Queries on granted views that read tables which are not granted: only the result may tell about the rows behind them.

An engine's error may quote a value of a row that the view hides, its plan may contain values that the optimizer read,
and its estimate depends on how many hidden rows a condition selects. So errors are described by their kind alone, plans
are refused, and a query costs as much as reading its tables and views without any condition.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from etude.errors import Refused
from etude.sources.base import CheckedQuery

HIDDEN_ERROR_HINT = (
    "The message is not shown, because a view may hide rows from you, which it might quote. Check casts and "
    "computations: values of other rows may reach them before the view leaves those rows out."
)
_OTHER = "the query failed"
_KINDS = {
    "08": "the connection failed",
    "0A": "a feature is not supported",
    "21": "a subquery has more than one row or column",
    "22": "a value does not fit its type or an operation",
    "23": "a value violates a constraint",
    "25": "the transaction may only read",
    "40": "the transaction was rolled back",
    "42": "a name or a type is unknown, or a right is missing",
    "53": "the server has too few resources",
    "54": "a value exceeds a limit of the server",
    "57": "the server was stopped",
    "58": "the system of the server failed",
    "XX": "the server has an internal error",
}


def describe_hidden_error(state: str) -> str:
    """Return in words what the class of a SQLSTATE says, and nothing of the engine's message."""
    return _KINDS.get(state[:2], _OTHER)


def refuse_hidden_plan(checked: CheckedQuery) -> None:
    """Refuse a statement on a view that may hide rows if it asks for the plan and not for the result."""
    if checked.sql[:7].upper() == "EXPLAIN":
        raise Refused(
            "`EXPLAIN` is refused for a query on a view if only some tables are granted: a plan may contain values of "
            "rows that the view hides.",
            hint="Run the query itself, or explain a query that reads only tables.",
            reason="statement",
        )


def sum_estimates(estimates: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the estimate of reading several tables; what is unknown for one of them is unknown for all."""
    listed = list(estimates)
    total: dict[str, Any] = {"result_rows": None}
    for key in ("scan_rows", "scan_bytes"):
        each = [estimate.get(key) for estimate in listed]
        total[key] = None if None in each else sum(each)
    return total
