"""Documents as tables of their text: a row for each section of Markdown or HTML, each page of PDF, each paragraph."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

from etude.errors import Invalid, LimitExceeded
from etude.sources.files.load_report import LoadReport

MARKDOWN = (".md", ".markdown")
WEB = (".html", ".htm")
ENDINGS = (*MARKDOWN, *WEB, ".pdf", ".rst", ".txt")
MOST_BYTES = 64 << 20
MOST_PAGES = 5_000
_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$")
_FENCE = re.compile(r"^(```|~~~)")
_HIDDEN = frozenset({"script", "style", "noscript", "template", "svg", "head"})
_BLOCKS = frozenset({"p", "div", "li", "tr", "section", "article", "table", "ul", "ol", "pre", "blockquote"})


@dataclass(frozen=True)
class Part:
    """A part of a document, and the heading that it stands under."""

    heading: str | None
    text: str


def is_document(path: str) -> bool:
    """Return whether the ending of a file is that of a document."""
    return path.lower().endswith(ENDINGS)


def load_documents(paths: Sequence[str], target: Path) -> tuple[int, LoadReport]:
    """Write the parts of documents to a Parquet file; return how many there are, and what is to be known about them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names: list[str] = []
    numbers: list[int] = []
    parts: list[Part] = []
    notes: list[str] = []
    for path in paths:
        found = list(read_document_parts(path))
        if not any(part.text for part in found):
            notes.append(f"`{Path(path).name}` has no text; it may hold only pictures of pages.")
        names += [Path(path).name] * len(found)
        numbers += range(1, len(found) + 1)
        parts += found
    columns = {
        "document": pa.array(names, pa.string()),
        "part": pa.array(numbers, pa.int32()),
        "heading": pa.array([part.heading for part in parts], pa.string()),
        "text": pa.array([part.text for part in parts], pa.string()),
    }
    pq.write_table(pa.table(columns), target, compression="zstd")
    return len(parts), LoadReport(notes=tuple(notes))


def read_document_parts(path: str) -> Iterator[Part]:
    """Yield the parts of a document. Raise `Invalid` or `LimitExceeded` if it cannot be read whole."""
    with open(path, "rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise LimitExceeded(
            f"`{path}` is larger than {MOST_BYTES >> 20} MiB, the most that is read of a document.", hint="Split it."
        )
    if data.startswith(b"%PDF"):
        yield from _pdf_pages(path)
        return
    text = _decode(data)
    if path.lower().endswith(WEB):
        yield from _sections(_web_text(text))
    elif path.lower().endswith(MARKDOWN):
        yield from _sections(text)
    else:
        yield from (Part(None, part.strip()) for part in re.split(r"\n\s*\n", text) if part.strip())


def _decode(data: bytes) -> str:
    from etude.sources.files.text_file import detect_text_encoding

    encoding, _ = detect_text_encoding(data[: 1 << 20])
    try:
        text = data.decode(encoding or "utf-8")
    except UnicodeDecodeError:
        text = data.decode("cp1252", "replace")
    return text.lstrip("\ufeff").replace("\0", "")


def _sections(text: str) -> Iterator[Part]:
    """Yield the text below each heading; a `#` inside a block of code is not one."""
    heading: str | None = None
    lines: list[str] = []
    fenced = False
    for line in text.splitlines():
        fenced ^= bool(_FENCE.match(line))
        found = None if fenced else _HEADING.match(line)
        if found is None:
            lines.append(line)
            continue
        if heading is not None or any(map(str.strip, lines)):
            yield Part(heading, "\n".join(lines).strip())
        heading, lines = found[1], []
    if heading is not None or any(map(str.strip, lines)):
        yield Part(heading, "\n".join(lines).strip())


def _web_text(text: str) -> str:
    reader = _TextReader()
    reader.feed(text)
    reader.close()
    return "".join(reader.parts)


class _TextReader(HTMLParser):
    """Collects the text of a web page; headings are written as in Markdown."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a block, or hide what is not text."""
        if tag in _HIDDEN:
            self._hidden += 1
        elif re.fullmatch(r"h[1-6]", tag):
            self.parts.append("\n\n# ")
        elif tag in _BLOCKS:
            self.parts.append("\n\n")
        elif tag == "br":
            self.parts.append("\n")
        elif tag in ("td", "th"):
            self.parts.append(" ")

    def handle_endtag(self, tag: str) -> None:
        """End a heading, or what is hidden."""
        if tag in _HIDDEN:
            self._hidden = max(0, self._hidden - 1)
        elif re.fullmatch(r"h[1-6]", tag) or tag in _BLOCKS:
            self.parts.append("\n\n")

    def handle_data(self, data: str) -> None:
        """Keep the text."""
        if not self._hidden:
            self.parts.append(re.sub(r"\s+", " ", data))


def _pdf_pages(path: str) -> Iterator[Part]:
    try:
        import pypdf
    except ImportError:
        raise Invalid(
            f"`{path}` is a PDF, which is read only if `pypdf` is installed.", hint="pip install 'etude[search]'"
        ) from None
    try:
        reader = pypdf.PdfReader(path)
        pages = len(reader.pages)
        if pages <= MOST_PAGES:
            for page in reader.pages:
                yield Part(None, page.extract_text().replace("\0", "").strip())
    except Exception as error:  # a damaged file may raise nearly anything in a parser of PDF
        raise Invalid(
            f"`{path}` is not a PDF that can be read: {type(error).__name__}.",
            hint="Save it again, without a password.",
        ) from None
    if pages > MOST_PAGES:
        raise LimitExceeded(f"`{path}` has {pages:,} pages; at most {MOST_PAGES:,} are read.", hint="Split it.")
