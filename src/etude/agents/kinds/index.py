"""An agent that keeps the search index of a source up to date."""

from __future__ import annotations

from typing import Any

from etude.agents.base import InboxItem, Kind, Next, StepContext, StepResult
from etude.agents.schedule import Schedule


class IndexConfig(Schedule):
    """The source, and when to update its index."""

    source: str
    columns: tuple[str, ...] = ()
    """The columns to index, such as `jobs.description`; the catalog chooses them by default."""


class IndexAgent(Kind[IndexConfig]):
    """Updates the index on a schedule; a message or guidance updates it at once."""

    Config = IndexConfig

    def step(self, ctx: StepContext, state: dict[str, Any], inbox: list[InboxItem]) -> StepResult:
        """Bring the index up to date once."""
        made = ctx.app.indexes.build(
            self.config.source, columns=self.config.columns, on_progress=lambda _what, _share: ctx.cancel.check()
        )
        output = made.model_dump(mode="json", include={"version", "documents", "new", "changed", "deleted", "notes"})
        output |= {"source": made.source, "published": made.published}
        return StepResult(
            state={"made": state.get("made", 0) + 1, "last": output},
            output=output,
            next=Next(after=self.config.wait()),
            events=(("index.changed", output),) if made.published else (),
        )
