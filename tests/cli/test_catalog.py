"""`etude catalog`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etude.cli.catalog import split_place
from etude.cli.main import run
from etude.errors import Invalid


def test_the_catalog_of_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ETUDE_HOME", str(tmp_path / "home"))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "people.csv").write_text("id,name\n1,Ann\n2,Bo\n")
    assert run(["catalog", str(tmp_path / "data")]) == 0
    out, shown = capsys.readouterr()
    assert "1 tables" in out and "catalog.html" in out
    assert "0/1 people" in shown
    assert run(["catalog", "--db-conn", str(tmp_path / "data"), "--tables", "people", "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["tables"] == 1 and Path(body["url"], "catalog.html").is_file()
    assert body["lineage"]["catalog_script.py"]["origin"] == "run"
    assert run(["catalog", str(tmp_path / "data"), "--tables", "nobody"]) == 4
    assert "There is no table `nobody`" in capsys.readouterr().err
    assert run(["catalog", "a", "--db-conn", "b"]) == 2


def test_a_prefix_may_be_a_whole_url() -> None:
    assert split_place("", "s3://bucket/customer/orders") == ("s3://bucket", "customer/orders")
    assert split_place("s3://bucket", "customer/orders") == ("s3://bucket", "customer/orders")
    with pytest.raises(Invalid):
        split_place("s3://bucket", "s3://other/x")
