"""`etude observe [URL]`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from etude.cli.printable import printable

if TYPE_CHECKING:
    from etude.learning.observer.findings import Finding

EXAMPLES = (
    "etude observe --cycles 1",
    "etude observe https://etude.example.com --key env:ETUDE_OBSERVER_KEY --every 60",
    'etude sql @ops "SELECT kind, outcome, count(*) FROM operations GROUP BY ALL"',
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("url", nargs="?", help="a server to observe; the store of this machine by default")
    parser.add_argument("--key", help="a key of the server, or `env:NAME` or `file:PATH` that holds it")
    parser.add_argument(
        "--model", help="a model that explains failures if no rule does; that of the settings by default"
    )
    parser.add_argument("--every", type=float, default=60.0, metavar="S", help="seconds between two cycles (60)")
    parser.add_argument("--cycles", type=int, default=0, metavar="N", help="end after N cycles; 0 for no end (0)")
    parser.add_argument("--json", action="store_true", help="print JSON, one finding on each line")


def run(options: argparse.Namespace) -> None:
    """Observe, and print findings as they come."""
    from etude.app import App
    from etude.errors import EtudeError
    from etude.learning.observer.model_diagnosis import diagnose_with_model
    from etude.learning.observer.observer import OperationObserver, observe_once
    from etude.settings import read_setting_reference
    from etude.store.processes import Processes

    with App() as app, ExitStack() as listed:
        if options.url is None and not options.cycles:
            listed.enter_context(Processes(app.store).entered("observer"))
        if options.url is None:
            name = options.model or app.settings.model
            diagnose = diagnose_with_model(lambda: app.open_model(name), app.store) if name != "offline" else None
            observer = observe_once(app.store, app.settings.home, diagnose)
        else:
            from etude.learning.observer.remote_operations import read_remote_operations

            key = read_setting_reference(options.key, "The key") if options.key else ""
            observer = OperationObserver(lambda: read_remote_operations(options.url, key), app.settings.home)
        number = 0
        while True:
            number += 1
            try:
                _print(observer.cycle(), options.json)
                for name in observer.drafted:
                    sys.stderr.write(f"drafted playbook {name}; `etude playbooks show {name}` prints it\n")
            except EtudeError:
                if number in (options.cycles, 1):
                    raise
                # A server may be away for a while; the next cycle tries again.
            if number == options.cycles:
                if not observer.found:
                    sys.stderr.write("no failure happened three times\n")
                return
            time.sleep(options.every)


def _print(findings: list[Finding], as_json: bool) -> None:
    from etude.learning.observer.findings import finding_as_json as to_json

    for finding in findings:
        if as_json:
            sys.stdout.write(json.dumps(to_json(finding)) + "\n")
            continue
        print(printable(f"{finding.count} of {finding.of} operations `{finding.kind}` failed: {finding.error_key}"))
        print(printable(f"  {finding.diagnosis} {finding.suggestion}"))
        print(printable(f"  evidence: {', '.join(finding.evidence)}"))
    sys.stdout.flush()
