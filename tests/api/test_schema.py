"""The OpenAPI document against the server: schemathesis sends what the document allows, and what it does not.

`SCHEMA_CASES=2000` makes a long run of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

CASES = int(os.environ.get("SCHEMA_CASES", "8"))
LONG = CASES > 100


@pytest.fixture(scope="module")
def api_schema(tmp_path_factory: pytest.TempPathFactory, shop: Path) -> Iterator[Any]:
    """The document of a server in a process of its own, whose model has an answer to whatever is asked."""
    home = tmp_path_factory.mktemp("home")
    script = home / "script.json"
    script.write_text(json.dumps([{"asked": "", "turns": [{"text": "Well."}]}]))
    environment = os.environ | {"ETUDE_HOME": str(home), "ETUDE_MODEL": f"scripted:{script}"}
    command = [sys.executable, "-m", "etude", "serve", str(shop), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stderr is not None
        try:
            url = next(line for line in server.stderr if line.startswith("etude listens on ")).split()[-1]
            # Nobody reads the rest of its log; a full pipe would stop it.
            threading.Thread(target=server.stderr.read, daemon=True).start()
            # To make catalogs by the hundred is refused as too much work, which is no defect.
            # A stream of a topic never ends.
            endless = ["/api/catalogs", "/api/events/{topic}"]
            yield schemathesis.openapi.from_url(f"{url}/openapi.json").exclude(path=endless)
        finally:
            server.terminate()


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda m: m.value)
@pytest.mark.timeout(300 if CASES < 100 else 7200)
def test_every_answer_is_a_documented_one(api_schema: Any, mode: GenerationMode) -> None:
    operations = [found.ok() for found in api_schema.get_all_operations()]
    assert len(operations) > 30
    for operation in operations:
        try:
            cases = operation.as_strategy(generation_mode=mode)
            check_cases(cases)
        except Unsatisfiable:
            # There is nothing wrong to send to a route that takes nothing.
            assert mode is GenerationMode.NEGATIVE, operation.label


def check_cases(cases: Any) -> None:
    @given(case=cases)
    @settings(
        max_examples=CASES,
        deadline=None,
        database=None,
        derandomize=not LONG,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def check(case: Any) -> None:
        # What a document can say of SQL, of ids and of filters is less than what makes them valid.
        case.call_and_validate(excluded_checks=[positive_data_acceptance], timeout=60)

    check()
