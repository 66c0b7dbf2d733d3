"""Store the runs of a catalog: a folder for each run below a prefix, and `latest.json`, which is written last.

    <prefix>/<time>-<random>/catalog.json ... metrics.json     a run; it is complete once metrics.json exists
    <prefix>/latest.json                                       the latest complete run
    <prefix>/acknowledged.json                                 the changes that somebody acknowledged
    _scripts/<dialect>_catalog_script.py                       the latest script that worked for a SQL dialect

An object store may ignore the conditions of a write, so `latest.json` may be out of date. Readers therefore also list
complete runs after the one it names: one more request, no matter how many runs there are.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice
from secrets import token_hex
from typing import TYPE_CHECKING, TypeVar

from pydantic import TypeAdapter, ValidationError, model_validator

from etude.entities import Entity
from etude.errors import Damaged, EtudeError, Invalid, NotFound, Unavailable
from etude.store.objects import Objects, check_object_name

if TYPE_CHECKING:
    # A question reads profiles from here, and loads nothing that compares them.
    from etude.catalog.drift.change import Acknowledgement, Change
    from etude.catalog.drift.open_changes import FollowedChanges

T = TypeVar("T")
Report = Callable[[str], None]
LATEST = "latest.json"
ACKNOWLEDGED = "acknowledged.json"
EARLIER = 20
"""How many earlier acknowledgements of a change are kept."""
CATALOG = "catalog.json"
METRICS = "metrics.json"
CHANGES = "changes.json"
SCRIPTS = "_scripts"
TENANTS = "tenants"
"""The folder that contains a root folder for each tenant."""
JSON = "application/json"
MEDIA = {"html": "text/html", "json": JSON, "py": "text/x-python"}
RUNS = 10
"""The maximum number of runs to read if `latest.json` cannot be used."""
HISTORY = 12
"""The maximum number of earlier runs that a run lists."""
TRIES = 4
WAIT_S = 0.25
"""Seconds before the first retry; each wait is twice the previous one."""
PAGE = 1000
"""The number of names in one response of a server."""
_RUN = re.compile(r"\d{8}T\d{6}\.\d{6}Z-[0-9a-f]{8}")
_END = "~"
"""Sorts after every file name."""


class StoredFile(Entity):
    """A file of a run."""

    sha256: str
    size: int


class StoredCatalog(Entity):
    """A complete run in the store; the content of `latest.json`."""

    format: int = 1
    name: str
    """The folder below the prefix; names sort by time."""
    run_id: str | None = None
    source: str
    dialect: str
    fingerprint: str
    """A hash of tables, columns and types."""
    data: str = ""
    """A hash of the tables' contents, if the source can provide one without reading them."""
    tables: tuple[str, ...] | None = None
    """The requested tables; None for all."""
    failed: dict[str, str] = {}
    """Tables that could not be profiled, with the reason."""
    tried_by: str | None = None
    """The model that last tried to fix them."""
    files: dict[str, StoredFile] = {}
    history: tuple[str, ...] = ()
    """Earlier runs for the same tables, newest first."""
    seal: str = ""
    """The SHA-256 of the other fields, to detect damage to this record; older records have none."""

    def sealed(self) -> StoredCatalog:
        """Return the record with its seal."""
        return self.model_copy(update={"seal": self._digest()})

    @model_validator(mode="after")
    def _is_whole(self) -> StoredCatalog:
        if self.seal and self.seal != self._digest():
            raise ValueError("the record is damaged: its fields do not match its seal")
        return self

    def _digest(self) -> str:
        return hashlib.sha256(self.model_dump_json(exclude={"seal"}).encode()).hexdigest()


class StoredMetrics(Entity):
    """The part of `metrics.json` that the store needs."""

    model_config = {"extra": "ignore"}
    stored: StoredCatalog


def catalog_run_name(at: datetime, after: StoredCatalog | None = None) -> str:
    """Return a new, unique name for a run that sorts by time, and after the run `after`.

    A slow clock therefore cannot make a run look older than the run it builds on.
    """
    if after is not None and _RUN.fullmatch(after.name):
        known = datetime.strptime(after.name.partition("Z")[0], "%Y%m%dT%H%M%S.%f").replace(tzinfo=UTC)
        at = max(at, known + timedelta(microseconds=1))
    return f"{at.astimezone(UTC):%Y%m%dT%H%M%S.%fZ}-{token_hex(4)}"


