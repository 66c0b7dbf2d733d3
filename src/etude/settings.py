"""Settings: keywords over `ETUDE_*` variables over `etude.toml` over defaults. Unknown keys are errors."""

from __future__ import annotations

import difflib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, field_validator

from etude.defaults import (
    ENGINE_SCRATCH,
    NOT_SETTINGS,
    OBJECTS,
    STORE,
    default_home,
    default_idle_memory,
    default_memory,
    default_threads,
    find_settings_file,
)
from etude.entities import Budget, Entity, Limits, SessionLimits, SourceSpec
from etude.errors import Invalid

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
DATABASE_URL = re.compile(
    r"(?P<scheme>postgres|postgresql|mysql|mariadb)://(?P<user>[\w.~%!$&'()*+,;=:-]*@)?"
    r"(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*)(?::(?P<port>\d{1,5}))?/(?P<name>[\w.~%-]*)"
)
"""The URL of a database in a form that every client reads alike: one host, no options."""
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)


def parse_size_setting(value: Any) -> Any:
    """Return the bytes of `4GiB`, `500 MB` or a number; leave other types to the validator."""
    if not isinstance(value, str):
        return value
    found = _SIZE.fullmatch(value)
    if found is None or found.group(2).lower() not in _UNITS:
        raise ValueError("write a size such as 512MB or 4GiB")
    return int(Decimal(found.group(1)) * _UNITS[found.group(2).lower()])


Size = Annotated[int, BeforeValidator(parse_size_setting), Field(ge=0, le=1 << 60)]
Folder = Annotated[Path, AfterValidator(lambda path: path.expanduser().absolute())]


class QueryLimits(Limits):
    """`Limits`, with sizes that may be written with a unit."""

    timeout_s: float = Field(default=Limits.model_fields["timeout_s"].default, gt=0, le=1_000_000)
    """Seconds after which a query is stopped."""
    rows: int = Field(default=Limits.model_fields["rows"].default, ge=0)
    """The most rows of a result; a query with more fails. 0 for no limit."""
    bytes: Size = Limits.model_fields["bytes"].default
    """The most bytes of a result, which are kept on disk; a query with more fails. 0 for no limit."""
    row_bytes: Size = Limits.model_fields["row_bytes"].default
    """The most bytes of one row, which is in memory several times; a query with a larger one fails. 0 for no limit."""
    limit: int = Field(default=0, ge=0, exclude=True)
    scan_bytes: Size = 0
    """Refuse, before it starts, a query estimated to read more bytes than this; 0 for no limit."""


class SessionSettings(SessionLimits):
    """`SessionLimits`, with sizes that may be written with a unit."""

    memory: Size = SessionLimits.model_fields["memory"].default
    scratch: Size = SessionLimits.model_fields["scratch"].default
    output: Size = SessionLimits.model_fields["output"].default


class EngineSettings(Entity):
    """The processes that run queries."""

    processes: int = Field(default_factory=lambda: max(4, 2 * (os.cpu_count() or 1)), ge=1)
    """Engines that may run at once; by default twice the number of CPUs, at least 4."""
    threads: int = Field(default_factory=default_threads, ge=1)
    """Threads for each engine; by default the number of CPUs."""
    memory: Size = Field(default_factory=default_memory)
    """Private memory for each engine, enforced by the operating system; by default half of the machine's."""
    scratch: Size = ENGINE_SCRATCH
    """The largest file that an engine may write while it sorts or joins more than fits into memory."""


class ModelSettings(Entity):
    """The address, key and prices of a model provider."""

    api_key: str = Field(default="", repr=False)
    """The key, or a reference to it: `env:NAME` or `file:PATH`; by default the provider's own variable."""
    base_url: str = ""
    """Another address, such as that of an OpenAI-compatible server."""
    timeout_s: float = Field(default=120.0, gt=0, le=86_400)
    """Seconds without data after which an attempt has failed."""
    tries: int = Field(default=5, ge=1, le=100)
    """Attempts for each turn if the provider fails."""
    wait_s: float = Field(default=60.0, ge=0, le=86_400)
    """Seconds to wait between attempts, in total."""
    price_in: float | None = Field(default=None, ge=0)
    """US dollars per million input tokens; by default the known price of the model."""
    price_out: float | None = Field(default=None, ge=0)
    """US dollars per million output tokens."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options for the model, such as `temperature` or `thinking`."""


