"""The source `@ops`: operations and findings as tables, to query like any other source."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude.learning.observer.findings import Finding, find_failure_findings
from etude.learning.observer.operations import Operation, read_operations
from etude.store.diagnoses import StoredDiagnoses

if TYPE_CHECKING:
    from etude.store.base import Store

NAME = "@ops"
KEPT = timedelta(days=30)
"""Operations of this time are in the tables."""


def write_operation_facts(store: Store, home: Path) -> Path:
    """Write the tables of a tenant as they are now, and return their folder."""
    folder = home / "ops" / store.tenant
    folder.mkdir(parents=True, exist_ok=True)
    operations = read_operations(store, KEPT)
    _write(folder / "operations.parquet", operations, Operation)
    _write(folder / "findings.parquet", find_failure_findings(operations, StoredDiagnoses(store).all()), Finding)
    return folder


def _write(path: Path, rows: Sequence[Any], kind: type) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {
        "datetime": pa.timestamp("us", "UTC"), "float": pa.float64(), "int": pa.int64(), "tuple[str, ...]":
        pa.list_(pa.string()),
    }  # fmt: skip
    schema = pa.schema([(f.name, types.get(str(f.type), pa.string())) for f in fields(kind)])
    table = pa.table({f.name: [getattr(row, f.name) for row in rows] for f in fields(kind)}, schema=schema)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".")
    os.close(descriptor)
    pq.write_table(table, name)
    os.replace(name, path)
