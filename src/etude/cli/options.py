"""Options that several commands share, and the app, the engine and the limits that a command opens by them."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from etude.cli.output import ENDINGS, FORMATS
from etude.cli.progress import PATIENCE_S, READING_S

if TYPE_CHECKING:
    from etude.app import App
    from etude.entities import Limits
    from etude.sources.engine_client import EngineClient


def add_query_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of every command that runs a query."""
    add_output_options(parser)
    parser.add_argument(
        "--limit-rows",
        type=parse_whole_number_option,
        metavar="N",
        help="only the first N rows; 0 for all, however many",
    )
    parser.add_argument("--timeout", type=float, metavar="S", help="stop the query after S seconds")
    parser.add_argument("--no-record", action="store_true", help="do not record the run")


def parse_whole_number_option(text: str) -> int:
    """Return an argument that counts something; argparse reports others."""
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"`{text}` must be a whole number, 0 or greater")
    return number


def parse_source_options(pairs: list[str]) -> dict[str, str]:
    """Return options given as KEY=VALUE."""
    from etude.errors import Invalid

    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise Invalid(f"`{pair}` is not an option.", hint="Write KEY=VALUE.")
        found[key] = value
    return found


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of every command that prints a result."""
    parser.add_argument(
        "--format", type=lambda name: ENDINGS.get(name, name), choices=FORMATS, help="how to print the result (table)"
    )
    parser.add_argument("--output", metavar="FILE", help="write the result to this file; its extension sets the format")
    parser.add_argument(
        "--wide", action="store_true", help="show all columns, even if they are wider than the terminal"
    )
    parser.add_argument("--vertical", action="store_true", help="show one line for each value")


def open_app_for(source: str, record: bool | None = None, engine: EngineClient | None = None) -> App:
    """Open an app for a command on one source; its engine starts while this process still loads its own libraries."""
    engine = engine or start_engine_for(source)
    try:
        from etude.app import App

        app = App(record=record)
    except BaseException:
        if engine is not None:
            engine.kill()
        raise
    if engine is not None:
        app.pool.adopt(engine)
    return app


def start_engine_for(source: str) -> EngineClient | None:
    """Start the engine of a source, except of a server, while this process has loaded nothing else yet."""
    from etude.sources.engine_client import EngineClient, EngineLimits
    from etude.sources.engine_process import can_fork_engine

    preload = _expected_kind(source)
    if preload is None:
        return None
    # The app sets the real limits, before the engine opens anything.
    return EngineClient(False, EngineLimits(memory=0, scratch_bytes=0, threads=1), preload, fork=can_fork_engine())


def _expected_kind(source: str) -> str | None:
    """Guess from its text and its first bytes what kind of source it is; None for a server."""
    scheme, separator, _ = source.partition("://")
    if separator and scheme not in ("sqlite", "duckdb", "file"):
        return None
    path = os.path.expanduser(source)
    # Only a file: opening a pipe would wait for its writer.
    if os.path.isfile(path):
        with contextlib.suppress(OSError), open(path, "rb") as file:
            if file.read(16) == b"SQLite format 3\0":
                return "sqlite"
    return "sqlite" if scheme == "sqlite" else "duckdb"


def database_file_path(source: str) -> str:
    """Return the absolute path of a database file; empty if the text may be anything else, such as a name or a URL."""
    from etude.sources.source_url import source_kind, source_path

    if ":" in source or not ("/" in source or "." in source):
        return ""
    path = source_path(source)
    return path if os.path.isfile(path) and source_kind(path) in ("duckdb", "sqlite") else ""


def progress_delay(source: str) -> float:
    """Return the seconds before progress is shown: few if the source may be a file that must be read first."""
    return PATIENCE_S if database_file_path(source) else READING_S


def read_source_files(app: App, options: argparse.Namespace, on_progress: Callable[[float], None]) -> None:
    """Read the files of the source before its query, unless a person set a limit of time: it holds for both.

    The default limit is meant for a query; a large file may take longer, once, while its progress is shown.
    """
    if options.timeout is None and "timeout_s" not in app.settings.limits.model_fields_set:
        app.source(options.source).mount(on_progress)


def limits_from_options(app: App, options: argparse.Namespace) -> Limits:
    """Return the limits of the settings, overridden by those of the command line."""
    from etude.limits import change_limits

    changes: dict[str, Any] = {}
    if options.limit_rows is not None:
        changes |= {"limit": options.limit_rows} if options.limit_rows else {"rows": 0, "bytes": 0}
    if options.timeout is not None:
        changes["timeout_s"] = options.timeout
    return change_limits(app.settings.limits, changes)
