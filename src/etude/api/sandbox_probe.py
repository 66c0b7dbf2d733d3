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
RETRY_S = 5.0
"""How soon to try again after a failure."""


class SandboxProbe:
    """Starts a sandbox now and then. One that fails is tried once more before it counts as a failure."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._due = -math.inf
        self._found: str | EtudeError | None = None

    def check(self) -> str:
        """Return the provider and its isolation level; raise `SandboxError` if no sandbox starts.

        Only the first caller waits for a sandbox. Later ones get what is known, and a new try begins if that is old.
        """
        if self._found is None:
            with self._lock:
                if self._found is None:
                    self._try()
        elif time.monotonic() > self._due and self._lock.acquire(blocking=False):
            threading.Thread(target=self._try_and_release, name="etude-sandbox-probe", daemon=True).start()
        if isinstance(self._found, EtudeError):
            raise self._found
        return str(self._found)

    def _try_and_release(self) -> None:
        try:
            self._try()
        finally:
            self._lock.release()

    def _try(self) -> None:
        try:
            try:
                self._found = self._start()
            except EtudeError:
                self._found = self._start()
        except EtudeError as error:
            self._found = error
        self._due = time.monotonic() + (RETRY_S if isinstance(self._found, EtudeError) else PROBE_S)

    def _start(self) -> str:
        provider = self._app.sandbox
        channel = provider.start(SandboxSpec(), self._app.settings.session)
        try:
            level = channel.isolation.get("level")
        finally:
            channel.close()
        name = type(provider).__name__.removesuffix("Provider").lower()
        return f"{name}, level {level}" if level is not None else name
