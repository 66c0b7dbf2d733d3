"""`etude index`, `etude search` and `etude match`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etude.cli.main import run_command
from etude.sample import write_shop


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ETUDE_HOME", str(tmp_path / "home"))
    write_shop(tmp_path / "shop")
    return str(tmp_path / "shop")


def test_index_search_and_match(shop: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["index", shop]) == 0
    out = capsys.readouterr().out
    assert "wordllama" in out and " new, 0 changed, 0 deleted" in out
    assert run_command(["index", shop]) == 0
    assert "Nothing has changed" in capsys.readouterr().out
    assert run_command(["search", shop, "green tea", "--kinds", "row", "-k", "2"]) == 0
    out = capsys.readouterr().out
    assert "row products (product_id = " in out and "meaning 1" in out
    assert (
        run_command(["match", shop, "products", "--where", "price < 20", "--like", "tea", "--facets", "category"]) == 0
    )
    out = capsys.readouterr().out
    assert "pass the filter" in out and "price < 20; 0." in out and "category: " in out
    assert run_command(["match", shop, "products", "--key", "product_id=1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["row"]["product_id"] != 1
    assert run_command(["index", shop, "--remove"]) == 0
    assert run_command(["search", shop, "tea"]) == 0
    assert "has no index" in capsys.readouterr().err


def test_a_match_needs_something_to_compare_with(shop: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["match", shop, "products"]) == 2
    assert "Give either --like or --key." in capsys.readouterr().err
    assert run_command(["match", shop, "products", "--key", "id"]) == 2
    assert "`id` is not a key" in capsys.readouterr().err
