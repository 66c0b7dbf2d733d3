"""The context that the parts of a page share: anchors of tables, references between them, changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from etude.catalog.drift.change import Change
from etude.catalog.model import ColumnProfile, ForeignKeyEvidence, SourceProfile, TableProfile
from etude.catalog.page.html_markup import Markup, escape_html, fill_html_template, make_html_anchors


@dataclass(frozen=True)
class PageContext:
    """The context that the parts of a page share."""

    profile: SourceProfile
    changes: Sequence[Change]
    history: Sequence[SourceProfile]
    anchors: Mapping[str, str]
    referring: Mapping[str, list[tuple[str, ForeignKeyEvidence]]]
    """For each table in lower case, the tables that refer to it."""
    by_table: Mapping[str, list[Change]]
    tables: Mapping[str, TableProfile]
    """The tables by name in lower case."""
    page: str
    """The page with the sections of the tables; empty if it is this one."""
    past: Sequence[Mapping[str, TableProfile]]
    """The tables of each earlier run."""
    columns: dict[str, dict[str, str]] = field(default_factory=dict)
    """A cache: the anchors of the columns of each table."""

    def series(self, table: str) -> list[TableProfile | None]:
        """Return a table in each run, the latest last."""
        return [*(tables.get(table) for tables in self.past), self.tables.get(table.lower())]

    def column_before(self, change: Change) -> ColumnProfile | None:
        """Return the earlier profile of a changed column, from the last run before the change was found."""
        for profile, tables in zip(reversed(self.history), reversed(self.past)):
            later = change.since is not None and profile.made_at is not None and profile.made_at >= change.since
            if change.status != "new" and later:
                continue
            table = tables.get(change.table)
            return table.column(change.column or "") if table else None
        return None

    def column_anchors(self, table: TableProfile) -> dict[str, str]:
        """Return the anchors of a table's columns."""
        if table.name not in self.columns:
            self.columns[table.name] = make_html_anchors(
                (c.name for c in table.columns), self.anchors[table.name] + "."
            )
        return self.columns[table.name]

    def target(self, table: str, column: str | None = None) -> str | None:
        """Return the anchor of a table or column, or None if the table no longer exists."""
        found = self.tables.get(table.lower())
        if found is None:
            return None
        return self.column_anchors(found).get(column or "", self.anchors[found.name])


def make_page_context(
    profile: SourceProfile, changes: Sequence[Change], history: Sequence[SourceProfile], page: str = ""
) -> PageContext:
    """Build the context of a page."""
    referring: dict[str, list[tuple[str, ForeignKeyEvidence]]] = defaultdict(list)
    for table in profile.tables:
        for key in table.foreign_keys:
            referring[key.to_table.lower()].append((table.name, key))
    by_table: dict[str, list[Change]] = defaultdict(list)
    for change in changes:
        by_table[change.table].append(change)
    # If two names differ only in case, the first one wins, as everywhere in etude.
    tables = {t.name.lower(): t for t in reversed(profile.tables)}
    earlier = [p for p in history if p is not profile and (p.made_at is None or p.made_at != profile.made_at)]
    fragments = make_html_anchors((t.name for t in profile.tables), "t.")
    past = [{t.name: t for t in p.tables} for p in earlier]
    return PageContext(profile, changes, earlier, fragments, referring, by_table, tables, page, past)


def page_context_table_link(context: PageContext, name: str) -> Markup:
    """Render the name of a table, as a link if the table exists."""
    target = context.target(name)
    return (
        fill_html_template('<a href="{page}#{t}">{name}</a>', page=context.page, t=target, name=name)
        if target
        else escape_html(name)
    )
