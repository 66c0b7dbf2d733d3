"""Pause, kill -9 of the whole server, start, resume: each kind comes to the same end as if nothing had happened.

Each kind has a story: what is done to its agent, and what has come of it in the end. It is played once in peace, and
then again while the server is killed; Hypothesis chooses the moments. `CHAOS=long` (`make chaos`) tries more.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.patience import wait_until
from tests.redis_server import MISSING, PROGRAM, RedisServer

from etude.agents.agent_control import AgentControl
from etude.app import App
from etude.settings import load_settings
from etude.store.topics import READ_AGENT, Topics

LONG = os.environ.get("CHAOS") == "long"
EXAMPLES = {"sqlite": 15 if LONG else 1, "postgres": 8 if LONG else 1}
PATIENCE_S = 120.0


@dataclass(frozen=True)
class Moment:
    """When the agent is paused: so long after so many steps; and how long after that the server is killed."""

    steps: int
    after_s: float
    mode: str
    kill_s: float


@dataclass
class Place:
    """A store, and a server on it that can be killed."""

    folder: Path
    store_url: str
    app: App
    server: subprocess.Popen[bytes] | None = None

    @property
    def agents(self) -> AgentControl:
        return self.app.agents

    def start(self) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("ETUDE_")}
        ours = {"HOME": "home", "STORE": self.store_url, "AGENTS__REACH": "127.0.0.1"}
        log = self.folder / "log"
        with log.open("wb") as out:
            self.server = subprocess.Popen(
                [sys.executable, "-m", "etude", "serve", "--port", "0"],
                env=kept | {f"ETUDE_{k}": v for k, v in ours.items()},
                cwd=self.folder,
                stderr=out,
            )
        wait_until(lambda: "etude listens on" in log.read_text())

    def kill(self) -> None:
        if self.server is not None:
            self.server.kill()
            self.server.wait()

    def outputs(self, agent_id: str) -> list[Any]:
        """What came of the steps that came to an end."""
        return [step.output for step in self.agents.steps(agent_id, limit=10_000) if step.outcome == "ok"]

    def told(self, agent_id: str, topic: str) -> list[Any]:
        rows = self.agents.queue.read(READ_AGENT, "main", agent_id, 0, 1 << 53, 10_000)
        return [json.loads(row[4]) for row in rows if row[2] == topic]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("restart")
    url = f"sqlite:///{folder}/etude.db"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_server")()
    with App(settings=load_settings({}, home=folder / "home", store=url)) as app:
        place = Place(folder, url, app)
        try:
            place.start()
            yield place
        finally:
            place.kill()


# The stories: each is given a folder for its data and the id for its agent, and returns how to see what came of it.

Result = Callable[[], Any]


def echo(place: Place, folder: Path, agent_id: str) -> Result:
    place.agents.create("echo", {"subject": "rain", "interval_s": 1}, id=agent_id)
    wait_until(lambda: len(place.outputs(agent_id)) >= 2)
    place.agents.message(agent_id, {"subject": "snow"}, id=f"{agent_id}-snow")
    wait_until(lambda: any("snow" in said for said in place.outputs(agent_id)))
    wait_until(lambda: len(place.outputs(agent_id)) >= 6)

    def result() -> list[str]:
        said = place.outputs(agent_id)
        assert [int(line.partition(".")[0]) for line in said] == list(range(1, len(said) + 1))
        assert place.agents.state(agent_id) == {"subject": "snow", "count": len(said)}
        # How often it said which is a matter of time; the order is not.
        return list(dict.fromkeys(line.partition(" ")[2] for line in said))

    return result


def watch(place: Place, folder: Path, agent_id: str) -> Result:
    path = folder / "stock.sqlite"
    set_stock(path, 42)
    config = {"source": str(path), "sql": "SELECT n FROM stock", "every_s": 1, "threshold": 1}
    place.agents.create("watch", config, id=agent_id)
    for n in (50, 51, 60):
        looks = len(place.outputs(agent_id))
        wait_until(lambda least=looks + 2: len(place.outputs(agent_id)) >= least)
        set_stock(path, n)
    wait_until(lambda: place.agents.state(agent_id).get("told") == [[60]])

    def result() -> list[Any]:
        assert place.agents.state(agent_id)["looks"] == len(place.outputs(agent_id))
        return place.told(agent_id, "watch.changed")

    return result


def set_stock(path: Path, n: int) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE IF NOT EXISTS stock (n INTEGER)")
        db.execute("DELETE FROM stock")
        db.execute("INSERT INTO stock VALUES (?)", [n])


def analyst(place: Place, folder: Path, agent_id: str) -> Result:
    path = folder / "stock.sqlite"
    set_stock(path, 42)
    # A cell that was run twice, or not at all, shows in the numbers.
    questions = [
        "PYTHON: x = [1]",
        "how many stock",
        *["PYTHON: x.append(len(x) + 1)\nx"] * 4,
        "SQL: SELECT n FROM stock",
    ]
    place.agents.create("analyst", {"source": str(path), "questions": questions}, id=agent_id)
    wait_until(lambda: place.agents.get(agent_id).activity == "done")
    return lambda: place.agents.state(agent_id)["document"]


def catalog(place: Place, folder: Path, agent_id: str) -> Result:
    (folder / "stock.csv").write_text("item,n\ntea,42\n")
    place.agents.create("catalog", {"source": str(folder), "every_s": 1}, id=agent_id)
    wait_until(lambda: place.outputs(agent_id))
    # All of it at once: half a file would be another change.
    made = folder.with_suffix(".csv")
    made.write_text("no\n1\n")
    made.rename(folder / "shelf.csv")
    wait_until(lambda: any(output["tables"] == 2 for output in place.outputs(agent_id)))

    def result() -> list[Any]:
        assert place.agents.state(agent_id)["made"] == len(place.outputs(agent_id))
        return [event["changes"] for event in place.told(agent_id, "catalog.changed")]

    return result


def webhook(place: Place, folder: Path, agent_id: str) -> Result:
    topics = Topics(place.agents.queue)
    got: list[dict[str, Any]] = []
    with receiving(got) as url:
        topic = f"n.{agent_id}"
        place.agents.create("webhook", {"url": url, "secret": "swordfish!", "topics": [topic]}, id=agent_id)
        for n in range(60):
            topics.publish(topic, n)
            time.sleep(0.01)
        wait_until(lambda: {event["body"] for event in got} == set(range(60)))

    def result() -> list[int]:
        assert place.agents.state(agent_id).get("lost", 0) == 0
        # One that had arrived when the server was killed may arrive again; none comes before one told earlier.
        return list(dict.fromkeys(event["body"] for event in got))

    return result


def redis(place: Place, folder: Path, agent_id: str) -> Result:
    if PROGRAM is None:
        pytest.skip(MISSING)
    topics = Topics(place.agents.queue)
    server = RedisServer(folder)
    server.start()
    try:
        topic = f"n.{agent_id}"
        config = {"url": server.url, "stream": "out", "topics": [topic], "listen_to": "in", "interval_s": 1}
        place.agents.create("redis", config, id=agent_id)
        for n in range(60):
            topics.publish(topic, n)
            server.add("in", topic=f"{topic}.back", body=str(n))
            time.sleep(0.01)
        wait_until(lambda: {entry["body"] for entry in server.entries("out")} == {str(n) for n in range(60)})
        wait_until(lambda: len(place.told(agent_id, f"{topic}.back")) >= 60)
        sent = [entry["body"] for entry in server.entries("out")]
    finally:
        server.close()
    # What goes out may arrive twice, as with a webhook; what comes in is told once.
    return lambda: [list(dict.fromkeys(sent)), place.told(agent_id, f"{topic}.back")]


@contextmanager
def receiving(got: list[dict[str, Any]]) -> Iterator[str]:
    """A server that takes deliveries into a list; its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def rest(place: Place, agent_id: str) -> None:
    """Let the agent come to rest, so that what is read of it belongs together."""
    place.agents.pause(agent_id)
    wait_until(lambda: place.agents.get(agent_id).activity == "paused")


