"""`etude sources`: warnings about roles, `--strict`, descriptions, and names that try to drive the terminal."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest

from etude.app import App
from etude.cli.main import run_command


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETUDE_HOME", str(tmp_path / "home"))


@pytest.fixture
def stock_url(postgres_url: str) -> str:
    """A database whose role is a superuser, as that of a new server is."""
    with psycopg.connect(postgres_url) as db:
        db.execute("CREATE TABLE stock (n int)")
    return postgres_url


def test_a_role_that_may_do_more_than_read_is_warned_about(stock_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["sources", "add", "stock", stock_url]) == 0
    out, err = capsys.readouterr()
    assert "stock" in out and "warning" not in out
    warnings = [line for line in err.splitlines() if line.startswith("warning: ")]
    assert any("superuser" in line for line in warnings), err
    assert run_command(["sources", "add", "again", stock_url, "--json"]) == 0
    out, err = capsys.readouterr()
    assert "warning: " in err
    assert any("superuser" in warning for warning in json.loads(out)["warnings"])


def test_strict_refuses_such_a_role_and_adds_nothing(stock_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["sources", "add", "stock", stock_url, "--strict"]) != 0
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and "superuser" in err and "only reads" in err
    assert run_command(["sources", "list"]) == 0
    assert "No sources yet." in capsys.readouterr().out


def test_strict_accepts_a_role_that_only_reads(stock_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with psycopg.connect(stock_url, autocommit=True) as db:
        name = db.info.dbname
        role = f"reader_{name}"
        db.execute(f"CREATE ROLE {role} LOGIN".encode())
        db.execute(f"REVOKE CREATE, TEMPORARY ON DATABASE {name} FROM PUBLIC".encode())
        db.execute(f"GRANT SELECT ON stock TO {role}".encode())
        db.execute(f"ALTER ROLE {role} SET default_transaction_read_only = on".encode())
        user = db.info.user
    assert run_command(["sources", "add", "stock", stock_url.replace(f"//{user}:", f"//{role}:", 1), "--strict"]) == 0
    out, err = capsys.readouterr()
    assert "stock" in out and "warning" not in err


def test_names_that_need_quotes_are_shown_with_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "odd.csv").write_text("a b,select,plain\n1,2,3\n")
    assert run_command(["sources", "show", str(tmp_path / "odd.csv")]) == 0
    assert '"a b" BIGINT, "select" BIGINT, plain BIGINT' in capsys.readouterr().out


def test_names_of_files_cannot_drive_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "good.csv").write_text("a\n1\n")
    (folder / "bad\x1b[2J\x9b31m.csv").write_text("a\x1b]0;t\x07,b\n1,2\n")
    (folder / "broken\x1b[2J.parquet").write_bytes(b"PAR1 no")
    (folder / "skipped\x1b[2J.exe").write_bytes(b"")
    assert run_command(["sources", "add", "data", str(folder)]) == 0
    assert run_command(["sources", "show", "data"]) == 0
    assert run_command(["sources", "show", str(folder / "none\x1b[2J")]) != 0
    out, err = capsys.readouterr()
    assert "broken" in out
    assert all(c == "\n" or c.isprintable() for c in out + err)


def test_a_description_is_set_and_withdrawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "orders.csv"
    source.write_text("id,amount\n1,5\n2,7\n")
    describe = ["sources", "describe", str(source), "orders.amount"]
    assert run_command([*describe, "in cents"]) == 0 and _description(source) == "in cents"
    assert run_command([*describe, "--withdraw"]) == 0 and _description(source) is None
    capsys.readouterr()
    assert run_command(["sources", "describe", str(source), "orders.amonut", "in cents"]) != 0
    assert "no table or column `orders.amonut`" in capsys.readouterr().err


def _description(source: Path) -> str | None:
    with App() as app:
        found: str | None = app.annotations(str(source))["tables"]["orders"]["columns"]["amount"]["description"]
    return found
