"""`etude events`: the events of agents, as a list or as they come."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from etude.cli.printable import printable

if TYPE_CHECKING:
    from etude.store.topics import HubEvent

EXAMPLES = (
    "etude events",
    "etude events --topic 'agent.*' --agent orders --limit 20",
    "etude events --follow --json",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--topic", default="*", help="a topic, or a pattern such as agent.* (all)")
    parser.add_argument("--agent", help="only events of this agent")
    parser.add_argument("--after", type=int, metavar="ID", help="the first events after this id; the newest by default")
    parser.add_argument("--limit", type=int, default=50)
    parser.add_argument("--tenant", default="main", help="the tenant (main)")
    parser.add_argument("--follow", action="store_true", help="continue with new events; Ctrl-C ends it")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> None:
    """Print events in order."""
    from etude.app import App
    from etude.store.topics import Topics

    with App() as app:
        queue = app.scoped(options.tenant).agents.queue
        last = options.after or 0
        for event in Topics(queue).list(options.topic, options.agent, options.after, options.limit):
            _print(event, options.json)
            last = max(last, event.id)
        if not options.follow:
            return
        sys.stdout.flush()
        from etude.agents.hub import Hub

        with suppress(KeyboardInterrupt), Hub(queue) as hub:
            while True:
                for event in Topics(queue).list(options.topic, options.agent, last, options.limit):
                    _print(event, options.json)
                    last = event.id
                sys.stdout.flush()
                hub.wait(hub.at, 1.0)


def _print(event: HubEvent, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(event.model_dump_json(exclude={"tenant"}) + "\n")
        return
    at = f"{event.created_at.astimezone():%Y-%m-%d %H:%M:%S}"
    sys.stdout.write(
        f"{event.id:>8}  {at}  {event.topic:<24}{event.agent or '':<20}{printable(json.dumps(event.body))}\n"
    )