class CatalogStore:
    """The runs of one catalog."""

    def __init__(self, objects: Objects, prefix: str, root: str = "", report: Report | None = None) -> None:
        self._objects = objects
        self.prefix = check_object_name(_join(root, _check_prefix(prefix)))
        self._scripts = _join(root, SCRIPTS)
        self._report = report or (lambda _: None)
        self.url = f"{objects.url.rstrip('/')}/{self.prefix}"

    # Finding.

    def latest(self) -> StoredCatalog | None:
        """Return the latest complete run, or None: usually two requests, no matter how many runs there are."""
        pointed = self._pointed()
        if pointed is not None:
            newer = self._read_first(reversed(self._complete(self._after(pointed.name))))
            return newer or pointed
        return next(iter(self.recent(1)), None)

    def _pointed(self) -> StoredCatalog | None:
        try:
            return StoredCatalog.model_validate_json(self._retry(lambda: self._objects.read(f"{self.prefix}/{LATEST}")))
        except NotFound:
            return None
        except ValidationError:
            self._report(f"`{self.url}/{LATEST}` cannot be read; looking for the latest run itself.")
            return None

    def recent(self, count: int = RUNS) -> list[StoredCatalog]:
        """Return the latest complete runs, newest first, without reading `latest.json`."""
        names = sorted(self._recent_names(count), reverse=True)
        found = (self._record(name) for name in names[:RUNS])
        return list(islice((f for f in found if f is not None), count))

    def names(self) -> list[str]:
        """Return the names of all complete runs, newest first."""
        return self._complete(self._after("0"))[::-1]

    def run(self, name: str) -> StoredCatalog:
        """Return a complete run by its name, or the latest one for `latest`; raises `NotFound`."""
        found = self.latest() if name == "latest" else self._record(name) if _RUN.fullmatch(name) else None
        if found is None:
            raise NotFound(f"There is no catalog `{name[:200]}`.", hint="List the catalogs first.")
        return found

    def _recent_names(self, count: int) -> list[str]:
        """Return names of complete runs, including the newest `count`: from one short listing, or from recent days."""
        few = self._retry(lambda: list(islice(self._objects.names(self.prefix), PAGE)))
        if len(few) < PAGE:
            return self._complete(few)
        now = datetime.now(UTC)
        for days in (1, 31, 366):
            names = self._complete(self._after(f"{now - timedelta(days=days):%Y%m%d}"))
            if len(names) >= count:
                return names
        return self._complete(self._after("0"))

    def _after(self, name: str) -> list[str]:
        """List the files of all runs after the one of that name."""
        start = f"{self.prefix}/{name}/{_END}"

        def ask() -> list[str]:
            found = []
            for place in self._objects.names(self.prefix, start):
                # Names are sorted and those of runs start with a digit, so everything after them is something else.
                if place.removeprefix(f"{self.prefix}/")[:1] > "9":
                    break
                found.append(place)
            return found

        return self._retry(ask)

    def _complete(self, places: Sequence[str]) -> list[str]:
        """Return the names of the runs whose last file exists, oldest first."""
        parts = (p.removeprefix(f"{self.prefix}/").split("/") for p in places)
        return sorted(p[0] for p in parts if len(p) == 2 and p[1] == METRICS and _RUN.fullmatch(p[0]))

    def _read_first(self, names: Iterator[str]) -> StoredCatalog | None:
        return next((f for name in names if (f := self._record(name)) is not None), None)

    def _record(self, name: str) -> StoredCatalog | None:
        try:
            stored = StoredMetrics.model_validate_json(self._get(name, METRICS)).stored
        except NotFound:
            return None
        except ValidationError:
            self._report(f"`{self.url}/{name}/{METRICS}` is damaged; the run is left out.")
            return None
        return stored if stored.name == name else None

    # Reading.

    def read(self, run: StoredCatalog, name: str) -> bytes:
        """Read a file of a run and verify its hash."""
        data = self._get(run.name, name)
        known = run.files.get(name)
        if known is not None and hashlib.sha256(data).hexdigest() != known.sha256:
            file = f"{self.url}/{run.name}/{name}"
            raise Damaged(
                f"The file `{file}` of run `{run.run_id or run.name}` is damaged: it is not what was written.",
                hint="Restore it from a backup, or run `etude catalog` again.",
                run_id=run.run_id,
                file=file,
            )
        return data

    def _get(self, run: str, name: str) -> bytes:
        return self._retry(lambda: self._objects.read(f"{self.prefix}/{run}/{name}"))

    def history(self, run: StoredCatalog) -> Iterator[bytes]:
        """Yield the `catalog.json` of a run and of earlier ones, newest first. Deleted and damaged ones are skipped."""
        for name in (run.name, *run.history):
            each = run if name == run.name else self._record(name)
            if each is None:
                continue
            try:
                yield self.read(each, "catalog.json")
            except NotFound:
                continue
            except Damaged as error:
                self._report(f"{error.message} It is left out.")

    def changes_of(self, run: StoredCatalog) -> FollowedChanges | None:
        """Return the changes of a run; None if it was made by a version that did not store them."""
        from etude.catalog.drift.open_changes import FollowedChanges

        try:
            return FollowedChanges.model_validate_json(self.read(run, CHANGES))
        except NotFound:
            return None
        except ValidationError:
            self._report(f"`{self.url}/{run.name}/{CHANGES}` cannot be read; its changes are not followed.")
            return None

    def acknowledgements(self) -> dict[str, Acknowledgement]:
        """Return the acknowledged changes, by name."""
        try:
            return _acknowledged_adapter().validate_json(self._retry(lambda: self._objects.read(self._acknowledged)))
        except NotFound:
            return {}
        except ValidationError:
            self._report(f"`{self.url}/{ACKNOWLEDGED}` cannot be read; no change counts as acknowledged.")
            return {}

    def acknowledge(self, wanted: Sequence[str], by: str, why: str) -> list[Change]:
        """Acknowledge changes of the latest run: by name, or all of a table or column; return them as known.

        Raises `NotFound` if none of these changes is new or open.
        """
        latest = self.latest()
        followed = self.changes_of(latest) if latest is not None else None
        known = self.acknowledgements()
        listed = [_with_status(c, known) for c in followed.changes] if followed else []
        # A change without a baseline is shown once and needs no acknowledgement.
        listed = [c for c in listed if followed and c.name in followed.baselines]
        from etude.catalog.drift.change import Acknowledgement

        now = datetime.now(UTC)
        chosen: dict[str, Change] = {}
        for name in wanted:
            found = [c for c in listed if name in (c.name, c.table, f"{c.table}.{c.column}")]
            if not found:
                names = ", ".join(f"`{c.name}`" for c in listed[:8])
                raise NotFound(
                    f"The latest catalog has no open change `{name[:200]}`.",
                    hint=f"Open changes: {names}." if names else "The latest catalog has no open changes.",
                )
            chosen |= {c.name: c for c in found}
        added = {c.name: Acknowledgement(by=by, why=why, at=now, since=c.since) for c in chosen.values()}
        current = {c.name: c.since for c in listed}

        def change(data: bytes | None) -> bytes:
            try:
                before = _acknowledged_adapter().validate_json(data) if data else {}
            except ValidationError:
                before = {}
            kept = {n: a for n, a in before.items() if n in current and a.since == current[n]}
            for name in kept.keys() & added.keys():
                # Who said what before stays known; `earlier` is flat, so that it is read without recursion.
                last = kept[name].model_copy(update={"earlier": ()})
                added[name] = added[name].model_copy(update={"earlier": (last, *kept[name].earlier)[:EARLIER]})
            return _acknowledged_adapter().dump_json(kept | added, indent=1)

        self._retry(lambda: self._objects.update(self._acknowledged, change, JSON))
        return [c.model_copy(update={"status": "known", "acknowledged": added[c.name]}) for c in chosen.values()]

    @property
    def _acknowledged(self) -> str:
        return f"{self.prefix}/{ACKNOWLEDGED}"

    def script_of(self, dialect: str, name: str) -> str | None:
        """Return the latest script of that name that worked for a SQL dialect."""
        try:
            return self._retry(lambda: self._objects.read(f"{self._scripts}/{dialect}_{name}")).decode()
        except (NotFound, UnicodeDecodeError):
            return None

    # Writing.

    def publish(
        self, run: StoredCatalog, files: Mapping[str, bytes], metrics: Callable[[StoredCatalog], bytes]
    ) -> StoredCatalog:
        """Write a run, `metrics.json` last, then update `latest.json`; if writing fails, remove its files."""
        run = run.model_copy(update={"files": {n: _describe(data) for n, data in sorted(files.items())}}).sealed()
        written: list[str] = []
        try:
            for name, data in {**files, METRICS: metrics(run)}.items():
                written.append(f"{self.prefix}/{run.name}/{name}")
                self._put(written[-1], data)
        except BaseException:
            for place in reversed(written):
                with suppress(EtudeError):
                    self._objects.remove(place)
            raise
        self._point(run)
        return run

    def remove_before(self, before: datetime, dry_run: bool = False) -> int:
        """Remove the runs from before a time, except the latest one; return how many."""
        start = f"{before.astimezone(UTC):%Y%m%dT%H%M%S.%fZ}"
        old = [name for name in self.names()[1:] if name < start]
        for name in old if not dry_run else ():
            folder = f"{self.prefix}/{name}"
            files = self._retry(lambda: list(self._objects.names(folder)))  # noqa: B023 - called at once
            # Without this file a run is not complete, so no one reads one whose other files are being removed.
            for place in sorted(files, key=lambda place: not place.endswith(f"/{METRICS}")):
                self._retry(lambda: self._objects.remove(place))  # noqa: B023 - called at once
        return len(old)

    def _point(self, run: StoredCatalog) -> None:
        """Make `latest.json` name the latest complete run: this one, or one that was completed meanwhile."""
        self._swap(run)
        newer = self._read_first(reversed(self._complete(self._after(run.name))))
        if newer is not None:
            self._swap(newer)

    def _swap(self, run: StoredCatalog) -> None:
        def change(current: bytes | None) -> bytes | None:
            try:
                pointed = StoredCatalog.model_validate_json(current).name if current else ""
            except ValidationError:
                pointed = ""
            return run.model_dump_json().encode() if run.name > pointed else None

        self._retry(lambda: self._objects.update(f"{self.prefix}/{LATEST}", change, JSON))

    def keep_script(self, dialect: str, name: str, script: str) -> None:
        """Store a script that worked, for all databases of its dialect."""
        self._put(f"{self._scripts}/{dialect}_{name}", script.encode())

    def _put(self, place: str, data: bytes) -> None:
        media = MEDIA.get(place.rpartition(".")[2], "application/octet-stream")
        self._retry(lambda: self._objects.write(place, data, media))

    def _retry(self, ask: Callable[[], T]) -> T:
        """Call the store; if it is unavailable, report that and retry with backoff."""
        for number in range(1, TRIES):
            try:
                return ask()
            except Unavailable as error:
                wait = WAIT_S * 2 ** (number - 1)
                self._report(f"{error.message} Trying again in {wait:g} s.")
                time.sleep(wait)
        return ask()


