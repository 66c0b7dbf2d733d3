"""`etude actions list|show|cancel|retry`: the queue of agents."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from etude.cli.output import print_output_table
from etude.cli.printable import printable

if TYPE_CHECKING:
    from etude.agents.agent_control import AgentControl
    from etude.store.agents import ActionInfo

EXAMPLES = (
    "etude actions list --state failed",
    "etude actions show action_01...",
    'etude actions cancel action_01... --reason "sent twice"',
    "etude actions retry action_01...",
)
STATES = ("ready", "delayed", "running", "done", "failed", "cancelled")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    listing = verbs.add_parser("list", help="list actions, newest first")
    listing.add_argument("--agent", help="only those of this agent")
    listing.add_argument("--state", choices=STATES)
    listing.add_argument("--limit", type=int, default=20)
    listing.add_argument("--cursor", help="the cursor that the previous page ended with")
    show = verbs.add_parser("show", help="show an action with its attempts and errors")
    cancel = verbs.add_parser("cancel", help="cancel an action that waits")
    retry = verbs.add_parser("retry", help="queue an action again that failed or was cancelled")
    for each in (show, cancel, retry):
        each.add_argument("action", help="its id")
    for each in (cancel, retry):
        each.add_argument("--reason", default="", help="why; events have it")
    for each in (listing, show, cancel, retry):
        each.add_argument("--tenant", default="main", help="the tenant (main)")
        each.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> None:
    """Run the verb."""
    from etude.app import App
    from etude.cli.agents import local_agent_cause

    with App() as app:
        agents = app.scoped(options.tenant).agents
        match options.verb:
            case "list":
                _list(agents, options)
            case "cancel":
                _show(agents, agents.cancel_action(options.action, cause=local_agent_cause(options.reason)), options)
            case "retry":
                _show(agents, agents.retry_action(options.action, cause=local_agent_cause(options.reason)), options)
            case _:
                _show(agents, agents.action(options.action), options)


def _list(agents: AgentControl, options: argparse.Namespace) -> None:
    page = agents.actions(options.agent, options.state, options.limit, options.cursor)
    if options.json:
        items = [action.model_dump(mode="json") for action in page.items]
        sys.stdout.write(json.dumps({"items": items, "next": page.next}) + "\n")
        return
    rows = [
        (
            action.id,
            action.agent,
            action.kind,
            action.state,
            f"{action.attempts}/{action.max_attempts}",
            f"{action.created_at.astimezone():%Y-%m-%d %H:%M:%S}",
            (action.last_error or "")[:60],
        )
        for action in page.items
    ]
    print_output_table(["action", "agent", "kind", "state", "attempts", "created", "error"], rows, sys.stdout)
    if page.next:
        sys.stdout.write(f"more: --cursor {page.next}\n")


def _show(agents: AgentControl, action: ActionInfo, options: argparse.Namespace) -> None:
    attempts = agents.attempts(action)
    if options.json:
        steps = [step.model_dump(mode="json") for step in attempts]
        sys.stdout.write(json.dumps(action.model_dump(mode="json") | {"steps": steps}) + "\n")
        return
    facts = [
        ("action", action.id),
        ("agent", action.agent),
        ("kind", action.kind),
        ("state", action.state),
        ("attempts", f"{action.attempts} of {action.max_attempts}"),
        ("urgency", action.urgency),
        ("created", action.created_at.astimezone().isoformat(" ", "seconds")),
    ]
    facts += [("due", action.run_after.astimezone().isoformat(" ", "seconds"))] if action.run_after else []
    facts += [("ended", action.processed_at.astimezone().isoformat(" ", "seconds"))] if action.processed_at else []
    facts += [("error", action.last_error)] if action.last_error else []
    facts += [("payload", json.dumps(action.payload))] if action.payload is not None else []
    for name, value in facts:
        sys.stdout.write(f"{name:<10}{printable(str(value))}\n")
    for step in attempts:
        seconds = (step.ended_at - step.started_at).total_seconds()
        sys.stdout.write(f"\nstep {step.step_no} {step.outcome}  {seconds:.2f} s\n")
        if step.error:
            sys.stdout.write(f"    {printable(step.error)}\n")
