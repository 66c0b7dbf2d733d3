"""`etude sources add|list|show|describe|questions|remove`."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from etude.cli.output import print_output_table
from etude.cli.printable import printable
from etude.cli.progress import Progress
from etude.errors import Invalid
from etude.redaction import redact

if TYPE_CHECKING:
    from etude.app import App
    from etude.entities import Catalog, Table

EXAMPLES = (
    "etude sources add shop shop.duckdb",
    "etude sources add crm env:CRM_URL --tables customers,orders",
    "etude sources add sales sales.csv --server https://etude.example.com --key env:ETUDE_TEAM_KEY",
    "etude sources list",
    "etude sources show shop",
    'etude sources describe shop orders.amount "in cents, without tax"',
    "etude sources describe shop orders.amount --withdraw",
    "etude sources remove shop",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    add = verbs.add_parser("add", help="register a source under a name")
    add.add_argument("name")
    add.add_argument("url", help="a path, a glob or a URL; or env:NAME or file:PATH, to keep a secret elsewhere")
    add.add_argument("--tables", help="grant only these tables, separated by commas")
    add.add_argument("--strict", action="store_true", help="refuse a server's role that may do more than read them")
    add.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the source, such as dates=mdy or decimal=, for files; may be given several times",
    )
    show = verbs.add_parser("show", help="show the tables and columns of a source")
    show.add_argument("name", help="a name, a path or a URL")
    describe = verbs.add_parser("describe", help="say what a table or a column means, for models and people")
    describe.add_argument("name", help="a name, a path or a URL")
    describe.add_argument("what", metavar="TABLE[.COLUMN]")
    text = describe.add_mutually_exclusive_group(required=True)
    text.add_argument("text", nargs="?", help="the description; it replaces the one before")
    text.add_argument("--withdraw", action="store_true", help="remove the description, also one that a model wrote")
    questions = verbs.add_parser("questions", help="print questions to start with, each of which was tried")
    questions.add_argument("name", help="a name, a path or a URL")
    questions.add_argument("--limit", type=int, default=3, metavar="N", help="at most N questions (3)")
    remove = verbs.add_parser("remove", help="remove a source; its data stays")
    remove.add_argument("name")
    listing = verbs.add_parser("list", help="list the named sources")
    for each in (add, show, describe, questions, remove, listing):
        each.add_argument("--tenant", default="main", help="the tenant of the source (main)")
        each.add_argument("--json", action="store_true", help="print JSON")
    for each in (add, remove, listing):
        each.add_argument("--server", metavar="URL", help="do it on this server; a file or folder is uploaded to it")
        each.add_argument("--key", help="a key of the server, or `env:NAME` or `file:PATH` that holds it")


def run(options: argparse.Namespace) -> None:
    """Run the verb."""
    if getattr(options, "server", None):
        _run_remotely(options)
        return
    from etude.app import App

    with App() as opened:
        app = opened.scoped(options.tenant)
        match options.verb:
            case "add":
                print_source_schema(_waiting(app, options.url, lambda: _add(app, options)), options.json)
            case "list":
                _list(app, options)
            case "show":
                print_source_schema(_waiting(app, options.name, lambda: app.catalog(options.name)), options.json)
            case "describe":
                _describe(app, options)
            case "questions":
                _print_questions(app, options)
            case "remove":
                app.remove_source(options.name)
                sys.stderr.write(f"removed {printable(options.name)}\n")


def _print_questions(app: App, options: argparse.Namespace) -> None:
    with Progress(f"reading {redact(options.name)}") as progress:
        app.pool.on_load = progress
        found = app.suggest_questions(options.name, options.limit)
    sys.stdout.write(json.dumps(found) + "\n" if options.json else "".join(f"{printable(q)}\n" for q in found))


def _run_remotely(options: argparse.Namespace) -> None:
    from urllib.parse import quote

    from etude.cli.server_client import send_to_server, upload_to_server

    match options.verb:
        case "add" if "://" in options.url or options.url.startswith(("env:", "file:")):
            from etude.sources.source_url import resolve_source_url

            wanted = {"name": options.name, "url": resolve_source_url(options.url)}
            wanted |= {"tables": [t.strip() for t in options.tables.split(",")]} if options.tables else {}
            body = json.dumps(wanted).encode()
            headers = {"Content-Type": "application/json"}
            _show_report(
                send_to_server(options.server, options.key, "POST", "/api/datasets/connect", body, headers),
                options.json,
            )
        case "add":
            if options.tables or options.option or options.strict:
                raise Invalid("An upload takes no options.", hint="Leave out --tables, --option and --strict.")
            with Progress(f"uploading {options.url}"):
                report = upload_to_server(options.server, options.key, options.name, options.url)
            _show_report(report, options.json)
        case "list":
            items = send_to_server(options.server, options.key, "GET", "/api/datasets", None, {})["items"]
            if options.json:
                sys.stdout.write(json.dumps(items) + "\n")
            else:
                rows = [(i["id"], i["kind"], "yes" if i["removable"] else "no") for i in items]
                print_output_table(["name", "kind", "removable"], rows, sys.stdout)
        case "remove":
            send_to_server(options.server, options.key, "DELETE", f"/api/datasets/{quote(options.name)}", None, {})
            sys.stderr.write(f"removed {printable(options.name)}\n")


def _show_report(report: dict[str, Any], as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(report) + "\n")
        return
    rows = [
        (
            t["name"],
            "?" if t["rows"] is None else f"{t['rows']:,}",
            ", ".join(f"{c['name']} {c['type']}" for c in t["columns"]),
        )
        for t in report["tables"]
    ]
    print_output_table(["table", "rows", "columns"], rows, sys.stdout, [False, True, False])
    for note in report["notes"]:
        sys.stdout.write(f"note: {printable(note)}\n")


def _waiting(app: App, source: str, open_source: Callable[[], Catalog]) -> Catalog:
    """Show what is opened or read until the catalog is there."""
    with Progress(f"opening {redact(source)}") as progress:
        app.pool.on_load = progress
        app.pool.warm()
        return open_source()


def _add(app: App, options: argparse.Namespace) -> Catalog:
    from etude.entities import SourceSpec

    tables = tuple(t.strip() for t in options.tables.split(",")) if options.tables else None
    given = dict(_option(text) for text in options.option) | ({"strict": "true"} if options.strict else {})
    return app.add_source(options.name, SourceSpec(url=options.url, tables=tables, options=given))


def _describe(app: App, options: argparse.Namespace) -> None:
    """Set or withdraw a description, and say which answers may rest on the one before."""
    from etude.catalog.storage.annotations import put_annotation_description

    source = app.source(options.name)
    now = put_annotation_description(app, source, options.what, None if options.withdraw else options.text)
    used = len(app.scripts.stored.uses(f"description:{source.name}"))
    if options.json:
        sys.stdout.write(json.dumps({"name": options.what, "description": now, "used_by": used}) + "\n")
        return
    sys.stderr.write(f"{printable(options.what)} has {'no description' if now is None else 'a new description'} now\n")
    if used:
        sys.stderr.write(
            f"{used} answer{'' if used == 1 else 's'} may rest on the descriptions before: "
            f"`etude runs uses description:{printable(source.name)} --check` answers them afresh\n"
        )


def _option(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise Invalid(f"`{text}` is not an option.", hint="Write it as NAME=VALUE, such as --option dates=mdy.")
    return name, value


def _list(app: App, options: argparse.Namespace) -> None:
    specs = app.sources()
    if options.json:
        items = [{"name": n, "kind": s.kind, "url": redact(s.url), "tables": s.tables} for n, s in specs.items()]
        sys.stdout.write(json.dumps(items) + "\n")
    elif not specs:
        sys.stdout.write("No sources yet. `etude sources add NAME PATH_OR_URL` adds one.\n")
    else:
        print_output_table(["name", "kind", "url"], [(n, s.kind, redact(s.url)) for n, s in specs.items()], sys.stdout)


def print_source_schema(catalog: Catalog, as_json: bool) -> None:
    """Print the tables and columns of a source."""
    for warning in catalog.warnings:
        sys.stderr.write(f"warning: {printable(warning)}\n")
    if as_json:
        sys.stdout.write(catalog.model_dump_json() + "\n")
        return
    lines = [_line(table, catalog.dialect) for table in catalog.tables]
    print_output_table(["table", "rows", "columns"], lines, sys.stdout, [False, True, False])
    for note in catalog.notes:
        sys.stdout.write(f"note: {printable(note)}\n")
    for table in catalog.tables:
        for note in table.notes:
            sys.stdout.write(f"note: {printable(f'{table.name}: {note}')}\n")


def _line(table: Table, dialect: str) -> tuple[str, str, str]:
    rows = "?" if table.row_count is None else f"{'' if table.row_count_exact else '~'}{table.row_count:,}"
    columns = ", ".join(
        f"{_as_written(c.name, dialect)} {c.type}" + (" key" if c.name in table.primary_key else "")
        for c in table.columns
    )
    return ".".join(_as_written(part, dialect) for part in table.name.split(".")), rows, columns


def _as_written(name: str, dialect: str) -> str:
    """Return a name as a query writes it: in quotes if it needs them."""
    from etude.sources.files.table_names import RESERVED
    from etude.sources.quoting import quote_identifier

    plain = re.fullmatch(r"[^\W\d]\w*", name) and name.lower() not in RESERVED
    return name if plain else quote_identifier(name, dialect)
