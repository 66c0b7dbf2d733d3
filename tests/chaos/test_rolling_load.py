"""Servers and workers replaced one after the other under a mixed load, on Postgres and S3, behind nginx if it is there.

Clients ask short and long queries, begin runs and send messages to agents. A response of 503 with `Retry-After` is
repeated; no other failure is allowed. No action and no run is lost, and none is done twice. `CHAOS=long` (`make chaos`)
replaces every process five times.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.patience import wait_until

from etude.app import App
from etude.sample import write_shop

NGINX = Path(__file__).parents[2] / "deploy" / "nginx.conf"
ROUNDS = 5 if os.environ.get("CHAOS") == "long" else 1
LONG_QUERY = "SELECT count(*) AS n FROM range({rows}) a WHERE hash(a.range) % 7 = {number}"
PATIENCE_S = 300.0


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Deployment:
    """The processes of an installation, and the address at which clients reach its servers."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ETUDE_")}
        self.settings = kept | settings
        self.ports = (free_port(), free_port())
        self.address = ""
        self.key = ""
        self.number = 0
        self.started: list[subprocess.Popen[bytes]] = []

    def etude(self, *command: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "etude", *command],
            env=self.settings,
            cwd=self.folder,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        self.number += 1
        log = self.folder / f"{self.number}-{command[0]}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "etude", *command], env=self.settings, stderr=out, cwd=self.folder
            )
        self.started.append(process)
        said = "etude listens on" if command[0] == "serve" else "steps at once"
        wait_until(lambda: said in log.read_text() or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        return process

    def serve(self, port: int) -> subprocess.Popen[bytes]:
        return self.start("serve", "--keys", "--no-open", "--port", str(port))

    def send(self, path: str, body: dict[str, Any] | None = None, once: str = "") -> tuple[int, Any, str | None]:
        """Return the status, the body and `Retry-After` of a response; 0 if there is none."""
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.key}"}
        headers |= {"Idempotency-Key": once} if once else {}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.address}{path}", data, headers)
        context = ssl._create_unverified_context() if self.address.startswith("https") else None
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S, context=context) as answer:
                return answer.status, json.load(answer), None
        except urllib.error.HTTPError as error:
            return error.code, error.read()[:500], error.headers.get("Retry-After")
        except (OSError, ValueError) as error:
            return 0, repr(error), None


@contextmanager
def nginx(folder: Path, ports: tuple[int, int]) -> Iterator[str]:
    """Run nginx with the file of `deploy/`, and its ports changed to free ones; yield its address."""
    port, other = free_port(), free_port()
    text = NGINX.read_text(encoding="utf-8").replace("/etc/ssl/etude", str(folder))
    for old, new in (("8520", ports[0]), ("8521", ports[1])):
        text = text.replace(f"127.0.0.1:{old}", f"127.0.0.1:{new}")
    text = text.replace("listen 443", f"listen 127.0.0.1:{port}").replace("listen 80", f"listen 127.0.0.1:{other}")
    (folder / "etude.conf").write_text(text, encoding="utf-8")
    places = " ".join(
        f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    head = f"daemon off; pid {folder}/pid; error_log {folder}/nginx.log; events {{}}"
    http = f"http {{ access_log off; {places} include {folder}/etude.conf; }}"
    (folder / "nginx.conf").write_text(f"{head} {http}", encoding="utf-8")
    files = ["-keyout", str(folder / "privkey.pem"), "-out", str(folder / "fullchain.pem")]
    subject = ["-subj", "/CN=etude.example.com", "-days", "1"]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *files, *subject], check=True, capture_output=True
    )
    process = subprocess.Popen(["nginx", "-c", str(folder / "nginx.conf")], stderr=subprocess.DEVNULL)
    try:
        wait_until((folder / "pid").exists)
        yield f"https://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


