"""Find the files behind a path, and which files make which table, from names and sizes alone."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path
from typing import NamedTuple

from etude.errors import Invalid, NotFound, SourceMissing
from etude.similar_names import similar_names
from etude.sources.file_fingerprint import paths_fingerprint
from etude.sources.files.document import is_document
from etude.sources.files.table_names import clean_table_name, unique_table_names

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
    ".zip": "zip",
}
NOTES = frozenset({"readme", "license", "licence", "copying", "notice", "changelog", "contributing", "authors"})
NOTES |= {"citation", "liesmich", "lisezmoi", "leeme", "leiame", "leggimi"}
"""Names of texts about the files beside them."""
PACKED = (".gz", ".zst", ".zstd")
PACKABLE = ("csv", "json")
MOST_FILES = 100_000
LOADER = 7
"""Raised when loading the same file gives another table, so that converted files are made again."""
Options = tuple[tuple[str, str], ...]
DOCUMENTS = ("documents", "true")
"""The option of files among which documents are read as tables of their text."""


@dataclass(frozen=True)
class DiscoveredTable:
    """Files that make one table (a workbook may make several)."""

    table: str
    paths: tuple[str, ...]
    format: str
    fingerprint: str
    """Changes with every path and with every write."""
    options: Options = ()
    """How to read ambiguous values; see `reading_options.ReadingOptions`."""

    @property
    def key(self) -> str:
        """Changes with everything that the loaded table depends on."""
        return hashlib.sha256(f"{LOADER}|{self.fingerprint}|{self.options}".encode()).hexdigest()


@dataclass(frozen=True)
class DiscoveredFiles:
    """The tables behind a path, and the names of files that were left out."""

    tables: tuple[DiscoveredTable, ...]
    ignored: tuple[str, ...]
    """Files of an unsupported kind."""
    links: tuple[str, ...] = ()
    """Symbolic links that lead out of the folder and were not followed."""


class _Seen(NamedTuple):
    path: str
    """Without symbolic links, so that one that replaces a part of it later is noticed."""
    parts: tuple[str, ...]
    """The path below the requested folder."""
    root: str
    """The requested folder."""
    format: str


class _Root(NamedTuple):
    asked: str
    real: str
    follow_links: bool

    def resolve(self, path: str) -> str | None:
        """Return the file behind a path without links, or None if it is outside the folder."""
        real = os.path.realpath(path)
        if self.follow_links:
            return real
        inside = real.startswith(self.real.rstrip(os.sep) + os.sep)
        return real if inside and not _is_foreign(real) else None


def discover(url: str, *, follow_links: bool = False, options: Options = ()) -> list[DiscoveredTable]:
    """Return the tables behind a file, a folder or a glob; only names and sizes are read."""
    return list(discover_files(url, follow_links=follow_links, options=options).tables)


def discover_files(
    url: str, *, follow_links: bool = False, options: Options = (), uploaded: bool = False
) -> DiscoveredFiles:
    """Do the same as `discover`, and return the names of files that were left out, too.

    A symbolic link that leads out of the folder is followed only with `follow_links`: otherwise any user who may
    write to the folder could read every file that etude can read. For the same reason a file with several names is read
    only if its folder has the same owner. A link that is the URL itself is followed.
    Files that were `uploaded` are all read, documents too: their content decides when they are loaded.
    """
    seen = sorted(_seen(os.path.expanduser(url), follow_links), key=lambda s: s.parts)
    if uploaded:
        options = (*options, DOCUMENTS)
        seen = [s._replace(format=s.format or ("document" if is_document(s.path) else "csv")) for s in seen]
    known = [s for s in seen if s.format and s.path]
    ignored = tuple("/".join(s.parts) for s in seen if not s.format and s.path)
    links = tuple("/".join(s.parts) for s in seen if not s.path)
    if not known and links:
        raise Invalid(
            f"No readable file at `{url}`: {', '.join(f'`{n}`' for n in links[:10])} lead out of the folder.",
            hint="Copy the files into the folder, or set the option `follow_links` of the source to `true`.",
        )
    if not known:
        raise Invalid(f"No readable file at `{url}`. {_listing(ignored)}", hint=f"etude reads {_kinds()}.")
    groups = _group(known)
    names = unique_table_names(name for name, _ in groups)
    return DiscoveredFiles(tuple(_table(n, files, options) for n, (_, files) in zip(names, groups)), ignored, links)


def discover_format_by_name(path: str) -> str:
    """`csv`, `json`, `parquet`, `excel`, `zip`, or empty if the name has no known ending."""
    stem, suffix = os.path.splitext(path.lower())
    if suffix not in PACKED:
        return FORMATS.get(suffix, "")
    inner = FORMATS.get(os.path.splitext(stem)[1], "")
    return inner if inner in PACKABLE else ""


def is_note_beside_tables(path: str) -> bool:
    """Return whether a name is that of a text about the other files, such as `README.txt`."""
    name = os.path.basename(path.replace("\\", "/")).lower()
    return name.endswith(".txt") and discovered_file_stem(name).strip(" _-").replace(" ", "").replace("_", "") in NOTES


def discovered_file_stem(path: str) -> str:
    """Return the file's name without folder and endings."""
    name = os.path.basename(path)
    if name.lower().endswith(PACKED):
        name = os.path.splitext(name)[0]
    return os.path.splitext(name)[0]


