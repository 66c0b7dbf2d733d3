"""`etude keys`, `etude serve` and `etude mcp` from the command line."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

import etude
from etude.api.reload import read_reload_mtimes
from etude.cli.main import run_command
from etude.sample import write_shop
from etude.store.identity import Identity
from etude.store.sqlite import SqliteStore


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ETUDE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_keys(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run_command(["keys", "create", "bot", "--role", "reader", "--tenant", "acme", "--per-minute", "60", "--json"])
        == 0
    )
    made = json.loads(capsys.readouterr().out)
    with SqliteStore(home / "etude.db") as store:
        key = Identity(store).authenticate(made["key"])
    assert (key.id, key.tenant, key.role, key.limits.per_minute) == (made["id"], "acme", "reader", 60)
    assert run_command(["keys", "create", "person"]) == 0
    assert capsys.readouterr().out.startswith("etude_")
    assert run_command(["keys", "list"]) == 0
    listed = capsys.readouterr().out
    assert "acme" in listed and "person" in listed and made["key"] not in listed
    assert run_command(["keys", "revoke", made["id"]]) == 4
    assert run_command(["keys", "revoke", made["id"], "--tenant", "acme"]) == 0
    capsys.readouterr()
    assert run_command(["keys", "list", "--tenant", "acme", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["revoked_at"]


@pytest.mark.parametrize(
    "arguments",
    [["x", "--tenant", "A B"], ["", "--role", "admin"], ["x", "--per-minute", "-1"], ["x", "--days", "0"]],
)
def test_what_cannot_be_a_key(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["keys", "create", *arguments]) == 2
    assert "hint:" in capsys.readouterr().err


def test_a_source_or_a_port_that_does_not_exist_is_refused_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["serve", "nope"]) == 4
    assert "There is no source, file or folder `nope`." in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run_command(["serve", "--port", "99999"])
    assert "`99999` is not a port from 0 to 65535" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--host", "0.0.0.0"], "No keys exist"),
        (["--host", "::"], "No keys exist"),
        (["--keys"], "No keys exist"),
        (["--host", "0.0.0.0", "--no-keys"], "everyone who reaches"),
    ],
)
def test_it_does_not_open_itself_to_the_network(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["serve", "--port", "0", *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT])
def test_serve_listens_works_and_ends_cleanly(told: signal.Signals, tmp_path: Path) -> None:
    write_shop(tmp_path / "shop")
    command = [sys.executable, "-m", "etude", "serve", str(tmp_path / "shop"), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            url = next(line for line in server.stderr if line.startswith("etude listens on ")).split()[-1]
            answer = httpx.post(f"{url}/sql", json={"query": "SELECT count(*) AS n FROM orders"}, timeout=60)
            assert answer.json()["rows"] == [[3704]]
            server.send_signal(told)
            rest = server.stderr.read()
            assert server.wait(240) == 0, rest
        finally:
            server.kill()
    access = [json.loads(line) for line in rest.splitlines() if '"etude.http"' in line]
    assert [(a["message"], a["status"]) for a in access] == [("POST /api/sql", 200)]
    assert access[0]["request_id"] == answer.headers["x-request-id"]


def test_serve_starts_over_when_something_changes(tmp_path: Path, home: Path) -> None:
    """The code is a copy, so that it can be changed, broken and mended."""
    shutil.copytree(Path(etude.__file__).parent, tmp_path / "code" / "etude")
    write_shop(tmp_path / "shop")
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "code")}
    command = [sys.executable, "-m", "etude", "serve", "--reload", str(tmp_path / "shop"), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stderr is not None
        try:
            lines = iter(server.stderr)

            def answer(path: str) -> dict[str, Any]:
                while True:
                    url = next(line for line in lines if line.startswith("etude listens on ")).split()[-1]
                    # One that began while a file changed is followed by another.
                    with suppress(httpx.TransportError):
                        return dict(httpx.get(url + path, timeout=120).json())

            assert [d["id"] for d in answer("/api/datasets")["items"]] == ["shop"]
            code = tmp_path / "code" / "etude" / "playbook.py"
            text = code.read_text()
            code.write_text("this is no Python")
            assert next(line for line in lines if "SyntaxError" in line)
            # The code last: none that listens before it is mended could know of the settings.
            (home / "etude.toml").write_text(f"[sources.more]\nurl = '{tmp_path / 'shop'}'\n")
            mended = code.with_suffix(".mended")
            mended.write_text(text)
            mended.replace(code)
            assert [d["id"] for d in answer("/api/datasets")["items"]] == ["more", "shop"]
            server.send_signal(signal.SIGTERM)
            assert server.wait(240) == 0, server.stderr.read()
        finally:
            server.terminate()


def test_what_is_looked_at(home: Path) -> None:
    settings = home / "etude.toml"
    before = read_reload_mtimes()
    assert {Path(etude.__file__), Path(etude.__file__).parent / "skill" / "SKILL.md"} < set(before)
    home.mkdir()
    settings.write_text("model = 'offline'\n")
    assert set(read_reload_mtimes()) - set(before) == {settings}


def test_a_refusal_to_serve_is_final(home: Path) -> None:
    command = [sys.executable, "-m", "etude", "serve", "--reload", "--host", "0.0.0.0"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert refused.returncode == 2
    assert "No keys exist" in refused.stderr


def test_sources_of_a_tenant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_shop(tmp_path / "shop")
    assert run_command(["sources", "add", "shop", str(tmp_path / "shop"), "--tenant", "acme"]) == 0
    capsys.readouterr()
    assert run_command(["sources", "list"]) == 0
    assert "No sources yet" in capsys.readouterr().out
    assert run_command(["sources", "list", "--tenant", "acme", "--json"]) == 0
    assert [source["name"] for source in json.loads(capsys.readouterr().out)] == ["shop"]
    assert run_command(["sources", "show", "shop"]) == 4
    assert run_command(["sources", "show", "shop", "--tenant", "acme"]) == 0
    assert run_command(["sources", "remove", "shop"]) == 4
    assert run_command(["sources", "remove", "shop", "--tenant", "acme"]) == 0
    assert run_command(["sources", "list", "--tenant", "A B"]) == 2


def test_the_skill_is_shipped(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["mcp", "--skill"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("---\nname: etude\n")
    assert "Never invent" in text
