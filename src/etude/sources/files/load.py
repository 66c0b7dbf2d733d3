"""Convert files to Parquet: each file, or group of similar files, becomes a table. Runs in an engine process."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from etude.errors import Cancelled, EtudeError, Invalid, LimitExceeded, SourceError, SourceMissing
from etude.sources.file_fingerprint import paths_fingerprint
from etude.sources.files import csv_parts, document, excel, json_records, parquet
from etude.sources.files.archive import unzip_archive
from etude.sources.files.column_types import refine_column_types
from etude.sources.files.discover import (
    DOCUMENTS,
    DiscoveredTable,
    discover,
    discover_files,
    discover_format_by_name,
    discovered_file_stem,
)
from etude.sources.files.document import is_document
from etude.sources.files.file_content import is_prose, judge_content_format
from etude.sources.files.load_report import LoadReport, TypeNote
from etude.sources.files.reading_options import parse_reading_options
from etude.sources.files.table_names import clean_table_name, unique_table_names
from etude.sources.files.value_notes import describe_values

__all__ = ["DiscoveredTable", "LoadReport", "LoadedTable", "discover", "discover_files", "load", "unique_table_names"]


NOUNS = {"csv": "delimited text", "json": "JSON", "parquet": "Parquet", "excel": "a workbook", "zip": "a zip archive"}
NOUNS |= {"document": "a document"}


@dataclass(frozen=True)
class LoadedTable:
    """A table ready for queries: Parquet files, all of the same shape."""

    table: str
    paths: tuple[str, ...]
    row_count: int
    report: LoadReport

    @property
    def path(self) -> str:
        """The file, or the first one if several Parquet files are read in place."""
        return self.paths[0]


Watch = Callable[[Any], None]


def load(
    file: DiscoveredTable, out_dir: Path, config: Mapping[str, str] | None = None, watch: Watch = lambda _: None
) -> list[LoadedTable]:
    """Convert the files to Parquet in `out_dir` and report what was found; Parquet itself is read in place.

    Each file needs its own `out_dir`, for example named by its fingerprint: the tables of a workbook or of a folder
    are known only here. `config` holds DuckDB settings such as `memory_limit` and `threads`. `watch` is called with the
    connection while it works, which knows its progress, and with None afterwards.
    """
    for path in file.paths:
        _check(path)
    tables = _load_judged(file, out_dir, config, watch)
    _check_unchanged(file)
    return tables


def _load_judged(
    file: DiscoveredTable, out_dir: Path, config: Mapping[str, str] | None, watch: Watch
) -> list[LoadedTable]:
    """Load the files by their content, and note it if their names say something else."""
    documents = DOCUMENTS in file.options
    formats = {judge_content_format(path, file.format, documents) for path in file.paths}
    if len(formats) > 1:
        raise Invalid(
            f"The files of table `{file.table}` have several formats: {', '.join(sorted(formats))}.",
            hint="Put files of different formats into different folders.",
        )
    judged = replace(file, format=formats.pop())
    match judged.format:
        case "parquet":
            tables = _in_place(judged)
        case "zip":
            tables = _unzipped(judged, out_dir, config, watch)
        case _:
            tables = _converted(judged, out_dir, config, watch)
    named = discover_format_by_name(file.paths[0])
    if named == judged.format or (judged.format == "document" and is_document(file.paths[0])):
        return tables
    said = f"The name has {'another' if named else 'no known'} ending, but the content is {NOUNS[judged.format]}."
    return [_with_notes(t, [said]) for t in tables]


def _with_notes(table: LoadedTable, notes: list[str]) -> LoadedTable:
    return replace(table, report=replace(table.report, notes=(*table.report.notes, *notes)))


def _unzipped(
    file: DiscoveredTable, out_dir: Path, config: Mapping[str, str] | None, watch: Watch
) -> list[LoadedTable]:
    """Load each file of an archive. One that fails is noted; if all fail, the first error is raised."""
    out_dir.mkdir(parents=True, exist_ok=True)
    tables: list[LoadedTable] = []
    failed: list[tuple[str, EtudeError]] = []
    documents = DOCUMENTS in file.options
    with _scratch(out_dir) as scratch:
        members, notes = unzip_archive(file.paths[0], scratch, documents)
        names = [file.table]
        if len(members) > 1:
            names = unique_table_names(
                clean_table_name(f"{file.table} {discovered_file_stem(path.name)}") for _, path in members
            )
        for at, (name, (member, path)) in enumerate(zip(names, members)):
            named = discover_format_by_name(path.name) or ("document" if is_document(path.name) else "")
            inside = DiscoveredTable(name, (str(path),), named, "", file.options)
            if len(members) > 1 and not documents and path.suffix == ".txt" and is_prose(str(path)):
                notes.append(f"`{member}` was not loaded: it is text in sentences, not a table.")
                continue
            try:
                loaded = _load_judged(inside, out_dir / str(at), config, watch)
            except EtudeError as error:
                error.message = error.message.replace(str(path), f"{file.paths[0]}: {member}")
                failed.append((member, error))
            else:
                tables += [_kept(t, out_dir / str(at), scratch) for t in loaded]
    if not tables and not failed:
        raise Invalid(
            f"`{file.paths[0]}` holds only text in sentences, and no table.",
            hint="Pack CSV, JSON, Parquet or workbook files.",
        )
    if not tables:
        raise failed[0][1]
    notes += [f"`{member}` was not loaded: {error.message}" for member, error in failed]
    return [_with_notes(tables[0], notes), *tables[1:]]


def _kept(table: LoadedTable, out_dir: Path, scratch: Path) -> LoadedTable:
    """Move Parquet files that were unpacked to where converted files are: the scratch folder is removed."""
    if not table.path.startswith(str(scratch)):
        return table
    out_dir.mkdir(parents=True, exist_ok=True)
    return replace(table, paths=tuple(shutil.move(p, str(out_dir / os.path.basename(p))) for p in table.paths))


def _converted(
    file: DiscoveredTable, out_dir: Path, config: Mapping[str, str] | None, watch: Watch
) -> list[LoadedTable]:
    out_dir.mkdir(parents=True, exist_ok=True)
    with _scratch(out_dir) as scratch:
        with _connect(scratch, config, watch) as con:
            match file.format:
                case "excel":
                    staged = _workbook(con, file, scratch)
                case "csv":
                    staged = _delimited(con, file, scratch)
                case "document":
                    staged = _documents(file, scratch)
                case _:
                    staged = _records(con, file, scratch)
            if file.format != "document":
                staged = [
                    (table, path, rows, describe_values(con, path, rows, report, leave=csv_parts.EXTRA))
                    for table, path, rows, report in staged
                ]
        return [_publish(table, path, rows, report, out_dir) for table, path, rows, report in staged]


Staged = tuple[str, Path, int, LoadReport]


def _check(path: str) -> None:
    if not os.path.isfile(path):
        raise SourceMissing(f"`{path}` does not exist any more.", hint="Run the query again to find the current files.")
    if not os.access(path, os.R_OK):
        raise SourceError(f"`{path}` cannot be read: permission denied.", hint="Let the user that runs etude read it.")
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise Invalid(f"The name {path!r} is not UTF-8.", hint="Rename the file or its folder.") from error


def _check_unchanged(file: DiscoveredTable) -> None:
    try:
        same = paths_fingerprint(file.paths) == file.fingerprint
    except OSError:
        same = False
    if not same:
        raise SourceError(
            f"`{file.paths[0]}` was written while it was read.",
            hint="Run the query again, or copy the file if it is written all the time.",
        )


def _delimited(con: Any, file: DiscoveredTable, scratch: Path) -> list[Staged]:
    reading = parse_reading_options(dict(file.options))
    parts = csv_parts.prepare_csv_parts(con, file.paths, scratch, reading)
    groups = parquet.group_parquet_files_by_columns([(p.source, csv_parts.csv_part_names(p)) for p in parts])
    names = _names(file, groups)
    staged: list[Staged] = []
    for table, members in zip(names, groups):
        target = scratch / f"{len(staged)}.table.parquet"
        rows, report = csv_parts.join_csv_parts(con, [parts[m] for m in members], target, scratch, reading)
        staged.append((table, target, rows, report))
    return staged


def _workbook(con: Any, file: DiscoveredTable, scratch: Path) -> list[Staged]:
    """Read the sheets; text that holds numbers or dates is typed like that of delimited files."""
    reading = parse_reading_options(dict(file.options))
    staged: list[Staged] = []
    for table, path, _, report in excel.load_excel_workbook(file.table, file.paths[0], scratch):
        target = path.with_suffix(".typed")
        rows, notes = refine_column_types(con, path, target, reading=reading)
        staged.append((table, target, rows, replace(report, types=_true_types(con, target, report.types, notes))))
    return staged


def _true_types(
    con: Any, target: Path, cells: tuple[TypeNote, ...], values: tuple[TypeNote, ...]
) -> tuple[TypeNote, ...]:
    """Return the notes on cells of several kinds, if their column is still text, else how their texts were read."""
    types = {c[0]: c[1] for c in con.execute(f"DESCRIBE SELECT * FROM {parquet.read_parquet(str(target))}").fetchall()}
    said = {note.column: note for note in values}
    found: list[TypeNote] = []
    for note in cells:
        kind = types.get(note.column, "VARCHAR")
        if note.type != "text" or kind == "VARCHAR":
            found.append(note)
            continue
        how = f"; {said[note.column].note}" if note.column in said else ""
        kept = note.note.removesuffix(excel.KEPT_AS_TEXT)
        found.append(TypeNote(note.column, kind, f"{kept}; its texts were read like the others{how}"))
    known = {note.column for note in cells}
    return (*found, *(note for note in values if note.column not in known))


def _records(con: Any, file: DiscoveredTable, scratch: Path) -> list[Staged]:
    target = scratch / "0.table.parquet"
    reading = parse_reading_options(dict(file.options))
    rows, report = json_records.load_json_records(con, file.paths, target, scratch, reading)
    return [(file.table, target, rows, report)]


def _documents(file: DiscoveredTable, scratch: Path) -> list[Staged]:
    target = scratch / "0.table.parquet"
    rows, report = document.load_documents(file.paths, target)
    return [(file.table, target, rows, report)]


def _in_place(file: DiscoveredTable) -> list[LoadedTable]:
    found = [(path, *parquet.inspect_parquet(path)) for path in file.paths]
    groups = parquet.group_parquet_files_by_columns([(path, names) for path, _, names, *_ in found])
    tables = []
    for table, members in zip(_names(file, groups), groups):
        inside = [found[m] for m in members]
        report = LoadReport(
            notes=parquet.describe_differing_parquet_columns([(path, names) for path, _, names, *_ in inside])
            + parquet.describe_differing_parquet_types([types for *_, types in inside]),
            types=tuple(dict.fromkeys(note for *_, notes, _ in inside for note in notes)),
        )
        paths = tuple(path for path, *_ in inside)
        tables.append(LoadedTable(table, paths, sum(rows for _, rows, *_ in inside), report))
    return tables


def _names(file: DiscoveredTable, groups: list[list[int]]) -> list[str]:
    """Return the table's name, followed by a file's name if the files differ in shape."""
    if len(groups) == 1:
        return [file.table]
    return unique_table_names(
        clean_table_name(f"{file.table} {discovered_file_stem(file.paths[g[0]])}") for g in groups
    )


def _publish(table: str, staged: Path, rows: int, report: LoadReport, out_dir: Path) -> LoadedTable:
    """Rename the finished file into place: a reader sees the old file or the new one, never a part."""
    target = out_dir / f"{table}.parquet"
    os.replace(staged, target)
    return LoadedTable(table, (str(target),), rows, report)


@contextmanager
def _scratch(out_dir: Path) -> Iterator[Path]:
    # In the same folder, so that the last step is a rename; with a unique name, so that two loads do not collide.
    folder = Path(tempfile.mkdtemp(prefix=".load-", dir=out_dir))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _connect(scratch: Path, config: Mapping[str, str] | None, watch: Watch) -> Iterator[Any]:
    import duckdb

    settings = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "temp_directory": str(scratch / "spill"),
    }
    with duckdb.connect(config=settings | dict(config or {})) as con:
        # A time without a zone must not depend on where the file is loaded.
        con.execute("SET TimeZone = 'UTC'")
        watch(con)
        try:
            yield con
        except (duckdb.OutOfMemoryException, MemoryError) as error:
            raise LimitExceeded("The file needs more memory than allowed.", hint="Raise the memory limit.") from error
        except duckdb.InterruptException as error:
            raise Cancelled("Loading was cancelled.") from error
        except duckdb.Error as error:
            raise SourceError(
                f"DuckDB could not load the file: {str(error).splitlines()[0]}",
                hint="Check the free space of the cache folder, or convert the file to Parquet yourself.",
            ) from error
        finally:
            watch(None)
