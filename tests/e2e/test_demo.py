"""`etude demo` in a terminal ends with a page that has something in every view; without one it just ends."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
from tests.e2e.page_server import wait_for


def test_the_demo_serves_a_filled_example_in_a_terminal(tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ETUDE_")}
    # No browser opens: a test has none to show it in.
    environment = kept | {"ETUDE_HOME": str(tmp_path / "home"), "BROWSER": "true", "TERM": "xterm"}
    own, theirs = pty.openpty()
    demo = subprocess.Popen(
        [sys.executable, "-m", "etude", "demo"],
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    said = b""

    def listens() -> str:
        nonlocal said
        said += os.read(own, 65536)
        found = re.findall(rb"listens on (http://[\w.:]+)", said)
        return found[-1].decode() if found else ""

    try:
        url = wait_for(listens, 300)
        with httpx.Client(base_url=f"{url}/api", timeout=60) as client:
            runs = client.get("/runs?kind=ask").json()["items"]
            assert sum(run["status"] == "succeeded" for run in runs) >= 3
            replays = [client.get(f"/runs/{run['id']}").json()["replay"] for run in runs]
            assert "replay" in [replay["level"] for replay in replays if replay]
            assert [d["id"] for d in client.get("/datasets").json()["items"]] == ["shop"]
            assert client.get("/catalogs?dataset=shop").json()["items"]
            (playbook,) = client.get("/playbooks").json()["items"]
            assert playbook["eligible"] == 6
            wait_for(lambda: client.get("/agents/order-count").json()["step_no"] > 0)
    finally:
        os.killpg(demo.pid, signal.SIGINT)
        try:
            demo.wait(60)
        finally:
            if demo.poll() is None:
                os.killpg(demo.pid, signal.SIGKILL)
            os.close(own)
