"""One app for the tests of the catalog, and the MariaDB of the sources' tests."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import duckdb
import pytest

import etude
from etude.app import App


def _sources() -> ModuleType:
    path = Path(__file__).parents[1] / "sources" / "conftest.py"
    spec = importlib.util.spec_from_file_location("sources_conftest", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


SOURCES = _sources()
mariadb_server = SOURCES.mariadb_server
run_mysql = SOURCES.run_mysql


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    with App(home=tmp_path_factory.mktemp("home")) as opened:
        yield opened


@pytest.fixture
def make(app: App, tmp_path: Path) -> Callable[..., etude.Connection]:
    """A function that runs statements on a new DuckDB file and connects to it."""

    def make(*statements: str, name: str = "data") -> etude.Connection:
        path = tmp_path / f"{name}.duckdb"
        with duckdb.connect(path) as db:
            for statement in statements:
                db.execute(statement)
        return etude.connect(path, app=app)

    return make
