"""`etude agents create|list|show|message|pause|resume|steer|interrupt|reload|destroy|watch`."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from contextlib import suppress
from glob import glob
from typing import TYPE_CHECKING, Any

from etude.cli.output import print_table, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from etude.agents.control import Agents
    from etude.app import App
    from etude.store.agents import AgentInfo

SHOWN = 60
TEXT = (str, str | None)
"""Fields of a configuration whose values are text, also where they look like numbers."""
COLOURS = {"running": "green", "queued": "cyan", "paused": "yellow", "pausing": "yellow", "destroying": "red"}

COLUMNS = (
    ("agent", False, 0),
    ("kind", False, 72),
    ("activity", False, 0),
    ("steps", True, 56),
    ("cost $", True, 72),
    ("next", True, 64),
)
"""Of the live view: whether at the right, and how wide a terminal must be to show them."""
MOST = 200
FRAME = 5
"""Lines of the live view that are no agents: the title, the head and the borders."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    create = verbs.add_parser("create", help="a new agent, which begins as soon as a worker runs")
    create.add_argument("kind", help="such as `analyst`, `watch` or `echo`")
    create.add_argument(
        "settings", nargs="*", default=[], metavar="KEY=VALUE", help="its configuration; a value may be JSON"
    )
    create.add_argument("--id", help="its name; made up by default")
    listing = verbs.add_parser("list", help="agents, newest first")
    listing.add_argument("--status", choices=("active", "paused", "destroying", "destroyed"))
    listing.add_argument("--limit", type=int, default=20)
    listing.add_argument("--cursor", help="where the page before ended")
    show = verbs.add_parser("show", help="one agent, with its last steps")
    message = verbs.add_parser("message", help="have it read something in a step of its own")
    pause = verbs.add_parser("pause", help="make no further step")
    pause.add_argument("--now", action="store_true", help="break off the step that runs, too")
    resume = verbs.add_parser("resume", help="go on, with guidance or without")
    steer = verbs.add_parser("steer", help="have it read guidance before its next call of a model")
    interrupt = verbs.add_parser("interrupt", help="break off its step; the next begins with the guidance")
    reload = verbs.add_parser("reload", help="see settings, sources and configuration as they are now")
    destroy = verbs.add_parser("destroy", help="end it; what it did stays on record")
    destroy.add_argument("--grace", type=float, default=30.0, metavar="SECONDS", help="for the step that runs (30)")
    for each in (show, message, pause, resume, steer, interrupt, reload, destroy):
        each.add_argument("agent", help="its id")
    for each in (message, steer):
        each.add_argument("text", help="text, or JSON")
    for each in (resume, interrupt):
        each.add_argument("text", nargs="?", help="text, or JSON")
    reload.add_argument(
        "settings", nargs="*", default=[], metavar="KEY=VALUE", help="what changes in its configuration"
    )
    for each in verbs.choices.values():
        each.add_argument("--json", action="store_true", help="print JSON")
    verbs.add_parser("watch", help="what agents do, live; ends with Ctrl-C")


def run(options: argparse.Namespace) -> None:
    """Do what the verb says."""
    from etude.app import App

    with App() as app:
        agents = app.agents
        if options.verb == "list":
            _list(agents, options)
        elif options.verb == "watch":
            _watch(agents)
        elif options.verb == "message":
            action = agents.message(options.agent, _value(options.text))
            sys.stdout.write(json.dumps({"action": action}) + "\n" if options.json else f"{action}\n")
        else:
            _show(agents, _do(app, options), options)


def _do(app: App, options: argparse.Namespace) -> AgentInfo:
    agents = app.agents
    guidance = _value(options.text) if getattr(options, "text", None) is not None else None
    match options.verb:
        case "create":
            return agents.create(options.kind, _settings(app, options.kind, options.settings), options.id)
        case "pause":
            return agents.pause(options.agent, "now" if options.now else "after_step")
        case "resume":
            return agents.resume(options.agent, guidance)
        case "steer":
            return agents.steer(options.agent, guidance)
        case "interrupt":
            return agents.interrupt(options.agent, guidance)
        case "reload":
            changed = _settings(app, agents.get(options.agent).kind, options.settings)
            return agents.reload(options.agent, changed)
        case "destroy":
            return agents.destroy(options.agent, options.grace)
        case _:
            return agents.get(options.agent)


