"""The bytes of a text file: encoding, line ends, and bytes that do not belong in text."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO

from etude.sources.files.archive import most_unpacked, refuse_growth
from etude.sources.files.content import open_bytes

CHUNK = 1 << 20
BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
NOT_IN_CP1252 = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")


@dataclass(frozen=True)
class Survey:
    """What one pass over the bytes found."""

    size: int
    encoding: str
    bom: bool
    nul_bytes: int
    lines: int
    """Lines with any kind of line end, including a last line without one."""
    lone_cr: bool
    """Some carriage returns have no line feed after them."""
    quotes: bool
    longest: int
    """Bytes of the longest line, or of a chunk if that is longer."""
    undecodable: bool = False

    @property
    def plain(self) -> bool:
        """DuckDB can read the bytes as they are."""
        return self.encoding == "utf-8" and not self.nul_bytes and not self.undecodable


def survey_text(path: str) -> Survey:
    """Read the file once, in chunks, and describe its bytes; raise `LimitExceeded` if it unpacks to too many."""
    most = most_unpacked(path)
    with open_bytes(path) as file:
        head = file.read(CHUNK)
        encoding, bom = encoding_of(head)
        decoder = codecs.getincrementaldecoder(encoding or "utf-8")()
        size = nuls = feeds = returns = pairs = carry = longest = 0
        valid, latin, quotes, last = True, False, False, b""
        chunk = head
        while chunk:
            size += len(chunk)
            if size > most:
                raise refuse_growth(path)
            if valid:
                valid = _decodes(decoder, chunk)
            latin = latin or (not chunk.isascii() and NOT_IN_CP1252.search(chunk) is not None)
            nuls += chunk.count(b"\0") if b"\0" in chunk else 0
            feeds += chunk.count(b"\n")
            has_cr = b"\r" in chunk or last == b"\r"
            if has_cr:
                returns += chunk.count(b"\r")
                pairs += chunk.count(b"\r\n") + (last == b"\r" and chunk[:1] == b"\n")
            quotes = quotes or b'"' in chunk
            first = chunk.find(b"\n")
            longest = max(longest, carry + (first if first >= 0 else len(chunk)))
            carry = len(chunk) - 1 - chunk.rfind(b"\n") if first >= 0 else carry + len(chunk)
            last = chunk[-1:]
            chunk = file.read(CHUNK)
        valid = valid and _decodes(decoder, b"", final=True)
    if not encoding:
        encoding = "utf-8" if valid else ("latin-1" if latin else "cp1252")
        valid = True
    return Survey(
        size=size,
        encoding=encoding,
        bom=bom,
        nul_bytes=0 if encoding.startswith(("utf-16", "utf-32")) else nuls,
        lines=feeds + returns - pairs + (last not in (b"", b"\n", b"\r")),
        lone_cr=returns > pairs,
        quotes=quotes,
        longest=max(longest, CHUNK),
        undecodable=not valid,
    )


@contextmanager
def open_text(path: str, found: Survey) -> Iterator[TextIO]:
    """Open the file's text; line ends are kept, and bytes that are not text become U+FFFD."""
    with open_bytes(path) as raw, io.TextIOWrapper(raw, found.encoding, "replace", newline="") as text:
        if found.bom:
            text.read(1)
        yield text


def encoding_of(head: bytes) -> tuple[str, bool]:
    """Return the encoding that the first bytes tell, or an empty text, and whether there is a byte order mark."""
    for mark, encoding in BOMS:
        if head.startswith(mark):
            return encoding, True
    # UTF-16 without a byte order mark: nearly every other byte of western text is zero.
    if len(head) >= 8:
        for encoding, zeros in (("utf-16-le", head[1::2]), ("utf-16-be", head[::2])):
            if zeros.count(0) > 0.8 * len(zeros) and head.count(0) < 0.6 * len(head):
                return encoding, False
    return "", False


def _decodes(decoder: codecs.IncrementalDecoder, chunk: bytes, final: bool = False) -> bool:
    try:
        decoder.decode(chunk, final)
    except UnicodeDecodeError:
        return False
    return True
