"""Settings: keywords over `ETUDE_*` variables over `etude.toml` over defaults. Unknown keys are errors."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, get_args, get_origin

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, field_validator

from etude.entities import Budget, Entity, Limits, SessionLimits, SourceSpec
from etude.errors import Invalid

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)
_NOT_SETTINGS = frozenset({"ETUDE_SOURCE", "ETUDE_CONFIG", "ETUDE_DEBUG"})
"""Variables that are not settings: the source of a script that runs alone, the file to read, engine output."""


def parse_size(value: Any) -> Any:
    """Bytes from `4GiB`, `500 MB` or a number; anything else is left for the validator to refuse."""
    if not isinstance(value, str):
        return value
    found = _SIZE.fullmatch(value)
    if found is None or found.group(2).lower() not in _UNITS:
        raise ValueError("write a size such as 512MB or 4GiB")
    return int(Decimal(found.group(1)) * _UNITS[found.group(2).lower()])


Size = Annotated[int, BeforeValidator(parse_size), Field(ge=0, le=1 << 60)]
Folder = Annotated[Path, AfterValidator(lambda path: path.expanduser().absolute())]


def default_home() -> Path:
    """The platform's folder for a user's data."""
    from platformdirs import user_data_path

    return user_data_path("etude", appauthor=False)


class QueryLimits(Limits):
    """`Limits`, with sizes that may be written with a unit."""

    timeout_s: float = Field(default=Limits.model_fields["timeout_s"].default, gt=0, le=1_000_000)
    """Stop a query after so many seconds."""
    rows: int = Field(default=Limits.model_fields["rows"].default, ge=0)
    """Cut a result after so many rows, and say so; 0 for no limit."""
    bytes: Size = Limits.model_fields["bytes"].default
    """Cut a result after so many bytes, and say so; 0 for no limit."""
    scan_bytes: Size = 0
    """Refuse, before it starts, a query estimated to read more bytes than this; 0 for no budget."""


class SessionSettings(SessionLimits):
    """`SessionLimits`, with sizes that may be written with a unit."""

    memory: Size = SessionLimits.model_fields["memory"].default
    scratch: Size = SessionLimits.model_fields["scratch"].default
    output: Size = SessionLimits.model_fields["output"].default


class EngineSettings(Entity):
    """The processes that run queries."""

    processes: int = Field(default_factory=lambda: max(4, 2 * (os.cpu_count() or 1)), ge=1)
    """How many may work at once; twice the processors, and at least 4, by default."""
    threads: int = Field(default_factory=lambda: os.cpu_count() or 1, ge=1)
    """Threads of each; as many as the machine has processors by default."""
    memory: Size = Field(default_factory=lambda: max(_memory() // 2, 1 << 30))
    """Private memory of each, enforced by the operating system; half of the machine's by default."""
    scratch: Size = 20 << 30
    """The largest file each may write while it sorts or joins what does not fit into memory."""


class ModelSettings(Entity):
    """How a provider of models is reached and what it costs."""

    api_key: str = Field(default="", repr=False)
    """The key, or `env:NAME` or `file:PATH` where it is kept; by default the provider's own variable."""
    base_url: str = ""
    """Another address of the provider, such as that of an OpenAI-compatible server."""
    timeout_s: float = Field(default=120.0, gt=0, le=86_400)
    """Seconds without a byte after which a try has failed."""
    tries: int = Field(default=5, ge=1, le=100)
    """How often a turn is tried where the provider has trouble."""
    wait_s: float = Field(default=60.0, ge=0, le=86_400)
    """Seconds that all waiting between tries may take together."""
    price_in: float | None = Field(default=None, ge=0)
    """US dollars for a million tokens read; by default what is known of the model."""
    price_out: float | None = Field(default=None, ge=0)
    """US dollars for a million tokens written."""
    options: dict[str, Any] = Field(default_factory=dict)
    """What is passed to the model, such as `temperature` or `thinking`."""


class ServerSettings(Entity):
    """`etude serve`. What a key may use can be set for each key as well; 0 means no limit."""

    host: str = "127.0.0.1"
    """Where to listen. Beyond the loopback, keys are required."""
    port: int = Field(default=8520, ge=0, le=65_535)
    """The port; 0 takes a free one."""
    models: tuple[str, ...] = ("offline",)
    """Models that callers may choose beside the default."""
    threads: int = Field(default=32, ge=1, le=1000)
    """Requests that may work at once; further ones wait."""
    runs: int = Field(default=64, ge=1, le=1000)
    """Runs of a tenant that may be worked at in the background at once; further ones are refused."""
    connections: int = Field(default=4000, ge=1)
    """Connections that are held at once; further ones are refused."""
    head_s: float = Field(default=10.0, gt=0)
    """Seconds in which a request's head must arrive."""
    body_s: float = Field(default=30.0, gt=0)
    """Seconds in which a request's body must arrive."""
    body: Size = 4 << 20
    """The largest body of a request."""
    drain_s: float = Field(default=30.0, ge=0)
    """Seconds that a shutdown gives to what is at work."""
    per_minute: int = Field(default=1200, ge=0)
    """Requests of a key in a minute."""
    at_once: int = Field(default=64, ge=0)
    """Requests of a key at the same time, streams apart."""
    streams: int = Field(default=64, ge=0)
    """Open streams of a key."""
    daily_tokens: int = Field(default=0, ge=0)
    """Tokens of a key in a day (UTC)."""
    daily_cost_usd: float = Field(default=0.0, ge=0)
    """Money of a key in a day, where the price of the model is known."""
    daily_seconds: float = Field(default=0.0, ge=0)
    """Seconds that the runs of a key may take in a day."""


