"""`etude sources --server`: data of this machine as datasets of another one; and commands on what others judged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.conftest import Running, listening
from etude.app import App
from etude.cli.main import run_command
from etude.store.identity import Identity

SALES = "region,amount\nnorth,10\nsouth,32\nnorth,8\n"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ETUDE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    with App(home=str(tmp_path / "server"), server={"upload": 100_000}) as app:
        _, secret = Identity(app.store).create_key("ann", "analyst")
        monkeypatch.setenv("ANNS_KEY", secret)
        with listening(app, keys_required=True) as running:
            yield running


def remotely(server: Running, *arguments: str) -> int:
    return run_command(["sources", *arguments, "--server", server.url, "--key", "env:ANNS_KEY"])


def test_a_file_is_uploaded_listed_and_removed(
    server: Running, tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sales.csv").write_text(SALES)
    assert remotely(server, "add", "sales", str(tmp_path / "sales.csv")) == 0
    assert "region VARCHAR" in capsys.readouterr().out
    assert server.app.sql("sales", "SELECT sum(amount) FROM sales").rows() == [(50,)]
    assert remotely(server, "list", "--json") == 0
    assert [d["id"] for d in json.loads(capsys.readouterr().out)] == ["sales"]
    assert remotely(server, "add", "sales", str(tmp_path / "sales.csv")) == 5
    assert "already" in capsys.readouterr().err
    assert remotely(server, "remove", "sales") == 0
    assert server.app.sources() == {}
    assert not home.exists()


def test_a_folder_is_uploaded_without_its_hidden_files_and_links(server: Running, tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    (folder / "more").mkdir(parents=True)
    (folder / "orders.csv").write_text(SALES)
    (folder / "more" / "stock.csv").write_text("item,n\na,1\n")
    (folder / ".secret.csv").write_text("x\n1\n")
    (folder / "link.csv").symlink_to("/etc/passwd")
    assert remotely(server, "add", "shop", str(folder)) == 0
    assert sorted(t.name for t in server.app.catalog("shop").tables) == ["shop_orders", "shop_stock"]


def test_refusals_are_those_of_the_server(server: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "large.csv").write_text("x\n" + "1\n" * 100_000)
    assert remotely(server, "add", "large", str(tmp_path / "large.csv")) != 0
    assert "100,000 bytes" in capsys.readouterr().err
    (tmp_path / "bad.csv").write_bytes(b"\x89PNG" + bytes(100))
    assert remotely(server, "add", "bad", str(tmp_path / "bad.csv")) == 2
    assert "image" in capsys.readouterr().err
    assert remotely(server, "add", "gone", str(tmp_path / "gone.csv")) == 4
    assert remotely(server, "add", "crm", "postgresql://localhost/crm") == 77
    (tmp_path / "sales.csv").write_text(SALES)
    wrong = ["--server", server.url, "--key", "nothing"]
    assert run_command(["sources", "add", "sales", str(tmp_path / "sales.csv"), *wrong]) == 77
    for url, said in (("http://localhost:1", "cannot be reached"), ("ftp://x", "not the URL")):
        capsys.readouterr()
        assert run_command(["sources", "add", "sales", str(tmp_path / "sales.csv"), "--server", url]) != 0
        assert said in capsys.readouterr().err
    assert server.app.sources() == {}


def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_questions_and_verdicts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sales.csv").write_text(SALES)
    assert run_command(["sources", "questions", str(tmp_path / "sales.csv"), "--json"]) == 0
    assert len(printed(capsys)) == 3
    assert run_command(["sql", str(tmp_path / "sales.csv"), "SELECT 1 AS one", "--format", "json"]) == 0
    capsys.readouterr()
    assert run_command(["runs", "list", "--json"]) == 0
    run_id = printed(capsys)["items"][0]["id"]
    assert run_command(["runs", "feedback", run_id, "wrong", "--comment", "no", "--json"]) == 0
    assert printed(capsys)["verdict"] == "wrong"
