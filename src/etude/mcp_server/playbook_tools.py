"""MCP tools for what was learned: reports of work, verdicts on answers, and playbooks."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from etude.entities import Entity
from etude.feedback import Feedback
from etude.learning.playbooks.playbook_summary import (
    PlaybookExposure,
    PlaybookSummary,
    summarise_exposure,
    summarise_playbook,
)
from etude.mcp_server.caller import TEXT, Dataset, McpCaller, Tool
from etude.store.identity import Report

EXPOSURES = 50
"""The latest runs that a playbook matched which one answer lists."""
PlaybookName = Annotated[str, Field(min_length=1, max_length=100, description="the name of a playbook")]


class Playbooks(Entity):
    """Lessons to read before complex work."""

    playbooks: list[PlaybookSummary]


class PlaybookRecord(Entity):
    """A playbook, how it changed, and the latest runs that it matched."""

    playbook: PlaybookSummary
    changes: list[PlaybookEvent]
    exposures: list[PlaybookExposure]


class PlaybookEvent(Entity):
    """A change of a playbook."""

    at: datetime
    version: str
    change: str
    reason: str


def log(
    caller: McpCaller,
    text: Annotated[str, Field(min_length=1, max_length=TEXT, description="what was asked and what was learned")],
    outcome: Literal["worked", "failed", "note"] = "worked",
    dataset: Dataset = None,
    code: Annotated[str | None, Field(max_length=TEXT, description="what was run")] = None,
    run_id: str | None = None,
) -> Report:
    """Report what worked and what did not, so that others can learn from it."""
    app = caller.app
    if dataset is not None:
        app.source_name(dataset)
    if run_id is not None:
        app.store.run(run_id)
    fields = {"text": text, "outcome": outcome, "dataset": dataset, "code": code, "run_id": run_id}
    return caller.report(fields)


def judge_run(
    caller: McpCaller,
    run_id: str,
    verdict: Annotated[Literal["right", "wrong"], Field(description="what the person says of the answer")],
    comment: Annotated[str, Field(max_length=4000)] = "",
) -> Feedback:
    """Pass on a person's verdict on an answer. A wrong one is not replayed."""
    caller.app.store.run(run_id)
    return caller.app.give_feedback(run_id, verdict, comment)


def playbooks(caller: McpCaller) -> Playbooks:
    """Return lessons with their state and measured effect. Read those that fit before complex work."""
    found = caller.app.playbooks.entries()
    return Playbooks(playbooks=[summarise_playbook(e) for e in found if e.standing.state != "retired"])


def playbooks_show(caller: McpCaller, name: PlaybookName) -> PlaybookRecord:
    """Return a playbook: its state and why, its effect, its changes, and the runs with and without it."""
    library = caller.app.playbooks
    return PlaybookRecord(
        playbook=summarise_playbook(library.entry(name)),
        changes=[
            PlaybookEvent(at=c.at, version=c.version, change=c.change, reason=c.reason) for c in library.history(name)
        ],
        exposures=[summarise_exposure(e) for e in library.exposures(name)[-EXPOSURES:]],
    )


def playbooks_add(
    caller: McpCaller,
    text: Annotated[str, Field(min_length=1, max_length=TEXT, description="the whole SKILL.md")],
    pin: Annotated[bool, Field(description="always show it if it matches, not by chance")] = False,
) -> PlaybookSummary:
    """Add a playbook, or replace the one of the same name; its effect is then measured anew."""
    return summarise_playbook(caller.app.playbooks.add_text(text, pin))


def playbooks_pin(caller: McpCaller, name: PlaybookName) -> PlaybookSummary:
    """Always show a playbook that matches. This also brings back a retired one."""
    return summarise_playbook(caller.app.playbooks.pin(name))


def playbooks_retire(caller: McpCaller, name: PlaybookName) -> PlaybookSummary:
    """Never show this version of a playbook again."""
    return summarise_playbook(caller.app.playbooks.retire(name))


# Clients see the docstrings of these functions, and the annotations of all arguments except the first.
TOOLS: tuple[Tool, ...] = (
    (log, "analyst", False),
    (judge_run, "analyst", False),
    (playbooks, "reader", True),
    (playbooks_show, "reader", True),
    (playbooks_add, "admin", False),
    (playbooks_pin, "admin", False),
    (playbooks_retire, "admin", False),
)
