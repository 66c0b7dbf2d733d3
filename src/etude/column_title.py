"""Names of columns as people read them: `sum_quantity` is the total quantity."""

from __future__ import annotations

_FOLDS = {"sum_": "total ", "avg_": "average ", "min_": "lowest ", "max_": "highest "}


def column_title(name: str) -> str:
    """Return the name of a column in words; that of a result of the rules says how it was computed."""
    fold = next((prefix for prefix in _FOLDS if name.startswith(prefix) and len(name) > len(prefix)), "")
    rest = name.removeprefix(fold).replace("_", " ")
    said = _FOLDS.get(fold, "")
    return rest if (said and rest.lower().startswith(said)) or rest.lower() == said.strip() else said + rest
