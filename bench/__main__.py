"""`python -m bench [name ...]`: run all benchmarks or those named; the exit code is 1 where a bar does not hold."""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module

from bench.figure import print_json, print_table

NAMES = (
    "startup",
    "first_contact",
    "latency",
    "memory",
    "exports",
    "tpch",
    "sessions",
    "agent",
    "prompts",
    "offline",
    "battery",
    "number_check",
    "wide",
    "server",
    "page",
    "neighbour",
    "catalog",
    "queue",
    "agents",
    "store",
    "operations",
    "replay",
    "scripts",
    "learning",
    "search",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("names", nargs="*", metavar="name", help=f"which to run: {', '.join(NAMES)} (all)")
    parser.add_argument("--json", action="store_true", help="print JSON in place of the table")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(NAMES))
    if unknown:
        parser.error(f"there is no benchmark `{unknown[0]}`; there are: {', '.join(NAMES)}")
    figures = []
    for name in options.names or NAMES:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        measured = import_module(f"bench.{name}").measure()
        figures += measured
        if not options.json:
            # Each benchmark at once: the next one may take minutes, or fail.
            print_table(measured)
            sys.stdout.flush()
    if options.json:
        print_json(figures)
    _say_if_busy()
    return 0 if all(f.holds for f in figures) else 1


def _say_if_busy() -> None:
    # Taking turns makes both sides suffer, but not alike: ours is two processes that wait for each other.
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > cores + 1:
        print(f"note: the load was {load:.1f} on {cores} cores; repeat this on a quiet machine.", file=sys.stderr)


sys.exit(main())
