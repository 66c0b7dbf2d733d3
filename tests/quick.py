"""`pytest --quick`: the tests to run while typing. They need no server, no root, no installation and little time.

A test is quick unless a rule here says otherwise, so a new test takes part from the start. Mark a test that takes more
than a second or two by nature with `pytest.mark.slow`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parent
SLOW = (
    "adversarial",
    "agents/kinds",
    "agents/test_hub.py",
    "agents/test_worker.py",
    "api",
    "catalog/drift",
    "catalog/keys",
    "catalog/measure/test_profile.py",
    "catalog/measure/test_quick_look.py",
    "catalog/page/test_report.py",
    "catalog/storage",
    "catalog/test_catalog_scripts.py",
    "catalog/test_cataloger.py",
    "catalog/test_hints.py",
    "catalog/test_known_tables.py",
    "catalog/test_reference_data.py",
    "catalog/test_stopping.py",
    "catalog/test_tenancy.py",
    "chaos",
    "cli",
    "deploy",
    "e2e",
    "fuzz",
    "journeys",
    "learning/edits/test_git.py",
    "learning/edits/test_learner.py",
    "learning/edits/test_links.py",
    "learning/edits/test_proposers.py",
    "learning/edits/test_suite.py",
    "learning/observer",
    "learning/playbooks",
    "models/test_cassette.py",
    "models/test_check.py",
    "models/test_local.py",
    "models/test_protocols.py",
    "models/test_provider.py",
    "offline/test_battery.py",
    "offline/test_column_names.py",
    "offline/test_follow_up.py",
    "offline/test_identifiers.py",
    "offline/test_namesakes.py",
    "offline/test_one_file.py",
    "offline/test_rentals.py",
    "offline/test_revenue.py",
    "offline/test_trace.py",
    "offline/test_vocabulary.py",
    "offline/test_wide.py",
    "operations",
    "replays/test_cells.py",
    "replays/test_measured.py",
    "replays/test_mutants.py",
    "replays/test_proof.py",
    "replays/test_script_library.py",
    "replays/test_sources.py",
    "replays/test_surfaces.py",
    "runtime/number_check/test_check.py",
    "runtime/test_answer.py",
    "runtime/test_chart_form.py",
    "runtime/test_conversation.py",
    "runtime/test_local.py",
    "runtime/test_notebook.py",
    "runtime/test_offline_model.py",
    "runtime/test_prompt.py",
    "runtime/test_stream.py",
    "search/test_backends.py",
    "search/test_document_files.py",
    "search/test_embeddings.py",
    "search/test_index_publication.py",
    "search/test_indexes.py",
    "search/test_match.py",
    "sessions",
    "sources/drivers/test_duckdb.py",
    "sources/drivers/test_mysql.py",
    "sources/drivers/test_postgres.py",
    "sources/files",
    "sources/test_check.py",
    "sources/test_cost_estimate.py",
    "sources/test_engine_pool.py",
    "sources/test_federation.py",
    "sources/test_file_fingerprint.py",
    "sources/test_guard_sql.py",
    "sources/test_query_parameters.py",
    "sources/test_reference_queries.py",
    "sources/test_source.py",
    "store/test_base.py",
    "store/test_check.py",
    "store/test_postgres.py",
    "store/test_sqlite.py",
    "test_app.py",
    "test_capsule.py",
    "test_connection.py",
    "test_docs.py",
    "test_events.py",
    "test_mcp_server.py",
    "test_offered_script.py",
    "test_packaging.py",
    "test_plugins.py",
    "test_python_examples.py",
    "test_result.py",
    "test_runs.py",
    "test_telemetry.py",
    "test_uploads.py",
)
"""Folders and files in which a test typically starts processes, sandboxes or servers. They are not even imported."""
SERVERS = frozenset({"postgres_server", "mariadb_server", "s3_server", "server", "browser"})
"""Fixtures that start a server or a browser."""
_SLOW = frozenset(TESTS / path for path in SLOW)
PROGRAMS = frozenset(
    {"apt-get", "chromium", "docker", "initdb", "mariadb-install-db", "mariadbd", "pg_ctl", "podman", "postgres"}
    | {"rclone", "redis-server", "runc", "su", "sudo"}
)
"""Programs that no quick test may start, by a fixture or by itself."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only tests that need no server, no root and little time")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes more than a second or two by nature; `make quick` leaves it out")
    if config.getoption("--quick"):
        sys.addaudithook(_refuse_programs)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out slow folders and files before they are imported, which takes seconds."""
    return True if config.getoption("--quick") and collection_path in _SLOW else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that are marked as slow, and those whose fixtures start a server."""
    if config.getoption("--quick"):
        slow = [item for item in items if item.get_closest_marker("slow") or SERVERS & _fixtures(item)]
        config.hook.pytest_deselected(items=slow)
        left = set(map(id, slow))
        items[:] = [item for item in items if id(item) not in left]


def _fixtures(item: pytest.Item) -> set[str]:
    return set(getattr(item, "fixturenames", ()))


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> None:
    """Skip a test that asks for a server by `request.getfixturevalue`, which cannot be known earlier."""
    if request.config.getoption("--quick") and fixturedef.argname in SERVERS:
        fixturedef.func = _skip  # type: ignore[misc]


def _skip(**_: Any) -> None:
    pytest.skip("it needs a server; `make test` runs it")


def _refuse_programs(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen":
        name = os.path.basename(os.fsdecode(arguments[0] or arguments[1][0]))
        if name in PROGRAMS:
            pytest.fail(f"a quick test may not start `{name}`: mark it with `pytest.mark.slow`")
