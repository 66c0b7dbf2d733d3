from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from etude.app import App
from etude.scratch_folder import ScratchFolder, remove_orphaned_folders

LARGE = """
import sys
from etude import App
app = App(home=sys.argv[1])
result = app.sql(sys.argv[2], "SELECT i, md5(i::VARCHAR) AS m FROM range(1000000) r(i)", record=False)
print("read", flush=True)
sys.stdin.read()
"""


def test_a_folder_stays_until_it_is_removed(tmp_path: Path) -> None:
    folder = ScratchFolder("etude-x-", tmp_path)
    (folder.path / "file").write_text("x")
    remove_orphaned_folders("etude-", tmp_path)
    assert (folder.path / "file").read_text() == "x"
    folder.remove()
    folder.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_nobody_holds_goes_with_it(tmp_path: Path) -> None:
    folder = ScratchFolder("etude-x-", tmp_path)
    (folder.path / "file").write_text("x")
    del folder
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_large_results_of_a_killed_process_are_removed_by_the_next(tmp_path: Path) -> None:
    duckdb.connect(tmp_path / "data.duckdb").close()
    home = tmp_path / "home"
    command = [sys.executable, "-c", LARGE, str(home), str(tmp_path / "data.duckdb")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None and process.stdout.readline() == b"read\n"
        with App(home=home) as app:
            assert len(list(app.scratch.iterdir())) == 1
    finally:
        process.kill()
        process.communicate()
    with App(home=home) as app:
        assert list(app.scratch.iterdir()) == []