def disturb(place: Place, agent_id: str, moments: list[Moment], over: threading.Event) -> None:
    """Pause, kill, start and resume, at each of the moments."""

    def steps() -> int:
        rows = place.agents.queue.read("SELECT step_no FROM agents WHERE id = ?", agent_id)
        return int(rows[0][0]) if rows else -1

    for moment in moments:
        wait_until(lambda least=moment.steps: over.is_set() or steps() >= least)
        if over.wait(moment.after_s):
            return
        place.agents.pause(agent_id, moment.mode)  # type: ignore[arg-type]
        time.sleep(moment.kill_s)
        place.kill()
        place.start()
        place.agents.resume(agent_id)


@st.composite
def moments(draw: st.DrawFn) -> list[Moment]:
    found = [
        Moment(
            draw(st.integers(0, 5)),
            draw(st.integers(0, 400)) / 1000,
            draw(st.sampled_from(["after_step", "now"])),
            draw(st.sampled_from([0, 0, 2, 10, 50, 300])) / 1000,
        )
        for _ in range(draw(st.integers(1, 3 if LONG else 2)))
    ]
    return sorted(found, key=lambda moment: moment.steps)


@pytest.mark.parametrize("story", [echo, watch, analyst, catalog, webhook, redis])
def test_it_comes_to_the_same_end(place: Place, story: Callable[[Place, Path, str], Result], tmp_path: Path) -> None:
    numbers = iter(range(1 << 30))

    def play(moments: list[Moment]) -> Any:
        agent_id = f"{story.__name__}-{next(numbers)}"
        folder = tmp_path / agent_id
        folder.mkdir()
        over, failed = threading.Event(), []

        def meddle() -> None:
            try:
                disturb(place, agent_id, moments, over)
            except BaseException as error:
                failed.append(error)

        other = threading.Thread(target=meddle)
        other.start()
        try:
            result = story(place, folder, agent_id)
        finally:
            over.set()
            other.join()
        assert not failed, failed
        rest(place, agent_id)
        found = result()
        steps = [step.step_no for step in place.agents.steps(agent_id, limit=10_000)]
        assert steps == list(range(1, len(steps) + 1))
        place.agents.destroy(agent_id, grace=0)
        return found

    expected = play([])

    @settings(
        max_examples=EXAMPLES["postgres" if place.store_url.startswith("postgresql") else "sqlite"],
        deadline=None,
        database=None,
        # The same moments do not hit the same place twice: there is nothing to shrink.
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(moments())
    def check(moments: list[Moment]) -> None:
        assert play(moments) == expected

    check()
