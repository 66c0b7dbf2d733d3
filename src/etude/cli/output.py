"""Output of the command line: tables for people, a pager, formats for programs, and files replaced whole."""

from __future__ import annotations

import argparse
import contextlib
import errno
import itertools
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from etude.cli.printable import printable, printable_lines
from etude.cli.table import draw_table, draw_vertical_table, format_table_column, format_table_row_count
from etude.errors import Invalid

if TYPE_CHECKING:
    from etude.result import Result

FORMATS = ("table", "json", "ndjson", "csv", "tsv", "markdown", "html", "xlsx", "parquet", "arrow")
ENDINGS = {"feather": "arrow", "ipc": "arrow", "txt": "table", "md": "markdown", "htm": "html", "jsonl": "ndjson"}
SHOWN_ROWS = 40
FILE_ROWS = 100_000
"""The most rows of a table that is written to a file: its width depends on all of them."""
PAGED_ROWS = 1000
BINARY = ("parquet", "arrow", "xlsx")
_NUMBERS = ("INT", "BIGINT", "DOUBLE", "DECIMAL", "FLOAT", "HUGEINT", "SMALLINT", "TINYINT", "NUMERIC", "REAL")


def chosen_output_format(options: argparse.Namespace) -> str:
    """Return the format given by `--format` or by the extension of `--output`."""
    if options.format:
        return str(options.format)
    if options.output:
        ending = Path(options.output).suffix.removeprefix(".").lower()
        known = ENDINGS.get(ending, ending)
        if known not in FORMATS:
            raise Invalid(
                f"The extension of `{options.output}` is not a known format.",
                hint=f"Add --format {'|'.join(FORMATS)}.",
            )
        return known
    return "table"


def write_result_output(result: Result, options: argparse.Namespace) -> None:
    """Print or write a result; notes go to standard error, so that a pipe carries only data."""
    kind = chosen_output_format(options)
    if options.output:
        from etude.cli.progress import Progress

        with Progress(f"writing {options.output}"), replace_output_file(Path(options.output)) as file:
            _write(result, kind, file, options)
        sys.stderr.write(f"{format_table_row_count(result.row_count)} written to {printable(str(options.output))}\n")
    else:
        if kind in BINARY and sys.stdout.isatty():
            raise Invalid(f"{kind} cannot be printed to a terminal.", hint="Add --output FILE, or redirect.")
        _write(result, kind, sys.stdout.buffer, options)
    for note in result.notes:
        sys.stderr.write(f"note: {printable(note)}\n")


