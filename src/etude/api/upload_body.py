"""The body of an upload, written to disk as it arrives: a multipart form, or one file as it is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

import anyio.to_thread
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect

from etude.api.problems import HttpError
from etude.errors import Forbidden, Invalid, disk_full_error, is_disk_full
from etude.uploads import MOST_FILES, ReceivedFile

if TYPE_CHECKING:
    from fastapi import Request

    from etude.api.api_call import ApiCall
    from etude.store.base import Store

BATCH = 1 << 20
"""Bytes that are gathered before they are parsed and written, so that a large file needs few writes."""
MOST_HEAD = 8 << 10
"""The most bytes of the head of a part."""
MOST_FIELD = 200
"""The most bytes of a field that is not a file."""


class ArrivingUploads:
    """The uploads that this process is receiving: the storage quota of a tenant counts them together. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sizes: dict[str, dict[object, int]] = {}

    @contextmanager
    def receiving(self, store: Store) -> Iterator[Callable[[int], None]]:
        """Count an upload while the block runs.

        The block calls the function with the bytes that have arrived or will; it raises `LimitExceeded` if the tenant
        has no room for them.
        """
        upload = object()

        def count(size: int) -> None:
            with self._lock:
                sizes = self._sizes.setdefault(store.tenant, {})
                sizes[upload] = size
                total = sum(sizes.values())
            store.check_room(total or 1)

        try:
            yield count
        finally:
            with self._lock:
                sizes = self._sizes.get(store.tenant, {})
                sizes.pop(upload, None)
                if not sizes:
                    self._sizes.pop(store.tenant, None)


@dataclass
class Received:
    """An upload that has arrived whole."""

    files: list[ReceivedFile] = field(default_factory=list)
    name: str | None = None
    """The name of the dataset, if the sender gave one."""


async def receive_upload_body(
    call: ApiCall, request: Request, folder: Path, name: str | None, count: Callable[[int], None]
) -> Received:
    """Write the files of a request to the folder; raise if it is too large, too slow, cut off or malformed.

    `count` gets its size: first as the request says, then again when more has arrived.
    """
    settings = call.app.settings.server
    if not settings.upload:
        raise Forbidden("This server takes no uploads.", hint="Its operator can allow them: `server.upload`.")
    length = request.headers.get("content-length", "")
    size = int(length) if length.isdecimal() else 0
    _check_size(call, size)
    await call.access_store(count, size)
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    with UploadBodyWriter(folder) as writing:
        boundary = options.get(b"boundary") if kind == b"multipart/form-data" else None
        form = UploadFormReader(writing, boundary) if boundary else None
        if form is None:
            writing.begin(name or "file")
        try:
            async with asyncio.timeout(settings.upload_s):
                await _receive(call, request, writing, form, lambda arrived: count(max(arrived, size)))
        except TimeoutError:
            hint = "Send it faster, or raise `server.upload_s`."
            raise HttpError(408, f"The upload did not arrive within {settings.upload_s:g} s.", hint) from None
        except ClientDisconnect:
            raise HttpError(400, "The client disconnected before the upload was complete.") from None
        except FormParserError as error:
            raise Invalid(f"The form is not valid: {error}.", hint="Send multipart/form-data.") from None
        except OSError as error:
            if is_disk_full(error):
                raise disk_full_error("The upload cannot be written") from error
            raise
    if form is None:
        return Received(writing.files, None)
    if not form.ended:
        raise Invalid("The form ends before its last boundary.", hint="Send it again, whole.")
    return Received(writing.files, form.fields.get("name") or name)


async def _receive(
    call: ApiCall,
    request: Request,
    writing: UploadBodyWriter,
    form: UploadFormReader | None,
    count: Callable[[int], None],
) -> None:
    size = waiting = 0
    chunks: list[bytes] = []

    def write() -> None:
        count(size)
        writing.write()

    async def process() -> None:
        data = b"".join(chunks)
        chunks.clear()
        if form is not None:
            await call.compute(lambda: form.feed(data))
        else:
            writing.add(data)
        await anyio.to_thread.run_sync(write)

    async for chunk in _chunks(request):
        size += len(chunk)
        waiting += len(chunk)
        if size > call.app.settings.server.upload:
            _check_size(call, size)
        chunks.append(chunk)
        if waiting >= BATCH:
            waiting = 0
            await process()
    await process()


