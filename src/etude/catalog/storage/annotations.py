"""Annotations: descriptions, owners and tags of tables and columns, written by people and stored apart from runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, ValidationError

from etude.catalog.model import ColumnProfile, SourceProfile, TableProfile
from etude.catalog.storage.catalog_folder import catalog_folder, open_catalog_root_folder
from etude.catalog.storage.catalog_store import JSON, TENANTS
from etude.entities import Entity
from etude.errors import Invalid, NotFound
from etude.store.base import MAIN
from etude.store.objects import Objects
from etude.untrusted_yaml import BYTES, parse_yaml
from etude.validation import explain_validation

if TYPE_CHECKING:
    from etude.app import App
    from etude.sources.source import Source

SUFFIX = ".etude.yaml"
STORED = "annotations.json"
_HINT = "Write `tables:`, below it the tables by name, each with `description`, `owner`, `tags` and `columns`."

Text = Annotated[str, Field(max_length=4000)]
Author = Annotated[str, Field(max_length=200)]
Tags = Annotated[tuple[Annotated[str, Field(max_length=100)], ...], Field(max_length=50)]


class ColumnNote(Entity):
    """The annotations of a column; a plain text is its description."""

    description: Text | None = None
    tags: Tags = ()
    by: Author | None = None
    """Who wrote the description."""


def _as_note(value: Any) -> Any:
    return {"description": value} if isinstance(value, str) else value


class TableNote(Entity):
    """The annotations of a table; a plain text is its description."""

    description: Text | None = None
    owner: Text | None = None
    tags: Tags = ()
    by: Author | None = None
    """Who wrote the description."""
    columns: dict[str, Annotated[ColumnNote, BeforeValidator(_as_note)]] = {}


class Annotations(Entity):
    """The annotations of a source. Its owner is the default for all tables without one."""

    owner: Text | None = None
    tables: dict[str, Annotated[TableNote, BeforeValidator(_as_note)]] = {}


def parse_annotations(body: Any, place: str) -> Annotations:
    """Validate annotations from YAML or JSON; raises `Invalid` with the location and the problem."""
    try:
        return Annotations.model_validate(body if body is not None else {})
    except ValidationError as error:
        raise explain_validation(error, place, model=Annotations, hint=_HINT) from None


def read_annotations(path: Path) -> Annotations | None:
    """Read the annotations in a YAML file; None if the file does not exist."""
    try:
        with path.open("rb") as file:
            data = file.read(BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Invalid(f"`{path}` cannot be read: {error.strerror}.", hint="Check its permissions.") from None
    return parse_annotations(parse_yaml(data, f"`{path}`", _HINT), f"`{path}`")


def merge_annotations(under: Annotations, over: Annotations) -> Annotations:
    """Merge two annotations; if both set a field, the second wins, even with an explicit null."""
    tables = dict(under.tables)
    for name, note in over.tables.items():
        old = tables.get(name, TableNote())
        columns = {**old.columns, **{n: _over(old.columns.get(n, ColumnNote()), c) for n, c in note.columns.items()}}
        tables[name] = _over(old, note).model_copy(update={"columns": columns})
    return _over(under, over).model_copy(update={"tables": tables})


N = TypeVar("N", ColumnNote, TableNote, Annotations)
S = TypeVar("S", ColumnNote, TableNote)


def _over(under: N, over: N) -> N:
    given = {name: getattr(over, name) for name in over.model_fields_set}
    if "description" in given and not isinstance(under, Annotations):
        given.setdefault("by", None)  # the author of another text did not write this one
    return under.model_copy(update=given)


def annotate(profile: SourceProfile, annotations: dict[str, Any] | Annotations) -> SourceProfile:
    """Add annotations to a profile. A note of the profile lists annotated tables and columns that do not exist."""
    notes = annotations if isinstance(annotations, Annotations) else parse_annotations(annotations, "The annotations")
    if notes == Annotations():
        return profile
    by_name = {name.lower(): (name, note) for name, note in notes.tables.items()}
    missing: list[str] = []

    def annotated(table: TableProfile) -> TableProfile:
        name, note = by_name.pop(table.name.lower(), (table.name, TableNote()))
        known = {c.name for c in table.columns}
        missing.extend(f"{name}.{c}" for c in note.columns if c not in known)
        update: dict[str, Any] = {
            "description": _choose(note, "description", table.description),
            "owner": _choose(note, "owner", table.owner) or notes.owner,
            "tags": tuple(dict.fromkeys((*table.tags, *note.tags))),
            "columns": tuple(_annotated_column(c, note.columns.get(c.name)) for c in table.columns),
        }
        return table.model_copy(update=update)

    tables = tuple(annotated(t) for t in profile.tables)
    gone = sorted([*(name for name, _ in by_name.values()), *missing])
    added = (f"Annotated, but not in the source: {', '.join(f'`{n}`' for n in gone[:20])}.",) if gone else ()
    return profile.model_copy(update={"tables": tables, "notes": tuple(dict.fromkeys((*profile.notes, *added)))})


def _annotated_column(column: ColumnProfile, note: ColumnNote | None) -> ColumnProfile:
    if note is None:
        return column
    tags = tuple(dict.fromkeys((*column.tags, *note.tags)))
    return column.model_copy(update={"description": _choose(note, "description", column.description), "tags": tags})


def _choose(note: TableNote | ColumnNote, name: str, before: str | None) -> str | None:
    """Return the value that a note sets, even an explicit null, or else the previous value."""
    value: str | None = getattr(note, name)
    return value if name in note.model_fields_set else before


def sign_annotations(annotations: Annotations, author: str) -> Annotations:
    """Return annotations in which each description names its author; a caller cannot name another one."""

    def signed(note: S) -> S:
        return note.model_copy(update={"by": author}) if note.model_fields_set & {"description", "by"} else note

    tables = {
        name: signed(note).model_copy(update={"columns": {c: signed(each) for c, each in note.columns.items()}})
        for name, note in annotations.tables.items()
    }
    return annotations.model_copy(update={"tables": tables})


def get_annotations(app: App, source: Source) -> Annotations:
    """Return the annotations of a source: from YAML files next to it, from the settings' folder, and from the API."""
    annotations = Annotations()
    for path in _annotation_files(app, source):
        found = read_annotations(path) if _is_inside(path) else None
        annotations = merge_annotations(annotations, found) if found is not None else annotations
    objects, key = _stored_annotations(app, source)
    try:
        stored = parse_annotations(json.loads(objects.read(key)), f"`{key}`")
    except NotFound:
        return annotations
    return merge_annotations(annotations, stored)


