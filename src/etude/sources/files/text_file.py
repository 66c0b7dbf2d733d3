"""The bytes of a text file: encoding, line ends, and bytes that do not belong in text."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, TextIO

from etude.sources.files.archive import most_unpacked_from_archive, refuse_archive_growth
from etude.sources.files.file_content import open_decompressed_content
from etude.sources.files.load_report import LINES_KEPT, BadRows
from etude.sources.files.old_encodings import EncodingGuess, collect_lines_beyond_ascii, guess_old_encoding

CHUNK = 1 << 20
TAIL = 16
CTRL_Z_NOTE = "The Ctrl-Z at the end, with which old programs mark the end of a file, was left out."
BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
ESCAPED = re.compile("[\udc80-\udcff]")
MIXED_SHARE = 0.2
"""Of the lines that are not ASCII, this share must be UTF-8, else the file has one old encoding."""
STRAY_AS_CP1252 = "stray-as-cp1252"
NOT_IN_CP1252 = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")


@dataclass(frozen=True)
class TextFileSurvey:
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
    ctrl_z: bool = False
    """The last character is Ctrl-Z, which marked the end of files in DOS."""
    stray_lines: int = 0
    """Lines of a UTF-8 file with bytes of another encoding; they are read as Windows-1252."""
    first_stray_lines: tuple[int, ...] = ()
    doubtful: bool = False
    """The letters do not look like those of the encoding, which was chosen because nothing told a better one."""

    @property
    def plain(self) -> bool:
        """DuckDB can read the bytes as they are."""
        odd = self.nul_bytes or self.undecodable or self.stray_lines or self.ctrl_z
        return self.encoding == "utf-8" and not odd

    def clean(self, text: str) -> str:
        """Return a piece of the text without characters that do not belong in it."""
        text = text.replace("\0", "") if self.nul_bytes else text
        return text.replace("\x1a", "") if self.ctrl_z else text

    def stray_rows(self, file: str = "") -> tuple[BadRows, ...]:
        """Return the lines with bytes of another encoding, for the report."""
        if not self.stray_lines:
            return ()
        fault, done = "bytes that are not UTF-8", "these bytes were read as cp1252"
        return (BadRows(fault, self.stray_lines, self.first_stray_lines, done, file),)


def survey_text_file(path: str, wanted: str = "") -> TextFileSurvey:
    """Read the file once, in chunks, and describe its bytes; raise `LimitExceeded` if it unpacks to too many.

    `wanted` is the encoding of a file that is not UTF-8.
    """
    most = most_unpacked_from_archive(path)
    with open_decompressed_content(path) as file:
        head = file.read(CHUNK)
        encoding, bom = detect_text_encoding(head)
        decoder = codecs.getincrementaldecoder(encoding or "utf-8")()
        size = nuls = feeds = returns = pairs = carry = longest = 0
        valid, latin, quotes, last, end = True, False, False, b"", b""
        chunk = head
        while chunk:
            size += len(chunk)
            if size > most:
                raise refuse_archive_growth(path)
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
            end = chunk[-TAIL:]
            chunk = file.read(CHUNK)
        valid = valid and _decodes(decoder, b"", final=True)
    strays = _StrayLines()
    guess = EncodingGuess("", False)
    if not valid and not encoding and wanted:
        encoding, valid = wanted, _decodes_whole(path, wanted)
    elif not valid and encoding in ("", "utf-8"):
        strays = _find_stray_lines(path, bom)
        valid = strays.lines > 0
        encoding = "utf-8" if valid else encoding
    if not encoding and not valid:
        with open_decompressed_content(path) as file:
            guess = guess_old_encoding(collect_lines_beyond_ascii(iter(lambda: file.readline(CHUNK), b"")))
        encoding, valid = guess.encoding, not guess.encoding or _decodes_whole(path, guess.encoding)
        if not valid:
            encoding, guess, valid = "", EncodingGuess("", True), True
        encoding = encoding or ("latin-1" if latin else "cp1252")
    encoding = encoding or "utf-8"
    return TextFileSurvey(
        size=size,
        encoding=encoding,
        bom=bom,
        nul_bytes=0 if encoding.startswith(("utf-16", "utf-32")) else nuls,
        lines=feeds + returns - pairs + (last not in (b"", b"\n", b"\r")),
        lone_cr=returns > pairs,
        quotes=quotes,
        longest=max(longest, CHUNK),
        undecodable=not valid,
        ctrl_z=end.rstrip(b"\r\n \0").endswith(b"\x1a"),
        stray_lines=strays.lines,
        first_stray_lines=strays.first,
        doubtful=guess.doubtful,
    )


def _decodes_whole(path: str, encoding: str) -> bool:
    decoder = codecs.getincrementaldecoder(encoding)()
    with open_decompressed_content(path) as file:
        while chunk := file.read(CHUNK):
            if not _decodes(decoder, chunk):
                return False
    return _decodes(decoder, b"", final=True)


@contextmanager
def open_text_file(path: str, found: TextFileSurvey) -> Iterator[TextIO]:
    """Open the file's text; line ends are kept, and bytes that are not text become U+FFFD."""
    errors = STRAY_AS_CP1252 if found.stray_lines else "replace"
    with open_decompressed_content(path) as raw, io.TextIOWrapper(raw, found.encoding, errors, newline="") as text:
        if found.bom:
            text.read(1)
        yield text


class _StrayLines(NamedTuple):
    lines: int = 0
    first: tuple[int, ...] = ()


def _find_stray_lines(path: str, bom: bool) -> _StrayLines:
    """Return the lines that are not UTF-8; none if too few others are, so that the whole file has another encoding.

    Two exports appended to each other, or a file that was cut inside a character, are mostly UTF-8.
    """
    good = bad = 0
    first: list[int] = []
    with open_decompressed_content(path) as raw, io.TextIOWrapper(raw, "utf-8", "surrogateescape", newline="") as text:
        for number, line in enumerate(text, 1):
            if line.isascii():
                continue
            if ESCAPED.search(line) is None:
                good += 1
                continue
            bad += 1
            if len(first) < LINES_KEPT:
                first.append(number)
    if not bom and good < MIXED_SHARE * (good + bad):
        return _StrayLines()
    return _StrayLines(bad, tuple(first))


def _read_as_cp1252(error: UnicodeError) -> tuple[str, int]:
    """Decode bytes that are not UTF-8; those that Windows-1252 lacks are control characters of Latin-1."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    stray = error.object[error.start : error.end]
    return "".join(
        bytes([b]).decode("latin-1" if NOT_IN_CP1252.match(bytes([b])) else "cp1252") for b in stray
    ), error.end


codecs.register_error(STRAY_AS_CP1252, _read_as_cp1252)


def detect_text_encoding(head: bytes) -> tuple[str, bool]:
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