class Load:
    """Clients that send requests until they are stopped, and what became of their requests."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.answered: Counter[str] = Counter()
        self.repeated: Counter[str] = Counter()
        self.failed: list[str] = []
        self.actions: list[str] = []
        self.runs: list[str] = []
        self._stop = threading.Event()
        work: list[Callable[[int], None]] = [self._short, self._long, self._long, self._long, self._run, self._message]
        self._threads = [threading.Thread(target=self._repeat, args=(n, each)) for n, each in enumerate(work)]

    @contextmanager
    def running(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in self._threads:
                thread.join()

    def wait(self) -> None:
        """Wait until each kind of request was answered a few times more."""
        least = {name: self.answered[name] + 2 for name in ("short", "long", "run", "message")}
        wait_until(
            lambda: self.failed or all(self.answered[name] >= count for name, count in least.items()), PATIENCE_S
        )

    def _repeat(self, number: int, work: Callable[[int], None]) -> None:
        turn = 0
        while not self._stop.is_set() and not self.failed:
            work(number * 1_000_000 + turn)
            turn += 1

    def _send(self, kind: str, path: str, body: dict[str, Any] | None, once: str = "") -> Any:
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            status, found, retry_after = self.deployment.send(path, body, once)
            if 200 <= status < 300:
                self.answered[kind] += 1
                return found
            if status != 503 or retry_after is None:
                self.failed.append(f"{kind} {path}: {status} {found!r}")
                return None
            self.repeated[f"{kind}, by the proxy" if "No server is ready" in str(found) else kind] += 1
            time.sleep(min(float(retry_after), 1.0))
        self.failed.append(f"{kind} {path}: no answer in time")
        return None

    def _short(self, number: int) -> None:
        found = self._send("short", "/api/sql", {"dataset": "shop", "query": f"SELECT {number} AS n"})
        if found is not None and found["rows"] != [[number]]:
            self.failed.append(f"{number}: {found['rows']}")
        time.sleep(0.05)

    def _long(self, number: int) -> None:
        query = LONG_QUERY.format(rows=300_000_000, number=number % 7)
        found = self._send("long", "/sql", {"dataset": "shop", "query": query})
        if found is not None and not str(found):
            self.failed.append(f"{number}: nothing")

    def _run(self, number: int) -> None:
        kind, text = (
            ("ask", "how many orders are there"),
            ("sql", f"SELECT {number} AS n"),
            ("python", f"print({number})"),
        )[number % 3]
        body = {"kind": kind, "dataset": "shop", "text": text, "fresh": True}
        made = self._send("run", "/api/runs", body, f"r{number}")
        if made is not None:
            self.runs.append(made["id"])
        time.sleep(0.2)

    def _message(self, number: int) -> None:
        made = self._send("message", "/api/agents/a/message", {"body": {"subject": str(number)}, "id": f"m{number}"})
        if made is not None:
            self.actions.append(made["action"])
        time.sleep(0.05)


@pytest.mark.timeout(3600)
def test_no_request_fails_and_nothing_is_lost_or_done_twice(postgres_url: str, s3_server: Any, tmp_path: Path) -> None:
    write_shop(tmp_path / "shop")
    settings = {"ETUDE_HOME": str(tmp_path / "home"), "ETUDE_STORE": postgres_url}
    settings |= {"ETUDE_OBJECTS": f"{s3_server.url}/rolling", "ETUDE_SERVER__PER_MINUTE": "100000"}
    settings |= {f"ETUDE_OBJECTS_OPTIONS__{name.upper()}": value for name, value in s3_server.options.items()}
    made = Deployment(tmp_path, settings)
    made.key = made.etude("keys", "create", "admin", "--role", "admin").split()[0]
    made.etude("sources", "add", "shop", str(tmp_path / "shop"))
    with ExitStack() as stack:
        stack.callback(lambda: [(process.kill(), process.wait()) for process in made.started])
        server = made.serve(made.ports[0])
        proxied = shutil.which("nginx") is not None
        made.address = (
            stack.enter_context(nginx(tmp_path, made.ports)) if proxied else f"http://127.0.0.1:{made.ports[0]}"
        )
        workers = [made.start("worker", "--slots", "2") for _ in range(2)]
        config = {"subject": "rain", "interval_s": 3600}
        assert made.send("/api/agents", {"kind": "echo", "id": "a", "config": config})[0] < 300
        load = Load(made)
        with load.running():
            load.wait()
            for turn in range(ROUNDS):
                port = made.ports[(turn + 1) % 2]
                replacement = made.serve(port)
                if not proxied:
                    made.address = f"http://127.0.0.1:{port}"
                stopped = time.monotonic()
                server.send_signal(signal.SIGTERM)
                assert server.wait(180) == 0
                print(f"round {turn}: the server stopped in {time.monotonic() - stopped:.1f} s", load.answered)
                server = replacement
                load.wait()
                for place, worker in enumerate(workers):
                    worker.send_signal(signal.SIGTERM)
                    assert worker.wait(180) == 0
                    workers[place] = made.start("worker", "--slots", "2")
                    load.wait()
                if load.failed:
                    break
        print("answered", dict(load.answered), "repeated after Retry-After", dict(load.repeated), "proxied", proxied)
        if proxied:
            # The proxy may say that it found no server, but no server may break off a request.
            assert "prematurely closed" not in (tmp_path / "nginx.log").read_text(encoding="utf-8")
        assert load.failed == []
        with App(home=tmp_path / "home", store=postgres_url) as app:
            _check(app, load)


def _check(app: App, load: Load) -> None:
    wait_until(lambda: app.agents.queue.depth().ready == app.agents.queue.depth().running == 0, PATIENCE_S)
    steps = [s for s in app.agents.steps("a", limit=100_000) if s.kind == "message" and s.outcome == "ok"]
    assert sorted(step.action for step in steps) == sorted(load.actions), "each message was handled once"
    assert len(load.runs) == len(set(load.runs))
    wait_until(lambda: not any(app.store.count_open().values()), PATIENCE_S)
    ended = Counter(app.store.run(run).status for run in load.runs)
    print("runs", dict(ended))
    assert set(ended) <= {"succeeded"}, ended
