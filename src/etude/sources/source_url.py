"""URLs and paths of sources: the kind, the location and the name of the source behind them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from etude.errors import Invalid, Refused
from etude.redaction import redact

_SCHEMES = {"postgresql": "postgres", "postgres": "postgres", "mysql": "mysql", "mariadb": "mysql"}
_PORTS = {"postgres": "5432", "mysql": "3306"}
_PATH_SCHEMES = ("duckdb", "sqlite", "file")
_RESERVED = frozenset(["main", "temp", "system", "memory", "information_schema", "pg_catalog", "recurring"])
NAME = re.compile(r"[a-z_][a-z0-9_]*")


def resolve_source_url(url: str) -> str:
    """Return the URL itself, or the one that `env:NAME` or `file:PATH` refers to."""
    from etude.settings import read_setting_reference

    return read_setting_reference(url, "The source")


def source_kind(url: str) -> str:
    """Return the kind of source behind a URL or path; a file's content decides, not its name alone."""
    scheme, separator, _ = url.partition("://")
    if separator and scheme in _SCHEMES:
        return _SCHEMES[scheme]
    if separator and scheme in _PATH_SCHEMES and scheme != "file":
        return scheme
    if separator and scheme in ("https", "http", "s3"):
        return "files"
    if separator and scheme != "file":
        from etude import plugins

        if scheme in plugins.plugin_names("source"):
            return scheme
        raise Invalid(
            f"`{scheme}://` is not a kind of source.",
            hint="Give a path, a glob, https://, s3://, postgresql://, mysql://, mariadb://, sqlite:/// or duckdb:///.",
        )
    path = source_path(url)
    if os.path.isfile(path):
        with open(path, "rb") as file:
            head = file.read(16)
        if head.startswith(b"SQLite format 3\0"):
            return "sqlite"
        if head[8:12] == b"DUCK":
            return "duckdb"
    elif os.path.exists(path) and not os.path.isdir(path):
        raise Invalid(
            f"`{url}` is not a file: a pipe or a device can be read only once.",
            hint="Write its content to a file first, and give the path of that file.",
        )
    return "files"


def source_path(url: str) -> str:
    """Return the absolute path of a path, `file://`, `sqlite:///` or `duckdb:///` URL; other URLs stay as they are."""
    scheme, separator, rest = url.partition("://")
    if separator and scheme in ("https", "http", "s3"):
        return url
    path = rest if separator and scheme in _PATH_SCHEMES else url
    if separator and scheme in ("sqlite", "duckdb") and path.startswith("/"):
        path = path[1:]
        path = path if path.startswith("/") else os.path.join(os.getcwd(), path)
    return os.path.abspath(os.path.expanduser(path))


def source_name_from_url(url: str) -> str:
    """Return a name for a source that has only a URL: its last part, made valid for SQL."""
    shown = redact(url) if "://" in url else url
    tail = re.sub(r"[?#].*$", "", shown).rstrip("/").rsplit("/", 1)[-1]
    if tail in ("", ".", ".."):
        tail = os.path.basename(os.path.abspath(tail or "/"))
    stem = tail.split(".")[0] or tail
    name = re.sub(r"[^a-z0-9_]+", "_", stem.lower()).strip("_") or "data"
    if not NAME.fullmatch(name):
        name = f"_{name}"
    return f"{name}_db" if name in _RESERVED else name


def check_offered_source(url: str, offered: Iterable[str]) -> None:
    """Raise unless the URL names a database that the operator lets others add.

    Only a plain URL is read: options could name another host, and clients read two of `@` in different ways.
    """
    from etude.settings import DATABASE_URL

    wanted = DATABASE_URL.fullmatch(url)
    if wanted is None:
        raise Invalid(
            f"`{redact(url)[:200]}` is not the plain URL of a database.",
            hint="Write postgresql://user:password@host:port/database or mysql://..., without options.",
        )
    for entry in offered:
        allowed = DATABASE_URL.fullmatch(entry)
        if allowed is not None and _place(allowed) == _place(wanted) and allowed["name"] in ("", wanted["name"]):
            return
    raise Refused(
        f"The database at `{wanted['host']}` is not in the list of those that may be added.",
        hint="Its operator can add it to the setting `server.databases`, or add the source with `etude sources add`.",
        reason="databases",
    )


def _place(url: re.Match[str]) -> tuple[str, str, str]:
    kind = _SCHEMES[url["scheme"]]
    return kind, url["host"].lower(), url["port"] or _PORTS[kind]


def check_source_name(name: str) -> str:
    """Return the name; raise `Invalid` if it needs quotes before a dot in a query."""
    if not NAME.fullmatch(name) or name in _RESERVED:
        raise Invalid(
            f"`{name}` cannot name a source.",
            hint="Use lower-case letters, digits and _, no digit first, and no reserved word such as `main`.",
        )
    return name
