"""An agent that keeps the catalog of a source fresh, and tells what changed in the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from etude.agents.base import Context, Item, Kind, Next, Step
from etude.agents.schedule import Schedule
from etude.runtime.control import Control

if TYPE_CHECKING:
    from etude.catalog.change import Change
    from etude.catalog.workflow import Cataloged

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
        changes = [change.text for change in find_untold(ctx.app, config.source, made, state.get("told"))]
        output = {
            "run_id": made.run_id,
            "url": made.url,
            "tables": len(made.profile.tables),
            "changes": len(changes),
            "failed": sorted(made.metrics.shelved.failed),
        }
        told = {"source": config.source, "run_id": made.run_id, "changes": changes[:SHOWN], "count": len(changes)}
        return Step(
            state={"made": state.get("made", 0) + 1, "last": output, "told": made.metrics.shelved.name},
            output=output,
            next=Next(after=config.wait()),
            events=(("catalog.changed", told),) if changes else (),
            tokens=made.metrics.tokens_in + made.metrics.tokens_out,
            cost_usd=made.metrics.cost_usd,
        )


def find_untold(app: Any, source: str, made: Cataloged, told: str | None) -> Sequence[Change]:
    """What changed since the catalog that was told of last.

    Others may lie between: one whose step was killed before it could tell, or one that somebody else had made.
    """
    from etude.catalog.history import find_changes
    from etude.catalog.model import from_json
    from etude.catalog.profiles import open_root, place_of
    from etude.catalog.shelf import Shelf

    shelved = made.metrics.shelved
    if told not in shelved.history[1:]:
        return made.changes
    objects, root = open_root(app)
    shelf = Shelf(objects, place_of(app, app.source(source)), root)
    earlier = shelved.history[shelved.history.index(told) + 1 :]
    before = shelved.model_copy(update={"name": told, "history": earlier})
    return find_changes(made.profile, [from_json(data) for data in shelf.history(before)][::-1])
