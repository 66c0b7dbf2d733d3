"""Real servers for the tests: Postgres and S3. They are started once, on first use, and never skipped."""

from __future__ import annotations

import os
import re
import signal
import site
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from hypothesis import settings
from tests.postgres_server import start_postgres

import etude

pytest_plugins = ["tests.quick"]

# The same questions are asked in many tests, and each expects that they are answered afresh.
os.environ.setdefault("ETUDE_REPLAY", "off")

# What starts in the background of a shell ignores Ctrl-C, and so would all that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A machine that stands still for a moment in the middle of an example is no failure.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Callable[[], str]]:
    """A function that creates a fresh database on a real server and returns its URL."""
    server = start_postgres()
    with psycopg.connect(server.get_uri(), autocommit=True) as db:
        # The data need not outlive a power cut: without this, stopping takes seconds.
        db.execute("ALTER SYSTEM SET fsync = off")
        db.execute("SELECT pg_reload_conf()")

    def create() -> str:
        name = f"test_{uuid4().hex}"
        with psycopg.connect(server.get_uri(), autocommit=True) as db:
            db.execute(f"CREATE DATABASE {name}".encode())
        return str(server.get_uri(database=name))

    try:
        yield create
    finally:
        server.cleanup()


@pytest.fixture
def postgres_url(postgres_server: Callable[[], str]) -> str:
    """The URL of a fresh, empty Postgres database."""
    return postgres_server()


@dataclass(frozen=True)
class S3:
    """A running S3 server with one bucket, kept in `folder`."""

    url: str
    options: dict[str, str]
    folder: Path


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """A real S3 server (rclone) on a free port of the loopback."""
    root = tmp_path_factory.mktemp("s3")
    bucket = root / "data" / "bucket"
    bucket.mkdir(parents=True)
    log = root / "log"
    keys = {"access_key_id": "key", "secret_access_key": "secret"}
    command = [str(Path(sys.executable).parent / "rclone"), "serve", "s3", "--config", "/dev/null"]
    options = ["--addr", "127.0.0.1:0", "--auth-key", ",".join(keys.values()), "--dir-cache-time", "1s"]
    with log.open("wb") as out:
        server = subprocess.Popen([*command, *options, str(bucket.parent)], stderr=out, stdin=subprocess.DEVNULL)
    try:
        endpoint = _wait_for(log, server)
        yield S3("s3://bucket", keys | {"endpoint": endpoint, "region": "x", "allow_http": "true"}, bucket)
    finally:
        server.kill()
        server.wait()


def _wait_for(log: Path, server: subprocess.Popen[bytes]) -> str:
    give_up = time.monotonic() + 90
    while time.monotonic() < give_up and server.poll() is None:
        if found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text()):
            return found[0]
        time.sleep(0.02)
    raise RuntimeError(f"rclone did not start: {log.read_text()}")


@dataclass(frozen=True)
class Interpreter:
    """A Python with our libraries, and the environment it needs."""

    path: str
    environment: dict[str, str]


@pytest.fixture(scope="session")
def everyones_python() -> Interpreter:
    """An interpreter that the user nobody can run: this one, or the system's with our libraries."""
    folders = [site.getsitepackages()[0], str(Path(etude.__file__).parents[1])]
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    question = f"import sys, duckdb, etude, pandas; assert sys.version.startswith({version + '.'!r})"
    reasons = []
    for path in (sys.executable, f"/usr/bin/python{version}", "/usr/bin/python3"):
        found = Interpreter(path, {"PATH": os.environ["PATH"], "PYTHONPATH": ":".join(folders)})
        nobody = {"user": 65534, "group": 65534, "extra_groups": []} if os.getuid() == 0 else {}
        try:
            subprocess.run(
                [path, "-c", question], env=found.environment, check=True, capture_output=True, cwd="/", **nobody
            )
        except (OSError, subprocess.CalledProcessError) as error:
            reasons.append(f"{path}: {getattr(error, 'stderr', None) or error}")
            continue
        return found
    pytest.skip(f"no interpreter that everyone may read: {'; '.join(reasons)}")
