"""`etude worker`: run the agents of the store, next to other workers."""

from __future__ import annotations

import argparse
import signal
import sys
import threading

EXAMPLES = (
    "etude worker",
    "etude worker --slots 4",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--slots", type=int, default=8, help="how many steps may run at once (8)")
    parser.add_argument(
        "--drain", type=float, default=30.0, metavar="SECONDS", help="time for running steps to finish at shutdown (30)"
    )


def run(options: argparse.Namespace) -> None:
    """Run agents until stopped, then let running steps finish."""
    from etude.agents.worker import Worker
    from etude.app import App
    from etude.errors import Invalid
    from etude.process_confinement import share_process_arenas
    from etude.store.processes import ProcessHeartbeat
    from etude.telemetry import configure_telemetry_logs

    if options.slots < 1:
        raise Invalid(f"`--slots {options.slots}` would run nothing.", hint="Give at least 1.")
    if not options.drain >= 0:
        raise Invalid(f"`--drain {options.drain:g}` is not a valid time.", hint="Give 0 or more seconds.")
    share_process_arenas()
    configure_telemetry_logs()
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    with App() as app:
        worker = Worker(app, slots=options.slots).start()
        heartbeat = ProcessHeartbeat(app.store, "worker", working=lambda: worker.responsive).start()
        sys.stderr.write(f"{app.store.worker_id} runs up to {options.slots} steps at once; Ctrl-C stops it.\n")
        stopped.wait()
        sys.stderr.write("no new steps; waiting for running steps ...\n")
        worker.stop(options.drain)
        heartbeat.stop()
