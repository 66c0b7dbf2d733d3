"""`etude runs`: list, show, export, replay, compare, judge, pin and delete runs; list and withdraw scripts."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from etude.cli.options import add_output_options
from etude.cli.output import chosen_output_format, print_output_table, replace_output_file, write_result_output
from etude.cli.printable import printable, printable_lines
from etude.cli.table import format_table_row_count

if TYPE_CHECKING:
    from etude.app import App
    from etude.entities import Run, RunSummary, Step
    from etude.replays.differences import MovedDifference
    from etude.store.paging import Page
    from etude.store.scripts import ScriptUse

EXAMPLES = (
    "etude runs list --kind sql --limit 5",
    "etude runs show run_01...",
    "etude runs result run_01... --format csv",
    "etude runs script run_01... --output run.py",
    "etude runs export run_01... --output run.zip",
    "etude runs repair run_01...",
    "etude runs replay run_01...",
    "etude runs diff run_01... run_02...",
    "etude runs feedback run_01... wrong --comment 'net of tax'",
    "etude runs scripts",
    'etude runs pin run_01... --reason "audit 2026"',
    "etude runs delete run_01...",
)


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
    result = verbs.add_parser("result", help="print or write the result of a run")
    result.add_argument("run", help="its id, or the beginning of it")
    result.add_argument("--result", metavar="NAME", help="another result that the answer shows, such as r2")
    add_output_options(result)
    script = verbs.add_parser("script", help="print a run as a Python file that runs alone, with parameters and guards")
    script.add_argument("run", help="its id, or the beginning of it")
    script.add_argument("--output", metavar="FILE", help="write here instead of standard output")
    export = verbs.add_parser("export", help="write a run with events, code and results to a zip file")
    export.add_argument("run", help="its id, or the beginning of it")
    export.add_argument("file", nargs="?", help="where to write it; RUN.zip by default")
    export.add_argument("--output", metavar="FILE", help="the same")
    repair = verbs.add_parser("repair", help="run queries again if their stored results are damaged or lost")
    repair.add_argument("run", help="its id, or the beginning of it")
    repair.add_argument("--source", help="where to run them, if the run's source has no registered name")
    again = verbs.add_parser("replay", help="run a recorded run again without a model, and compare the results")
    again.add_argument("run", help="its id, the beginning of it, or a file that `export` wrote")
    again.add_argument("--source", help="where to run it, if not on the source of the run")
    diff = verbs.add_parser("diff", help="say why two runs differ, and show the rows that moved")
    diff.add_argument("first", help="the id of a run")
    diff.add_argument("second", help="the id of another")
    feedback = verbs.add_parser("feedback", help="say whether an answer is right; a wrong one is not replayed")
    feedback.add_argument("run", help="its id, or the beginning of it")
    feedback.add_argument("verdict", choices=("right", "wrong"))
    feedback.add_argument("--comment", default="", help="why, for the record")
    scripts = verbs.add_parser("scripts", help="list the scripts that answer questions again")
    scripts.add_argument("--limit", type=int, default=20)
    withdraw = verbs.add_parser("withdraw", help="let a script answer nothing any more, and list what it answered")
    withdraw.add_argument("script", help="its id, or that of the run it was compiled from")
    withdraw.add_argument("--reason", default="", help="why, for the record")
    withdraw.add_argument(
        "--check", action="store_true", help="ask every question that it answered afresh, and compare"
    )
    uses = verbs.add_parser(
        "uses", help="list the answers that used a script, a playbook or the descriptions of a source"
    )
    uses.add_argument("thing", help="the id of a script or of its run, playbook:NAME or description:SOURCE")
    uses.add_argument("--check", action="store_true", help="ask every question afresh, and compare")
    delete = verbs.add_parser("delete", help="delete runs that have ended, with their results")
    delete.add_argument("runs", nargs="+", metavar="RUN", help="their ids, or the beginnings of these")
    delete.add_argument("--forget-evidence", action="store_true", help="also their outcomes as evidence for playbooks")
    pin = verbs.add_parser("pin", help="keep a run, whatever the retention settings say")
    pin.add_argument("--reason", default="", help="why, for the record")
    unpin = verbs.add_parser("unpin", help="let the retention settings decide about a run again")
    for each in (pin, unpin):
        each.add_argument("run", help="its id, or the beginning of it")
    pins = verbs.add_parser("pins", help="list the pinned runs")
    pins.add_argument("--limit", type=int, default=50)
    lists = (listing, scripts, uses, pins)
    for each in (*lists, show, export, repair, again, diff, feedback, withdraw, delete, pin, unpin):
        each.add_argument("--json", action="store_true", help="print JSON")
    for each in verbs.choices.values():
        each.add_argument("--tenant", default="main", help="the tenant of the runs (main)")


def run(options: argparse.Namespace) -> int:
    """Run the verb."""
    from etude.app import App

    verbs: dict[str, Callable[[App, argparse.Namespace], int | None]] = {
        "list": _list,
        "show": _show,
        "result": _result,
        "script": _script,
        "export": _export,
        "repair": _repair,
        "replay": _replay,
        "diff": _diff,
        "feedback": _feedback,
        "scripts": _scripts,
        "uses": _uses,
        "withdraw": _withdraw,
        "delete": _delete,
        "pin": _pin,
        "unpin": _unpin,
        "pins": _pins,
    }
    with App() as app:
        return verbs[options.verb](app.scoped(options.tenant), options) or 0


def _list(app: App, options: argparse.Namespace) -> None:
    page = app.store.runs(_filter(options), limit=options.limit, cursor=options.cursor)
    if options.json:
        items = [r.model_dump(mode="json") for r in page.items]
        sys.stdout.write(json.dumps({"items": items, "next": page.next}) + "\n")
        return
    print_runs(page, sys.stdout)
    if page.next:
        sys.stdout.write(f"more: --cursor {page.next}\n")
    if page.items:
        sys.stderr.write("`etude runs show RUN` shows a run; `runs result` and `runs script` print what it made.\n")


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
    print_output_table(names, rows, out, [False] * 5 + [True, True, False])


def _filter(options: argparse.Namespace) -> Any:
    from pydantic import ValidationError

    from etude.entities import RunFilter
    from etude.validation import explain_validation

    given = {k: getattr(options, k) for k in ("status", "kind", "source", "text") if getattr(options, k)}
    try:
        return RunFilter.model_validate(given)
    except ValidationError as error:
        raise explain_validation(
            error, "the filter", name=lambda field: f"`--{field}`", hint="`etude runs list --help` says more."
        ) from None


def _show(app: App, options: argparse.Namespace) -> None:
    found = app.store.run(app.store.resolve_run(options.run))
    if options.json:
        sys.stdout.write(found.model_dump_json() + "\n")
        return
    for name, value in _facts(found):
        sys.stdout.write(f"{name:<10}{printable(str(value))}\n")
    if found.answer:
        sys.stdout.write(f"\n{printable_lines(found.answer)}\n")
    for step in found.steps:
        _show_step(app, found, step)
    sys.stdout.write("\n")
    for name, command in _commands(found):
        sys.stdout.write(f"{name:<10}{command}\n")


def _commands(found: Run) -> list[tuple[str, str]]:
    """Return the commands that print what a run made."""
    from etude.errors import NotFound
    from etude.runtime.standalone_script import standalone_script_of_run

    commands = [("result", f"etude runs result {found.id}")] if found.result_artifact else []
    with contextlib.suppress(NotFound):
        standalone_script_of_run(found)
        commands.append(("script", f"etude runs script {found.id}"))
    return commands


def _result(app: App, options: argparse.Namespace) -> None:
    chosen_output_format(options)
    write_result_output(app.result(options.run, options.result), options)


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
        facts += [("artifact", f"{found.result_artifact.hash}  {found.result_artifact.size:,} bytes")]
    if found.chart:
        mark = found.chart.get("mark")
        form = mark.get("type") if isinstance(mark, dict) else mark or "several parts"
        facts += [("chart", f"Vega-Lite, {form}; `--json` shows it")]
    if found.replay and found.replay.sentence:
        facts += [("replay", found.replay.sentence)]
    elif found.replay:
        facts += [("replay", f"{found.replay.level}: {found.replay.reason} {found.replay.suggestion}".rstrip())]
    if found.script:
        facts += [("script", found.script)]
    if (used := found.usage).tokens_in:
        cached = f" ({used.tokens_cached:,} from a cache)" if used.tokens_cached else ""
        facts += [("tokens", f"{used.tokens_in:,} read{cached}, {used.tokens_out:,} written")]
    return facts + [("note", n) for n in found.notes]


def _show_step(app: App, found: Run, step: Step) -> None:
    lines = [f"\nstep {step.kind} {step.outcome or 'running'}"]
    lines += [f"  took      {step.elapsed_ms:,.1f} ms"] if step.elapsed_ms is not None else []
    if step.estimate and step.estimate.scan_rows is not None:
        lines.append(f"  estimate  reads {step.estimate.scan_rows:,} rows, {step.estimate.scan_bytes or 0:,} bytes")
    if step.result:
        lines.append(
            f"  returned  {format_table_row_count(step.result.row_count)}{', cut' if step.result.truncated else ''}"
        )
    lines += [f"  read      {printable(f'{r.source}.{r.table}')}  {r.fingerprint or ''}" for r in step.reads]
    lines += [f"  versions  {', '.join(f'{k} {v}' for k, v in sorted(step.versions.items()))}", ""]
    lines += [f"    {printable(line)}" for line in step.code.splitlines()]
    if printed := _printed(app, found, step):
        lines += ["", "  printed", *(f"    {printable(line)}" for line in printed.splitlines())]
    sys.stdout.write("\n".join(lines) + "\n")


def _printed(app: App, found: Run, step: Step) -> str:
    """Return what a cell printed, and its value."""
    from etude.errors import Damaged, NotFound
    from etude.runtime.query import CELL

    if step.artifact is None or step.artifact.media != CELL:
        return ""
    try:
        cell = json.loads(app.objects.get(step.artifact.hash, found.id))
    except (Damaged, NotFound) as error:
        return f"({error})"
    text = "".join(str(cell.get(part) or "") for part in ("stdout", "stderr"))
    value = cell.get("text") or ""
    return f"{text.rstrip()}\n{value}".strip("\n")


def _export(app: App, options: argparse.Namespace) -> None:
    run_id = app.store.resolve_run(options.run)
    path = Path(options.output or options.file or f"{run_id}.zip")
    with replace_output_file(path) as file:
        app.export_run(run_id, file)
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


def _script(app: App, options: argparse.Namespace) -> None:
    text = app.script(options.run)
    if options.output:
        with replace_output_file(Path(options.output)) as file:
            file.write(text.encode())
    else:
        sys.stdout.write(text)


def _replay(app: App, options: argparse.Namespace) -> int:
    proof = app.replay(options.run, options.source)
    if options.json:
        sys.stdout.write(proof.model_dump_json() + "\n")
    else:
        sys.stdout.write(f"{printable(proof.sentence)}\n")
        for step in proof.steps:
            first = step.code.strip().splitlines()[0] if step.code.strip() else ""
            sys.stdout.write(f"  {step.step:>3}  {step.outcome:<9}  {printable(first[:90])}\n")
            if step.moved is not None:
                _print_moved(step.moved)
    return 0 if proof.same else 1


def _print_moved(moved: MovedDifference) -> None:
    rows = [("-", *row) for row in moved.lost] + [("+", *row) for row in moved.added]
    if rows:
        print_output_table(["", *moved.columns], rows, sys.stdout)


def _diff(app: App, options: argparse.Namespace) -> None:
    found = app.compare_runs(options.first, options.second)
    if options.json:
        sys.stdout.write(found.model_dump_json() + "\n")
        return
    sys.stdout.write(f"cause     {found.cause}\n          {printable(found.detail)}\n")
    for text in found.also:
        sys.stdout.write(f"also      {printable(text)}\n")
    if found.moved is None:
        sys.stdout.write("result    the same rows\n" if found.same_result else "result    none to compare\n")
    else:
        sys.stdout.write(f"result    {printable(found.moved.sentence)}\n")
        _print_moved(found.moved)


def _feedback(app: App, options: argparse.Namespace) -> None:
    given = app.give_feedback(options.run, options.verdict, options.comment)
    if options.json:
        sys.stdout.write(given.model_dump_json() + "\n")
        return
    sys.stdout.write(f"{given.run_id} is noted as {given.verdict}.\n")
    for script in given.suspended:
        sys.stdout.write(f"{script} is suspended.\n")


def _scripts(app: App, options: argparse.Namespace) -> None:
    scripts = app.scripts.stored.list(options.limit)
    if options.json:
        for each in scripts:
            uses = [{"run_id": u.run_id, "level": u.level} for u in app.scripts.stored.uses(each.id)]
            facts = {"id": each.id, "run_id": each.run_id, "source": each.source, "question": each.question}
            state = {"state": each.state, "reason": each.reason, "created_at": each.created_at.isoformat()}
            sys.stdout.write(json.dumps(facts | state | {"uses": uses}) + "\n")
        return
    rows = [
        (s.id, s.source, s.state, len(app.scripts.stored.uses(s.id)), s.question[:60], s.reason[:60]) for s in scripts
    ]
    print_output_table(["script", "source", "state", "uses", "question", "reason"], rows, sys.stdout)


def _withdraw(app: App, options: argparse.Namespace) -> int:
    script, uses = app.scripts.withdraw(options.script, options.reason)
    count = f"{len(uses)} run{'' if len(uses) == 1 else 's'}"
    title = f"{script.id} is withdrawn. It answered {count}."
    return _print_uses(app, options, {"script": script.id, "state": script.state}, title, uses)


def _uses(app: App, options: argparse.Namespace) -> int:
    thing = options.thing
    if ":" not in thing:
        thing = app.scripts.stored.get(thing).id
    uses = app.scripts.stored.uses(thing)
    title = f"{len(uses)} run{'' if len(uses) == 1 else 's'} used {thing}."
    return _print_uses(app, options, {"thing": thing}, title, uses)


def _print_uses(
    app: App, options: argparse.Namespace, about: dict[str, str], title: str, uses: Sequence[ScriptUse]
) -> int:
    """Print the answers that used something; with `--check`, exit with 1 if one of them is another one afresh."""
    checked = {use.run_id: app.scripts.recheck(use.run_id) for use in uses} if options.check else {}
    if options.json:
        runs = [
            {"run_id": u.run_id, "level": u.level}
            | ({"same": checked[u.run_id].same_result, "fresh_run_id": checked[u.run_id].second} if checked else {})
            for u in uses
        ]
        sys.stdout.write(json.dumps(about | {"answered": runs}) + "\n")
    else:
        sys.stdout.write(f"{printable(title)}\n")
        for use in uses:
            found = checked.get(use.run_id)
            told = ""
            if found is not None:
                told = "  the same afresh" if found.same_result else f"  differs from {found.second}: {found.detail}"
            line = f"  {use.run_id}  {use.at.astimezone():%Y-%m-%d %H:%M}  {use.level:<8}{told}"
            sys.stdout.write(f"{printable(line)}\n")
    return 0 if all(found.same_result for found in checked.values()) else 1


def _delete(app: App, options: argparse.Namespace) -> None:
    from etude.errors import Conflict
    from etude.operations.prune import Pruned, prune_artifacts
    from etude.store.retention import Retention

    retention = Retention(app.store)
    run_ids = [app.store.resolve_run(run) for run in options.runs]
    for run_id in run_ids:
        retention.check_deletable(run_id)
    deleted = retention.delete_runs(run_ids, options.forget_evidence)
    if deleted < len(set(run_ids)):
        raise Conflict(f"Only {deleted} of {len(set(run_ids))} runs were deleted.", hint="Others changed meanwhile.")
    report = Pruned(dry_run=False)
    prune_artifacts(app, report)
    if options.json:
        body = {"deleted": run_ids, "files": report.artifacts, "bytes": report.bytes, "waiting": report.waiting}
        sys.stdout.write(json.dumps(body) + "\n")
        return
    sys.stdout.write(f"Deleted {deleted} run{'' if deleted == 1 else 's'} and {report.artifacts} files.\n")
    if report.waiting:
        sys.stdout.write(f"{report.waiting} files are too new to be removed; `etude prune` removes them in an hour.\n")


def _pin(app: App, options: argparse.Namespace) -> None:
    from etude.store.retention import Retention

    run_id = app.store.resolve_run(options.run)
    Retention(app.store).pin(run_id, options.reason)
    sys.stdout.write(json.dumps({"pinned": run_id}) + "\n" if options.json else f"pinned {run_id}\n")


def _unpin(app: App, options: argparse.Namespace) -> None:
    from etude.store.retention import Retention

    run_id = app.store.resolve_run(options.run)
    Retention(app.store).unpin(run_id)
    sys.stdout.write(json.dumps({"unpinned": run_id}) + "\n" if options.json else f"unpinned {run_id}\n")


def _pins(app: App, options: argparse.Namespace) -> None:
    from etude.store.retention import Retention

    pins = Retention(app.store).pins(options.limit)
    if options.json:
        for each in pins:
            facts = {"run_id": each.run_id, "reason": each.reason, "at": each.at.isoformat()}
            sys.stdout.write(json.dumps(facts) + "\n")
        return
    rows = [(each.run_id, f"{each.at.astimezone():%Y-%m-%d %H:%M}", each.reason) for each in pins]
    print_output_table(["run", "pinned", "reason"], rows, sys.stdout)
