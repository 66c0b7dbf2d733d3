"""Files at `https://` and `s3://` URLs: downloaded by the host, within an allow-list and limits, if they changed."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import ssl
import tempfile
from collections.abc import Iterable
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from etude import host_addresses
from etude.errors import Invalid, LimitExceeded, NotFound, Refused, Unavailable
from etude.redaction import redact
from etude.settings import RemoteSettings
from etude.sources.base import LoadWait

SCHEMES = ("https", "http", "s3")
CHUNK = 1 << 20
CONNECT_S = 30.0
WHOLE_S = 3600.0
REDIRECTS = 5
MOST_OBJECTS = 1_000
STATE = ".state.json"
PORTS = {"https": 443, "http": 80}


def is_remote_url(url: str) -> bool:
    """Return whether the URL names files on another machine."""
    scheme, separator, _ = url.partition("://")
    return bool(separator) and scheme.lower() in SCHEMES


def download_remote_file(url: str, cache: Path, rules: RemoteSettings, wait: LoadWait | None = None) -> Path:
    """Return the local copy of a file, or of an S3 folder whose URL ends in `/`; download what changed.

    A copy is used again only if the server confirms that it is current: by its ETag, or by its Last-Modified. The
    download stops with the query that waits for it.
    """
    wait = wait or LoadWait(WHOLE_S)
    check_remote_allowed(url, rules)
    folder = cache / hashlib.sha256(url.encode()).hexdigest()[:32]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    fetch_files = _fetch_s3 if url.startswith("s3://") else _fetch_http
    return fetch_files(url, folder, rules, wait)


def check_remote_allowed(url: str, rules: RemoteSettings) -> None:
    """Raise `Refused` unless an entry of the allow-list covers the URL."""
    parts = urlsplit(url)
    if parts.username or parts.password:
        raise Invalid(f"`{redact(url)}` holds a user or a password.", hint="Use a signed URL, or S3 with its options.")
    if parts.scheme == "http" and not host_addresses.is_loopback_host(parts.hostname or ""):
        raise Refused(f"`{redact(url)}` is not encrypted.", hint="Use https://.", reason="remote")
    if not any(_covers(urlsplit(entry), parts) for entry in rules.allow):
        place = "/".join(redact(url).split("?")[0].split("/")[:3]) + "/"
        raise Refused(
            f"`{redact(url)}` is not in the list of places that files may be read from.",
            hint=f'Add it to the settings: remote.allow = ["{place}"].',
            reason="remote",
        )


def _covers(entry: SplitResult, url: SplitResult) -> bool:
    if (entry.scheme, entry.hostname, _port(entry)) != (url.scheme, url.hostname, _port(url)):
        return False
    # Some servers resolve `..`, `..;name` and encoded characters after the comparison, which would leave the folder.
    segments = unquote(unquote(url.path)).replace("\\", "/").split("/")
    if any(segment.partition(";")[0].strip() == ".." for segment in segments):
        return False
    folder = entry.path.rstrip("/")
    return url.path == folder or url.path.startswith(f"{folder}/")


def _port(parts: SplitResult) -> int:
    try:
        return parts.port or PORTS.get(parts.scheme, 0)
    except ValueError:
        raise Invalid(
            f"The port of `{redact(parts.geturl())}` is not valid.", hint="Use a number from 1 to 65535."
        ) from None


# -- HTTP


def _fetch_http(url: str, folder: Path, rules: RemoteSettings, wait: LoadWait) -> Path:
    state = _read_state(folder)
    target = folder / _file_name(urlsplit(url).path)
    known = state.get(target.name, {}) if target.is_file() else {}
    headers = {"Accept-Encoding": "identity", "User-Agent": "etude"}
    headers |= {"If-None-Match": known["etag"]} if known.get("etag") else {}
    headers |= {"If-Modified-Since": known["modified"]} if known.get("modified") else {}
    try:
        response, connection = _get(url, headers, rules)
        with closing(connection):
            if response.status == 304 and known:
                return target
            _check_status(url, response)
            _check_size(url, int(response.headers.get("Content-Length") or 0), rules)
            _write(url, _read(response), target, rules, wait, response.headers.get("Content-Length"))
    except http.client.InvalidURL:  # its text quotes the query
        raise Invalid(f"`{redact(url)}` has spaces or control characters.", hint="Write them as %XX.") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Unavailable(f"`{redact(url)}` cannot be read: {error}.", hint="Check the URL and the network.") from error
    found = {"etag": response.headers.get("ETag", ""), "modified": response.headers.get("Last-Modified", "")}
    _write_state(folder, {target.name: found})
    return target


def _get(
    url: str, headers: dict[str, str], rules: RemoteSettings
) -> tuple[http.client.HTTPResponse, http.client.HTTPConnection]:
    """Send the request; follow redirects, each of which must be allowed as well."""
    for _ in range(REDIRECTS + 1):
        parts = urlsplit(url)
        host, port = parts.hostname or "", _port(parts)
        connection = http.client.HTTPConnection(host, port, timeout=CONNECT_S)
        connection.sock = _connect(host, port, rules)
        try:
            if parts.scheme == "https":
                connection.sock = ssl.create_default_context().wrap_socket(connection.sock, server_hostname=host)
            path = parts.path or "/"
            connection.request("GET", f"{path}?{parts.query}" if parts.query else path, headers=headers)
            response = connection.getresponse()
        except BaseException:
            connection.close()
            raise
        if response.status not in (301, 302, 303, 307, 308):
            return response, connection
        connection.close()
        url = urljoin(url, response.headers.get("Location", ""))
        if urlsplit(url).scheme not in PORTS:
            raise Refused(
                f"The server redirects to `{redact(url)}`, which is neither https:// nor http://.",
                hint="Use the final URL.",
                reason="remote",
            )
        check_remote_allowed(url, rules)
    raise Unavailable(f"`{redact(url)}` redirects more than {REDIRECTS} times.", hint="Use the final URL.")


def _connect(host: str, port: int, rules: RemoteSettings) -> Any:
    try:
        return host_addresses.connect_to_host(host, port, rules.reach, CONNECT_S)
    except Refused:
        raise Refused(
            f"`{host}` is not a public address.",
            hint=f'If it is meant to be read, add it to the settings: remote.reach = ["{host}"].',
            reason="remote",
        ) from None


def _check_status(url: str, response: http.client.HTTPResponse) -> None:
    if response.status == 404:
        raise NotFound(f"There is no file at `{redact(url)}`.", hint="Check the URL.")
    if response.status != 200:
        raise Unavailable(
            f"The server answered {response.status} {response.reason} for `{redact(url)}`.",
            hint="Check that the URL can be read without a login.",
        )


def _read(response: http.client.HTTPResponse) -> Iterable[bytes]:
    while chunk := response.read1(CHUNK):
        yield chunk


# -- S3


def _fetch_s3(url: str, folder: Path, rules: RemoteSettings, wait: LoadWait) -> Path:
    import obstore
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    parts = urlsplit(url)
    key = unquote(parts.path.lstrip("/"))
    options: Any = {name: value for name, value in rules.s3.items() if name != "allow_http"}
    client: Any = {
        "connect_timeout": timedelta(seconds=CONNECT_S),
        "allow_http": rules.s3.get("allow_http", "").lower() == "true",
    }
    retry: Any = {"max_retries": 3, "retry_timeout": timedelta(seconds=15)}
    state, found = _read_state(folder), {}
    try:
        store: Any = from_url(f"s3://{parts.netloc}", client_options=client, retry_config=retry, **options)
        objects = _list(store, key) if not key or key.endswith("/") else [obstore.head(store, key)]
        _check_size(url, sum(each["size"] for each in objects), rules)
        for each in objects:
            name = (
                str(each["path"])[len(key) :] if key.endswith("/") or not key else str(each["path"]).rsplit("/", 1)[-1]
            )
            target = folder.joinpath(*map(_file_name, name.split("/")))
            mark = {"etag": each["e_tag"] or "", "modified": str(each["last_modified"]), "size": each["size"]}
            if state.get(name) != mark or not target.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                unchanged: Any = {"if_match": each["e_tag"]} if each["e_tag"] else {}
                stream = obstore.get(store, each["path"], options=unchanged).stream(min_chunk_size=CHUNK)
                _write(url, map(bytes, stream), target, rules, wait)
            found[name] = mark
    except FileNotFoundError:
        raise NotFound(f"There is no object at `{redact(url)}`.", hint="Check the bucket and the key.") from None
    except (BaseError, OSError, ValueError) as error:
        line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise Unavailable(
            f"`{redact(url)}` cannot be read: {line}.",
            hint="Check the bucket, and the credentials in `remote.s3` or in the environment.",
        ) from error
    if not found:
        raise NotFound(f"There is no object below `{redact(url)}`.", hint="Check the bucket and the folder.")
    for gone in set(state) - set(found):
        with suppress(OSError):
            folder.joinpath(*map(_file_name, gone.split("/"))).unlink()
    _write_state(folder, found)
    return folder if key.endswith("/") or not key else folder / _file_name(next(iter(found)))


def _list(store: Any, prefix: str) -> list[Any]:
    import obstore

    found: list[Any] = []
    for page in obstore.list(store, prefix or None):
        found += [each for each in page if not str(each["path"]).endswith("/")]
        if len(found) > MOST_OBJECTS:
            raise LimitExceeded(
                f"There are more than {MOST_OBJECTS:,} objects below `{prefix}`.", hint="Name a smaller folder."
            )
    return found


# -- the local copy


def _check_size(url: str, size: int, rules: RemoteSettings) -> None:
    if size > rules.bytes:
        raise LimitExceeded(
            f"`{redact(url)}` has {size:,} bytes; {rules.bytes:,} are allowed.",
            hint="Raise `remote.bytes`, or use a smaller file.",
            limit="remote.bytes",
        )


def _write(
    url: str,
    chunks: Iterable[bytes],
    target: Path,
    rules: RemoteSettings,
    wait: LoadWait,
    expected: str | None = None,
) -> None:
    """Write to a new file and rename it: a reader sees the old file or the new one, never a part."""
    size = 0
    handle, temporary = tempfile.mkstemp(prefix=".part-", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as out:
            for chunk in chunks:
                size += len(chunk)
                _check_size(url, size, rules)
                wait.check(str(target))
                out.write(chunk)
        if expected and int(expected) != size:
            raise Unavailable(f"`{redact(url)}` ended early: {size:,} of {expected} bytes came.", hint="Try again.")
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _file_name(path: str) -> str:
    """Return the last part of a path as a plain file name."""
    name = re.sub(r"[^\w.=-]+", "_", unquote(path).rsplit("/", 1)[-1])[-120:].lstrip(".")
    return name or "data"


def _read_state(folder: Path) -> dict[str, Any]:
    try:
        state: dict[str, Any] = json.loads((folder / STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return state


def _write_state(folder: Path, state: dict[str, Any]) -> None:
    temporary = folder / f"{STATE}.{os.getpid()}"
    temporary.write_text(json.dumps(state), encoding="utf-8")
    os.replace(temporary, folder / STATE)
