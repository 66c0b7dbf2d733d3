"""A real app on the shop, behind the API, with a model that plays a script."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from etude.api.server import create_app
from etude.api.uvicorn_server import UvicornServer, make_uvicorn_server
from etude.app import App
from etude.entities import SourceSpec
from etude.sample import write_shop

COUNT = "SELECT count(*) AS orders FROM orders"
CHANNELS = "SELECT channel, date_trunc('month', min(ordered)) AS first FROM orders GROUP BY ALL ORDER BY ALL"
SCRIPT: list[dict[str, Any]] = [
    {
        "asked": "how many orders",
        "turns": [
            {"text": "Counting.", "calls": [{"name": "execute_sql", "arguments": {"dataset": "shop", "query": COUNT}}]},
            {"text": "There are 3,704 orders."},
        ],
    },
    {
        "asked": "which channels in words",
        "turns": [
            {"calls": [{"name": "execute_sql", "arguments": {"dataset": "shop", "query": CHANNELS}}]},
            {"text": "Most orders come from the web."},
        ],
    },
    {
        "asked": "which channels with answer",
        "turns": [
            {"calls": [{"name": "execute_sql", "arguments": {"dataset": "shop", "query": CHANNELS}}]},
            {"calls": [{"name": "answer", "arguments": {"text": "Most orders come from the web.", "results": ["r1"]}}]},
        ],
    },
    {
        "asked": "which year",
        "turns": [
            {"calls": [{"name": "ask_user", "arguments": {"question": "Which year?", "choices": ["2023", "2024"]}}]},
            {"text": "Then it is that year."},
        ],
    },
    {"asked": "be slow", "turns": [{"text": "word " * 2000, "pace_s": 0.05}]},
    {"asked": "say much", "turns": [{"text": "one two three " * 40, "pace_s": 0.002}]},
    {"asked": "fail", "turns": [{"error": "the provider is down"}]},
    {"asked": "break off", "turns": [{"text": "Well,", "error": "the provider is down"}]},
    {"asked": "mend it", "turns": [{"text": "There are 77 orders."}, {"text": "There are some orders."}]},
    {"asked": "insist", "turns": [{"text": "There are 77 orders."}, {"text": "I say 77 of them."}]},
    {"asked": "be endless", "turns": [{"text": "And so", "stop": "length"}, {"text": "And so on", "stop": "length"}]},
]


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    write_shop(folder / "shop")
    return folder / "shop"


def open_app(home: Path, shop: Path, **settings: Any) -> App:
    """An app with the shop as its one dataset, whose model plays the script."""
    home.mkdir(exist_ok=True, parents=True)
    script = home / "script.json"
    script.write_text(json.dumps(SCRIPT))
    app = App(home=str(home), model=f"scripted:{script}", **settings)
    app.add_source("shop", SourceSpec(url=str(shop)))
    return app


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, shop: Path) -> Iterator[App]:
    with open_app(tmp_path_factory.mktemp("home"), shop) as opened:
        yield opened


@pytest.fixture(scope="module")
def client(app: App) -> Iterator[TestClient]:
    """Someone at the machine itself, where keys are off."""
    with TestClient(create_app(app), base_url="http://localhost") as opened:
        yield opened


def read_stream(text: str) -> list[tuple[str, dict[str, Any]]]:
    """The events of a stream with their ids."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and not line.startswith(":"))
        if "data" in fields:
            found.append((fields["id"], json.loads(fields["data"])))
    return found


@dataclass(frozen=True)
class Running:
    """A server that listens on the loopback."""

    url: str
    port: int
    api: FastAPI
    app: App
    listener: UvicornServer
    """Told to shut down with `should_exit`."""


@contextmanager
def listening(app: App, **options: Any) -> Iterator[Running]:
    """The API on a real socket, in a thread of this process."""
    api = create_app(app, **options)
    listener = make_uvicorn_server(app, api, "127.0.0.1", 0)
    bound = listener.config.bind_socket()
    thread = threading.Thread(target=lambda: asyncio.run(listener.serve(sockets=[bound])), daemon=True)
    thread.start()
    while not listener.started and thread.is_alive():
        time.sleep(0.005)
    port = bound.getsockname()[1]
    try:
        yield Running(f"http://localhost:{port}", port, api, app, listener)
    finally:
        listener.should_exit = True
        thread.join(120)
