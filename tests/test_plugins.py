"""Plugins: a class by its name, built in or from any installed package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from etude import plugins
from etude.app import App
from etude.cli.main import run_command
from etude.errors import Invalid
from etude.models.scripted import Line, Scripted, ScriptedCall
from etude.sources.base import Driver
from etude.store.base import Store

PAGE = Path(__file__).parent.parent / "docs" / "add-a-source.md"


@pytest.mark.parametrize("name", sorted(plugins.BUILT_IN["source"]))
def test_every_built_in_source_is_a_driver(name: str) -> None:
    assert issubclass(plugins.load_plugin("source", name), Driver)


@pytest.mark.parametrize("name", sorted(plugins.BUILT_IN["store"]))
def test_every_built_in_store_is_a_store(name: str) -> None:
    assert issubclass(plugins.load_plugin("store", name), Store)


def test_an_unknown_name_is_told_the_known_ones() -> None:
    with pytest.raises(Invalid, match="There is no source `oracle`") as caught:
        plugins.load_plugin("source", "oracle")
    assert "`postgres`" in caught.value.hint and "entry point" in caught.value.hint
    with pytest.raises(Invalid, match="There is no nothing `x`"):
        plugins.load_plugin("nothing", "x")


def install(folder: Path, module: str, code: str, entry: str) -> None:
    """Install a package of one module, with one entry point, into a folder."""
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / f"{module}.py").write_text(code, encoding="utf-8")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry)


@pytest.fixture
def planets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package of docs/add-a-source.md, installed as any other."""
    folder = tmp_path / "site"
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
    entry = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
    group, name, target = re.fullmatch(r'\[project\.entry-points\."(.*)"\]\n(\w+) = "(.*)"\n', entry).groups()  # type: ignore[union-attr]
    install(folder, "planets", code, f"[{group}]\n{name} = {target}\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("ETUDE_HOME", str(tmp_path / "home"))


@pytest.mark.usefixtures("planets")
def test_a_source_of_another_package_is_like_a_built_in_one(tmp_path: Path) -> None:
    assert "planets" in plugins.plugin_names("source")
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


TOOL = """
from etude.entities import Entity
from etude.tools.base import Tool


class Place(Entity):
    city: str


class Weather(Tool):
    name = "weather"
    description = "The weather of a city."
    arguments = Place

    def use(self, context, arguments):
        return f"It rains in {arguments.city}."
"""


def test_a_tool_of_another_package_is_offered_and_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", "weather_tool", TOOL, "[etude.tool]\nweather = weather_tool:Weather\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    (tmp_path / "cities.csv").write_text("city\nBergen\n")
    call = ScriptedCall(name="weather", arguments={"city": "Bergen"})
    model = Scripted([Line(calls=(call,)), Line(text="Take an umbrella.", expect=("It rains in Bergen.",))])
    with App(home=tmp_path / "home") as app:
        assert app.ask(str(tmp_path / "cities.csv"), "Do I need an umbrella?", model=model).text == "Take an umbrella."
    names = [tool.name for tool in model.seen[0].tools]
    assert names[-1] == "weather" and names.index("execute_sql") < names.index("execute_python")


def test_a_tool_that_cannot_be_loaded_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", "broken_tool", "import absent_library", "[etude.tool]\nbroken = broken_tool:Broken\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    (tmp_path / "cities.csv").write_text("city\nBergen\n")
    with App(home=tmp_path / "home") as app:
        answer = app.ask(str(tmp_path / "cities.csv"), "Do I need an umbrella?", model=Scripted([Line(text="No.")]))
    assert answer.error is not None and "The tool `broken` cannot be loaded" in answer.error.message
