"""Whether sessions can start, tried now and then for `/readyz`."""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING

from etude.errors import EtudeError
from etude.sessions.base import SandboxSpec

if TYPE_CHECKING:
    from etude.app import App

PROBE_S = 60.0
"""How long a sandbox that started shows that others will start."""


class SandboxProbe:
    """Starts a sandbox now and then. One that fails is tried once more before it counts as a failure."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._at = -math.inf
        self._found = ""

    def check(self) -> str:
        """Return the provider and its isolation level; raise `SandboxError` if no sandbox starts."""
        with self._lock:
            if time.monotonic() - self._at > PROBE_S:
                try:
                    self._found = self._start()
                except EtudeError:
                    self._found = self._start()
                self._at = time.monotonic()
            return self._found

    def _start(self) -> str:
        provider = self._app.sandbox
        channel = provider.start(SandboxSpec(), self._app.settings.session)
        try:
            level = channel.isolation.get("level")
        finally:
            channel.close()
        name = type(provider).__name__.removesuffix("Provider").lower()
        return f"{name}, level {level}" if level is not None else name
