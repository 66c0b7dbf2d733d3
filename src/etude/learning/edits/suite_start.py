"""The `sitecustomize` of Python inside the sandbox of a suite: it loads the plugin before any code of the repository.

pytest itself loads the plugins that the repository names in `addopts` first, and these could read the key of the
reports from its pipe. It imports nothing of etude.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

PLUGIN = "etude_suite_plugin"


def _runs_pytest(words: list[str]) -> bool:
    """Return whether this interpreter was started as pytest. A program that starts pytest must leave it the key."""
    for at, word in enumerate(words[1:], 1):
        if word == "-m":
            return words[at + 1 : at + 2] in (["pytest"], ["py.test"])
        if not word.startswith("-"):
            return os.path.basename(word) in ("pytest", "py.test")
    return False


if "ETUDE_KEY_PIPE" in os.environ and _runs_pytest(getattr(sys, "orig_argv", [])):
    __import__(PLUGIN)

# Then the one of the environment, which this one hides.
_own = os.path.dirname(os.path.abspath(__file__))
_hidden = PathFinder.find_spec(__name__, [folder for folder in sys.path if os.path.abspath(folder or ".") != _own])
if _hidden is not None and _hidden.loader is not None:
    sys.modules[__name__] = module_from_spec(_hidden)
    _hidden.loader.exec_module(sys.modules[__name__])