@cache
def _acknowledged_adapter() -> TypeAdapter[dict[str, Acknowledgement]]:
    from etude.catalog.drift.change import Acknowledgement

    return TypeAdapter(dict[str, Acknowledgement])


def with_stored_acknowledgements(
    changes: Sequence[Change], acknowledged: Mapping[str, Acknowledgement]
) -> tuple[Change, ...]:
    """Return the changes of a run with the acknowledgements that were made since."""
    return tuple(_with_status(c, acknowledged) for c in changes)


def _with_status(change: Change, acknowledged: Mapping[str, Acknowledgement]) -> Change:
    found = acknowledged.get(change.name)
    if found is None or found.since != change.since or not change.pending:
        return change
    return change.model_copy(update={"status": "known", "acknowledged": found})


def _describe(data: bytes) -> StoredFile:
    return StoredFile(sha256=hashlib.sha256(data).hexdigest(), size=len(data))


def _check_prefix(prefix: str) -> str:
    first = prefix.strip("/").partition("/")[0]
    if not first or first.startswith("_") or first == TENANTS:
        raise Invalid(f"`{prefix}` cannot be the prefix of a catalog.", hint="Use a name such as `customer/orders`.")
    return prefix


def _join(root: str, rest: str) -> str:
    return "/".join(part for part in (*root.split("/"), *rest.split("/")) if part)
