"""An agent that keeps the catalog of a source fresh, and tells what changed in the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from etude.agents.base import InboxItem, Kind, Next, StepContext, StepResult
from etude.agents.schedule import Schedule
from etude.runtime.control import Control

if TYPE_CHECKING:
    from etude.catalog.drift.change import Change
    from etude.catalog.workflow import CatalogResult

SHOWN = 20
"""So many changes are told one by one."""


class CatalogConfig(Schedule):
    """Whose catalog, and when."""

    source: str
    tables: tuple[str, ...] | None = None
    """All by default."""
    model: str = "offline"
    """Who improves the script where something failed or changed."""


class CatalogAgent(Kind[CatalogConfig]):
    """Makes the catalog anew each time; a message or guidance has it made at once."""

    Config = CatalogConfig

    def step(self, ctx: StepContext, state: dict[str, Any], inbox: list[InboxItem]) -> StepResult:
        """Make it once."""
        config, control = self.config, Control()
        with ctx.cancel.stopping(control.cancel):
            made = ctx.app.cataloger.run(config.source, tables=config.tables, model=config.model, control=control)
        changes = [change.text for change in find_untold(ctx.app, config.source, made, state.get("told"))]
        output = {
            "run_id": made.run_id,
            "url": made.url,
            "tables": len(made.profile.tables),
            "changes": len(changes),
            "failed": sorted(made.metrics.stored.failed),
        }
        told = {"source": config.source, "run_id": made.run_id, "changes": changes[:SHOWN], "count": len(changes)}
        return StepResult(
            state={"made": state.get("made", 0) + 1, "last": output, "told": made.metrics.stored.name},
            output=output,
            next=Next(after=config.wait()),
            events=(("catalog.changed", told),) if changes else (),
            tokens=made.metrics.tokens_in + made.metrics.tokens_out,
            cost_usd=made.metrics.cost_usd,
        )


def find_untold(app: Any, source: str, made: CatalogResult, told: str | None) -> Sequence[Change]:
    """What changed since the catalog that was told of last.

    Others may lie between: one whose step was killed before it could tell, or one that somebody else had made.
    """
    from etude.catalog.model import from_json
    from etude.catalog.storage.catalog_store import CatalogStore
    from etude.catalog.storage.history import find_changes
    from etude.catalog.storage.profiles import open_root, place_of

    stored = made.metrics.stored
    if told not in stored.history[1:]:
        return made.changes
    objects, root = open_root(app)
    catalog_store = CatalogStore(objects, place_of(app, app.source(source)), root)
    earlier = stored.history[stored.history.index(told) + 1 :]
    before = stored.model_copy(update={"name": told, "history": earlier})
    return find_changes(made.profile, [from_json(data) for data in catalog_store.history(before)][::-1])
