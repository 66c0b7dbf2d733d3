"""Output of the command line: tables for people, and formats for programs."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from etude.errors import Invalid

if TYPE_CHECKING:
    from etude.result import Result

FORMATS = ("table", "json", "csv", "parquet", "arrow")
SHOWN_ROWS = 40
BINARY = ("parquet", "arrow")
_NUMBERS = ("INT", "BIGINT", "DOUBLE", "DECIMAL", "FLOAT", "HUGEINT", "SMALLINT", "TINYINT", "NUMERIC", "REAL")


def chosen_format(options: argparse.Namespace) -> str:
    """Return the format given by `--format` or by the extension of `--output`."""
    if options.format:
        return str(options.format)
    if options.output:
        ending = Path(options.output).suffix.removeprefix(".").lower()
        known = {"feather": "arrow", "ipc": "arrow", "txt": "table"}.get(ending, ending)
        if known not in FORMATS:
            raise Invalid(
                f"The extension of `{options.output}` is not a known format.",
                hint=f"Add --format {'|'.join(FORMATS)}.",
            )
        return known
    return "table"


def write_result(result: Result, options: argparse.Namespace) -> None:
    """Print or write a result; notes go to standard error, so that a pipe carries only data."""
    kind = chosen_format(options)
    if options.output:
        with replacing(Path(options.output)) as file:
            _write(result, kind, file)
        sys.stderr.write(f"{result.row_count:,} rows written to {options.output}\n")
    else:
        if kind in BINARY and sys.stdout.isatty():
            raise Invalid(f"{kind} cannot be printed to a terminal.", hint="Add --output FILE, or redirect.")
        _write(result, kind, sys.stdout.buffer)
    for note in result.notes:
        sys.stderr.write(f"note: {printable(note)}\n")


def _write(result: Result, kind: str, file: IO[bytes]) -> None:
    import io

    match kind:
        case "parquet" if (kept := result.open_parquet()) is not None:
            with kept:
                shutil.copyfileobj(kept, file, 1 << 20)
        case "parquet":
            from etude.spool import write_parquet

            write_parquet(file, *_schema_and_batches(result))
        case "arrow":
            import pyarrow as pa

            schema, batches = _schema_and_batches(result)
            with pa.ipc.new_stream(file, schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
        case _:
            text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
            {"json": _write_json, "csv": _write_csv, "table": _write_table}[kind](result, text)
            text.flush()
            text.detach()


def _schema_and_batches(result: Result) -> tuple[Any, Iterator[Any]]:
    import itertools

    batches = result.batches()
    first = next(batches)
    return first.schema, itertools.chain([first], batches)


def _write_json(result: Result, out: IO[str]) -> None:
    from etude.result import iter_json

    out.writelines(iter_json(result))
    out.write("\n")


def _write_csv(result: Result, out: IO[str]) -> None:
    import csv

    from etude.result import json_value

    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([c.name for c in result.columns])
    for row in result.iter_rows():
        writer.writerow(["" if v is None else json_value(v) for v in row])


def _write_table(result: Result, out: IO[str]) -> None:
    import itertools

    rows = list(itertools.islice(result.iter_rows(), SHOWN_ROWS))
    numeric = [_is_number(c.type) for c in result.columns]
    print_table([c.name for c in result.columns], rows, out, numeric)
    more = f", {len(rows)} shown" if result.row_count > len(rows) else ""
    cut = ", cut by --limit-rows" if result.truncated else ""
    run = f"  {result.run_id}" if result.run_id else ""
    s = "" if result.row_count == 1 else "s"
    out.write(f"{result.row_count:,} row{s}{more}{cut}  {result.elapsed_ms:,.0f} ms{run}\n")


def _is_number(kind: str) -> bool:
    name = kind.upper()
    return name.removeprefix("U").startswith(_NUMBERS) and not name.startswith("INTERVAL") and not name.endswith("]")


def print_table(
    names: Sequence[str], rows: Sequence[Sequence[Any]], out: IO[str], numeric: Sequence[bool] = ()
) -> None:
    """Print a table. Markup in cells is not interpreted, and control characters are escaped."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_edge=False, header_style="bold", pad_edge=False)
    for index, name in enumerate(names):
        right = index < len(numeric) and numeric[index]
        table.add_column(Text(printable(name)), justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(v) for v in row))
    # A pipe has no width, so lines may be as long as the data needs.
    Console(file=out, width=None if out.isatty() else 10_000, highlight=False).print(table)


def _cell(value: Any) -> Any:
    from rich.text import Text

    if value is None:
        return Text("null", style="dim")
    text = printable(f"{value}")
    return Text(text if len(text) <= 200 else text[:199] + "…")


def printable(text: str) -> str:
    """Escape the characters that could control the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file that replaces `path` only once it is complete."""
    try:
        file = tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False)  # noqa: SIM115
    except OSError as error:
        raise _cannot_write(path, error) from None
    try:
        with file:
            yield file
        os.chmod(file.name, 0o644)
        try:
            os.replace(file.name, path)
        except OSError as error:
            raise _cannot_write(path, error) from None
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(file.name)
        raise


def _cannot_write(path: Path, error: OSError) -> Invalid:
    return Invalid(f"Cannot write `{path}`: {error.strerror}.", hint="Choose another path.")


@contextlib.contextmanager
def progress(label: str) -> Iterator[Callable[[float], None]]:
    """Show a line of progress on a terminal while the block runs; print nothing in a pipe."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    started = time.monotonic()

    def show(done: float) -> None:
        seconds = time.monotonic() - started
        if seconds > 0.5:
            sys.stderr.write(f"\r\x1b[K{label} {seconds:.0f} s  {done:.0%}")
            sys.stderr.flush()

    try:
        yield show
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
