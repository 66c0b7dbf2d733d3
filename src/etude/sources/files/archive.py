"""Unpack archives and compressed files within limits. The names inside an archive are never used as paths."""

from __future__ import annotations

import os
import stat
import sys
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path

from etude.errors import Invalid, LimitExceeded
from etude.sources.files.discover import discover_format_by_name, discovered_file_stem, is_note_beside_tables
from etude.sources.files.document import is_document
from etude.sources.files.file_content import content_compression, open_decompressed_content
from etude.sources.files.table_names import clean_table_name

MOST_MEMBERS = 1_000
MOST_BYTES = 16 << 30
MOST_RATIO = 200
"""Text shrinks to a tenth, or to a hundredth if it is monotonous; a zip bomb shrinks to a thousandth or less."""
SMALL = 64 << 20
"""Up to this size, any ratio is accepted."""
ENCRYPTED = 1
CHUNK = 1 << 20


def unzip_archive(path: str, folder: Path, documents: bool = False) -> tuple[list[tuple[str, Path]], list[str]]:
    """Unpack the tables of an archive; return the name and the file of each, and notes on what was left out."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [m for m in archive.infolist() if not m.is_dir()]
            _check(path, members)
            wanted = [m for m in members if _is_wanted(m.filename, documents) and not _is_hidden(m.filename)]
            others = [m.filename for m in members if m not in wanted and not _is_hidden(m.filename)]
            if not wanted:
                found = ", ".join(f"`{name}`" for name in others[:10]) or "nothing"
                raise Invalid(
                    f"`{path}` holds no file that can be read as a table; it holds {found}.",
                    hint="Pack CSV, JSON, Parquet or workbook files.",
                )
            unpacked, left = [], MOST_BYTES
            for at, member in enumerate(wanted):
                target = folder / str(at) / _file_name(member.filename)
                target.parent.mkdir()
                left -= _extract(path, archive, member, target, left)
                unpacked.append((member.filename, target))
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise Invalid(f"`{path}` is not a readable zip archive: {error}.", hint="Download or pack it again.") from error
    notes = [f"Left out of the archive, because they are not tables: {', '.join(others[:20])}."]
    return unpacked, notes if others else []


def _check(path: str, members: list[zipfile.ZipInfo]) -> None:
    if len(members) > MOST_MEMBERS:
        raise LimitExceeded(
            f"`{path}` holds {len(members):,} files; at most {MOST_MEMBERS:,} are read.", hint="Unpack it to a folder."
        )
    for member in members:
        if member.flag_bits & ENCRYPTED:
            raise Invalid(f"`{member.filename}` in `{path}` is encrypted.", hint="Pack it without a password.")
        if stat.S_ISLNK(member.external_attr >> 16):
            raise Invalid(
                f"`{member.filename}` in `{path}` is a symbolic link.", hint="Pack the file that it leads to instead."
            )
        parts = member.filename.replace("\\", "/").split("/")
        if ".." in parts or not parts[0] or ":" in parts[0]:
            raise Invalid(
                f"The name `{member.filename}` in `{path}` leads out of the archive.",
                hint="The archive may be an attack. Pack the files again under plain names.",
            )
        if member.file_size > max(SMALL, MOST_RATIO * member.compress_size):
            raise _bomb(path, member)
    if sum(m.file_size for m in members) > MOST_BYTES:
        raise LimitExceeded(
            f"`{path}` would unpack to more than {MOST_BYTES >> 30} GiB.", hint="Unpack it to a folder."
        )


def _bomb(path: str, member: zipfile.ZipInfo) -> LimitExceeded:
    return LimitExceeded(
        f"`{member.filename}` in `{path}` grows more than {MOST_RATIO}-fold when unpacked.",
        hint="The archive may be a zip bomb. If it is not, unpack it to a folder.",
    )


def _extract(path: str, archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, left: int) -> int:
    """Unpack one file; the sizes in the archive may lie, so the bytes are counted."""
    most = min(left, max(SMALL, MOST_RATIO * member.compress_size))
    size = 0
    with archive.open(member) as source, open(target, "wb") as out:
        while chunk := source.read(CHUNK):
            size += len(chunk)
            if size > most:
                raise _bomb(path, member)
            out.write(chunk)
    if not content_compression(str(target)):
        return size
    # A bomb may be packed twice, so the bytes of a compressed file count as they are once it is read.
    size = 0
    with suppress(Invalid), open_decompressed_content(str(target)) as unpacked:  # if it is damaged, its reader says so
        while chunk := unpacked.read(CHUNK):
            size += len(chunk)
            if size > most:
                raise _bomb(path, member)
    return size


def most_unpacked_from_archive(path: str) -> int:
    """Return how many bytes a file may have when it is read: fewer than `MOST_RATIO` times its size if compressed."""
    return min(MOST_BYTES, max(SMALL, MOST_RATIO * os.path.getsize(path))) if content_compression(path) else sys.maxsize


def refuse_archive_growth(path: str) -> LimitExceeded:
    """Return the error for a compressed file that has more bytes than `most_unpacked_from_archive` allows."""
    return LimitExceeded(
        f"`{path}` grows more than {MOST_RATIO}-fold, or to more than {MOST_BYTES >> 30} GiB, when unpacked.",
        hint="The file may be a decompression bomb. If it is not, unpack it.",
    )


def _is_wanted(name: str, documents: bool) -> bool:
    if documents and is_document(name):
        return True
    return discover_format_by_name(name) not in ("", "zip") and not is_note_beside_tables(name)


def _is_hidden(name: str) -> bool:
    return any(part.startswith((".", "__MACOSX")) for part in name.split("/"))


def _file_name(name: str) -> str:
    """Return a plain file name with the endings of the member."""
    base = name.replace("\\", "/").rsplit("/", 1)[-1]
    return clean_table_name(discovered_file_stem(base)) + base[len(discovered_file_stem(base)) :].lower()
