"""An agent that keeps the catalog of a source fresh, and tells what changed in the data."""

from __future__ import annotations

from typing import Any

from etude.agents.base import InboxItem, Kind, Next, StepContext, StepResult
from etude.agents.schedule import Schedule
from etude.runtime.control import Control

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
        changed = {"source": config.source, "run_id": made.run_id, "changes": changes[:SHOWN], "count": len(changes)}
        return StepResult(
            state={"made": state.get("made", 0) + 1, "last": output, "reported": made.metrics.stored.name},
            output=output,
            next=Next(after=config.wait()),
            events=(("catalog.changed", changed),) if changes else (),
            tokens=made.metrics.tokens_in + made.metrics.tokens_out,
            cost_usd=made.metrics.cost_usd,
        )
