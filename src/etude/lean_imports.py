"""Keep numpy and pandas out of processes that never use them."""

from __future__ import annotations

import sys


def leave_out_numpy() -> None:
    """Let pyarrow load without numpy and pandas, as it does if they are not installed.

    They take most of the time that pyarrow needs to load, and it loads pandas when it builds its first array.
    A process that has loaded one of them already stays unchanged.
    """
    if "pyarrow" in sys.modules or "numpy" in sys.modules:
        return
    for name in ("numpy", "pandas"):
        sys.modules[name] = None  # type: ignore[assignment]  # an import of it raises ImportError


def allow_numpy() -> None:
    """Make numpy importable again, for libraries of models. pyarrow still works without it, and without pandas."""
    if sys.modules.get("numpy", sys) is None:
        del sys.modules["numpy"]
