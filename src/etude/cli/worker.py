"""`etude worker`: run the agents of the store, beside other workers."""

from __future__ import annotations

import argparse
import signal
import sys
import threading


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("--slots", type=int, default=8, help="how many steps may run at once (8)")
    parser.add_argument(
        "--drain", type=float, default=30.0, metavar="SECONDS", help="for steps that run at the end (30)"
    )


def run(options: argparse.Namespace) -> None:
    """Work until told to stop; then let the steps that run end."""
    from etude.agents.worker import Worker
    from etude.app import App
    from etude.errors import Invalid

    if options.slots < 1:
        raise Invalid(f"A worker with {options.slots} slots runs nothing.", hint="Give at least 1.")
    if not options.drain >= 0:
        raise Invalid(f"Steps cannot have {options.drain:g} s to end.", hint="Give 0 or more with `--drain`.")
    told = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: told.set())
    with App() as app:
        worker = Worker(app, slots=options.slots).start()
        sys.stderr.write(f"{app.store.worker_id} works, {options.slots} steps at once; Ctrl-C ends it.\n")
        told.wait()
        sys.stderr.write("no new steps; waiting for those that run ...\n")
        worker.stop(options.drain)
