"""Documents in the folder of a source: Markdown, text, HTML and PDF, cut into passages."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

from etude.errors import Invalid
from etude.search.base import Document, make_document
from etude.sources.files.discover import clean_name

if TYPE_CHECKING:
    from etude.entities import Catalog
    from etude.sources.source import Source

ENDINGS = (".md", ".markdown", ".rst", ".txt", ".html", ".htm", ".pdf")
BYTES = 32 << 20
"""Larger files are not read."""
FILES = 20_000
PASSAGE = 1_200
"""About as many characters a passage has; it ends with a paragraph, if one ends there."""
PAGES = 2_000
_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$")
_HIDDEN = frozenset({"script", "style", "noscript", "template", "svg", "head"})


def find_files(source: Source, catalog: Catalog | None) -> list[Path]:
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
            if name.startswith(".") or path.suffix.lower() not in ENDINGS:
                continue
            inside = os.path.realpath(path).startswith(root.rstrip(os.sep) + os.sep)
            delimited = path.suffix.lower() == ".txt" and (parent != root or clean_name(path.stem) in tables)
            if inside and path.is_file() and not delimited:
                found.append(path)
            if len(found) > FILES:
                raise Invalid(f"There are more than {FILES:,} documents in `{folder}`.", hint="Name a sub-folder.")
    return found


def read_files(source: Source, paths: list[Path], notes: list[str]) -> Iterator[Document]:
    """Yield the passages of documents; a note tells which files could not be read, and why."""
    root = Path(os.path.realpath(source.url))
    for path in paths:
        name = path.relative_to(root).as_posix()
        try:
            if path.stat().st_size > BYTES:
                raise Invalid(f"it is larger than {BYTES >> 20} MB")
            passages = list(_passages(path))
        except (OSError, Invalid) as error:
            notes.append(f"`{name}` was not indexed: {error}.")
            continue
        for number, (heading, text) in enumerate(passages, 1):
            title = f"{name}: {heading}" if heading else name
            yield make_document(f"file:{name}:{number}", "file", title, text, table=name)


def _passages(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each passage with the heading that it stands under."""
    suffix = path.suffix.lower()
    if suffix == ".pdf":
        for number, text in enumerate(_pdf_pages(path), 1):
            yield from ((f"page {number}", part) for part in _cut(text))
        return
    text = path.read_bytes().decode("utf-8-sig", "replace")
    if suffix in (".html", ".htm"):
        text = _html_text(text)
    heading, lines = "", list[str]()
    for line in text.splitlines():
        if suffix in (".md", ".markdown", ".html", ".htm") and (found := _HEADING.match(line)):
            yield from ((heading, part) for part in _cut("\n".join(lines)))
            heading, lines = found[1], []
        else:
            lines.append(line)
    yield from ((heading, part) for part in _cut("\n".join(lines)))


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


def _html_text(text: str) -> str:
    reader = _TextReader()
    reader.feed(text)
    reader.close()
    return "".join(reader.parts)


class _TextReader(HTMLParser):
    """Collects the text of a page; headings are written as in Markdown."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a paragraph, or hide scripts and styles."""
        if tag in _HIDDEN:
            self._hidden += 1
        elif re.fullmatch(r"h[1-6]", tag):
            self.parts.append("\n\n# ")
        elif tag in ("p", "div", "li", "tr", "br", "section", "article", "table"):
            self.parts.append("\n\n" if tag != "br" else "\n")

    def handle_endtag(self, tag: str) -> None:
        """End a heading or what is hidden."""
        if tag in _HIDDEN:
            self._hidden = max(0, self._hidden - 1)
        elif re.fullmatch(r"h[1-6]", tag):
            self.parts.append("\n\n")

    def handle_data(self, data: str) -> None:
        """Keep the text."""
        if not self._hidden:
            self.parts.append(re.sub(r"\s+", " ", data))


def _pdf_pages(path: Path) -> Iterator[str]:
    try:
        import pypdf
    except ImportError:
        raise Invalid("`pypdf` is not installed: pip install 'etude[search]'") from None
    try:
        reader = pypdf.PdfReader(path)
        for page in reader.pages[:PAGES]:
            yield page.extract_text()
    except Exception as error:  # a damaged file may raise nearly anything in a parser of PDF
        raise Invalid(f"it is not a readable PDF ({type(error).__name__})") from None