def put_annotations(app: App, source: Source, annotations: Annotations) -> Annotations:
    """Add annotations to a source; they replace earlier ones of the same field."""
    objects, key = _stored_annotations(app, source)

    def change(current: bytes | None) -> bytes:
        before = parse_annotations(json.loads(current), f"`{key}`") if current else Annotations()
        return merge_annotations(before, annotations).model_dump_json(exclude_unset=True).encode()

    objects.update(key, change, JSON)
    return get_annotations(app, source)


def put_annotation_description(app: App, source: Source, name: str, text: str | None) -> str | None:
    """Set the description of a table or a column, named `TABLE` or `TABLE.COLUMN`; None withdraws it. Return it."""
    catalog = source.catalog(app.settings.limits)
    table, column = catalog.table(name), None
    if table is None:
        owner, _, column = name.rpartition(".")
        table = catalog.table(owner) if owner else None
    if table is None or (column is not None and column not in {c.name for c in table.columns}):
        known = [t.name for t in catalog.tables] if table is None else [f"{table.name}.{c.name}" for c in table.columns]
        raise NotFound(f"`{source.name}` has no table or column `{name}`.", hint=f"It has {', '.join(known[:20])}.")
    body: dict[str, Any] = {"description": text}
    if column is not None:
        body = {"columns": {column: body}}
    note = parse_annotations({"tables": {table.name: body}}, "The description")
    put_annotations(app, source, sign_annotations(note, "a local user"))
    return text


def _stored_annotations(app: App, source: Source) -> tuple[Objects, str]:
    objects, root = open_catalog_root_folder(app)
    return objects, "/".join(part for part in (root, catalog_folder(app, source), STORED) if part)


def _is_inside(path: Path) -> bool:
    """False for a symbolic link out of its folder: its author could read any YAML file that etude can read."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(path.parent))


def _annotation_files(app: App, source: Source) -> list[Path]:
    """Return the YAML files that may annotate a source, those with the lowest precedence first."""
    found = []
    if not source.network:
        path = Path(source.url.rstrip("/*"))
        found = [path.parent / f"{name}{SUFFIX}" for name in dict.fromkeys((path.stem, path.name, source.name))]
    if not app.settings.catalog.annotations:
        return found
    folder = Path(app.settings.catalog.annotations).expanduser()
    own = folder if app.tenant == MAIN else folder / TENANTS / app.tenant
    return [*found, own / f"{source.name}{SUFFIX}"]