def _write(result: Result, kind: str, file: IO[bytes], options: argparse.Namespace) -> None:
    import io

    match kind:
        case "parquet" if (kept := result.open_parquet()) is not None:
            with kept:
                shutil.copyfileobj(kept, file, 1 << 20)
        case "parquet":
            from etude.spool import spool_to_parquet

            spool_to_parquet(file, *_schema_and_batches(result))
        case "arrow":
            import pyarrow as pa

            schema, batches = _schema_and_batches(result)
            # A pipe is read as a stream; a file is in the format that other programs expect of its name.
            opened = pa.ipc.new_file if options.output else pa.ipc.new_stream
            with opened(file, schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
        case "xlsx":
            from etude.cli.xlsx import write_xlsx

            write_xlsx(result, file)
        case _:
            text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
            try:
                if kind == "table":
                    _write_table(result, text, options)
                else:
                    _WRITERS[kind](result, text)
            finally:
                text.detach()  # otherwise it would close the file


def _schema_and_batches(result: Result) -> tuple[Any, Iterator[Any]]:
    batches = result.batches()
    first = next(batches)
    return first.schema, itertools.chain([first], batches)


def _write_json(result: Result, out: IO[str]) -> None:
    from etude.result import iter_result_json

    out.writelines(iter_result_json(result))
    out.write("\n")


def _write_csv(result: Result, out: IO[str], delimiter: str = ",") -> None:
    from etude.cell_text import cells_to_csv_line
    from etude.column_text import columns_to_csv_lines

    out.write(cells_to_csv_line([c.name for c in result.columns], delimiter) + "\n")
    kinds = [c.type for c in result.columns]
    for batch in result.pieces():
        out.write("".join(f"{line}\n" for line in columns_to_csv_lines(batch, kinds, delimiter)))


def _write_tsv(result: Result, out: IO[str]) -> None:
    _write_csv(result, out, "\t")


def _write_ndjson(result: Result, out: IO[str]) -> None:
    from etude.column_text import columns_to_json_objects

    names = [c.name for c in result.columns]
    double = next((n for n in names if names.count(n) > 1), None)
    if double is not None:
        raise Invalid(
            f"Two columns are named `{double}`, and a JSON object holds only one of them.",
            hint="Rename one with AS, or use --format json.",
        )
    kinds = [c.type for c in result.columns]
    for batch in result.pieces():
        out.write("".join(f"{line}\n" for line in columns_to_json_objects(batch, names, kinds)))


def _write_markdown(result: Result, out: IO[str]) -> None:
    from etude.column_text import columns_to_text_lines

    def line(cells: Iterable[str]) -> str:
        texts = (c.replace("\\", "\\\\").replace("|", "\\|") for c in cells)
        return f"| {' | '.join(' '.join(t.splitlines()) for t in texts)} |\n"

    out.write(line(c.name for c in result.columns))
    out.write(line("---:" if is_number_type(c.type) else "---" for c in result.columns))
    kinds = [c.type for c in result.columns]
    for batch in result.pieces():
        out.write("".join(map(line, columns_to_text_lines(batch, kinds))))


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ font: 14px/1.4 system-ui, sans-serif; margin: 1.5em; }}
table {{ border-collapse: collapse; }}
th, td {{ border-bottom: 1px solid #ccc; padding: 0.25em 0.75em; text-align: left; white-space: pre-wrap; }}
.n {{ text-align: right; font-variant-numeric: tabular-nums; }}
</style>
</head>
<body>
<table>
<thead>
"""


def _write_html(result: Result, out: IO[str]) -> None:
    """Write a page of one table; values are text, never markup."""
    from html import escape

    from etude.column_text import columns_to_text_lines

    marks = [' class="n"' if is_number_type(c.type) else "" for c in result.columns]

    def line(cells: Iterable[str], tag: str) -> str:
        return f"<tr>{''.join(f'<{tag}{m}>{escape(c)}</{tag}>' for c, m in zip(cells, marks))}</tr>\n"

    out.write(_PAGE.format(title=escape(", ".join(c.name for c in result.columns)[:80])))
    out.write(line((c.name for c in result.columns), "th") + "</thead>\n<tbody>\n")
    kinds = [c.type for c in result.columns]
    for batch in result.pieces():
        out.write("".join(line(cells, "td") for cells in columns_to_text_lines(batch, kinds)))
    out.write("</tbody>\n</table>\n</body>\n</html>\n")


_WRITERS = {
    "json": _write_json,
    "ndjson": _write_ndjson,
    "csv": _write_csv,
    "tsv": _write_tsv,
    "markdown": _write_markdown,
    "html": _write_html,
}


def _write_table(result: Result, out: IO[str], options: argparse.Namespace) -> None:
    """Print a table for people, through a pager if it is longer than the terminal."""
    terminal = out.isatty()
    size = shutil.get_terminal_size()
    pager = find_output_pager() if terminal else None
    most = FILE_ROWS if getattr(options, "output", None) else PAGED_ROWS if pager else SHOWN_ROWS
    if most == FILE_ROWS and result.row_count > most:
        raise Invalid(
            f"The result has {result.row_count:,} rows; a table for people has at most {most:,}.",
            hint="Write --output FILE.csv or FILE.parquet, or ask for the first rows with --limit-rows.",
        )
    rows = list(itertools.islice(result.iter_rows(shown=True), most))
    text = draw_result_output(result, rows, options, size.columns if terminal else None, bold=terminal)
    if pager and text.count("\n") >= size.lines:
        import subprocess

        # The pager ends when the reader quits it; what it did not read does not matter.
        with contextlib.suppress(BrokenPipeError):
            subprocess.run(
                pager, check=False, input=text.encode(), env=os.environ | {"LESS": os.environ.get("LESS", "FRSX")}
            )
    else:
        out.write(text)


def find_output_pager() -> list[str] | None:
    """Return the command of the pager: `PAGER`, or `less` if it is installed. An empty `PAGER` turns it off."""
    import shlex

    named = os.environ.get("PAGER")
    if named is None:
        return ["less"] if shutil.which("less") else None
    words = shlex.split(named)
    return words if words and words != ["cat"] and shutil.which(words[0]) else None


def draw_result_output(
    result: Result, rows: list[tuple[Any, ...]], options: argparse.Namespace, width: int | None, bold: bool = False
) -> str:
    """Return the rows of a result as a table with a line below it that says what is not shown."""
    names = [c.name for c in result.columns]
    if names == ["explain_key", "explain_value"]:
        plans = "".join(f"{printable_lines(str(value).rstrip())}\n" for _, value in rows)
        return plans + _footer(result, len(rows), 0)
    columns = [format_table_column(name, [row[i] for row in rows]) for i, name in enumerate(names)]
    cells = list(zip(*columns)) if columns else []
    if getattr(options, "vertical", False):
        return draw_vertical_table(names, cells) + _footer(result, len(rows), 0)
    numeric = [is_number_type(c.type) for c in result.columns]
    wide = getattr(options, "wide", False)
    text, hidden = draw_table(names, cells, numeric, width=None if wide else width, elide=True, bold=bold)
    return text + _footer(result, len(rows), hidden)


def _footer(result: Result, shown: int, hidden: int) -> str:
    # The id of the run ends the line.
    rest = "etude runs result RUN --output FILE.csv" if result.run_id else "--output FILE.csv"
    more = f", {shown:,} shown (all rows: {rest})" if result.row_count > shown else ""
    cut = ", cut by --limit-rows" if result.truncated else ""
    run = f"  {result.run_id}" if result.run_id else ""
    s = "" if result.row_count == 1 else "s"
    columns = f"{hidden} of {len(result.columns)} columns hidden: --wide or --vertical shows them\n" if hidden else ""
    return f"{columns}{result.row_count:,} row{s}{more}{cut}  {result.elapsed_ms:,.0f} ms{run}\n"


def is_number_type(kind: str) -> bool:
    """Return whether a column of the engine's type holds numbers."""
    name = kind.upper()
    return name.removeprefix("U").startswith(_NUMBERS) and not name.startswith("INTERVAL") and not name.endswith("]")


def print_output_table(
    names: Sequence[str], rows: Sequence[Sequence[Any]], out: IO[str], numeric: Sequence[bool] = ()
) -> None:
    """Print a table. Control characters are escaped, and wide cells are folded to the width of the terminal."""
    columns = [format_table_column(name, [row[i] for row in rows]) for i, name in enumerate(names)]
    # A pipe has no width, so lines may be as long as the data needs.
    width = shutil.get_terminal_size().columns if out.isatty() else None
    text, _ = draw_table(names, list(zip(*columns)), numeric, width=width, bold=out.isatty())
    out.write(text)


@contextlib.contextmanager
def replace_output_file(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file that replaces `path` only once it is complete.

    The target of a symbolic link is replaced, and a file keeps its mode. A pipe or a device is written to directly.
    """
    target = Path(os.path.realpath(path))
    # `/dev/stdout` may lead to a regular file, which is the reader's and must not be replaced.
    stream = str(path.absolute()).startswith(("/dev/", "/proc/"))
    try:
        before = os.stat(path if stream else target)
    except FileNotFoundError:
        before = None
    except OSError as error:
        raise _cannot_write(path, error) from None
    if stream or (before is not None and not stat.S_ISREG(before.st_mode)):
        with _write_errors(path), path.open("ab") as opened:
            yield opened
        return
    try:
        file = tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False)  # noqa: SIM115
    except OSError as error:
        raise _cannot_write(path, error) from None
    try:
        with _write_errors(path):
            with file:
                yield file
            if before is None:
                os.chmod(file.name, 0o666 & ~_file_mode_mask())
            else:
                with contextlib.suppress(PermissionError):
                    os.chown(file.name, before.st_uid, before.st_gid)
                os.chmod(file.name, stat.S_IMODE(before.st_mode))
        try:
            os.replace(file.name, target)
        except OSError as error:
            raise _cannot_write(path, error) from None
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(file.name)
        raise


def _file_mode_mask() -> int:
    mask = os.umask(0o077)  # the only way to read it is to set it
    os.umask(mask)
    return mask


@contextlib.contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    """Turn errors of the place that is written to into errors with the reason."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.errno is None:
            raise
        raise _cannot_write(path, error) from None


def _cannot_write(path: Path, error: OSError) -> Invalid:
    hint = "Choose another path."
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = "Free space on that disk, or choose another path."
    elif error.errno == errno.EFBIG:
        hint = (
            "The shell or the file system limits the size of files (`ulimit -f`). Choose another path, or fewer rows."
        )
    return Invalid(f"Cannot write `{path}`: {error.strerror}.", hint=hint)
