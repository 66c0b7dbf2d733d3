"""An agent that keeps the catalog of a source fresh, and tells what changed in the data."""

from __future__ import annotations

from typing import Any

from etude.agents.base import Context, Item, Kind, Next, Step
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


class Catalog(Kind[CatalogConfig]):
    """Makes the catalog anew each time; a message or guidance has it made at once."""

    Config = CatalogConfig

    def step(self, ctx: Context, state: dict[str, Any], inbox: list[Item]) -> Step:
        """Make it once."""
        config, control = self.config, Control()
        with ctx.cancel.stopping(control.cancel):
            made = ctx.app.cataloger.run(config.source, tables=config.tables, model=config.model, control=control)
        changes = [change.text for change in made.changes]
        output = {
            "run_id": made.run_id,
            "url": made.url,
            "tables": len(made.profile.tables),
            "changes": len(changes),
            "failed": sorted(made.metrics.shelved.failed),
        }
        told = {"source": config.source, "run_id": made.run_id, "changes": changes[:SHOWN], "count": len(changes)}
        return Step(
            state={"made": state.get("made", 0) + 1, "last": output},
            output=output,
            next=Next(after=config.wait()),
            events=(("catalog.changed", told),) if changes else (),
            tokens=made.metrics.tokens_in + made.metrics.tokens_out,
            cost_usd=made.metrics.cost_usd,
        )
