"""`etude keys`, `etude serve` and `etude mcp` from the command line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from etude.cli.main import run
from etude.sample import write_shop
from etude.store.identity import Identity
from etude.store.sqlite import SqliteStore


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ETUDE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_keys(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["keys", "create", "bot", "--role", "reader", "--tenant", "acme", "--per-minute", "60", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    with SqliteStore(home / "etude.db") as store:
        key = Identity(store).authenticate(made["key"])
    assert (key.id, key.tenant, key.role, key.limits.per_minute) == (made["id"], "acme", "reader", 60)
    assert run(["keys", "create", "person"]) == 0
    assert capsys.readouterr().out.startswith("etude_")
    assert run(["keys", "list"]) == 0
    listed = capsys.readouterr().out
    assert "acme" in listed and "person" in listed and made["key"] not in listed
    assert run(["keys", "revoke", made["id"]]) == 4
    assert run(["keys", "revoke", made["id"], "--tenant", "acme"]) == 0
    capsys.readouterr()
    assert run(["keys", "list", "--tenant", "acme", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["revoked_at"]


@pytest.mark.parametrize(
    "arguments",
    [["x", "--tenant", "A B"], ["", "--role", "admin"], ["x", "--per-minute", "-1"], ["x", "--days", "0"]],
)
def test_what_cannot_be_a_key(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["keys", "create", *arguments]) == 2
    assert "hint:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--host", "0.0.0.0"], "There are no keys"),
        (["--host", "::"], "There are no keys"),
        (["--keys"], "There are no keys"),
        (["--host", "0.0.0.0", "--no-keys"], "everyone who reaches"),
        (["--host", "0.0.0.0", "--reload"], "--reload is for the loopback"),
    ],
)
def test_it_does_not_open_itself_to_the_network(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["serve", "--port", "0", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_serve_listens_works_and_ends_cleanly(tmp_path: Path) -> None:
    write_shop(tmp_path / "shop")
    command = [sys.executable, "-m", "etude", "serve", str(tmp_path / "shop"), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            url = next(line for line in server.stderr if line.startswith("etude listens on ")).split()[-1]
            answer = httpx.post(f"{url}/sql", json={"query": "SELECT count(*) AS n FROM orders"}, timeout=60)
            assert answer.json()["rows"] == [[3704]]
            server.send_signal(signal.SIGTERM)
            rest = server.stderr.read()
            assert server.wait(30) == 0, rest
        finally:
            server.kill()
    access = [json.loads(line) for line in rest.splitlines() if '"etude.http"' in line]
    assert [(a["message"], a["status"]) for a in access] == [("POST /api/sql", 200)]
    assert access[0]["request_id"] == answer.headers["x-request-id"]


def test_the_skill_is_shipped(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["mcp", "--skill"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("---\nname: etude\n")
    assert "Never invent" in text
