"""Findings: failures with the same error key, why they happen, and what to do about them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from etude.learning.observer.operations import Operation

EVIDENCE = 5
"""The operations of a finding that are named as evidence."""
UNEXPLAINED = "No rule knows this failure."
MANY = 3
"""A failure that happened this often is a finding."""

RULES: tuple[tuple[re.Pattern[str], str, str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), why, todo)
    for pattern, why, todo in (
        (
            r"unknown_table|no such table|does not exist|Column \? |unknown column|Binder",
            "A query names a table or a column that the source does not have.",
            "Look at the schema first, and annotate names that people use for it in a catalog.",
        ),
        (
            r"timeout|timed out|passed \?|limit_exceeded.*second",
            "A query or a cell takes longer than its limit.",
            "Add a filter, aggregate in SQL, or raise `limits` for this source.",
        ),
        (
            r"limit_exceeded|too many|exceeds|budget",
            "A limit stops the work: rows, bytes, steps or a budget.",
            "Ask for a summary, or raise the limit that the message names.",
        ),
        (
            r"unavailable|connection|refused to connect|locked|busy",
            "A source or a service does not answer now and then.",
            "Check that it runs; retry reads; look at the times of these failures together.",
        ),
        (r"refused|guard|not allowed|forbidden", "The guard refuses the statement.", "Use a read-only query."),
        (r"unauthorized|status 401|status 403", "A caller has no valid key or role.", "Check the key and its role."),
        (r"not_understood", "The rules do not understand the question.", "Rephrase it, or use a model."),
        (r"KeyError|IndexError|TypeError|AttributeError|ValueError|NameError", "Code meets a value that it does not"
         " expect.", "Check for missing values where the traceback points."),
        (r"interrupted", "A process ended before the work did.", "Look at memory and restarts of the server."),
    )
)  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """A failure that happened several times."""

    error_key: str
    kind: str
    count: int
    of: int
    """All operations of this kind in the same time."""
    first_at: datetime
    last_at: datetime
    sources: tuple[str, ...]
    evidence: tuple[str, ...]
    """Runs, or operations outside of runs."""
    example: str
    output: str
    diagnosis: str
    suggestion: str


def find_failure_findings(
    operations: Iterable[Operation],
    told: Mapping[tuple[str, str], tuple[str, str]] | None = None,
    least: int = MANY,
) -> list[Finding]:
    """Return the findings, the most frequent first. The same operations always give the same findings.

    Rules explain them first; `told` has what a model said about others, by kind and error key.
    """
    return find_findings_of_counts(count_operations(operations), told, least)


@dataclass(frozen=True)
class OperationCounts:
    """The number of operations of each kind, and the failures among them, oldest first."""

    totals: Mapping[str, int]
    failed: Sequence[Operation]


def count_operations(operations: Iterable[Operation]) -> OperationCounts:
    """Return what findings need of these operations."""
    known = list(operations)
    return OperationCounts(Counter(o.kind for o in known), [o for o in known if is_failure(o)])


def is_failure(operation: Operation) -> bool:
    """Return whether a finding can count this operation: it failed, with an error that can be grouped."""
    return operation.outcome == "failed" and bool(operation.error_key)


def find_findings_of_counts(
    counts: OperationCounts, told: Mapping[tuple[str, str], tuple[str, str]] | None = None, least: int = MANY
) -> list[Finding]:
    """Return the findings among failures, the most frequent first."""
    groups: dict[tuple[str, str], list[Operation]] = defaultdict(list)
    for operation in counts.failed:
        groups[operation.kind, operation.error_key].append(operation)
    said = told or {}
    found = [
        _finding(kind, key, group, counts.totals[kind], said.get((kind, key)))
        for (kind, key), group in groups.items()
        if len(group) >= least
    ]
    return sorted(found, key=lambda f: (-f.count, f.kind, f.error_key))


def _finding(kind: str, key: str, group: list[Operation], of: int, told: tuple[str, str] | None) -> Finding:
    why, todo = explain_finding_error(f"{key} {group[-1].output}")
    if why == UNEXPLAINED and told is not None:
        why, todo = told
    return Finding(
        key,
        kind,
        len(group),
        of,
        group[0].at,
        group[-1].at,
        tuple(sorted({o.source for o in group if o.source})),
        tuple(dict.fromkeys(o.run_id or o.id for o in reversed(group)))[:EVIDENCE],
        group[-1].input,
        group[-1].output,
        why,
        todo,
    )


def explain_finding_error(text: str) -> tuple[str, str]:
    """Return the diagnosis of an error and a suggestion, by the first rule that matches."""
    for pattern, why, todo in RULES:
        if pattern.search(text):
            return why, todo
    return UNEXPLAINED, "Read the evidence; `etude runs show RUN` has every step."


def is_explained_finding(finding: Finding) -> bool:
    """Return whether a rule, or a model, explains a finding."""
    return finding.diagnosis != UNEXPLAINED


def finding_as_json(finding: Finding) -> dict[str, Any]:
    """Return a finding as JSON."""
    return asdict(finding) | {"first_at": finding.first_at.isoformat(), "last_at": finding.last_at.isoformat()}
