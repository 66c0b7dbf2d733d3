"""Finding the files behind a path: which files make which table, told from names and sizes alone."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path
from typing import NamedTuple

from etude.errors import Invalid, NotFound

FORMATS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".xlsx": "excel",
    ".xls": "excel",
    ".xlsb": "excel",
    ".ods": "excel",
}
ZIPPED = ("csv", "json")
MOST_FILES = 100_000
# Words that a query could not write after FROM without quotes.
WORDS = """
    all analyse analyze and any array as asc asymmetric both case cast check collate column constraint create
    default deferrable desc describe distinct do else end except false fetch for foreign from group having in
    initially intersect into lambda lateral leading limit not null offset on only or order pivot pivot_longer
    pivot_wider placing primary qualify references returning select show some summarize symmetric table then to
    trailing true union unique unpivot using variadic when where window with
"""
RESERVED = frozenset(WORDS.split())


@dataclass(frozen=True)
class FileTable:
    """Files that make one table (a workbook may make several)."""

    table: str
    paths: tuple[str, ...]
    format: str
    fingerprint: str
    """Changes when a path, a size or a time of change does."""


@dataclass(frozen=True)
class FoundFiles:
    """The tables behind a path, and the names of what was left out because its kind is not known."""

    tables: tuple[FileTable, ...]
    ignored: tuple[str, ...]


class _Seen(NamedTuple):
    path: str
    parts: tuple[str, ...]
    """The path below the folder asked for."""
    format: str
    size: int
    mtime_ns: int


def discover(url: str) -> list[FileTable]:
    """The tables behind a file, a folder or a glob; reads names and sizes only."""
    return list(scan(url).tables)


def scan(url: str) -> FoundFiles:
    """As `discover`, with the names of ignored files."""
    seen = sorted(_seen(os.path.expanduser(url)), key=lambda s: s.parts)
    known = [s for s in seen if s.format]
    ignored = tuple("/".join(s.parts) for s in seen if not s.format)
    if not known:
        raise Invalid(f"No readable file at `{url}`. {_listing(ignored)}", hint=f"etude reads {_kinds()}.")
    groups = _group(known)
    names = unique_names(name for name, _ in groups)
    return FoundFiles(tuple(_table(n, files) for n, (_, files) in zip(names, groups)), ignored)


def format_of(path: str) -> str:
    """`csv`, `json`, `parquet`, `excel`, or empty where the name tells no known kind."""
    stem, suffix = os.path.splitext(path.lower())
    if suffix != ".gz":
        return FORMATS.get(suffix, "")
    inner = FORMATS.get(os.path.splitext(stem)[1], "")
    return inner if inner in ZIPPED else ""


def clean_name(text: str) -> str:
    """A name that a query may write without quotes: lower-case words joined by `_`."""
    plain = text
    if not text.isascii():
        plain = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    name = re.sub(r"[\W_]+", "_", plain.lower()).strip("_")
    if not name or not name[0].isalpha() or name in RESERVED:
        name = f"t_{name}".rstrip("_")
    return name


def unique_names(names: Iterable[str]) -> list[str]:
    """The same names, later duplicates numbered `_2`, `_3`, ..."""
    wanted = list(names)
    taken, given = set(wanted), set[str]()
    result = []
    for name in wanted:
        free, number = name, 2
        while free in given or (free != name and free in taken):
            free, number = f"{name}_{number}", number + 1
        given.add(free)
        result.append(free)
    return result


def stem_of(path: str) -> str:
    """The file's name without folder and endings."""
    name = os.path.basename(path)
    if name.lower().endswith(".gz"):
        name = name[:-3]
    return os.path.splitext(name)[0]


def _seen(url: str) -> Iterator[_Seen]:
    path = os.path.abspath(url)
    if os.path.isdir(path):
        yield from _walk(path, (), [0])
    elif os.path.exists(path):
        yield _stat(path, (os.path.basename(path),))
    elif has_magic(url):
        yield from _match(path)
    else:
        raise _missing(path, url)


def _walk(folder: str, above: tuple[str, ...], count: list[int]) -> Iterator[_Seen]:
    try:
        entries = list(os.scandir(folder))
    except PermissionError:
        # Named among the ignored, so that the missing table is no riddle.
        yield _Seen(folder, (*above, "(no right to read)"), "", 0, 0)
        return
    count[0] += len(entries)
    if count[0] > MOST_FILES:
        raise Invalid(f"More than {MOST_FILES:,} files.", hint="Name a sub-folder or use a glob.")
    for entry in entries:
        if entry.name.startswith("."):
            continue
        # A linked folder may lead back up; a linked file is as good as a file.
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path, (*above, entry.name), count)
        elif entry.is_file():
            stat = entry.stat()
            yield _Seen(entry.path, (*above, entry.name), format_of(entry.name), stat.st_size, stat.st_mtime_ns)


def _match(pattern: str) -> Iterator[_Seen]:
    base = Path(pattern)
    while has_magic(str(base)):
        base = base.parent
    for path in glob(pattern, recursive=True):
        if os.path.isfile(path):
            yield _stat(path, Path(path).relative_to(base).parts)


def _stat(path: str, parts: tuple[str, ...]) -> _Seen:
    stat = os.stat(path)
    return _Seen(path, parts, format_of(path), stat.st_size, stat.st_mtime_ns)


def _group(files: list[_Seen]) -> list[tuple[str, list[_Seen]]]:
    """Top-level files stand alone; a sub-folder of one format is one table."""
    groups: list[tuple[str, list[_Seen]]] = []
    folders: dict[str, list[_Seen]] = {}
    for file in files:
        if len(file.parts) == 1:
            groups.append((clean_name(stem_of(file.path)), [file]))
        else:
            folders.setdefault(_folder(file), []).append(file)
    for folder, parts in folders.items():
        formats = {p.format for p in parts}
        if len(formats) == 1 and formats != {"excel"}:
            groups.append((clean_name(folder), parts))
        else:
            groups += [(clean_name(f"{folder} {stem_of(p.path)}"), [p]) for p in parts]
    return sorted(groups, key=lambda g: g[1][0].parts)


def _folder(file: _Seen) -> str:
    """The sub-folder's name; partitions such as `year=2024` right below belong to the folder asked for."""
    if "=" not in file.parts[0]:
        return file.parts[0]
    return os.path.basename(file.path.removesuffix(os.path.join(*file.parts)).rstrip(os.sep))


def _table(name: str, files: list[_Seen]) -> FileTable:
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.path}\0{file.size}\0{file.mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return FileTable(name, tuple(f.path for f in files), files[0].format, digest.hexdigest())


def _missing(path: str, url: str) -> NotFound:
    parent = os.path.dirname(path)
    if not os.path.isdir(parent):
        return NotFound(f"No file or folder `{url}`.", hint=f"The folder `{parent}` does not exist either.")
    near = difflib.get_close_matches(os.path.basename(path), os.listdir(parent), n=1, cutoff=0.5)
    hint = f"Did you mean `{os.path.join(os.path.dirname(url), near[0])}`?" if near else "Check the path."
    return NotFound(f"No file or folder `{url}`.", hint=hint)


def _listing(names: tuple[str, ...]) -> str:
    if not names:
        return "Nothing was found there."
    return f"Found: {', '.join(f'`{n}`' for n in names[:10])}{', ...' if len(names) > 10 else ''}."


def _kinds() -> str:
    return ", ".join(FORMATS) + ", and .gz of the text ones"
