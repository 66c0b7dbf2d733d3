"""`etude runs list|show|export|repair`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from etude.cli.output import print_table, printable, replacing

if TYPE_CHECKING:
    from etude.app import App
    from etude.entities import Run, RunSummary, Step
    from etude.store.base import Page


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    listing = verbs.add_parser("list", help="list recorded runs, newest first")
    listing.add_argument("--status")
    listing.add_argument("--kind")
    listing.add_argument("--source")
    listing.add_argument("--text", help="words of the run's text, or their beginnings")
    listing.add_argument("--limit", type=int, default=20)
    listing.add_argument("--cursor", help="the cursor that the previous page ended with")
    show = verbs.add_parser("show", help="show a run with its steps")
    show.add_argument("run", help="its id, or the beginning of it")
    export = verbs.add_parser("export", help="write a run with events, code and results to a zip file")
    export.add_argument("run", help="its id, or the beginning of it")
    export.add_argument("--output", metavar="FILE", help="RUN.zip by default")
    repair = verbs.add_parser("repair", help="run queries again if their stored results are damaged or lost")
    repair.add_argument("run", help="its id, or the beginning of it")
    repair.add_argument("--source", help="where to run them, if the run's source has no registered name")
    for each in (listing, show, export, repair):
        each.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> None:
    """Run the verb."""
    from etude.app import App

    with App() as app:
        {"list": _list, "show": _show, "export": _export, "repair": _repair}[options.verb](app, options)


def _list(app: App, options: argparse.Namespace) -> None:
    page = app.store.runs(_filter(options), limit=options.limit, cursor=options.cursor)
    if options.json:
        items = [r.model_dump(mode="json") for r in page.items]
        sys.stdout.write(json.dumps({"items": items, "next": page.next}) + "\n")
        return
    print_runs(page, sys.stdout)
    if page.next:
        sys.stdout.write(f"more: --cursor {page.next}\n")


def print_runs(page: Page[RunSummary], out: IO[str]) -> None:
    """Print a table of runs."""
    rows = [
        (
            r.id,
            f"{r.created_at.astimezone():%Y-%m-%d %H:%M:%S}",
            r.kind,
            r.source or "",
            r.status,
            "" if r.row_count is None else f"{r.row_count:,}",
            "" if r.elapsed_ms is None else f"{r.elapsed_ms:,.0f}",
            r.text if len(r.text) <= 60 else r.text[:59] + "…",
        )
        for r in page.items
    ]
    names = ["run", "when", "kind", "source", "status", "rows", "ms", "text"]
    print_table(names, rows, out, [False] * 5 + [True, True, False])


def _filter(options: argparse.Namespace) -> Any:
    from pydantic import ValidationError

    from etude.entities import RunFilter
    from etude.validation import explain

    given = {k: getattr(options, k) for k in ("status", "kind", "source", "text") if getattr(options, k)}
    try:
        return RunFilter.model_validate(given)
    except ValidationError as error:
        raise explain(
            error, "the filter", name=lambda field: f"`--{field}`", hint="`etude runs list --help` says more."
        ) from None


def _show(app: App, options: argparse.Namespace) -> None:
    found = app.store.run(app.store.resolve_run(options.run))
    if options.json:
        sys.stdout.write(found.model_dump_json() + "\n")
        return
    for name, value in _facts(found):
        sys.stdout.write(f"{name:<10}{printable(str(value))}\n")
    for step in found.steps:
        _show_step(step)


def _facts(found: Run) -> list[tuple[str, Any]]:
    facts: list[tuple[str, Any]] = [("run", found.id), ("kind", found.kind), ("status", found.status)]
    facts += [
        ("source", found.source or ""),
        ("created", found.created_at.astimezone().isoformat(" ", "seconds")),
    ]
    if found.error:
        facts += [("error", found.error.get("detail", ""))]
        facts += [("hint", found.error["hint"])] if found.error.get("hint") else []
    if found.result_artifact:
        facts += [("result", f"{found.result_artifact.hash}  {found.result_artifact.size:,} bytes")]
    return facts + [("note", n) for n in found.notes]


def _show_step(step: Step) -> None:
    lines = [f"\nstep {step.kind} {step.outcome or 'running'}"]
    lines += [f"  took      {step.elapsed_ms:,.1f} ms"] if step.elapsed_ms is not None else []
    if step.estimate and step.estimate.scan_rows is not None:
        lines.append(f"  estimate  reads {step.estimate.scan_rows:,} rows, {step.estimate.scan_bytes or 0:,} bytes")
    if step.result:
        lines.append(f"  returned  {step.result.row_count:,} rows{', cut' if step.result.truncated else ''}")
    lines += [f"  read      {printable(f'{r.source}.{r.table}')}  {r.fingerprint or ''}" for r in step.reads]
    lines += [f"  versions  {', '.join(f'{k} {v}' for k, v in sorted(step.versions.items()))}", ""]
    lines += [f"    {printable(line)}" for line in step.code.splitlines()]
    sys.stdout.write("\n".join(lines) + "\n")


def _export(app: App, options: argparse.Namespace) -> None:
    from etude.capsule import write_capsule

    run_id = app.store.resolve_run(options.run)
    path = Path(options.output or f"{run_id}.zip")
    with replacing(path) as file:
        write_capsule(app.store, app.objects, run_id, file)
    sys.stdout.write(json.dumps({"run_id": run_id, "file": str(path)}) + "\n" if options.json else f"{path}\n")


def _repair(app: App, options: argparse.Namespace) -> None:
    repaired = app.repair(options.run, options.source)
    if options.json:
        sys.stdout.write(repaired.model_dump_json() + "\n")
        return
    if not repaired.files:
        sys.stdout.write(f"All {repaired.checked} files of {repaired.run_id} are intact.\n")
    outcomes = {
        "repaired": "repaired: the query returned the same bytes again",
        "changed": "lost: the query now returns another result; see run {}",
        "not a query": "lost: it is not the result of a query; run the code that made it again",
    }
    for file in repaired.files:
        sys.stdout.write(f"{file.artifact}  {outcomes[file.outcome].format(file.new_run_id)}\n")
