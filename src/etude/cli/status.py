"""`etude status`: the health of the installation, and what is wrong."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from etude.cli.output import print_output_table
from etude.cli.printable import printable

if TYPE_CHECKING:
    from etude.operations.status import Status

EXAMPLES = (
    "etude status",
    "etude status --json",
)
UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Print the status; exit with 1 if something is wrong."""
    from etude.app import App
    from etude.operations.status import installation_status

    with App() as app:
        found = installation_status(app)
    if options.json:
        sys.stdout.write(found.model_dump_json() + "\n")
    else:
        _print(found)
    return 0 if found.ok else 1


def _print(found: Status) -> None:
    facts = [("version", found.version)]
    facts += [(name, part.detail if part.ok else f"FAIL: {part.detail}") for name, part in found.parts.items()]
    facts += [
        (f"disk {disk.path}", f"{_size(disk.free_bytes)} of {_size(disk.total_bytes)} free") for disk in found.disks
    ]
    if found.queue is not None:
        queue = found.queue
        counts = f"{queue.ready:,} ready, {queue.running:,} running, {queue.delayed:,} delayed"
        facts += [("database", _size(found.store_bytes))]
        facts += [("queue", f"{counts}, {queue.failed_today:,} failed today; oldest waits {queue.oldest_s:,.1f} s")]
        facts += [
            ("agents", ", ".join(f"{count:,} {status}" for status, count in sorted(queue.agents.items())) or "none")
        ]
        open_runs = ", ".join(f"{count:,} {status}" for status, count in found.runs.items() if count)
        facts += [("open runs", open_runs or "none")]
    width = max(len(name) for name, _ in facts) + 2
    for name, value in facts:
        sys.stdout.write(f"{name:<{width}}{printable(value)}\n")
    if found.storage:
        rows = [
            (name, _size(use.files), _size(use.records), _size(use.limit) if use.limit else "no limit")
            for name, use in found.storage.items()
        ]
        sys.stdout.write("\n")
        print_output_table(["tenant", "files", "records", "limit"], rows, sys.stdout, [False, True, True, True])
    if found.processes:
        processes = [(p.role, p.host, str(p.pid), p.version, p.address, p.state) for p in found.processes]
        sys.stdout.write("\n")
        print_output_table(["process", "host", "pid", "version", "address", "state"], processes, sys.stdout)
    if found.errors:
        errors = [(f"{e.at.astimezone():%Y-%m-%d %H:%M:%S}", e.what, e.error[:80]) for e in found.errors]
        sys.stdout.write("\n")
        print_output_table(["when", "last errors", "error"], errors, sys.stdout)
    sys.stdout.write("\n")
    for text in found.notes:
        sys.stdout.write(f"note: {printable(text)}\n")
    for text in found.problems:
        sys.stdout.write(f"PROBLEM: {printable(text)}\n")
    if not found.problems:
        sys.stdout.write("Nothing is wrong.\n")


def _size(count: int) -> str:
    value, unit = float(count), 0
    while value >= 1024 and unit < len(UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:,.1f} {UNITS[unit]}" if unit else f"{count:,} bytes"
