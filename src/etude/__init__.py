"""etude: a platform for data agents that practise."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from etude import errors
    from etude.app import App
    from etude.connection import Connection, ask, connect, load, open_session, replay, reply, save
    from etude.entities import Limits
    from etude.result import Result
    from etude.runtime.answer import Answer
    from etude.settings import Settings

__version__ = "0.1.0"
__all__ = [
    "Answer",
    "App",
    "Connection",
    "Limits",
    "Result",
    "Settings",
    "__version__",
    "ask",
    "connect",
    "errors",
    "load",
    "open_session",
    "replay",
    "reply",
    "save",
]

_PLACES = {
    "Answer": "etude.runtime.answer",
    "ask": "etude.connection",
    "replay": "etude.connection",
    "reply": "etude.connection",
    "App": "etude.app",
    "Connection": "etude.connection",
    "connect": "etude.connection",
    "load": "etude.connection",
    "open_session": "etude.connection",
    "save": "etude.connection",
    "Limits": "etude.entities",
    "Result": "etude.result",
    "Settings": "etude.settings",
}


def __getattr__(name: str) -> Any:
    # Import only what is used: `etude --help` and the engine processes start in milliseconds.
    from importlib import import_module

    if name == "errors":
        return import_module("etude.errors")
    if name in ("connect", "load", "save") and "ETUDE_IN_SESSION" in os.environ:
        return getattr(import_module("etude.session_api"), name)
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'etude' has no attribute {name!r}")