class CatalogSettings(Entity):
    """`etude catalog`."""

    store: str = ""
    """Where catalogs are kept: a folder, `s3://bucket/prefix`, `gs://`, `az://`; below `objects` by default."""
    store_options: dict[str, str] = Field(default_factory=dict)
    """What that store needs beside its URL; by default what `objects` needs."""
    annotations: str = ""
    """A folder of `SOURCE.etude.yaml` files: what people say of tables and columns."""
    timeout_s: float = Field(default=600.0, gt=0, le=1_000_000)
    """Stop a statement of a catalog after so many seconds."""
    wall_s: float = Field(default=21_600.0, gt=0)
    """Stop a cell of its script after so many seconds."""


class AgentSettings(Entity):
    """Durable agents."""

    reach: tuple[str, ...] = ()
    """Hosts and networks, such as `hooks.internal` or `10.1.0.0/16`, that agents may send events to, though private."""

    @field_validator("reach", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

    @field_validator("reach")
    @classmethod
    def _are_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        from etude.addresses import parse_reach

        for entry in value:
            try:
                parse_reach(entry)
            except Invalid as error:
                raise ValueError(f"{error} {error.hint}") from None
        return value


class TelemetrySettings(Entity):
    """Traces over OpenTelemetry; off unless an address is given."""

    otlp: str = ""
    """Where to send traces over HTTP, such as `http://localhost:4318/v1/traces`."""
    headers: dict[str, str] = Field(default_factory=dict)
    """What the receiver needs beside the traces, such as a key or the experiment of MLflow."""
    content: bool = False
    """Whether questions, code and answers are sent too."""


class Settings(Entity):
    """All settings. `etude config` prints the effective ones and where each comes from."""

    home: Folder = Field(default_factory=default_home)
    """The folder of etude's state."""
    store: str = ""
    """Where runs are recorded: `sqlite:///path` or `postgresql://...`; a file under `home` by default."""
    objects: str = ""
    """Where results are kept: a folder, `s3://bucket/prefix`, `gs://`, `az://`; a folder under `home` by default."""
    objects_options: dict[str, str] = Field(default_factory=dict)
    """What the object store needs beside its URL, such as `endpoint`, `region` and keys."""
    record: bool = True
    """Whether queries are recorded as runs."""
    limits: QueryLimits = QueryLimits()
    engine: EngineSettings = Field(default_factory=EngineSettings)
    sandbox: str = "local"
    """Where sessions run: `local`, `container`, or a provider that a package adds."""
    sandbox_options: dict[str, str] = Field(default_factory=dict)
    """What the provider needs, such as `image` or `rootfs` for `container`."""
    session: SessionSettings = SessionSettings()
    model: str = "offline"
    """Who answers questions: `offline` for rules alone, or a model such as `openai:gpt-5` or `ollama:qwen3`."""
    budget: Budget = Budget()
    models: dict[str, ModelSettings] = Field(default_factory=dict)
    """Providers of models by name, such as `openai`."""
    catalog: CatalogSettings = CatalogSettings()
    server: ServerSettings = ServerSettings()
    agents: AgentSettings = AgentSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    sources: dict[str, SourceSpec] = Field(default_factory=dict)
    """Sources by name."""

    @property
    def store_url(self) -> str:
        """The store, with the default filled in."""
        return self.store or f"sqlite:///{self.home / 'etude.db'}"

    @property
    def objects_url(self) -> str:
        """The object store, with the default filled in."""
        return self.objects or str(self.home / "objects")


def load_settings(environment: Mapping[str, str] | None = None, **keywords: Any) -> Settings:
    """The effective settings; raises `Invalid` that names the key, the value and what to write instead."""
    settings, _ = load_with_origins(environment, **keywords)
    return settings


def load_with_origins(environment: Mapping[str, str] | None = None, **keywords: Any) -> tuple[Settings, dict[str, str]]:
    """The effective settings, and for each dotted key that is set, where it was set."""
    environment = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    file = find_file(environment)
    layers = [(str(file), _read_file(file))] if file else []
    layers.append(("environment", _read_environment(environment)))
    layers.append(("keyword", {k: _plain(v) for k, v in keywords.items() if v is not None}))
    for origin, layer in layers:
        _merge(values, layer)
        origins |= {key: origin for key, _ in flatten(layer)}
    try:
        return Settings(**values), origins
    except ValidationError as error:
        raise _explain(error, origins) from None


def _plain(value: Any) -> Any:
    # A model counts for what was set on it: its defaults must not hide those of the layers below.
    return value.model_dump(exclude_unset=True) if isinstance(value, Entity) else value


def find_file(environment: Mapping[str, str]) -> Path | None:
    """The `etude.toml` to read: the one named by `ETUDE_CONFIG`, of the working folder, or of the home."""
    named = environment.get("ETUDE_CONFIG")
    if named:
        if not Path(named).is_file():
            raise Invalid(f"`ETUDE_CONFIG` names `{named}`, which is not a file.", hint="Correct or unset it.")
        return Path(named)
    home = Path(environment.get("ETUDE_HOME") or default_home())
    return next((p for p in (Path("etude.toml"), home / "etude.toml") if p.is_file()), None)


def _read_file(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"`{path}` is not valid TOML: {error}.", hint="Correct the line named.") from None


def _read_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    layer: dict[str, Any] = {}
    for key, text in environment.items():
        if not key.startswith("ETUDE_") or key in _NOT_SETTINGS or not text:
            continue
        path = key.removeprefix("ETUDE_").lower().split("__")
        if path[0] not in Settings.model_fields:
            near = difflib.get_close_matches(path[0], Settings.model_fields, n=1)
            hint = f"Did you mean `ETUDE_{near[0].upper()}`?" if near else "Unset it; `etude config` lists the keys."
            raise Invalid(f"The variable `{key}` is not a setting of etude.", hint=hint)
        value: Any = _parse_variable(key, text, path)
        for part in reversed(path[1:]):
            value = {part: value}
        _merge(layer, {path[0]: value})
    return layer


def _parse_variable(key: str, text: str, path: list[str]) -> Any:
    """The value of a variable: JSON where the setting is a table or a list; a list may be written `a, b` as well."""
    kind = _kind_of(path)
    if kind not in (dict, tuple):
        return text
    if text.lstrip().startswith("{" if kind is dict else "["):
        try:
            return json.loads(text)
        except ValueError as error:
            # Neither the text nor what the parser quotes of it: it may hold a secret.
            where = f" at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else ""
            raise Invalid(
                f"The variable `{key}` is not valid JSON{where}.", hint="Use double quotes and no comma at the end."
            ) from None
    return [part.strip() for part in text.split(",") if part.strip()] if kind is tuple else text


def _kind_of(path: list[str]) -> type | None:
    """`dict` for a setting that is a table, `tuple` for a list, None for any other or an unknown one."""
    kind: Any = Settings
    for part in path:
        if isinstance(kind, type) and issubclass(kind, Entity):
            field = kind.model_fields.get(part)
            kind = field.annotation if field else None
        elif get_origin(kind) is dict:
            kind = get_args(kind)[1]
        else:
            return None
    if isinstance(kind, type) and issubclass(kind, Entity):
        return dict
    # `tuple[str, ...] | None` is a list, too.
    kinds = [get_origin(each) or each for each in (get_args(kind) if get_origin(kind) is UnionType else (kind,))]
    return next((each for each in (dict, tuple) if each in kinds), None)


def _merge(into: dict[str, Any], layer: Mapping[str, Any]) -> None:
    for key, value in layer.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = dict(value) if isinstance(value, Mapping) else value


def flatten(layer: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested settings under dotted keys."""
    for key, value in layer.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _explain(error: ValidationError, origins: dict[str, str]) -> Invalid:
    from etude.validation import explain

    def name(key: str) -> str:
        near = (o for k, o in origins.items() if f"{k}.".startswith(f"{key}.") or f"{key}.".startswith(f"{k}."))
        found = origins.get(key) or next(near, None)
        return f"The setting `{key}`" + (f" (from {found})" if found else "")

    return explain(
        error, "the settings", model=Settings, name=name, containers=False, hint="`etude config` lists the settings."
    )


def read_reference(text: str, what: str) -> str:
    """The text itself, or what `env:NAME` or `file:PATH` refers to; so that a secret need not stand in a setting.

    `what` begins the complaint about a reference that leads nowhere, such as "The source".
    """
    if text.startswith("env:"):
        name = text.removeprefix("env:")
        value = os.environ.get(name)
        if not value:
            raise Invalid(f"{what} refers to the variable `{name}`, which is not set.", hint=f"Set `{name}`.")
        return value
    if text.startswith("file:") and not text.startswith("file://"):
        path = Path(text.removeprefix("file:"))
        try:
            return path.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise Invalid(
                f"{what} refers to the file `{path}`, which cannot be read: {error.strerror}.", hint="Check the path."
            ) from None
    return text


def _memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
