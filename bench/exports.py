"""Three million rows to a file in each format and to a DataFrame: memory of all processes, against plain DuckDB."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import duckdb

from bench.figure import Figure
from bench.memory import ETUDE, watch

ROWS = 3_000_000
OVER = 300
"""Megabytes that an export may take beyond plain DuckDB."""
TABLE = f"""CREATE TABLE big AS SELECT i, i % 1000 AS group_id, hash(i)::DOUBLE / 1e9 AS amount,
    'customer ' || (i % 100000) AS customer FROM range({ROWS}) r(i)"""
_OPEN = "import duckdb; db = duckdb.connect({source!r}, read_only=True); "
_PLAIN = {
    "parquet": "db.execute(\"COPY (FROM big) TO '{out}' (FORMAT parquet, COMPRESSION zstd)\")",
    "csv": "db.execute(\"COPY (FROM big) TO '{out}' (FORMAT csv)\")",
    "json": "db.execute(\"COPY (FROM big) TO '{out}' (FORMAT json)\")",
    "arrow": "import pyarrow as pa; r = db.sql('FROM big').to_arrow_reader(65536)\n"
    "with pa.ipc.new_stream('{out}', r.schema) as w:\n    for b in r: w.write_batch(b)",
    "df": "assert len(db.sql('FROM big').df()) == 3000000",
}


def measure() -> list[Figure]:
    """Return the peak memory of each export, and its ratio to plain DuckDB's."""
    figures = []
    with tempfile.TemporaryDirectory(prefix="etude-bench-") as folder:
        source = str(Path(folder) / "big.duckdb")
        with duckdb.connect(source) as writer:
            writer.execute(TABLE)
        environment = os.environ | {"ETUDE_HOME": str(Path(folder) / "home")}
        for kind, code in _PLAIN.items():
            out = str(Path(folder) / f"out.{kind}")
            plain = watch([sys.executable, "-c", _OPEN.format(source=source) + code.format(out=out)], environment)
            frame = f"import etude; db = etude.connect({source!r}); assert len(db.sql('FROM big').df()) == {ROWS}"
            export = [ETUDE, "sql", source, "FROM big", "--output", out]
            cost = watch([sys.executable, "-c", frame] if kind == "df" else export, environment)
            what = f"{ROWS // 10**6} million rows as {kind}"
            figures.append(Figure(f"peak memory, {what}", cost.megabytes, plain.megabytes, "MB", most_over=OVER))
            figures.append(Figure(f"time, {what}", cost.seconds, plain.seconds, "s"))
    return figures
