"""Reloading the settings file while the application runs."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from etude.settings import load_settings

if TYPE_CHECKING:
    from etude.agents.agent_app import AgentApp

CHANGEABLE = ("sources", "limits", "session", "model", "models", "budget", "catalog", "search", "agents")
"""The settings that take effect when they change. The others, such as the store, need a restart."""


class SettingsReload:
    """Reloads the settings of an app from the settings file."""

    def __init__(self, app: AgentApp) -> None:
        self._app = app
        self._read = load_settings()
        self._lock = threading.Lock()
        self.outdated = threading.Event()
        """Set this to have the file read again before the next step."""

    def refresh(self) -> None:
        """Read the file again if it is outdated. Concurrent callers wait until the new settings apply."""
        if not self.outdated.is_set() and not self._lock.locked():
            return
        with self._lock:
            if self.outdated.is_set():
                self.outdated.clear()
                self._reload()

    def _reload(self) -> None:
        """Apply what changed in the file since it was read. Settings given in other ways stay as they are."""
        app, before, now = self._app, self._read, load_settings()
        changed = {name: getattr(now, name) for name in CHANGEABLE if getattr(now, name) != getattr(before, name)}
        if "sources" in changed:
            given = {k: v for k, v in app.settings.sources.items() if before.sources.get(k) != v}
            changed["sources"] = now.sources | given
        self._read = now
        if changed:
            app.change_settings(app.settings.model_copy(update=changed))
