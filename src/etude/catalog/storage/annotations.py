"""What people say of tables and columns: descriptions, owners, tags. It is kept apart from runs and outlives them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, ValidationError

from etude.catalog.model import ColumnProfile, SourceProfile, TableProfile
from etude.entities import Entity
from etude.errors import Invalid
from etude.validation import explain

SUFFIX = ".etude.yaml"
BYTES = 1 << 20
"""The largest file that is read."""
DEPTH = 20
"""How deep maps and lists may be nested; annotations need five levels."""
_TAGS = frozenset({"map", "seq", "str", "null", "int", "float", "bool", "timestamp", "value", "merge"})
_HINT = "Write `tables:`, below it the tables by name, each with `description`, `owner`, `tags` and `columns`."

Text = Annotated[str, Field(max_length=4000)]
Tags = Annotated[tuple[Annotated[str, Field(max_length=100)], ...], Field(max_length=50)]


class ColumnNote(Entity):
    """What is said of a column; a text alone is its description."""

    description: Text | None = None
    tags: Tags = ()


def _as_note(value: Any) -> Any:
    return {"description": value} if isinstance(value, str) else value


class TableNote(Entity):
    """What is said of a table."""

    description: Text | None = None
    owner: Text | None = None
    tags: Tags = ()
    columns: dict[str, Annotated[ColumnNote, BeforeValidator(_as_note)]] = {}


class Annotations(Entity):
    """What is said of a source. Its owner is that of all tables that have none of their own."""

    owner: Text | None = None
    tables: dict[str, Annotated[TableNote, BeforeValidator(_as_note)]] = {}


def parse_annotations(body: Any, place: str) -> Annotations:
    """Annotations from parsed YAML or JSON; `Invalid` that names the place and what is wrong there."""
    try:
        return Annotations.model_validate(body if body is not None else {})
    except ValidationError as error:
        raise explain(error, place, model=Annotations, hint=_HINT) from None


def read_annotations(path: Path) -> Annotations | None:
    """The annotations in a YAML file, or None where there is no such file."""
    try:
        with path.open("rb") as file:
            data = file.read(BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Invalid(f"`{path}` cannot be read: {error.strerror}.", hint="Check its permissions.") from None
    if len(data) > BYTES:
        raise Invalid(f"`{path}` is larger than {BYTES:,} bytes.", hint=_HINT)
    return parse_annotations(_parse_yaml(data, path), f"`{path}`")


def _parse_yaml(data: bytes, path: Path) -> Any:
    """Maps, lists, texts and nulls from YAML that somebody else wrote.

    An alias can make a few lines stand for gigabytes, and a number of many digits takes minutes to read: aliases are
    refused, and every scalar but null stays a text.
    """
    import yaml  # type: ignore[import-untyped]

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    depth = 0
    try:
        # Events come one by one, in memory of their own size: what is refused here was never built.
        for event in yaml.parse(data, Loader=loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            where = f"line {event.start_mark.line + 1} of `{path}`"
            if isinstance(event, yaml.AliasEvent):
                raise Invalid(f"An alias (`*{event.anchor[:80]}`) stands in {where}.", hint="Write the value out.")
            if depth > DEPTH:
                raise Invalid(f"In {where}, more than {DEPTH} levels are nested.", hint=_HINT)
        node = yaml.compose(data, Loader=loader)
        return None if node is None else _build(node, path)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        line = str(error).replace("\n", " ")[:200]
        raise Invalid(f"`{path}` is not valid YAML: {line}.", hint=_HINT) from None


def _build(node: Any, path: Path) -> Any:
    import yaml

    tag = node.tag.removeprefix("tag:yaml.org,2002:")
    if tag not in _TAGS:
        line = node.start_mark.line + 1
        raise Invalid(f"The tag `{node.tag[:80]}` stands in line {line} of `{path}`.", hint="Write plain YAML.")
    if isinstance(node, yaml.MappingNode):
        return {str(_build(key, path)): _build(value, path) for key, value in node.value}
    if isinstance(node, yaml.SequenceNode):
        return [_build(item, path) for item in node.value]
    return None if tag == "null" else node.value


def merge(under: Annotations, over: Annotations) -> Annotations:
    """Both together; where both say something, the second counts, also where it says that there is nothing to say."""
    tables = dict(under.tables)
    for name, note in over.tables.items():
        old = tables.get(name, TableNote())
        columns = {**old.columns, **{n: _over(old.columns.get(n, ColumnNote()), c) for n, c in note.columns.items()}}
        tables[name] = _over(old, note).model_copy(update={"columns": columns})
    return _over(under, over).model_copy(update={"tables": tables})


N = TypeVar("N", ColumnNote, TableNote, Annotations)


def _over(under: N, over: N) -> N:
    return under.model_copy(update={name: getattr(over, name) for name in over.model_fields_set})


def annotate(profile: SourceProfile, said: dict[str, Any] | Annotations) -> SourceProfile:
    """The profile with what people say of it. Tables and columns that are not there are named in its notes."""
    notes = said if isinstance(said, Annotations) else parse_annotations(said, "The annotations")
    by_name = {name.lower(): (name, note) for name, note in notes.tables.items()}
    missing: list[str] = []

    def annotated(table: TableProfile) -> TableProfile:
        name, note = by_name.pop(table.name.lower(), (table.name, TableNote()))
        known = {c.name for c in table.columns}
        missing.extend(f"{name}.{c}" for c in note.columns if c not in known)
        update: dict[str, Any] = {
            "description": _said(note, "description", table.description),
            "owner": _said(note, "owner", table.owner) or notes.owner,
            "tags": tuple(dict.fromkeys((*table.tags, *note.tags))),
            "columns": tuple(_annotated_column(c, note.columns.get(c.name)) for c in table.columns),
        }
        return table.model_copy(update=update)

    tables = tuple(annotated(t) for t in profile.tables)
    gone = sorted([*(name for name, _ in by_name.values()), *missing])
    told = (f"Described, but not there: {', '.join(f'`{n}`' for n in gone[:20])}.",) if gone else ()
    return profile.model_copy(update={"tables": tables, "notes": tuple(dict.fromkeys((*profile.notes, *told)))})


def _annotated_column(column: ColumnProfile, note: ColumnNote | None) -> ColumnProfile:
    if note is None:
        return column
    tags = tuple(dict.fromkeys((*column.tags, *note.tags)))
    return column.model_copy(update={"description": _said(note, "description", column.description), "tags": tags})


def _said(note: TableNote | ColumnNote, name: str, before: str | None) -> str | None:
    """What is said now; what was there before, where nothing is: an explicit null takes that away."""
    said: str | None = getattr(note, name)
    return said if name in note.model_fields_set else before
