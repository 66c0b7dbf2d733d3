"""Keep numpy and pandas out of processes that never use them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType


class LeanImportFinder(MetaPathFinder):
    """Refuses to find some modules, as if they were not installed."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Raise `ModuleNotFoundError` for a module that is left out; let others look for the rest."""
        if name in self.names:
            raise ModuleNotFoundError(f"`{name}` is left out of this process", name=name)


# Not `sys.modules[name] = None`: compiled code, such as pyarrow's, takes that None for the module.
_LEFT_OUT = LeanImportFinder(set())


def import_without_numpy() -> None:
    """Let pyarrow load without numpy and pandas, as it does if they are not installed.

    They take most of the time that pyarrow needs to load, and it loads pandas when it builds its first array.
    A process that has loaded one of them already stays unchanged.
    """
    if "pyarrow" in sys.modules or "numpy" in sys.modules:
        return
    _leave_out({"numpy", "pandas"})


def import_without_pandas() -> None:
    """Let pyarrow build arrays without pandas, which it would load for its first one. numpy stays importable."""
    if "pandas" not in sys.modules:
        _leave_out({"pandas"})


def _leave_out(names: set[str]) -> None:
    _LEFT_OUT.names |= names
    if _LEFT_OUT not in sys.meta_path:
        sys.meta_path.insert(0, _LEFT_OUT)


def allow_numpy_import() -> None:
    """Make numpy importable again, for libraries of models. pyarrow still works without it, and without pandas."""
    _LEFT_OUT.names.discard("numpy")
