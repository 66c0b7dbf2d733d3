"""An agent that keeps the catalog of a source up to date and reports what changed in the data."""

from __future__ import annotations

from typing import Any

from etude.agents.base import InboxItem, Kind, Next, StepContext, StepResult
from etude.agents.schedule import Schedule
from etude.runtime.run_control import RunControl

MAX_LISTED = 20
"""The number of changes that an event lists; it gives the total too."""


class CatalogConfig(Schedule):
    """The source, and when to update its catalog."""

    source: str
    tables: tuple[str, ...] | None = None
    """The tables to include; all by default."""
    model: str = "offline"
    """The model that improves the script if something failed or changed."""


class CatalogAgent(Kind[CatalogConfig]):
    """Makes the catalog again on a schedule; a message or guidance makes it at once."""

    Config = CatalogConfig

    def step(self, ctx: StepContext, state: dict[str, Any], inbox: list[InboxItem]) -> StepResult:
        """Make the catalog once."""
        config, control = self.config, RunControl()
        with ctx.cancel.stopping(control.cancel):
            made = ctx.app.cataloger.run(config.source, tables=config.tables, model=config.model, control=control)
        changes = [
            change.text for change in ctx.app.cataloger.changes_since(config.source, made, state.get("reported"))
        ]
        output = {
            "run_id": made.run_id,
            "url": made.url,
            "tables": len(made.profile.tables),
            "changes": len(changes),
            "failed": sorted(made.metrics.stored.failed),
        }
        changed = {
            "source": config.source,
            "run_id": made.run_id,
            "changes": changes[:MAX_LISTED],
            "count": len(changes),
        }
        return StepResult(
            state={"made": state.get("made", 0) + 1, "last": output, "reported": made.metrics.stored.name},
            output=output,
            next=Next(after=config.wait()),
            events=(("catalog.changed", changed),) if changes else (),
            tokens=made.metrics.tokens_in + made.metrics.tokens_out,
            cost_usd=made.metrics.cost_usd,
        )