async def _chunks(request: Request) -> AsyncIterator[bytes]:
    async for chunk in request.stream():
        if chunk:
            yield chunk


def _check_size(call: ApiCall, size: int) -> None:
    most = call.app.settings.server.upload
    if size > most:
        raise HttpError(
            413, f"The upload is larger than {most:,} bytes.", "Send less, or raise the setting `server.upload`."
        )


class UploadBodyWriter:
    """The files that are being written to a folder, one after the other."""

    def __init__(self, folder: Path) -> None:
        self.files: list[ReceivedFile] = []
        self._folder = folder
        self._open = ExitStack()
        self._pending: list[tuple[IO[bytes], bytes]] = []
        self._file: IO[bytes] | None = None

    def __enter__(self) -> UploadBodyWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def begin(self, name: str) -> None:
        """Start the next file."""
        if len(self.files) >= MOST_FILES:
            raise Invalid(f"The upload holds more than {MOST_FILES} files.", hint="Pack them as a zip archive.")
        path = self._folder / f"{len(self.files)}.part"
        self._file = self._open.enter_context(path.open("wb", buffering=0))
        self.files.append(ReceivedFile(name, path))

    def add(self, data: bytes) -> None:
        """Add bytes to the file; `write` writes them."""
        if self._file is not None:
            self._pending.append((self._file, data))

    def write(self) -> None:
        """Write the bytes that wait."""
        pending, self._pending = self._pending, []
        at = 0
        while at < len(pending):
            file, parts = pending[at][0], []
            while at < len(pending) and pending[at][0] is file:
                parts.append(pending[at][1])
                at += 1
            data = memoryview(b"".join(parts))
            while data:
                data = data[file.write(data) :]


class UploadFormReader:
    """Reads a multipart form: the parts named `file` are files, `name` is a field; others are refused."""

    def __init__(self, writing: UploadBodyWriter, boundary: bytes) -> None:
        self.fields: dict[str, str] = {}
        self.ended = False
        self._writing = writing
        self._head: list[tuple[bytes, bytes]] = []
        self._header = self._value = b""
        self._field: str | None = None
        self._text = b""
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_field": self._read_header,
                "on_header_value": self._read_value,
                "on_header_end": self._end_header,
                "on_headers_finished": self._open,
                "on_part_data": self._read_data,
                "on_part_end": self._close,
                "on_end": self._end,
            },
        )

    def feed(self, chunk: bytes) -> None:
        """Parse the next bytes of the body."""
        self._parser.write(chunk)

    def _begin(self) -> None:
        self._head, self._header, self._value, self._field, self._text = [], b"", b"", None, b""

    def _read_header(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]
        self._check_head()

    def _read_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]
        self._check_head()

    def _check_head(self) -> None:
        if len(self._header) + len(self._value) + sum(len(n) + len(v) for n, v in self._head) > MOST_HEAD:
            raise Invalid(f"The head of a part is larger than {MOST_HEAD:,} bytes.", hint="Send a plain form.")

    def _end_header(self) -> None:
        self._head.append((self._header.lower(), self._value))
        self._header = self._value = b""

    def _open(self) -> None:
        disposition = next((value for name, value in self._head if name == b"content-disposition"), b"")
        _, options = parse_options_header(disposition)
        self._field = options.get(b"name", b"").decode("utf-8", "replace")
        if self._field == "file":
            self._writing.begin(options.get(b"filename", b"file").decode("utf-8", "replace"))
        elif self._field in self.fields:
            raise Invalid(f"The form has the field `{self._field}` twice.", hint="Send it once.")
        elif self._field != "name":
            raise Invalid(f"`{self._field[:100]}` is not a field of an upload.", hint="Use `file` and `name`.")

    def _read_data(self, data: bytes, start: int, end: int) -> None:
        if self._field == "file":
            self._writing.add(data[start:end])
            return
        self._text += data[start:end]
        if len(self._text) > MOST_FIELD:
            raise Invalid(f"The field `{self._field}` is longer than {MOST_FIELD:,} bytes.", hint="Send a short name.")

    def _close(self) -> None:
        if self._field == "name":
            self.fields["name"] = self._text.decode("utf-8", "replace").strip()

    def _end(self) -> None:
        self.ended = True
