"""Apps over SQLite and over a real Postgres, with results in a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from etude.app import App
from etude.sample import write_shop


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop") / "shop"
    write_shop(folder)
    return folder


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/home/etude.db"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def open_app(store_url: str, tmp_path: Path) -> Iterator[Callable[..., App]]:
    """Return a function that opens etude as another process would."""
    with ExitStack() as stack:

        def opened(**settings: Any) -> App:
            return stack.enter_context(App(**{"home": tmp_path / "home", "store": store_url, **settings}))

        yield opened
