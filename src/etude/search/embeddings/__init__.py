"""Models that turn texts into vectors, and the way from a setting to one of them."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from etude import plugins
from etude.errors import Invalid
from etude.search.embeddings.base import Embeddings

if TYPE_CHECKING:
    from etude.settings import Settings

__all__ = ["Embeddings", "open_embeddings"]

NONE = "none"
DEFAULT = "wordllama"


def open_embeddings(settings: Settings) -> Embeddings | None:
    """Return the embeddings of the settings; None if search goes by words alone.

    Without a setting, that is the default model if it is installed.
    """
    chosen = settings.search.embeddings
    if chosen == NONE or (not chosen and (find_spec(DEFAULT) is None or find_spec("numpy") is None)):
        return None
    kind, _, model = (chosen or DEFAULT).partition(":")
    name = kind if kind in plugins.plugin_names("embeddings") else "remote" if model else kind
    if name not in plugins.plugin_names("embeddings"):
        known = ", ".join(f"`{n}`" for n in (NONE, *plugins.plugin_names("embeddings")) if n != "remote")
        raise Invalid(
            f"The embeddings `{chosen}` do not exist.",
            hint=f"Use {known}, or PROVIDER:MODEL with the address in `models.PROVIDER.base_url`.",
        )
    opened: Embeddings = plugins.load_plugin("embeddings", name)(settings, kind, model)
    return opened
