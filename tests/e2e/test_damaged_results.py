"""Damaged files of results: each is reported on every way to read it, and none is read as good.

The short form runs with every test run. `CHAOS=long` (`make chaos`) damages a thousand files.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import duckdb
import httpx
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from api.conftest import listening
from etude.app import App
from etude.cli.main import run_command
from etude.entities import SourceSpec
from etude.errors import Damaged

FILES = 1000 if os.environ.get("CHAOS") == "long" else 60
ROWS = (3, 5_000, 100_000)
Read = Callable[[str, str], Awaitable[str]]
"""Reads the result of a run, with the hash of its file; returns the error."""


def damage(whole: bytes, chance: random.Random) -> bytes:
    """Flip a bit, or cut the file."""
    if chance.random() < 0.25:
        return whole[: chance.randrange(len(whole))]
    changed = bytearray(whole)
    changed[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def test_every_damaged_file_is_reported_on_every_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ETUDE_HOME", str(tmp_path / "home"))
    duckdb.connect(tmp_path / "data.duckdb").close()
    chance, reported = random.Random(7), Counter[str]()
    with App(home=tmp_path / "home") as app, listening(app) as server, httpx.Client(base_url=server.url) as client:
        app.add_source("data", SourceSpec(url=str(tmp_path / "data.duckdb")))
        runs = [
            str(app.sql("data", f"SELECT i, hash(i) AS h, 'text ' || i AS t FROM range({rows}) r(i)").run_id)
            for rows in ROWS
        ]

        async def in_python(run_id: str, hash: str) -> str:
            with pytest.raises(Damaged) as caught:
                app.result(run_id).rows()
            return str(caught.value)

        async def by_command(run_id: str, hash: str) -> str:
            assert await asyncio.to_thread(run_command, ["runs", "result", run_id, "--format", "csv"]) != 0
            return capsys.readouterr().err

        async def over_http(run_id: str, hash: str) -> str:
            media = chance.choice(["text/csv", "application/vnd.apache.arrow.stream", "application/vnd.apache.parquet"])
            answer = await asyncio.to_thread(client.get, f"/api/runs/{run_id}/result", headers={"accept": media})
            assert answer.status_code == 500
            return str(answer.json()["detail"])

        async def over_mcp(run_id: str, hash: str) -> str:
            with pytest.raises(MCPError) as caught:
                await mcp.read_resource(f"artifact://{run_id}/{hash}")
            return str(caught.value)

        async def read_all() -> None:
            nonlocal mcp
            async with Client(streamable_http_client(f"{server.url}/mcp")) as mcp:
                for number in range(FILES):
                    run_id = runs[number // 4 % len(runs)]
                    artifact = app.store.run(run_id).result_artifact
                    assert artifact is not None
                    file = app.objects.local_path(artifact.hash)
                    assert file is not None
                    whole = file.read_bytes()
                    file.write_bytes(damage(whole, chance))
                    read: Read = (in_python, by_command, over_http, over_mcp)[number % 4]
                    error = await read(run_id, artifact.hash)
                    assert "is damaged" in error and artifact.hash in error, (read.__name__, error)
                    reported[read.__name__] += 1
                    file.write_bytes(whole)

        mcp: Client
        asyncio.run(read_all())
        assert [app.result(run_id).row_count for run_id in runs] == list(ROWS)
        assert [len(app.result(run_id).rows()) for run_id in runs] == list(ROWS)
    print(dict(reported))
    assert reported.total() == FILES
