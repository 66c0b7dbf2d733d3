"""What agents work in: the settings of the application, read again while it runs."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from etude.settings import load_settings

if TYPE_CHECKING:
    from etude.agents.app import AgentApp

CHANGEABLE = ("sources", "limits", "session", "model", "models", "budget", "catalog", "agents")
"""What is looked up when it is needed. The rest, such as the store, is what the process was started with."""


class SettingsReload:
    """The settings of an app, which follow the settings file where they come from it."""

    def __init__(self, app: AgentApp) -> None:
        self._app = app
        self._read = load_settings()
        self._lock = threading.Lock()
        self.outdated = threading.Event()
        """Set by whoever wants the file to be read again."""

    def refresh(self) -> None:
        """Where the file is to be read again, do; nobody gets by with what was before."""
        if not self.outdated.is_set() and not self._lock.locked():
            return
        with self._lock:
            if self.outdated.is_set():
                self.outdated.clear()
                self._reload()

    def _reload(self) -> None:
        """Take over what was changed in the file since it was read; what was given otherwise stays."""
        app, before, now = self._app, self._read, load_settings()
        changed = {name: getattr(now, name) for name in CHANGEABLE if getattr(now, name) != getattr(before, name)}
        if "sources" in changed:
            given = {k: v for k, v in app.settings.sources.items() if before.sources.get(k) != v}
            changed["sources"] = now.sources | given
        self._read = now
        if changed:
            app.change_settings(app.settings.model_copy(update=changed))
