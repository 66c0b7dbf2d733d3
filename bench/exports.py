"""Three million rows to files of each format, to a DataFrame and over HTTP: memory of all processes, beside DuckDB."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path

import duckdb
import psutil

from bench.figure import Figure
from bench.memory import ETUDE, SAMPLE_S, proportional, watch
from bench.server import free_port, wait_for

ROWS = 3_000_000
SHEET_ROWS = 1_000_000
"""An Excel sheet holds no more than 1,048,575."""
OVER = 300
"""Megabytes that an export may take beyond plain DuckDB."""
TABLE = f"""CREATE TABLE big AS SELECT i, i % 1000 AS group_id, hash(i)::DOUBLE / 1e9 AS amount,
    'customer ' || (i % 100000) AS customer FROM range({ROWS}) r(i)"""
_OPEN = "import duckdb; db = duckdb.connect({source!r}, read_only=True); "
_CSV = "db.execute(\"COPY ({query}) TO '{out}' (FORMAT csv)\")"
_PLAIN = {
    "parquet": "db.execute(\"COPY ({query}) TO '{out}' (FORMAT parquet, COMPRESSION zstd)\")",
    "csv": _CSV,
    "json": "db.execute(\"COPY ({query}) TO '{out}' (FORMAT json, ARRAY true)\")",
    "ndjson": "db.execute(\"COPY ({query}) TO '{out}' (FORMAT json)\")",
    "arrow": "import pyarrow as pa; r = db.sql('{query}').to_arrow_reader(65536)\n"
    "with pa.ipc.new_stream('{out}', r.schema) as w:\n    for b in r: w.write_batch(b)",
    "df": "assert len(db.sql('{query}').df()) == 3000000",
    # DuckDB writes neither, so they are held to what it takes for CSV.
    "md": _CSV,
    "xlsx": _CSV,
}
_MEDIA = {
    "parquet": "application/vnd.apache.parquet",
    "csv": "text/csv",
    "arrow": "application/vnd.apache.arrow.stream",
}


def measure() -> list[Figure]:
    """Return the peak memory of each export, and its ratio to plain DuckDB's."""
    figures, peers = [], {}
    with tempfile.TemporaryDirectory(prefix="etude-bench-") as folder:
        source = str(Path(folder) / "big.duckdb")
        with duckdb.connect(source) as writer:
            writer.execute(TABLE)
        environment = os.environ | {"ETUDE_HOME": str(Path(folder) / "home")}
        for kind, code in _PLAIN.items():
            rows = SHEET_ROWS if kind == "xlsx" else ROWS
            query = f"FROM big LIMIT {rows}" if rows < ROWS else "FROM big"
            out = str(Path(folder) / f"out.{kind}")
            begin = _OPEN.format(source=source) + code.format(out=out, query=query)
            plain = peers[kind] = watch([sys.executable, "-c", begin], environment)
            frame = f"import etude; db = etude.connect({source!r}); assert len(db.sql('FROM big').df()) == {ROWS}"
            export = [ETUDE, "sql", source, query, "--output", out, "--timeout", "3600"]
            cost = watch([sys.executable, "-c", frame] if kind == "df" else export, environment)
            if kind != "df":
                _check(kind, out, rows)
                os.unlink(out)
            what = f"{rows // 10**6} million rows as {kind}"
            figures.append(Figure(f"peak memory, {what}", cost.megabytes, plain.megabytes, "MB", most_over=OVER))
            figures.append(Figure(f"time, {what}", cost.seconds, plain.seconds, "s"))
        for kind, megabytes in _download(source, folder, environment).items():
            what = f"peak memory, {ROWS // 10**6} million rows over HTTP as {kind}"
            figures.append(Figure(what, megabytes, peers[kind].megabytes, "MB", most_over=OVER))
    return figures


def _check(kind: str, out: str, rows: int) -> None:
    """Raise unless the file holds all rows."""
    readers = {
        "parquet": f"read_parquet('{out}')",
        "csv": f"read_csv('{out}')",
        "ndjson": f"read_json('{out}', format = 'newline_delimited')",
    }
    if kind in readers:
        found = duckdb.connect().execute(f"SELECT count(*), sum(i) FROM {readers[kind]}").fetchall()
        assert found == [(rows, rows * (rows - 1) // 2)], found
    elif kind == "json":
        body = json.loads(Path(out).read_bytes())
        assert (len(body["rows"]), body["row_count"]) == (rows, rows)
    elif kind == "arrow":
        import pyarrow as pa

        with pa.memory_map(out) as file:
            # An export is a file with an index, a download a stream.
            opened = pa.ipc.open_file if file.read(6) == b"ARROW1" else pa.ipc.open_stream
            file.seek(0)
            assert opened(file).read_all().num_rows == rows
    elif kind == "md":
        with Path(out).open("rb") as file:
            assert sum(1 for _ in file) == rows + 2
    else:
        import python_calamine

        assert python_calamine.load_workbook(out).get_sheet_by_index(0).height == rows + 1


def _download(source: str, folder: str, environment: dict[str, str]) -> dict[str, float]:
    """The peak memory of the server and its processes while it sends a stored result, by kind."""
    done = subprocess.run(
        [ETUDE, "sql", source, "FROM big ORDER BY i LIMIT 3000000", "--format", "table"],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    run_id = done.stdout.split()[-1]
    port = free_port()
    command = [ETUDE, "serve", source, "--port", str(port)]
    server = psutil.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port, server)
        return {
            kind: _peak(server, _fetch(port, run_id, media, str(Path(folder) / f"fetched.{kind}"), kind))
            for kind, media in _MEDIA.items()
        }
    finally:
        server.terminate()
        server.wait(60)


def _fetch(port: int, run_id: str, media: str, out: str, kind: str) -> Callable[[], None]:
    def fetch() -> None:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/api/runs/{run_id}/result", headers={"Accept": media})
        with urllib.request.urlopen(request) as response, open(out, "wb") as file:
            while piece := response.read(1 << 20):
                file.write(piece)
        _check(kind, out, ROWS)
        os.unlink(out)

    return fetch


def _peak(server: psutil.Process, work: Callable[[], None]) -> float:
    peak, ended = [0], threading.Event()

    def sample() -> None:
        while not ended.wait(SAMPLE_S):
            pids = [server.pid, *(child.pid for child in server.children(recursive=True))]
            peak[0] = max(peak[0], sum(map(proportional, pids)))

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        work()
    finally:
        ended.set()
        sampler.join()
    return peak[0] / 1e6
