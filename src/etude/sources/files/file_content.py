"""The format and the compression of a file by its content: a name may be wrong, or have no ending."""

from __future__ import annotations

import gzip
import io
import re
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from etude.errors import Invalid
from etude.sources.files.csv_dialect import detect_csv_dialect, read_csv_records

HEAD = 1 << 16
GZIP = b"\x1f\x8b"
ZSTD = b"\x28\xb5\x2f\xfd"
ENDINGS = {"gzip": (".gz",), "zstd": (".zst", ".zstd")}
"""The endings by which DuckDB knows that a file is compressed."""
# Other kinds of files that people take for tables, and what to do with them.
FOREIGN = (
    (b"SQLite format 3\0", "a SQLite database", "Name the file itself as a source."),
    (b"ARROW1", "an Arrow file", "Convert it to Parquet."),
    (b"Obj\x01", "an Avro file", "Convert it to Parquet."),
    (b"ORC", "an ORC file", "Convert it to Parquet."),
    (b"%PDF", "a PDF file", "Save its tables as CSV."),
    (b"BZh", "compressed by bzip2", "Unpack it, or pack it as .gz or .zst."),
    (b"\xfd7zXZ", "compressed by xz", "Unpack it, or pack it as .gz or .zst."),
    (b"7z\xbc\xaf", "a 7z archive", "Unpack it, or pack it as .zip."),
    (b"Rar!", "a RAR archive", "Unpack it, or pack it as .zip."),
    (b"\x89PNG", "an image", "Remove it from the source."),
    (b"\xff\xd8\xff", "an image", "Remove it from the source."),
)
JSON = re.compile(r"\s*(\[\s*\{|\{\s*\")")
MARKUP = re.compile(r"\s*<((\?xml|!doctype|html|head|body|table)\b|\w[^<>]*>\s*<\w)", re.IGNORECASE)
UNPRINTABLE = bytes(b for b in range(1, 32) if b not in b"\t\n\r\f\x1b")
SENTENCE_WORDS = 4
MOST_UNPRINTABLE = 0.1


def judge_content_format(path: str, named: str, documents: bool = False) -> str:
    """Return `csv`, `json`, `parquet`, `excel` or `zip`, by the content; `named` is the format that the name suggests.

    With `documents`, it may also be `document`. Raises `Invalid` if the content is none of them.
    """
    with open(path, "rb") as raw:
        start = raw.read(16)
    if start.startswith(b"PAR1"):
        return "parquet"
    if start.startswith(b"PK\x03\x04"):
        return "excel" if _is_workbook(path) else "zip"
    if start.startswith(b"\xd0\xcf\x11\xe0"):
        return "excel"
    if start[8:12] == b"DUCK":
        raise Invalid(f"`{path}` is a DuckDB database.", hint="Name the file itself as a source.")
    if documents and start.startswith(b"%PDF"):
        return "document"
    for magic, noun, hint in FOREIGN:
        if start.startswith(magic):
            raise Invalid(f"`{path}` is {noun}, which is not read as a table.", hint=hint)
    if named in ("parquet", "zip"):
        return named  # its reader says what is wrong
    with open_decompressed_content(path) as file:
        return _judge_text(path, file.read(HEAD), named, documents)


