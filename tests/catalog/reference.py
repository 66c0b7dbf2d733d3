"""How well keys are inferred on reference databases, with what is declared there hidden.

`data/references.json` holds, for each database of the defog collection, the foreign keys that its published schema
declares (`declared`), the pairs of columns that its publishers say are joined (`joined`), and references that neither
names but whose columns leave no doubt (`judged`). SQLite files declare theirs themselves.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import etude
from etude.app import App
from etude.catalog.measure.profile import profile_source
from etude.db import Database
from etude.entities import Catalog, Limits
from etude.result import Result

DATA = Path(os.environ.get("REFERENCE_DATA", Path(__file__).parents[3] / "shared" / "data"))
Reference = tuple[str, str, str, str]


class Undeclared(Database):
    """A database without its declared keys."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def sql(self, query: str, *, record: bool | None = None, limits: Limits | None = None, **limit: Any) -> Result:
        return self._db.sql(query, record=record, limits=limits, **limit)

    def catalog(self) -> Catalog:
        catalog = self._db.catalog()
        bare = {"primary_key": (), "unique": (), "foreign_keys": ()}
        return catalog.model_copy(update={"tables": tuple(t.model_copy(update=bare) for t in catalog.tables)})


@dataclass
class Score:
    """Inferred keys that are right, all inferred, and all there are."""

    right: int = 0
    inferred: int = 0
    there: int = 0
    """All there are; 0 where that is not known."""
    judged: int = 0
    """Of the right ones those that no list names."""

    @property
    def precision(self) -> float:
        return self.right / self.inferred if self.inferred else 1.0

    @property
    def recall(self) -> float:
        return self.right / self.there


def databases() -> list[Path]:
    return [*sorted((DATA / "defog").glob("*.duckdb")), *sorted((DATA / "chinook").glob("*.sqlite"))]


def score_keys(app: App) -> tuple[Score, Score, Score]:
    """Primary keys where one is declared; foreign keys where the schema declares some; and those of all databases."""
    truth = json.loads((Path(__file__).parent / "data" / "references.json").read_text(encoding="utf-8"))
    primary, declared, every = Score(), Score(), Score()
    for path in databases():
        db = etude.connect(path, app=app)
        catalog, profile = db.catalog(), profile_source(Undeclared(db))
        for table in catalog.tables:
            found = profile.table(table.name)
            key = found.primary_key.columns if found and found.primary_key else None
            if table.primary_key:
                primary.there += 1
                primary.inferred += key is not None
                primary.right += key == table.primary_key
        inferred = {(t.name, k.columns[0], k.to_table, k.to_columns[0]) for t in profile.tables for k in t.foreign_keys}
        known = truth.get(path.stem, {"declared": list(_declared(catalog)), "joined": [], "judged": []})
        stated = {tuple(r) for r in known["declared"]}
        right = {r for r in inferred if r in stated or _is_known(r, known)}
        every.right, every.inferred = every.right + len(right), every.inferred + len(inferred)
        every.judged += sum(list(r) in known["judged"] for r in right)
        if stated:
            declared.there += len(stated)
            declared.inferred += len(inferred)
            declared.right += len(right & stated)
            # A reference that the schema leaves out, and its publishers join by, is not wrong.
            declared.inferred -= len(right - stated)
    return primary, declared, every


def _declared(catalog: Catalog) -> Iterator[list[str]]:
    for table in catalog.tables:
        for key in table.foreign_keys:
            yield [table.name, key.columns[0], key.to_table, key.to_columns[0]]


def _is_known(reference: Reference, known: dict[str, Any]) -> bool:
    table, column, other, target = reference
    pair = sorted([f"{table}.{column}", f"{other}.{target}"])
    return pair in known["joined"] or list(reference) in known["judged"]
