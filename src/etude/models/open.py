"""Open a model by its name."""

from __future__ import annotations

from etude import plugins
from etude.errors import Invalid
from etude.lean_imports import allow_numpy_import
from etude.models.base import Model
from etude.models.provider import open_provider
from etude.models.provider_client import PROVIDERS, find_provider_settings, unknown_provider
from etude.settings import Settings


def open_model(name: str, settings: Settings) -> Model:
    """Open a model by its name: `scripted:PATH`, `cassette:PATH`, `sim:SKILL`, `local:NAME`, or `provider:name`.

    A package adds a kind with an entry point in the group `etude.model`: a function of the full name and the settings.
    """
    if name == "offline":
        raise Invalid("`offline` is not a model.", hint="Name one, such as `openai:gpt-5`.")
    allow_numpy_import()
    kind, _, rest = name.partition(":")
    if kind in PROVIDERS or find_provider_settings(name, settings) is not None:
        return open_provider(name, settings)
    others = plugins.plugin_names("model")
    if kind not in others:
        raise unknown_provider(name, *others)
    if not rest:
        raise Invalid(f"`{name}` is not complete.", hint=f"Write `{kind}:...`; see `docs/models.md` for the rest.")
    model: Model = plugins.load_plugin("model", kind)(name, settings)
    return model