def _judge_text(path: str, head: bytes, named: str, documents: bool) -> str:
    from etude.sources.files.text_file import detect_text_encoding

    encoding, _ = detect_text_encoding(head)
    zeros = head.count(0) if not encoding.startswith(("utf-16", "utf-32")) else 0
    odd = len(head) - len(head.translate(None, UNPRINTABLE)) if not encoding else 0
    if head and (odd > MOST_UNPRINTABLE * len(head) or zeros > len(head) // 2):
        if named == "excel":
            return named
        raise Invalid(f"`{path}` is not text: it holds binary data.", hint="Check what kind of file it is.")
    text = head.decode(encoding or "utf-8", "replace").lstrip("\ufeff")
    if named == "document" or (documents and path.lower().endswith(".txt") and not _is_delimited(text)):
        return "document"
    if MARKUP.match(text):
        raise Invalid(
            f"`{path}` is a web page or XML, not a table.",
            hint="If it was downloaded, the server may have answered with a page. Save the data as CSV or JSON.",
        )
    if JSON.match(text) or (named == "json" and not _is_delimited(text)):
        return "json"
    if named == "excel":
        # Many programs save text under the name of a workbook.
        first = text.partition("\n")[0]
        return "csv" if any(d in first for d in "\t;,|") else "excel"
    return "csv"


def _is_delimited(text: str) -> bool:
    """Return whether text that cannot be JSON is a table: each line has the same number of fields, more than one."""
    if text.lstrip()[:1] in ("[", "{"):
        return False
    whole = len(text) < HEAD
    dialect = detect_csv_dialect(text, whole)
    rows = [r for r in read_csv_records(io.StringIO(text, newline=""), dialect, cut=not whole) if not r.blank]
    rows = rows if whole else rows[:-1]
    return dialect.width > 1 and len(rows) > 1 and all(len(r.fields) == dialect.width for r in rows)


def is_prose(path: str) -> bool:
    """Return whether a text file holds sentences: most lines have several words, and no delimiter or a full stop."""
    from etude.sources.files.text_file import detect_text_encoding

    with open_decompressed_content(path) as file:
        head = file.read(HEAD)
    text = head.decode(detect_text_encoding(head)[0] or "utf-8", "replace")
    lines = [line for line in text.splitlines() if line.strip()]
    long = sum(len(line.split()) >= SENTENCE_WORDS for line in lines)
    ended = sum(line.rstrip().endswith((".", "!", "?", ":")) for line in lines)
    if 2 * long <= len(lines) or JSON.match(text):
        return False
    return 2 * ended > len(lines) or not _is_delimited(text)


def content_compression(path: str) -> str:
    """Return `gzip`, `zstd` or an empty text, by the first bytes."""
    with open(path, "rb") as file:
        start = file.read(4)
    return "gzip" if start.startswith(GZIP) else "zstd" if start == ZSTD else ""


@contextmanager
def open_decompressed_content(path: str) -> Iterator[IO[bytes]]:
    """Open the file's bytes, decompressed if they are gzip or Zstandard."""
    import pyarrow as pa

    packed = content_compression(path) or ("gzip" if path.lower().endswith(".gz") else "")
    try:
        match packed:
            case "gzip":
                with gzip.open(path) as file:
                    yield cast(IO[bytes], file)
            case "zstd":
                with pa.input_stream(path, compression="zstd") as stream:
                    yield cast(IO[bytes], stream)
            case _:
                with open(path, "rb") as plain:
                    yield plain
    except (gzip.BadGzipFile, EOFError, zlib.error, pa.ArrowException) as error:
        raise Invalid(f"`{path}` is not a whole {packed} file: {error}.", hint="Download or pack it again.") from error
    except OSError as error:
        if packed != "zstd" or error.errno is not None:
            raise
        raise Invalid(f"`{path}` is not a whole zstd file: {error}.", hint="Download or pack it again.") from error


def decompress_content_for_duckdb(path: str, scratch: Path, index: str) -> str:
    """Return a path that DuckDB can open: the file itself, or a copy if its compression does not fit its name."""
    packed = content_compression(path)
    named = next((kind for kind, ends in ENDINGS.items() if path.lower().endswith(ends)), "")
    if packed == named:
        return path
    copy = scratch / f"unpacked{index}"
    with open_decompressed_content(path) as file, open(copy, "wb") as out:
        shutil.copyfileobj(file, out, 1 << 20)
    return str(copy)


def _is_workbook(path: str) -> bool:
    try:
        with zipfile.ZipFile(path) as book:
            names = set(book.namelist())
    except (zipfile.BadZipFile, OSError):
        return True  # a broken archive: the reader of workbooks or archives says so
    return bool(names & {"xl/workbook.xml", "xl/workbook.bin"}) or {"mimetype", "content.xml"} <= names
