"""Requests of commands to an etude server: files are sent as they are read, folders as zip archives."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, urlsplit

from etude.errors import EtudeError, Invalid, NotFound, Unavailable, from_problem
from etude.settings import read_setting_reference

TIMEOUT_S = 3600.0


def upload_to_server(server: str, key: str | None, name: str, path: str) -> dict[str, Any]:
    """Upload a file or a folder as a dataset; return the server's report."""
    with _opened(Path(path).expanduser()) as (file, size):
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        return dict(send_to_server(server, key, "POST", f"/api/datasets?name={quote(name)}", file, headers))


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[IO[bytes], int]]:
    if path.is_dir():
        with tempfile.TemporaryFile() as packed:
            _pack(path, packed)
            size = packed.tell()
            packed.seek(0)
            yield packed, size
        return
    try:
        with path.open("rb") as file:
            yield file, os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        raise NotFound(f"There is no file or folder `{path}`.", hint="Check the path.") from None


def _pack(folder: Path, target: IO[bytes]) -> None:
    """Write the files of a folder to a zip archive, without hidden ones and without symbolic links."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            inside = path.relative_to(folder)
            if path.is_file() and not path.is_symlink() and not any(part.startswith(".") for part in inside.parts):
                archive.write(path, str(inside))


def send_to_server(
    server: str, key: str | None, method: str, path: str, body: IO[bytes] | bytes | None, headers: dict[str, str]
) -> Any:
    """Send a request and return the JSON of the response; raise the error that the server answers with."""
    parts = urlsplit(server)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Invalid(f"`{server}` is not the URL of a server.", hint="Write https://host or http://host:port.")
    if key:
        headers = headers | {"Authorization": f"Bearer {read_setting_reference(key, 'The key')}"}
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=TIMEOUT_S)
    try:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has answered before it read all
            connection.request(method, parts.path.rstrip("/") + path, body, headers)
        response = connection.getresponse()
        text = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(f"`{server}` cannot be reached: {error}.", hint="Check the URL, and that it runs.") from None
    finally:
        connection.close()
    answer = _read_json(text)
    if response.status >= 400:
        raise _error(server, response.status, answer)
    return answer


def _read_json(text: bytes) -> Any:
    with contextlib.suppress(ValueError):
        return json.loads(text)
    return None


def _error(server: str, status: int, answer: Any) -> EtudeError:
    if isinstance(answer, dict) and "detail" in answer:
        return from_problem({k: v for k, v in answer.items() if k != "instance"})
    return Unavailable(f"`{server}` answered with status {status}.", hint="Check that the URL is that of etude.")
