"""Plugins: a class by its name, built in or from any installed package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from etude import plugins
from etude.app import App
from etude.cli.main import run_command
from etude.errors import Invalid
from etude.sources.base import Driver
from etude.store.base import Store

PAGE = Path(__file__).parent.parent / "docs" / "add-a-source.md"


@pytest.mark.parametrize("name", sorted(plugins.BUILT_IN["source"]))
def test_every_built_in_source_is_a_driver(name: str) -> None:
    assert issubclass(plugins.load_implementation("source", name), Driver)


@pytest.mark.parametrize("name", sorted(plugins.BUILT_IN["store"]))
def test_every_built_in_store_is_a_store(name: str) -> None:
    assert issubclass(plugins.load_implementation("store", name), Store)


def test_an_unknown_name_is_told_the_known_ones() -> None:
    with pytest.raises(Invalid, match="There is no source `oracle`") as caught:
        plugins.load_implementation("source", "oracle")
    assert "`postgres`" in caught.value.hint and "entry point" in caught.value.hint
    with pytest.raises(Invalid, match="There is no nothing `x`"):
        plugins.load_implementation("nothing", "x")


@pytest.fixture
def planets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package of docs/add-a-source.md, installed as any other."""
    folder = tmp_path / "site"
    info = folder / "planets-1.0.dist-info"
    info.mkdir(parents=True)
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
    entry = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
    group, name, target = re.fullmatch(r'\[project\.entry-points\."(.*)"\]\n(\w+) = "(.*)"\n', entry).groups()  # type: ignore[union-attr]
    (folder / "planets.py").write_text(code, encoding="utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: planets\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {target}\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("ETUDE_HOME", str(tmp_path / "home"))


@pytest.mark.usefixtures("planets")
def test_a_source_of_another_package_is_like_a_built_in_one(tmp_path: Path) -> None:
    assert "planets" in plugins.implementation_names("source")
    with App(home=tmp_path / "home") as app:
        result = app.sql("planets://sky", "SELECT name, moons FROM planets WHERE moons > 1 ORDER BY moons")
        assert result.rows() == [("Mars", 2), ("Saturn", 274)]
        step = app.store.run(str(result.run_id)).steps[0]
        assert step.reads[0].table == "planets" and "sqlite" in step.versions


@pytest.mark.usefixtures("planets")
def test_the_example_of_the_docs_passes_the_conformance_suite(capsys: pytest.CaptureFixture[str]) -> None:
    code = run_command(["check", "source", "planets://sky"])
    out = capsys.readouterr().out
    assert code == 0, out
    assert out.count("ok  ") >= 10
