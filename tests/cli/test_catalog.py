"""`etude catalog`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from etude.cli.catalog import split_catalog_place
from etude.cli.main import run_command
from etude.errors import Invalid


def test_the_catalog_of_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ETUDE_HOME", str(tmp_path / "home"))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "people.csv").write_text("id,name\n1,Ann\n2,Bo\n")
    assert run_command(["catalog", str(tmp_path / "data")]) == 0
    out, shown = capsys.readouterr()
    assert "1 table in" in out and "catalog.html" in out
    assert "0/1 people" in shown
    assert run_command(["catalog", "--db-conn", str(tmp_path / "data"), "--tables", "people", "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["tables"] == 1 and Path(body["url"], "catalog.html").is_file()
    assert body["lineage"]["catalog_script.py"]["origin"] == "run"
    assert run_command(["catalog", str(tmp_path / "data"), "--tables", "nobody"]) == 4
    assert "There is no table `nobody`" in capsys.readouterr().err
    assert run_command(["catalog", "a", "--db-conn", "b"]) == 2


def write_orders(path: Path, factor: int) -> None:
    rows = (f"{i},{(i * 37 % 400 + 5) * factor}" for i in range(1, 2001))
    path.write_text("\n".join(["id,amount", *rows]) + "\n")


def test_a_broken_state_is_repeated_until_it_is_acknowledged_or_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ETUDE_HOME", str(tmp_path / "home"))
    data, orders = tmp_path / "data", tmp_path / "data" / "orders.csv"
    data.mkdir()

    def make(factor: int, *options: str) -> tuple[int, str]:
        write_orders(orders, factor)
        code = run_command(["catalog", str(data), *options])
        return code, capsys.readouterr().out

    assert make(1, "--fail-on", "low")[0] == 0
    code, out = make(100, "--fail-on", "high")
    assert code == 8 and "1 change\n" in out
    assert "high   orders.amount:scale: `amount` is about 100 times larger" in out
    code, out = make(100, "--fail-on", "high")
    assert code == 8 and "0 new changes, 1 still open" in out and "(open since 2" in out
    assert make(100)[0] == 0, "without --fail-on a change is not a failure"

    why = ["--why", "Prices are in cents since March.", "--by", "Ann"]
    assert run_command(["catalog", str(data), "--acknowledge", "orders.amount:scale", *why]) == 0
    assert "Acknowledged by Ann." in capsys.readouterr().out
    why = ["--why", "The import is known.", "--by", "Bo"]
    assert run_command(["catalog", str(data), "--acknowledge", "orders", *why]) == 0
    capsys.readouterr()
    code, out = make(100, "--fail-on", "low", "--output", str(tmp_path / "out"))
    assert code == 0 and "0 new changes, 1 known" in out and str(tmp_path / "out" / "catalog.html") in out
    page = (tmp_path / "out" / "catalog.html").read_text()
    assert page.index("The import is known.") < page.index("Prices are in cents since March."), "the newest first"
    assert "Ann" in page and "Bo" in page

    code, out = make(1, "--fail-on", "low")
    assert code == 0 and "0 new changes, 1 recovered" in out, "the way back is not a change for the worse"
    assert "0 changes" in make(1)[1]
    code, out = make(100, "--fail-on", "high")
    assert code == 8, "it happened again, and the acknowledgement was for the first time"


def test_what_cannot_be_acknowledged_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ETUDE_HOME", str(tmp_path / "home"))
    (tmp_path / "people.csv").write_text("id,name\n1,Ann\n2,Bo\n")
    source = str(tmp_path / "people.csv")
    assert run_command(["catalog", source]) == 0
    assert run_command(["catalog", source, "--acknowledge", "people.name:nulls", "--why", "x"]) == 4
    assert "no open change `people.name:nulls`" in capsys.readouterr().err
    assert run_command(["catalog", source, "--acknowledge", "people.name:nulls"]) == 2
    assert "needs a reason" in capsys.readouterr().err
    assert run_command(["catalog", source, "--why", "x"]) == 2
    assert run_command(["catalog", source, "--acknowledge", "people", "--why", "x", "--open"]) == 2
    assert run_command(["catalog", source, "--output", str(tmp_path / "people.csv")]) == 2
    assert "cannot be written to" in capsys.readouterr().err


def test_the_page_is_opened_in_a_browser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ETUDE_HOME", str(tmp_path / "home"))
    (tmp_path / "people.csv").write_text("id,name\n1,Ann\n2,Bo\n")
    script = tmp_path / "browser"
    script.write_text(f'#!/bin/sh\necho "$1" > "{tmp_path}/opened"\n')
    script.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{script} %s")
    code = "import sys; from etude.cli.main import main; main(sys.argv[1:])"  # `webbrowser` reads BROWSER only once
    command = [sys.executable, "-c", code, "catalog", str(tmp_path / "people.csv"), "--open"]
    subprocess.run(command, check=True, timeout=300)
    opened = (tmp_path / "opened").read_text().strip()
    assert opened.startswith("file://") and Path(opened.removeprefix("file://")).is_file()


def test_ctrl_c_is_130_and_a_sentence(tmp_path: Path) -> None:
    source = tmp_path / "slow.duckdb"
    with duckdb.connect(source) as db:
        db.execute("CREATE VIEW slow AS SELECT md5(CAST(range AS VARCHAR)) AS v FROM range(1000000000)")
    environment = os.environ | {"ETUDE_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "etude", "catalog", str(source)]
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr is not None
    assert any("0/1 slow" in line for line in process.stderr)
    os.killpg(process.pid, signal.SIGINT)
    _, rest = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "The catalog was cancelled; nothing of it is stored." in rest
    assert "Traceback" not in rest


def test_a_prefix_may_be_a_whole_url() -> None:
    assert split_catalog_place("", "s3://bucket/customer/orders") == ("s3://bucket", "customer/orders")
    assert split_catalog_place("s3://bucket", "customer/orders") == ("s3://bucket", "customer/orders")
    with pytest.raises(Invalid):
        split_catalog_place("s3://bucket", "s3://other/x")


def test_a_catalog_shows_the_rows_of_its_tables_before_and_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ETUDE_HOME", str(tmp_path / "home"))
    data = tmp_path / "data"
    data.mkdir()
    (data / "regions.csv").write_text("region,name\nNO,North\nSO,South\n")

    def make(rows: int, *options: str) -> str:
        lines = (f"K-{i:04d},{i * 37 % 400}" for i in range(2000) if i % 2000 < rows)
        (data / "stock.csv").write_text("\n".join(["code,pieces", *lines]) + "\n")
        run_command(["catalog", str(data), *options])
        return capsys.readouterr().out

    assert "  rows   stock: 2,000\n  rows   regions: 2\n" in make(2000)
    assert "  rows   stock: 1,900; before: 2,000\n  rows   regions: 2, as before\n" in make(1900)
    body = json.loads(make(1900, "--json"))
    assert body["rows"] == body["rows_before"] == {"stock": 1900, "regions": 2}
