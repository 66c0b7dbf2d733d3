"""Open the client of a provider by its name, with the API key and base URL from the settings."""

from __future__ import annotations

import difflib
import inspect
import os
import re
from typing import TYPE_CHECKING, Any

from etude.errors import EtudeError, Invalid, Unavailable
from etude.settings import ModelSettings, Settings, read_setting_reference

if TYPE_CHECKING:
    from pydantic_ai.models import Model as Client
    from pydantic_ai.providers import Provider

# fmt: off
PROVIDERS = frozenset({
    "alibaba", "anthropic", "azure", "azure-responses", "bedrock", "cerebras", "cohere", "crusoe", "deepseek",
    "fireworks", "github", "google", "google-cloud", "groq", "heroku", "huggingface", "litellm", "meta", "mistral",
    "moonshotai", "nebius", "ollama", "openai", "openai-chat", "openai-responses", "openrouter", "ovhcloud",
    "sambanova", "snowflake", "together", "vercel", "vllm", "xai", "zai",
})
# fmt: on
"""The providers known by name. Any other needs a `base_url` that speaks OpenAI's protocol."""

_EXTRA = "pip install 'etude[models]'"
_OLLAMA = "http://localhost:11434/v1"
_COMPATIBLE = {"xai": ("https://api.x.ai/v1", "XAI_API_KEY")}
"""Providers that speak OpenAI's protocol too, which needs no package of their own: base URL, variable of the key."""


def find_provider_settings(name: str, settings: Settings) -> ModelSettings | None:
    """Return the settings of the model's provider, or None if there are none."""
    provider = name.partition(":")[0]
    # A shell cannot set a variable with a dash in its name.
    return settings.models.get(provider) or settings.models.get(provider.replace("-", "_"))


def open_provider_client(name: str, settings: ModelSettings, key: str) -> Client:
    """Create the client for `provider:name` without sending anything."""
    provider, _, model = name.partition(":")
    if not model:
        raise Invalid(f"`{name}` names a provider but no model.", hint=f"Write `{provider}:NAME`.")
    if provider not in PROVIDERS and not settings.base_url:
        raise unknown_provider(name)
    try:
        from pydantic_ai import models
        from pydantic_ai.exceptions import UserError
    except ImportError:
        raise Unavailable("Models need a package that is not installed.", hint=_EXTRA) from None
    # OpenAI-compatible services speak OpenAI's older protocol, chat completions.
    kind = "openai-chat" if provider in _COMPATIBLE or (settings.base_url and _speaks_openai(provider)) else provider
    if provider in _COMPATIBLE and not settings.base_url and not (key or os.environ.get(_COMPATIBLE[provider][1])):
        raise _incomplete(name, f"`{_COMPATIBLE[provider][1]}`")
    try:
        return models.infer_model(f"{kind}:{model}", provider_factory=lambda _: _provider(provider, settings, key))
    except ImportError:
        hint = f"`{_EXTRA}`, or for this provider `pip install 'pydantic-ai-slim[{provider}]'`."
        raise Unavailable(f"The provider `{provider}` needs a package that is not installed.", hint=hint) from None
    except UserError as error:
        raise _incomplete(name, str(error)) from None


def read_provider_key(name: str, settings: ModelSettings) -> str:
    """Return the API key, resolving `env:NAME` and `file:PATH`; empty if none is set."""
    return read_setting_reference(settings.api_key, f"The setting `models.{name.partition(':')[0]}.api_key`")


def unknown_provider(name: str, *others: str) -> EtudeError:
    """Return the error for an unknown provider; `others` are the valid kinds of model that are not providers."""
    provider = name.partition(":")[0]
    near = difflib.get_close_matches(provider.lower(), [*others, *PROVIDERS], n=3)
    known = " or ".join(f"`{n}`" for n in near)
    hint = f"Did you mean {known}?" if near else f"Write `provider:name`, such as `openai:{name.rpartition(':')[2]}`."
    hint += f" An OpenAI-compatible server needs `models.{provider}.base_url`." if ":" in name else ""
    return Invalid(f"The model provider `{provider}` is not known.", hint=hint)


def provider_key_hint(provider: str, variable: str = "") -> str:
    """Return the hint that says where to set the API key."""
    own = f", or the variable `{variable}`" if variable else ""
    setting = f"`models.{provider}.api_key` (variable `ETUDE_MODELS__{provider.upper().replace('-', '_')}__API_KEY`"
    return f"Set {setting}; the value may be a reference, `env:NAME` or `file:PATH`){own}."


def _speaks_openai(provider: str) -> bool:
    return provider in ("openai", "openai-chat", *_COMPATIBLE) or provider not in PROVIDERS


def _provider(name: str, settings: ModelSettings, key: str) -> Provider[Any]:
    from pydantic_ai.providers import infer_provider_class

    given = {"api_key": key} if key else {}
    base_url = settings.base_url or (_OLLAMA if name == "ollama" and not os.environ.get("OLLAMA_BASE_URL") else "")
    if not base_url and name in _COMPATIBLE:
        base_url, variable = _COMPATIBLE[name]
        key = key or os.environ.get(variable, "")
    if base_url:
        if _speaks_openai(name) or "base_url" not in inspect.signature(infer_provider_class(name)).parameters:
            from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

            # This class ignores `OPENAI_API_KEY`, which must not be sent to another service.
            return OpenAICompatibleProvider(name, base_url=base_url, api_key=key or None)
        given["base_url"] = base_url
    return infer_provider_class(name)(**given)


def _incomplete(name: str, complaint: str) -> EtudeError:
    # Of the library's message only the name of the missing variable is useful; the rest is about its own API.
    provider = name.partition(":")[0]
    variables = re.findall(r"`([A-Z][A-Z0-9_]{3,})`", complaint)
    if variables and not any(v.endswith(("KEY", "TOKEN")) for v in variables):
        hint = f"Set `models.{provider}.base_url` or the variable `{variables[0]}`."
        return Invalid(f"The model `{name}` needs a base URL.", hint=hint)
    variable = next((v for v in variables if v.endswith(("KEY", "TOKEN"))), "")
    return Invalid(f"The model `{name}` needs an API key.", hint=provider_key_hint(provider, variable))