def _settings(app: App, kind: str, pairs: list[str]) -> dict[str, Any]:
    from etude.agents.control import load_kind
    from etude.errors import Invalid

    fields, found = load_kind(kind).Config.model_fields, {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise Invalid(f"`{pair}` is not a setting of an agent.", hint="Write key=value.")
        read = _value(value)
        text = key in fields and fields[key].annotation in TEXT and read is not None and not isinstance(read, str)
        found[key] = value if text else read
    source = found.get("source")
    if isinstance(source, str) and source not in app.sources():
        found["source"] = _anywhere(source)
    return found


def _anywhere(source: str) -> str:
    """A path so that it means the same where the worker runs."""
    from etude.sources.source import local_path

    path = os.path.expanduser(source)
    return local_path(source) if os.path.exists(path) or glob(path) else source


def _value(text: str) -> Any:
    """What JSON says, which has no NaN; anything else is text."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError:
        return text


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _list(agents: Agents, options: argparse.Namespace) -> None:
    page = agents.list(options.status, options.limit, options.cursor)
    if options.json:
        items = [a.model_dump(mode="json") for a in page.items]
        sys.stdout.write(json.dumps({"items": items, "next": page.next}) + "\n")
        return
    rows = [_row(agent) for agent in page.items]
    names = ["agent", "kind", "activity", "steps", "cost $", "next", "last result"]
    print_table(names, rows, sys.stdout, [False, False, False, True, True, True, False])
    if page.next:
        sys.stdout.write(f"more: --cursor {page.next}\n")


def _row(agent: AgentInfo, width: int = SHOWN) -> tuple[str, ...]:
    cost = f"{agent.cost_usd:.4f}" if agent.cost_usd else ""
    last = agent.last_error if agent.last_error else _shown(agent.last_output)
    return (agent.id, agent.kind, agent.activity, str(agent.step_no), cost, _until(agent), _cut(last, width))


def _until(agent: AgentInfo) -> str:
    if agent.next_at is None or agent.activity != "waiting":
        return ""
    seconds = agent.next_at.timestamp() - time.time()
    if seconds <= 0:
        return "due"
    return f"in {seconds:.0f} s" if seconds < 120 else f"{agent.next_at.astimezone():%d %b %H:%M}"


def _shown(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def _cut(text: str, width: int = SHOWN) -> str:
    return printable(text if len(text) <= width else text[: width - 1] + "…")


def _show(agents: Agents, agent: AgentInfo, options: argparse.Namespace) -> None:
    if options.json:
        sys.stdout.write(agent.model_dump_json() + "\n")
        return
    facts: list[tuple[str, Any]] = [
        ("agent", agent.id),
        ("kind", agent.kind),
        ("status", agent.status),
        ("activity", agent.activity),
        ("config", json.dumps(agent.config)),
        ("steps", agent.step_no),
    ]
    facts += [("cost", f"${agent.cost_usd:.4f}, {agent.tokens:,} tokens")] if agent.tokens or agent.cost_usd else []
    facts += [("next", agent.next_at.astimezone().isoformat(" ", "seconds"))] if agent.next_at else []
    facts += [("error", agent.last_error)] if agent.last_error else []
    for name, value in facts:
        sys.stdout.write(f"{name:<10}{printable(str(value))}\n")
    if options.verb == "create":
        sys.stderr.write("It begins as soon as a worker runs: `etude serve` has one inside, `etude worker` is one.\n")
    if options.verb != "show":
        return
    document = agents.state(agent.id).get("document")
    if isinstance(document, str):
        sys.stdout.write("\n" + "".join(f"{printable(line)}\n" for line in document.splitlines()))
    for step in agents.steps(agent.id, after=max(0, agent.step_no - 10)):
        seconds = (step.ended_at - step.started_at).total_seconds()
        said = _cut(step.error or _shown(step.output))
        sys.stdout.write(f"\nstep {step.step_no} {step.kind} {step.outcome}  {seconds:.2f} s\n    {said}\n")


def _watch(agents: Agents) -> None:
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console.print(_table(agents, console.width, MOST))
        return
    from rich.live import Live

    from etude.agents.hub import Hub

    first = _fit(agents, console)
    view = Live(first, console=console, screen=True, auto_refresh=False)
    # Ctrl-C is how it ends.
    with suppress(KeyboardInterrupt), Hub(agents.queue) as hub, view as live:
        while True:
            # Something happened, or a second is over: countdowns go on.
            hub.wait(hub.at, 1.0)
            live.update(_fit(agents, console), refresh=True)


def _fit(agents: Agents, console: Console) -> Table:
    return _table(agents, console.width, max(1, console.height - FRAME))


def _table(agents: Agents, width: int, height: int) -> Table:
    """The newest agents, a line for each."""
    from rich.table import Table
    from rich.text import Text

    page = agents.list(limit=MOST)
    busy = sum(agent.activity == "running" for agent in page.items)
    count = f"the newest {len(page.items)} agents" if page.next else f"{len(page.items)} agents"
    shown = f", {height} shown" if len(page.items) > height else ""
    table = Table(title=f"{count}, {busy} at work{shown}", expand=True, title_justify="left")
    columns = [(name, right) for name, right, least in COLUMNS if width >= least]
    for name, right in columns:
        table.add_column(name, justify="right" if right else "left", no_wrap=True, max_width=width // 4)
    table.add_column("last result", ratio=1, min_width=8, no_wrap=True)
    for agent in page.items[:height]:
        *cells, last = _row(agent, width)
        style = COLOURS.get(agent.activity, "dim")
        wide = [cell for cell, (_, _, least) in zip(cells, COLUMNS) if width >= least]
        texts = [Text(printable(cell), style=style if cell == agent.activity else "") for cell in wide]
        table.add_row(*texts, Text(last, style="red" if agent.last_error else ""))
    return table
