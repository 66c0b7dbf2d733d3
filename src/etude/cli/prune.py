"""`etude prune`: delete what is older than the settings below `retention` keep it."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from etude.cli.output import print_output_table

if TYPE_CHECKING:
    from etude.operations.prune import Pruned

EXAMPLES = (
    "etude prune --dry-run",
    "etude prune",
    "etude prune --tenant acme --orphans",
)
KINDS = ("runs", "results", "threads", "actions", "events", "steps", "agents", "audit", "catalogs", "indexes")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--dry-run", action="store_true", help="only count what would be deleted, and say what stays")
    parser.add_argument("--tenant", help="only records of this tenant")
    parser.add_argument(
        "--orphans", action="store_true", help="also look for files that no run ever referred to; reads the whole list"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> None:
    """Delete old records and files that no run refers to."""
    from etude.app import App
    from etude.operations.prune import prune

    with App() as app:
        report = prune(app, dry_run=options.dry_run, tenant=options.tenant, orphans=options.orphans)
    if options.json:
        sys.stdout.write(json.dumps(report.as_json()) + "\n")
    else:
        _print(report)


def _print(report: Pruned) -> None:
    rows = [(tenant, *(f"{getattr(done, kind):,}" for kind in KINDS)) for tenant, done in report.tenants.items()]
    print_output_table(["tenant", *KINDS], rows, sys.stdout, [False, *[True] * len(KINDS)])
    for tenant, done in report.tenants.items():
        for reason, count in done.kept.items():
            sys.stdout.write(f"{tenant}: {count:,} old runs stay: {reason}\n")
    if report.dry_run:
        sys.stdout.write("Nothing was deleted.\n")
        return
    sys.stdout.write(f"Removed {report.artifacts:,} files of {report.bytes:,} bytes that no run refers to.\n")
    if report.waiting:
        sys.stdout.write(f"{report.waiting:,} files are too new to be removed; a later prune removes them.\n")
