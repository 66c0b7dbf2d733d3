"""`etude check store|source|sandbox|model`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from etude.cli.printable import printable

if TYPE_CHECKING:
    from etude.app import App
    from etude.conformance import CheckResult

EXAMPLES = (
    "etude check store",
    "etude check source shop.duckdb",
    "etude check sandbox",
    "etude check model openai:gpt-5",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    subjects = parser.add_subparsers(dest="subject", required=True, metavar="SUBJECT")
    store = subjects.add_parser("store", help="the store and the object store in the settings")
    source = subjects.add_parser("source", help="a source")
    source.add_argument("name", help="a name, a path or a URL")
    sandbox = subjects.add_parser("sandbox", help="a sandbox provider")
    sandbox.add_argument("name", nargs="?", help="local, container, ...; by default the one in the settings")
    model = subjects.add_parser("model", help="a model")
    model.add_argument("name", nargs="?", help="such as openai:gpt-5; by default the one in the settings")
    for each in (store, source, sandbox, model):
        each.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Run the checks and print each result at once; exit with 1 if one failed."""
    from etude.app import App

    failed = 0
    with App() as app:
        for result in _results(app, options):
            failed += not result.ok
            if options.json:
                sys.stdout.write(json.dumps(asdict(result)) + "\n")
            else:
                mark = "ok  " if result.ok else "FAIL"
                sys.stdout.write(f"{mark} {result.name:<24}{result.ms:>8.0f} ms  {printable(result.detail)}\n")
            sys.stdout.flush()
    return 1 if failed else 0


def _results(app: App, options: argparse.Namespace) -> Iterator[CheckResult]:
    if options.subject == "source":
        from etude.sources.check import check_source

        app.pool.warm()
        yield from check_source(app.source(options.name))
        return
    if options.subject == "sandbox":
        from etude.sessions.check import check_sandbox

        provider = app.open_sandbox(options.name or app.settings.sandbox)
        try:
            yield from check_sandbox(provider)
        finally:
            provider.close()
        return
    if options.subject == "model":
        from etude.models.check import check_model
        from etude.models.open import open_model

        model = open_model(options.name or app.settings.model, app.settings)
        try:
            yield from check_model(model)
        finally:
            model.close()
        return
    from etude.store.check import check_objects, check_store

    yield from check_store(app.store)
    yield from check_objects(lambda: app.objects)
