"""Documents in the folder of a source: Markdown, text, HTML and PDF, cut into passages."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from etude.errors import EtudeError, Invalid
from etude.search.index_base import Document, make_index_document
from etude.sources.files.document import is_document, read_document_parts
from etude.sources.files.table_names import clean_table_name

if TYPE_CHECKING:
    from etude.entities import Catalog
    from etude.sources.source import Source

FILES = 20_000
PASSAGE = 1_200
"""About as many characters a passage has; it ends with a paragraph, if one ends there."""


def find_document_files(source: Source, catalog: Catalog | None) -> list[Path]:
    """Return the documents in the folder of a source; links that lead out of it are not followed."""
    folder = Path(source.url)
    if source.kind != "files" or "://" in source.url or not folder.is_dir():
        return []
    if source.spec.tables is not None:
        return []  # only those tables are granted, and a document may hold anything
    root, found = os.path.realpath(folder), []
    # A text file may be a table, whose columns the catalog masks; one of a single column is prose.
    tables = {t.name for t in catalog.tables if len(t.columns) > 1} if catalog is not None else set()
    for parent, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        for name in sorted(names):
            path = Path(parent, name)
            if name.startswith(".") or not is_document(name):
                continue
            inside = os.path.realpath(path).startswith(root.rstrip(os.sep) + os.sep)
            delimited = path.suffix.lower() == ".txt" and (parent != root or clean_table_name(path.stem) in tables)
            if inside and path.is_file() and not delimited:
                found.append(path)
            if len(found) > FILES:
                raise Invalid(f"There are more than {FILES:,} documents in `{folder}`.", hint="Name a sub-folder.")
    return found


def read_document_files(source: Source, paths: list[Path], notes: list[str]) -> Iterator[Document]:
    """Yield the passages of documents; a note tells which files could not be read, and why."""
    root = Path(os.path.realpath(source.url))
    for path in paths:
        name = path.relative_to(root).as_posix()
        try:
            passages = list(_passages(path))
        except (OSError, EtudeError) as error:
            reason = error.message if isinstance(error, EtudeError) else f"{error.strerror}."
            notes.append(f"`{name}` was not indexed: {reason}")
            continue
        for number, (heading, text) in enumerate(passages, 1):
            title = f"{name}: {heading}" if heading else name
            yield make_index_document(f"file:{name}:{number}", "file", title, text, table=name)


def _passages(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each passage with the heading that it stands under."""
    pages = path.suffix.lower() == ".pdf"
    for number, (heading, parts) in enumerate(
        itertools.groupby(read_document_parts(str(path)), lambda part: part.heading), 1
    ):
        if pages:
            for page, part in enumerate(parts, number):
                yield from ((f"page {page}", text) for text in _cut(part.text))
        else:
            yield from ((heading or "", text) for text in _cut("\n\n".join(part.text for part in parts)))


def _cut(text: str) -> Iterator[str]:
    passage = ""
    for paragraph in re.split(r"\n\s*\n", text):
        part = paragraph.strip()
        if passage and len(passage) + len(part) > PASSAGE:
            yield passage
            passage = ""
        while len(part) > 2 * PASSAGE:
            at = part.rfind(" ", 0, PASSAGE) + 1 or PASSAGE
            yield part[:at].strip()
            part = part[at:]
        passage = f"{passage}\n\n{part}".strip()
    if passage:
        yield passage