class ServerSettings(Entity):
    """Settings of `etude serve`. The limits of a key can also be set for each key; 0 means no limit."""

    host: str = "127.0.0.1"
    """The address to listen on. Beyond the loopback interface, keys are required."""
    port: int = Field(default=8520, ge=0, le=65_535)
    """The port; 0 picks a free one."""
    models: tuple[str, ...] = ("offline",)
    """Models that callers may choose besides the default."""
    threads: int = Field(default=32, ge=1, le=1000)
    """Requests that may run at once; further ones wait."""
    cells: int = Field(default_factory=lambda: max(8, 2 * (os.cpu_count() or 1)), ge=1)
    """Cells of threads that may run at once, shared fairly among tenants; by default twice the CPUs, at least 8."""
    idle_memory: Size = Field(default_factory=default_idle_memory)
    """Memory that idle sessions of threads may hold together; beyond it, the largest are closed. By default a quarter
    of the machine's. A session that was closed comes back from its record."""
    runs: int = Field(default=64, ge=1, le=1000)
    """Background runs per tenant that may run at once; further ones are refused."""
    connections: int = Field(default=4000, ge=1)
    """Connections that may be open at once. Further ones replace those that wait for their client, or are refused."""
    head_s: float = Field(default=10.0, gt=0)
    """Seconds within which a request's head must arrive."""
    body_s: float = Field(default=30.0, gt=0)
    """Seconds within which a request's body must arrive."""
    response_s: float = Field(default=60.0, gt=0)
    """Seconds within which a client must read more of a response that waits for it, or the connection is closed."""
    body: Size = 4 << 20
    """The largest request body, except for an upload."""
    upload: Size = 1 << 30
    """The largest upload of a dataset; 0 refuses uploads."""
    upload_s: float = Field(default=3600.0, gt=0)
    """Seconds within which an upload must arrive; between two parts of it at most `body_s` may pass."""
    databases: tuple[str, ...] = ()
    """Databases that administrators may add over HTTP, such as `postgresql://db.internal:5432/sales`."""
    drain_s: float = Field(default=30.0, ge=0)
    """Seconds that a shutdown waits for running work."""
    per_minute: int = Field(default=1200, ge=0)
    """Requests of a key per minute."""
    refused_per_minute: int = Field(default=600, ge=0)
    """Refused requests (4xx) per minute of a key, or of an address without one; further ones get 429 unread."""
    at_once: int = Field(default=64, ge=0)
    """Requests of a key at the same time, not counting streams."""
    streams: int = Field(default=64, ge=0)
    """Open streams of a key."""
    storage: Size = 0
    """Bytes that a tenant may keep in files and in the store; a tenant that has more starts no runs and no steps."""
    tenant_storage: dict[str, Size] = Field(default_factory=dict)
    """The same for single tenants, by name; for others, `storage` applies."""
    daily_tokens: int = Field(default=0, ge=0)
    """Tokens of a key per day (UTC)."""
    daily_cost_usd: float = Field(default=0.0, ge=0)
    """Cost of a key per day in US dollars, if the price of the model is known."""
    daily_seconds: float = Field(default=0.0, ge=0)
    """Seconds that the runs of a key may take per day."""

    @field_validator("databases", mode="before")
    @classmethod
    def _split_databases(cls, value: Any) -> Any:
        return _split(value)

    @field_validator("databases")
    @classmethod
    def _are_databases(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for entry in value:
            found = DATABASE_URL.fullmatch(entry)
            if found is None or found["user"]:
                raise ValueError("write postgresql://host:port/database or mysql://host/, without a user")
        return value


class OfflineSettings(Entity):
    """Settings of the rules that answer questions without a model."""

    confidence: float = Field(default=0.84, ge=0, le=1)
    """The least confidence of an answer; what the rules understand less surely, they refuse. 0 refuses nothing."""


class CatalogSettings(Entity):
    """Settings of `etude catalog`."""

    store: str = ""
    """Where catalogs are stored: a folder, `s3://bucket/prefix`, `gs://`, `az://`; below `objects` by default."""
    store_options: dict[str, str] = Field(default_factory=dict)
    """Options of that store besides its URL; by default those of `objects`."""
    annotations: str = ""
    """A folder of `SOURCE.etude.yaml` files, which annotate tables and columns."""
    timeout_s: float = Field(default=600.0, gt=0, le=1_000_000)
    """Seconds after which a statement of a catalog is stopped."""
    wall_s: float = Field(default=21_600.0, gt=0)
    """Seconds after which a cell of a catalog's script is stopped."""


class SearchSettings(Entity):
    """Settings of `etude index`, `etude search` and `etude match`."""

    embeddings: str = ""
    """The model that makes vectors: `wordllama`, `minilm`, `PROVIDER:MODEL` of a provider in `models`, or `none`; by
    default `wordllama` if it is installed."""
    backend: Literal["auto", "exact", "lance"] = "auto"
    """`lance` is LanceDB, `exact` reads all into memory; by default LanceDB if installed, for large indexes."""
    store: str = ""
    """Where indexes are stored: a folder, `s3://bucket/prefix`, `gs://`, `az://`; below `objects` by default."""
    store_options: dict[str, str] = Field(default_factory=dict)
    """Options of that store besides its URL; by default those of `objects`."""
    exact: int = Field(default=20_000, ge=0)
    """Up to this many documents, an index is exact even if LanceDB is installed."""
    documents: int = Field(default=1_000_000, ge=1)
    """The most documents of an index; a source with more is refused."""
    candidates: int = Field(default=100_000, ge=1)
    """The most rows that may pass the filter of a match; more are refused."""


def _split(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _check_reach(value: tuple[str, ...]) -> tuple[str, ...]:
    from etude.host_addresses import parse_reachable_host

    for entry in value:
        try:
            parse_reachable_host(entry)
        except Invalid as error:
            raise ValueError(f"{error} {error.hint}") from None
    return value


class RemoteSettings(Entity):
    """Files on other machines that sources may read; none unless they are listed."""

    allow: tuple[str, ...] = ()
    """Where files may be read from, such as `https://data.example.com/exports/` or `s3://bucket/`."""
    reach: tuple[str, ...] = ()
    """Private hosts and networks that these may be at, such as `files.internal` or `10.1.0.0/16`."""
    bytes: Size = 4 << 30
    """The largest file, or S3 folder, that is downloaded."""
    s3: dict[str, str] = Field(default_factory=dict, repr=False)
    """Options for S3, such as `endpoint`, `region` and keys; others come from the environment (`AWS_*`)."""

    _split_lists = field_validator("allow", "reach", mode="before")(_split)
    _are_networks = field_validator("reach")(_check_reach)

    @field_validator("allow")
    @classmethod
    def _are_places(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for entry in value:
            scheme, separator, rest = entry.partition("://")
            if not separator or scheme not in ("https", "http", "s3") or not rest.strip("/") or "*" in entry:
                raise ValueError(f"`{entry}` is not a place. Write https://host/folder/ or s3://bucket/folder/.")
        return value


class AgentSettings(Entity):
    """Settings of durable agents."""

    reach: tuple[str, ...] = ()
    """Private hosts and networks that agents may send events to, such as `hooks.internal` or `10.1.0.0/16`."""

    _split_lists = field_validator("reach", mode="before")(_split)
    _are_networks = field_validator("reach")(_check_reach)


Days = Annotated[float, Field(ge=0, le=36_500)]
"""A number of days; 0 means for ever."""


class TenantRetention(Entity):
    """How long the records of one tenant are kept, in days; what is not set is as for all tenants."""

    runs: Days | None = None
    results: Days | None = None
    threads: Days | None = None
    actions: Days | None = None
    events: Days | None = None
    steps: Days | None = None
    audit: Days | None = None
    catalogs: Days | None = None
    indexes: Days | None = None


Kept = Literal["runs", "results", "threads", "actions", "events", "steps", "audit", "catalogs", "indexes"]
"""A kind of record with a retention of its own."""


class RetentionSettings(Entity):
    """How many days records are kept; 0 means for ever. Servers and workers delete older ones every hour."""

    runs: Days = 0.0
    """Days that runs are kept after they ended, with their results. Pinned runs stay, and those that others need."""
    results: Days = 0.0
    """Days that results and other files of runs are kept; the runs stay, with their code and answers."""
    threads: Days = 0.0
    """Days that conversations are kept after their last message, once none of their runs is left."""
    actions: Days = 30.0
    """Days that actions of agents are kept after they ended."""
    events: Days = 30.0
    """Days that events of agents are kept."""
    steps: Days = 30.0
    """Days that steps of agents are kept, and agents after they were destroyed. The last 1,000 steps of others stay."""
    audit: Days = 0.0
    """Days that the audit log goes back."""
    catalogs: Days = 0.0
    """Days that catalogs are kept; the latest one of each source always stays."""
    indexes: Days = 0.0
    """Days that search indexes are kept after they were built; those of registered sources always stay."""
    tenants: dict[str, TenantRetention] = Field(default_factory=dict)
    """The same for single tenants, by name."""

    def days(self, kind: Kept, tenant: str) -> float:
        """Return how many days a kind of record of a tenant is kept; infinity for ever."""
        own = self.tenants.get(tenant)
        chosen = getattr(own, kind) if own is not None else None
        found: float = getattr(self, kind) if chosen is None else chosen
        return found or math.inf


class TelemetrySettings(Entity):
    """Settings of traces over OpenTelemetry; off unless an address is given."""

    otlp: str = ""
    """Where to send traces over HTTP, such as `http://localhost:4318/v1/traces`."""
    headers: dict[str, str] = Field(default_factory=dict)
    """HTTP headers for the receiver, such as a key or the experiment of MLflow."""
    content: bool = False
    """Whether questions, code and answers are sent as well."""


class Settings(Entity):
    """All settings. `etude config` prints the effective ones and where each comes from."""

    home: Folder = Field(default_factory=default_home)
    """The folder of etude's state."""
    store: str = ""
    """Where runs are recorded: `sqlite:///path` or `postgresql://...`; a file under `home` by default."""
    objects: str = ""
    """Where results are stored: a folder, `s3://bucket/prefix`, `gs://`, `az://`; a folder under `home` by default."""
    objects_options: dict[str, str] = Field(default_factory=dict)
    """Options of the object store besides its URL, such as `endpoint`, `region` and keys."""
    record: bool = True
    """Whether queries are recorded as runs."""
    limits: QueryLimits = QueryLimits()
    engine: EngineSettings = Field(default_factory=EngineSettings)
    sandbox: str = "local"
    """The sandbox provider that runs sessions: `local`, `container`, or one that a package adds."""
    sandbox_options: dict[str, str] = Field(default_factory=dict)
    """Options of the sandbox provider, such as `image` or `rootfs` for `container`."""
    session: SessionSettings = SessionSettings()
    model: str = "offline"
    """The model that answers questions: `offline` for rules only, or for example `openai:gpt-5` or `ollama:qwen3`."""
    offline: OfflineSettings = OfflineSettings()
    budget: Budget = Budget()
    history: int = Field(default=12, ge=0, le=200)
    """The most earlier messages of a thread that a model sees."""
    replay: Literal["on", "off", "shadow"] = "on"
    """Whether scripts of earlier runs answer the same questions; `shadow` also runs a model now and then to compare."""
    models: dict[str, ModelSettings] = Field(default_factory=dict)
    """Model providers by name, such as `openai`."""
    catalog: CatalogSettings = CatalogSettings()
    search: SearchSettings = SearchSettings()
    server: ServerSettings = ServerSettings()
    agents: AgentSettings = AgentSettings()
    remote: RemoteSettings = RemoteSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    retention: RetentionSettings = RetentionSettings()
    sources: dict[str, SourceSpec] = Field(default_factory=dict)
    """Sources by name."""

    @field_validator("limits")
    @classmethod
    def _cuts_nothing(cls, value: QueryLimits) -> QueryLimits:
        if value.limit:
            raise ValueError("`limit` cuts results, so it is given with a query; `rows` refuses longer ones")
        return value

    @property
    def store_url(self) -> str:
        """The store, with the default filled in."""
        return self.store or f"sqlite:///{self.home / STORE}"

    @property
    def objects_url(self) -> str:
        """The object store, with the default filled in."""
        return self.objects or str(self.home / OBJECTS)


def load_settings(environment: Mapping[str, str] | None = None, **keywords: Any) -> Settings:
    """Return the effective settings; raise `Invalid` with the key, the value and what to write instead."""
    settings, _ = load_settings_with_origins(environment, **keywords)
    return settings


def load_settings_with_origins(
    environment: Mapping[str, str] | None = None, **keywords: Any
) -> tuple[Settings, dict[str, str]]:
    """Return the effective settings, and the origin of each dotted key that is set."""
    environment = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    file = find_settings_file(environment)
    layers = [(str(file), _read_file(file))] if file else []
    layers.append(("environment", _read_environment(environment)))
    layers.append(("keyword", {k: _plain(v) for k, v in keywords.items() if v is not None}))
    for origin, layer in layers:
        _merge(values, layer)
        origins |= {key: origin for key, _ in flatten_settings(layer)}
    try:
        return Settings(**values), origins
    except ValidationError as error:
        raise _explain(error, origins) from None


def _plain(value: Any) -> Any:
    # Only the fields that were set: the defaults of a model must not hide the values of lower layers.
    return value.model_dump(exclude_unset=True) if isinstance(value, Entity) else value


def _read_file(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise Invalid(f"`{path}` is nested too deeply.", hint="Settings have at most four levels.") from None
    except OSError as error:
        raise Invalid(f"`{path}` cannot be read: {error.strerror}.", hint="Check its permissions.") from None
    except ValueError as error:  # also numbers with too many digits
        raise Invalid(f"`{path}` is not valid TOML: {error}.", hint="Correct the line named.") from None


def _read_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    layer: dict[str, Any] = {}
    for key, text in environment.items():
        if not key.startswith("ETUDE_") or key in NOT_SETTINGS or not text:
            continue
        path = key.removeprefix("ETUDE_").lower().split("__")
        if path[0] not in Settings.model_fields:
            near = difflib.get_close_matches(path[0], Settings.model_fields, n=1)
            named = "__".join(["ETUDE_" + near[0].upper(), *(part.upper() for part in path[1:])]) if near else ""
            hint = f"Did you mean `{named}`?" if near else "Unset it; `etude config` lists the keys."
            raise Invalid(f"The variable `{key}` is not a setting of etude.", hint=hint)
        value: Any = _parse_variable(key, text, path)
        for part in reversed(path[1:]):
            value = {part: value}
        _merge(layer, {path[0]: value})
    return layer


def _parse_variable(key: str, text: str, path: list[str]) -> Any:
    """Parse a variable: as JSON if the setting is a table or a list; a list may also be written `a, b`."""
    kind = _kind_of(path)
    if kind not in (dict, tuple):
        return text
    if text.lstrip().startswith("{" if kind is dict else "["):
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            # Do not quote the text or the parser's message: they may contain a secret.
            where = f" at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else ""
            raise Invalid(
                f"The variable `{key}` is not valid JSON{where}.", hint="Use double quotes and no comma at the end."
            ) from None
    return [part.strip() for part in text.split(",") if part.strip()] if kind is tuple else text


def _kind_of(path: list[str]) -> type | None:
    """Return `dict` if the setting is a table, `tuple` if it is a list, None otherwise or if it is unknown."""
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
    # `tuple[str, ...] | None` is a list as well.
    kinds = [get_origin(each) or each for each in (get_args(kind) if get_origin(kind) is UnionType else (kind,))]
    return next((each for each in (dict, tuple) if each in kinds), None)


def _merge(into: dict[str, Any], layer: Mapping[str, Any]) -> None:
    for key, value in layer.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = dict(value) if isinstance(value, Mapping) else value


def flatten_settings(layer: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested settings with dotted keys."""
    for key, value in layer.items():
        if isinstance(value, Mapping) and value:
            yield from flatten_settings(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _explain(error: ValidationError, origins: dict[str, str]) -> Invalid:
    from etude.validation import explain_validation

    def name(key: str) -> str:
        near = (o for k, o in origins.items() if f"{k}.".startswith(f"{key}.") or f"{key}.".startswith(f"{k}."))
        found = origins.get(key) or next(near, None)
        return f"The setting `{key}`" + (f" (from {found})" if found else "")

    return explain_validation(
        error, "the settings", model=Settings, name=name, containers=False, hint="`etude config` lists the settings."
    )


def read_setting_reference(text: str, what: str) -> str:
    """Return the text, or the value that `env:NAME` or `file:PATH` refers to, so that settings need not hold secrets.

    `what` starts the error message about an invalid reference, such as "The source".
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
