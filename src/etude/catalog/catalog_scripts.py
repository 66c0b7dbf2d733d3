"""The scripts that make catalogs: etude's default script for each SQL dialect, and edits of earlier scripts.

A script consists of cells, each starting with a line `# %%`. It runs in a session, one cell at a time, or standalone.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from etude.catalog.measure.profile import EXACT_ROWS
from etude.catalog.model import SourceProfile, TableProfile
from etude.runtime.standalone_script import PREAMBLE

CATALOG_SCRIPT = "catalog_script.py"
SUMMARY_SCRIPT = "summary_script.py"
ALIKE = 0.6
"""Two tables are alike if they share at least this part of their columns."""
PATTERN_CHARS = 2_000
_CELL = re.compile(r"^# %%.*$", re.MULTILINE)

_CATALOG = '''"""The catalog of a {dialect} source: catalog.json and catalog.html.

ETUDE_SOURCE=... python catalog_script.py
"""

import etude

db = etude.connect()

# %% options
TABLES = None
EXACT_ROWS = {exact_rows}

# %% measure
from etude.catalog.measure.profile import profile_source


def show(done, total, name):
    print(f"{{done}}/{{total}} {{name}}", flush=True)


profile = profile_source(db, TABLES, on_progress=show, exact_rows=EXACT_ROWS)

# %% add descriptions
from etude.catalog.storage.annotations import annotate

profile = annotate(profile, db.annotations())

# %% save
from etude.catalog.storage.catalog_files import save_catalog

save_catalog(profile)
'''

_SUMMARY = '''"""The recent changes of a {dialect} source: recent_summary.html.

ETUDE_SOURCE=... python summary_script.py, in the folder of catalog.json, with earlier catalogs in earlier.jsonl
"""

import etude

db = etude.connect()

# %% this catalog and the earlier ones
from etude.catalog.storage.catalog_files import load_catalog, load_catalog_history

profile = load_catalog(db)
history = load_catalog_history()

# %% what changed
from etude.catalog.storage.catalog_files import find_catalog_changes

changes = list(find_catalog_changes(profile, history))

# %% save
from etude.catalog.storage.catalog_files import save_catalog_summary

save_catalog_summary(profile, changes, history)
'''


def diff_catalog_script(name: str, before: str, after: str, why: str) -> str:
    """Return what a run changed in a script, below the reason in comments; empty if nothing."""
    if before == after:
        return ""
    reasons = [f"# {line}\n" for line in (why or "The options or etude's own script changed.").splitlines()]
    lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), f"{name} before", f"{name} now")
    return "".join([*reasons, *lines])


def make_catalog_script(name: str, dialect: str) -> str:
    """Return etude's default script for a SQL dialect."""
    if name == SUMMARY_SCRIPT:
        return _SUMMARY.format(dialect=dialect)
    exact_rows = EXACT_ROWS.get(dialect, EXACT_ROWS["postgres"])
    return _CATALOG.format(dialect=dialect, exact_rows=f"{exact_rows:_}")


def split_catalog_script_cells(script: str) -> list[str]:
    """Return the cells of a script that contain code."""
    marks = [m.start() for m in _CELL.finditer(script)]
    parts = (script[a:b].strip("\n") for a, b in zip([0, *marks], [*marks, len(script)]))
    return [part for part in parts if _has_code(part)]


def _has_code(cell: str) -> bool:
    try:
        return bool(ast.parse(cell).body)
    except SyntaxError:
        return True  # running the cell reports the error


def normalize_catalog_script(script: str) -> str:
    """Prepare the script of a session for storage: it contains the preamble exactly once."""
    preamble = PREAMBLE.strip("\n")
    rest = script.strip("\n").removeprefix(preamble).strip("\n")
    text = rest if preamble in rest else f"{preamble}\n\n{rest}"
    return text.rstrip("\n") + "\n"


def set_catalog_script_tables(script: str, tables: Sequence[str] | None) -> str:
    """Return the script for other tables: its assignment to `TABLES`, if it has one, is replaced."""
    try:
        statements = ast.parse(script).body
    except SyntaxError:
        return script
    lines = script.splitlines(keepends=True)
    for node in statements:
        if (
            isinstance(node, ast.Assign)
            and [t.id for t in node.targets if isinstance(t, ast.Name)] == ["TABLES"]
            and node.end_lineno is not None
        ):
            value = None if tables is None else list(tables)
            return "".join([*lines[: node.lineno - 1], f"TABLES = {value!r}\n", *lines[node.end_lineno :]])
    return script


def generalize_catalog_script(script: str, tables: Sequence[str]) -> str:
    """Return the script for other databases: it covers all tables and leaves out cells that name one of `tables`."""
    cells = split_catalog_script_cells(set_catalog_script_tables(script, None))
    kept = [cell for cell in cells if not any(_names(cell, table) for table in tables)]
    return "\n\n".join(kept) + "\n"


def _names(cell: str, table: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(table)}(?!\w)", cell) is not None


@dataclass(frozen=True)
class TablePattern:
    """Code that worked for the table `like`, offered for the similar table `table`."""

    table: str
    like: str
    code: str


def find_catalog_script_patterns(
    script: str, known: SourceProfile, wanted: Sequence[TableProfile]
) -> list[TablePattern]:
    """Find, for each wanted table, the cells that name the table most similar to it."""
    return [p for table in wanted for p in _patterns_for(script, known, table)]


def _patterns_for(script: str, known: SourceProfile, table: TableProfile) -> Iterator[TablePattern]:
    others = [(catalog_script_table_likeness(table, t), t.name) for t in known.tables if t.name != table.name]
    for score, name in sorted(others, reverse=True):
        if score < ALIKE:
            return
        cells = [c for c in split_catalog_script_cells(script) if _names(c, name)]
        if cells:
            yield TablePattern(table.name, name, "\n\n".join(cells)[:PATTERN_CHARS])
            return


def catalog_script_table_likeness(one: TableProfile, other: TableProfile) -> float:
    """Return the share of columns that two tables have in common, by name and kind."""
    a, b = ({(c.name.lower(), c.family) for c in t.columns} for t in (one, other))
    return len(a & b) / len(a | b) if a | b else 0.0
