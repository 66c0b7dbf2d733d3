"""Questions to start with on a source: each is understood by the rules, and its query returns rows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from etude.cancellation import Cancellation
from etude.entities import Run
from etude.errors import STOPS, EtudeError
from etude.ids import new_id
from etude.limits import lower_limits
from etude.offline.vocabulary_suggestions import suggest_from_vocabulary
from etude.runtime.offline_model import OfflineModel

if TYPE_CHECKING:
    from etude.app import App
    from etude.sources.source import Source

TRY_S = 10.0
"""Seconds that the query of a suggested question may take."""


def suggest_questions(app: App, source: Source, limit: int = 3, cancel: Cancellation | None = None) -> list[str]:
    """Return questions about a source whose queries were run and returned rows. Nothing is recorded."""
    now = datetime.now(UTC)
    run = Run(id=new_id("questions"), kind="ask", text="", source=source.name, created_at=now)
    folder = app.settings.home / "cache" / "vocabulary"
    rules = OfflineModel(app.store, app.resources_for(run, source), run.id, folder, app.read_result, tenant=app.tenant)
    limits = lower_limits(app.settings.limits, {"timeout_s": TRY_S})
    found: list[str] = []
    cancel = cancel or Cancellation()
    for meant in suggest_from_vocabulary(rules.vocabulary(source.name, cancel), now.date()):
        cancel.check()
        try:
            answered = app.plan(source, meant.plan, limits=limits, record=False).row_count
        except STOPS:
            raise
        except EtudeError:
            continue
        if answered:
            found.append(meant.text)
        if len(found) >= limit:
            break
    return found
