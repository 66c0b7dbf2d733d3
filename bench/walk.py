"""The files of etude that one action passes: which functions are called, in the order of the first call.

    python -m bench.walk

A reader follows an action through these files. Their number, and the number of modules that are loaded for it, say how
far a newcomer has to read.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1] / "src" / "etude"

SHOP = """
from pathlib import Path
Path("t.csv").write_text("city,amount\\nBonn,1\\nKiel,2\\n")
"""
TRACE = """
import sys, threading
seen = {}
def importing(frame):
    while frame:
        if frame.f_code.co_name == "<module>" and "/src/etude/" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
def trace(frame, event, argument):
    if threading.current_thread().name in ("etude-hub", "etude-notifications"):
        return  # it polls meanwhile, for others
    code = frame.f_code
    name = code.co_filename.partition("/src/etude/")[2]
    # Optimised code is a function: the bodies of modules and classes are not.
    if event == "call" and name and name not in seen and code.co_flags & 1 and not importing(frame):
        seen[name] = None
def tell():
    sys.setprofile(None); threading.setprofile(None)
    loaded = sum(1 for name in sys.modules if name.partition(".")[0] == "etude")
    print("PASSED", *seen); print("LOADED", loaded)
sys.setprofile(trace); threading.setprofile(trace)
"""
ACTIONS = {
    "etude sql": (
        'from etude.cli.main import run_command\nrun_command(["sql", "t.csv", "SELECT sum(amount) FROM t"])\ntell()'
    ),
    "etude ask": (
        'from etude.cli.main import run_command\nrun_command(["ask", "t.csv", "What is the total amount?"])\ntell()'
    ),
    "POST /sql": """
from etude.app import App
from etude.api.server import create_app
from etude.entities import SourceSpec
from fastapi.testclient import TestClient
with App(sources={"t": SourceSpec(url="t.csv")}) as app:
    with TestClient(create_app(app, keys_required=False), base_url="http://localhost") as client:
        body = {"dataset": "t", "query": "SELECT sum(amount) FROM t"}
        client.post("/api/sql", json=body).raise_for_status()
        seen.clear()
        client.post("/api/sql", json=body).raise_for_status()
        tell()
""",
    "a step of an agent": """
from etude.app import App
from etude.agents.worker import Worker
with App() as app:
    app.agents.create("watch", {"source": "t.csv", "sql": "SELECT sum(amount) FROM t", "every_s": 3600}, id="w")
    seen.clear()
    with Worker(app, app.agents.queue):
        import time
        until = time.monotonic() + 60
        while not app.agents.get("w").step_no and time.monotonic() < until:
            time.sleep(0.02)
    tell()
""",
}


def main() -> None:
    """Print the walk of each action."""
    for name, code in ACTIONS.items():
        passed, loaded = walk(code)
        print(f"\n{name}: {len(passed)} files, {loaded} modules loaded")
        for file in passed:
            print(f"  {file:40} {summary(file)}")


def walk(code: str) -> tuple[list[str], int]:
    """Run code in a fresh process and return the files it passed and how many modules of etude it loaded."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"ETUDE_HOME": f"{folder}/home", "PYTHONPATH": str(ROOT.parent)}
        command = [sys.executable, "-c", SHOP + TRACE + code]
        ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    lines = dict(
        line.partition(" ")[::2] for line in ended.stdout.splitlines() if line.startswith(("PASSED", "LOADED"))
    )
    if "PASSED" not in lines:
        raise SystemExit(ended.stderr)
    return lines["PASSED"].split(), int(lines["LOADED"])


def summary(file: str) -> str:
    """Return the first line of a file's docstring."""
    return (ast.get_docstring(ast.parse((ROOT / file).read_text())) or "").partition("\n")[0]


if __name__ == "__main__":
    main()
