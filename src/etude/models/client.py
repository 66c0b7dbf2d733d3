"""The client of a provider: found by its name, with its key and address from the settings."""

from __future__ import annotations

import difflib
import inspect
import os
import re
from typing import TYPE_CHECKING, Any

from etude.errors import EtudeError, Invalid, Unavailable
from etude.settings import ModelSettings, Settings, read_reference

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
"""The providers that are known by name; any other needs a `base_url` that speaks the protocol of OpenAI."""

_EXTRA = "pip install 'etude[models]'"
_OLLAMA = "http://localhost:11434/v1"


def find_settings(name: str, settings: Settings) -> ModelSettings | None:
    """The settings of the provider of that model, where there are any."""
    provider = name.partition(":")[0]
    # A shell cannot set a variable with a dash in its name.
    return settings.models.get(provider) or settings.models.get(provider.replace("-", "_"))


def open_client(name: str, settings: ModelSettings, key: str) -> Client:
    """The client for `provider:name`; nothing is sent yet."""
    provider, _, model = name.partition(":")
    if not model:
        raise Invalid(f"`{name}` names no model.", hint=f"Write `{provider}:NAME`.")
    if provider not in PROVIDERS and not settings.base_url:
        raise unknown_provider(name)
    try:
        from pydantic_ai import models
        from pydantic_ai.exceptions import UserError
    except ImportError:
        raise Unavailable("Models need a package that is not installed.", hint=_EXTRA) from None
    # Other services than OpenAI's own speak its older protocol.
    kind = "openai-chat" if settings.base_url and _speaks_openai(provider) else provider
    try:
        return models.infer_model(f"{kind}:{model}", provider_factory=lambda _: _provider(provider, settings, key))
    except ImportError:
        hint = f"`{_EXTRA}`, or for this provider `pip install 'pydantic-ai-slim[{provider}]'`."
        raise Unavailable(f"The provider `{provider}` needs a package that is not installed.", hint=hint) from None
    except UserError as error:
        raise _incomplete(name, str(error)) from None


def read_key(name: str, settings: ModelSettings) -> str:
    """The key itself, or what `env:NAME` or `file:PATH` refers to; empty where none is set."""
    return read_reference(settings.api_key, f"The setting `models.{name.partition(':')[0]}.api_key`")


def unknown_provider(name: str, *others: str) -> EtudeError:
    """The error for a name that no one provides; `others` are names that are known beside the providers."""
    provider = name.partition(":")[0]
    near = difflib.get_close_matches(provider.lower(), [*others, *PROVIDERS], n=3)
    known = " or ".join(f"`{n}`" for n in near)
    hint = f"Did you mean {known}?" if near else f"Write `provider:name`, such as `openai:{name}`."
    hint += f" An OpenAI-compatible server needs `models.{provider}.base_url`." if ":" in name else ""
    return Invalid(f"There is no provider `{provider}` of models.", hint=hint)


def key_hint(provider: str, variable: str = "") -> str:
    """Where a key is set."""
    own = f", or the variable `{variable}`" if variable else ""
    setting = f"`models.{provider}.api_key` (variable `ETUDE_MODELS__{provider.upper().replace('-', '_')}__API_KEY`"
    return f"Set {setting}; `env:NAME` and `file:PATH` refer to where it is kept){own}."


def _speaks_openai(provider: str) -> bool:
    return provider in ("openai", "openai-chat") or provider not in PROVIDERS


def _provider(name: str, settings: ModelSettings, key: str) -> Provider[Any]:
    from pydantic_ai.providers import infer_provider_class

    given = {"api_key": key} if key else {}
    base_url = settings.base_url or (_OLLAMA if name == "ollama" and not os.environ.get("OLLAMA_BASE_URL") else "")
    if base_url:
        if _speaks_openai(name) or "base_url" not in inspect.signature(infer_provider_class(name)).parameters:
            from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

            # It takes no key from `OPENAI_API_KEY`: that one is not meant for another service.
            return OpenAICompatibleProvider(name, base_url=base_url, api_key=key or None)
        given["base_url"] = base_url
    return infer_provider_class(name)(**given)


def _incomplete(name: str, complaint: str) -> EtudeError:
    # The library names the variable it looked for; its other words are about its own API.
    provider = name.partition(":")[0]
    variables = re.findall(r"`([A-Z][A-Z0-9_]{3,})`", complaint)
    if variables and not any(v.endswith(("KEY", "TOKEN")) for v in variables):
        hint = f"Set `models.{provider}.base_url` or the variable `{variables[0]}`."
        return Invalid(f"The model `{name}` needs an address.", hint=hint)
    variable = next((v for v in variables if v.endswith(("KEY", "TOKEN"))), "")
    return Invalid(f"The model `{name}` needs a key.", hint=key_hint(provider, variable))