def _seen(url: str, follow_links: bool) -> Iterator[_Seen]:
    path = os.path.abspath(url)
    if os.path.isdir(path):
        yield from _walk(_Root(path, os.path.realpath(path), follow_links), path, (), [0])
    elif os.path.exists(path):
        folder = os.path.dirname(path)
        seen = _stat(_Root(folder, os.path.realpath(folder), True), path, (os.path.basename(path),))
        # A file that is named itself is read whatever its ending; its content decides when it is loaded.
        yield seen._replace(format=seen.format or "csv")
    elif has_magic(url):
        yield from _match(path, follow_links)
    else:
        raise _missing(path, url)


def _walk(root: _Root, folder: str, above: tuple[str, ...], count: list[int]) -> Iterator[_Seen]:
    try:
        entries = list(os.scandir(folder))
    except PermissionError:
        # Listed among the ignored files, to explain the missing table.
        yield _Seen(folder, (*above, "(permission denied)"), root.asked, "")
        return
    count[0] += len(entries)
    if count[0] > MOST_FILES:
        raise Invalid(f"There are more than {MOST_FILES:,} files.", hint="Name a sub-folder or use a glob.")
    for entry in entries:
        if entry.name.startswith("."):
            continue
        # A linked folder may lead back up; a linked file is read like any other.
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(root, entry.path, (*above, entry.name), count)
        elif entry.is_file() or (entry.is_symlink() and root.resolve(entry.path) is None):
            seen = _stat(root, entry.path, (*above, entry.name))
            yield seen._replace(format="") if is_note_beside_tables(entry.name) else seen


def _match(pattern: str, follow_links: bool) -> Iterator[_Seen]:
    base = Path(pattern)
    while has_magic(str(base)):
        base = base.parent
    root = _Root(str(base), os.path.realpath(base), follow_links)
    for path in glob(pattern, recursive=True):
        if os.path.isfile(path):
            seen = _stat(root, path, Path(path).relative_to(base).parts)
            yield seen._replace(format=seen.format or ("csv" if seen.path else ""))


def _stat(root: _Root, path: str, parts: tuple[str, ...]) -> _Seen:
    real = root.resolve(path)
    if real is None:
        return _Seen("", parts, root.asked, "")
    return _Seen(real, parts, root.asked, discover_format_by_name(parts[-1]))


def _is_foreign(path: str) -> bool:
    """Return whether a file has further names, and another owner than its folder: its owner may not have put it there.

    A hard link has no target that could be outside the folder, so only the owner can tell.
    """
    try:
        file, folder = os.stat(path), os.stat(os.path.dirname(path))
    except OSError:
        return False
    return stat.S_ISREG(file.st_mode) and file.st_nlink > 1 and file.st_uid != folder.st_uid


def _group(files: list[_Seen]) -> list[tuple[str, list[_Seen]]]:
    """Group files into tables: each top-level file is one, and so is a sub-folder of one format."""
    groups: list[tuple[str, list[_Seen]]] = []
    folders: dict[str, list[_Seen]] = {}
    for file in files:
        if len(file.parts) == 1:
            groups.append((clean_table_name(discovered_file_stem(file.parts[-1])), [file]))
        else:
            folders.setdefault(_folder(file), []).append(file)
    for folder, parts in folders.items():
        formats = {p.format for p in parts}
        if len(formats) == 1 and not formats & {"excel", "zip"}:
            groups.append((clean_table_name(folder), parts))
        else:
            groups += [(clean_table_name(f"{folder} {discovered_file_stem(p.parts[-1])}"), [p]) for p in parts]
    return sorted(groups, key=lambda g: g[1][0].parts)


def _folder(file: _Seen) -> str:
    """Return the sub-folder's name; top-level partitions such as `year=2024` belong to the requested folder."""
    if "=" not in file.parts[0]:
        return file.parts[0]
    return os.path.basename(file.root)


def _table(name: str, files: list[_Seen], options: Options) -> DiscoveredTable:
    paths = tuple(f.path for f in files)
    return DiscoveredTable(name, paths, files[0].format, paths_fingerprint(paths), options)


def _missing(path: str, url: str) -> NotFound:
    parent = os.path.dirname(path)
    if not os.path.isdir(parent):
        return SourceMissing(f"No file or folder `{url}`.", hint=f"The folder `{parent}` does not exist either.")
    near = similar_names(os.path.basename(path), os.listdir(parent), n=1, cutoff=0.5)
    hint = f"Did you mean `{os.path.join(os.path.dirname(url), near[0])}`?" if near else "Check the path."
    return SourceMissing(f"No file or folder `{url}`.", hint=hint)


def _listing(names: tuple[str, ...]) -> str:
    if not names:
        return "Nothing was found there."
    return f"Found: {', '.join(f'`{n}`' for n in names[:10])}{', ...' if len(names) > 10 else ''}."


def _kinds() -> str:
    return ", ".join(FORMATS) + ", and .gz or .zst of the text ones"
