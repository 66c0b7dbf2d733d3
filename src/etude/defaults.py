"""Default values, and whether any setting overrides them.

This module loads no library, so that a command can look here before it loads one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from etude.errors import Invalid

TIMEOUT_S = 60.0
"""Seconds after which a query is stopped."""
RESULT_BYTES = 4 << 30
"""The most bytes of a result."""
ROW_BYTES = 64 << 20
"""The most bytes of one row of a result, which cannot be split: each copy of it is in memory as a whole."""
STORE, OBJECTS = "etude.db", "objects"
"""Where runs and results are kept, below the home folder."""
ENGINE_SCRATCH = 20 << 30
"""The largest file that an engine may write."""
NOT_SETTINGS = frozenset({"ETUDE_SOURCE", "ETUDE_CONFIG", "ETUDE_DEBUG"})
"""Variables that are not settings: the source of a standalone script, the settings file, debug output."""


def default_home() -> Path:
    """Return the platform's folder for user data."""
    from platformdirs import user_data_path

    return user_data_path("etude", appauthor=False)


def default_threads() -> int:
    """Return the number of threads of an engine: that of the CPUs."""
    return os.cpu_count() or 1


def default_memory() -> int:
    """Return the private memory of an engine: half of the machine's."""
    return max(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2, 1 << 30)


def default_idle_memory() -> int:
    """Return the memory that idle sessions may hold together: a quarter of the machine's, but room for one session."""
    return max(default_memory() // 2, 2 << 30)


def find_settings_file(environment: Mapping[str, str]) -> Path | None:
    """Return the `etude.toml` to read: the one in `ETUDE_CONFIG`, in the working folder, or in the home folder."""
    named = environment.get("ETUDE_CONFIG")
    if named:
        if not Path(named).is_file():
            raise Invalid(f"`ETUDE_CONFIG` names `{named}`, which is not a file.", hint="Correct or unset it.")
        return Path(named)
    home = Path(environment.get("ETUDE_HOME") or default_home())
    return next((p for p in (Path("etude.toml"), home / "etude.toml") if p.is_file()), None)


def home_by_default(environment: Mapping[str, str]) -> Path | None:
    """Return the folder of etude's state if it is the only setting that anything sets; otherwise None."""
    given = {name for name, text in environment.items() if name.startswith("ETUDE_") and text} - NOT_SETTINGS
    if given - {"ETUDE_HOME"} or find_settings_file(environment) is not None:
        return None
    return Path(environment.get("ETUDE_HOME") or default_home()).expanduser().absolute()
