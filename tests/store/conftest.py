"""Each test of stores runs over SQLite and over a real Postgres."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from etude.store.base import Store
from etude.store.postgres import PostgresStore
from etude.store.sqlite import SqliteStore

PRELUDE = """
import os, sys, time
from etude.errors import *
from etude.events import *
from etude.ids import new_id
from etude.store.postgres import PostgresStore
from etude.store.sqlite import SqliteStore

def open_store():
    return (PostgresStore if sys.argv[1].startswith("postgresql") else SqliteStore)(sys.argv[1])

def say(*words):
    print(*words, flush=True)
"""


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty store can be opened: a path or a URL."""
    if request.param == "sqlite":
        return str(tmp_path / "etude.db")
    return str(request.getfixturevalue("postgres_url"))


def open_at(place: str) -> Store:
    return PostgresStore(place) if place.startswith("postgresql") else SqliteStore(place)


@pytest.fixture
def open_store(place: str) -> Iterator[Callable[[], Store]]:
    """A function that opens the store as another process would; all are closed at the end."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(open_at(place))


@pytest.fixture
def store(open_store: Callable[[], Store]) -> Store:
    """An empty store."""
    return open_store()


@pytest.fixture
def start(place: str) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """A function that runs code in another process, which talks over its stdin and stdout."""
    started: list[subprocess.Popen[str]] = []

    def run(code: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", PRELUDE + code, place]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()
