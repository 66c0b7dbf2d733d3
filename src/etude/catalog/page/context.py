"""What the parts of a page need to know of the whole: where tables are, who refers to them, what changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from etude.catalog.drift.change import Change
from etude.catalog.model import ForeignKeyEvidence, SourceProfile, TableProfile
from etude.catalog.page.markup import Markup, anchors, escape, fill


@dataclass(frozen=True)
class PageContext:
    """What the parts of a page need to know of the whole."""

    profile: SourceProfile
    changes: Sequence[Change]
    history: Sequence[SourceProfile]
    anchors: Mapping[str, str]
    referring: Mapping[str, list[tuple[str, ForeignKeyEvidence]]]
    """Table to those that refer to it."""
    by_table: Mapping[str, list[Change]]
    tables: Mapping[str, TableProfile]
    """By their names in lower case."""
    page: str
    """Where the tables are, if not on this page."""
    past: Sequence[Mapping[str, TableProfile]]
    """The tables of each earlier run."""
    columns: dict[str, dict[str, str]] = field(default_factory=dict)
    """Filled as they are asked for: the fragments of the columns of a table."""

    def series(self, table: str) -> list[TableProfile | None]:
        """A table over the runs, this one last."""
        return [*(tables.get(table) for tables in self.past), self.tables.get(table.lower())]

    def column_anchors(self, table: TableProfile) -> dict[str, str]:
        """The fragments of a table's columns."""
        if table.name not in self.columns:
            self.columns[table.name] = anchors((c.name for c in table.columns), self.anchors[table.name] + ".")
        return self.columns[table.name]

    def target(self, table: str, column: str | None = None) -> str | None:
        """The fragment of a table or column that may no longer be there."""
        found = self.tables.get(table.lower())
        if found is None:
            return None
        return self.column_anchors(found).get(column or "", self.anchors[found.name])


def make_context(
    profile: SourceProfile, changes: Sequence[Change], history: Sequence[SourceProfile], page: str = ""
) -> PageContext:
    """The context of a page."""
    referring: dict[str, list[tuple[str, ForeignKeyEvidence]]] = defaultdict(list)
    for table in profile.tables:
        for key in table.foreign_keys:
            referring[key.to_table.lower()].append((table.name, key))
    by_table: dict[str, list[Change]] = defaultdict(list)
    for change in changes:
        by_table[change.table].append(change)
    # Of two that differ in case only, the first is meant, as everywhere.
    tables = {t.name.lower(): t for t in reversed(profile.tables)}
    earlier = [p for p in history if p is not profile and (p.made_at is None or p.made_at != profile.made_at)]
    fragments = anchors((t.name for t in profile.tables), "t.")
    past = [{t.name: t for t in p.tables} for p in earlier]
    return PageContext(profile, changes, earlier, fragments, referring, by_table, tables, page, past)


def table_link(context: PageContext, name: str) -> Markup:
    """The name of a table, as a link if it is there."""
    target = context.target(name)
    return fill('<a href="{page}#{t}">{name}</a>', page=context.page, t=target, name=name) if target else escape(name)
