"""Annotations: descriptions, owners and tags of tables and columns, written by people and stored apart from runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, ValidationError

from etude.catalog.model import ColumnProfile, SourceProfile, TableProfile
from etude.entities import Entity
from etude.errors import Invalid
from etude.untrusted_yaml import BYTES, parse_yaml
from etude.validation import explain

SUFFIX = ".etude.yaml"
_HINT = "Write `tables:`, below it the tables by name, each with `description`, `owner`, `tags` and `columns`."

Text = Annotated[str, Field(max_length=4000)]
Tags = Annotated[tuple[Annotated[str, Field(max_length=100)], ...], Field(max_length=50)]


class ColumnNote(Entity):
    """The annotations of a column; a plain text is its description."""

    description: Text | None = None
    tags: Tags = ()


def _as_note(value: Any) -> Any:
    return {"description": value} if isinstance(value, str) else value


class TableNote(Entity):
    """The annotations of a table; a plain text is its description."""

    description: Text | None = None
    owner: Text | None = None
    tags: Tags = ()
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
        raise explain(error, place, model=Annotations, hint=_HINT) from None


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


def merge(under: Annotations, over: Annotations) -> Annotations:
    """Merge two annotations; if both set a field, the second wins, even with an explicit null."""
    tables = dict(under.tables)
    for name, note in over.tables.items():
        old = tables.get(name, TableNote())
        columns = {**old.columns, **{n: _over(old.columns.get(n, ColumnNote()), c) for n, c in note.columns.items()}}
        tables[name] = _over(old, note).model_copy(update={"columns": columns})
    return _over(under, over).model_copy(update={"tables": tables})


N = TypeVar("N", ColumnNote, TableNote, Annotations)


def _over(under: N, over: N) -> N:
    return under.model_copy(update={name: getattr(over, name) for name in over.model_fields_set})


def annotate(profile: SourceProfile, annotations: dict[str, Any] | Annotations) -> SourceProfile:
    """Add annotations to a profile. A note of the profile lists annotated tables and columns that do not exist."""
    notes = annotations if isinstance(annotations, Annotations) else parse_annotations(annotations, "The annotations")
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
