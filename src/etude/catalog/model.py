"""The profile of a source as frozen models, the base of every use of a catalog: pages, drift, agents, API.

Values of the data are `Scalar`: an integer or a float if JSON can represent it, else text (a decimal as its digits, a
date in ISO format, `NaN` and `Infinity` as words, bytes in hexadecimal, nested values as JSON). `profile_number` and
`profile_datetime` parse them.
"""

from __future__ import annotations

import math
from datetime import date, datetime, time
from typing import Literal

from etude.entities import Entity

FORMAT = 1
"""The version of this model. Fields are only ever added; a change of meaning gets a new number."""

Scalar = bool | int | float | str | None
Family = Literal[
    "boolean",
    "integer",
    "decimal",
    "float",
    "text",
    "date",
    "time",
    "timestamp",
    "interval",
    "uuid",
    "binary",
    "json",
    "nested",
    "other",
]
NUMERIC: frozenset[str] = frozenset({"integer", "decimal", "float"})
DATED: frozenset[str] = frozenset({"date", "timestamp"})

Method = Literal["exact", "sampled", "approximate", "metadata"]
Origin = Literal["declared", "inferred"]


class Provenance(Entity):
    """How a group of statistics was obtained, and its error bound."""

    method: Method = "exact"
    rows: int | None = None
    """Rows of the sample, if one was taken."""
    error: float | None = None
    """The error bound: a share of the rows for quantiles and counts, a relative error for distinct."""
    detail: str | None = None
    """The bound in words."""


EXACT = Provenance()


class TopValue(Entity):
    """A frequent value. `share` is of the values that are not null."""

    value: Scalar
    count: int
    share: float


class Histogram(Entity):
    """Counts between edges: `counts[i]` values lie between `edges[i]` and `edges[i + 1]`.

    The edges are quantiles (`equi-depth`) or the values themselves (`values`: one edge and one count per value).
    """

    kind: Literal["equi-depth", "values"] = "equi-depth"
    edges: tuple[Scalar, ...]
    counts: tuple[float, ...]


class Lengths(Entity):
    """Lengths in characters (of text) or bytes (of binary) or entries (of lists). `empty` counts the length zero."""

    min: int
    max: int
    mean: float
    empty: int = 0
    padded: int | None = None
    """Texts that start or end with a space; None for other values, and in profiles of earlier versions."""


class Outliers(Entity):
    """Values outside Tukey's fences, three interquartile ranges from the quartiles."""

    low: float
    high: float
    below: int
    above: int


class Pattern(Entity):
    """A pattern that text values follow: `kind` names it, `form` is more specific (a date format, a mask)."""

    kind: str
    """email, url, uuid, date, timestamp, time, number, integer, boolean, phone, ip, json, code, hex, iban, card ..."""
    share: float
    """The share of the examined values that are not empty."""
    form: str | None = None
    """`%Y-%m-%d` for a date, `AA-9999` for a code (A is a letter, 9 a digit)."""


class PiiHint(Entity):
    """Suspected personal data, with the reason. A column with a hint shows only masked values."""

    kind: str
    """email, phone, person name, address, birth date, ip address, payment card, bank account, insurance number ..."""
    confidence: float
    reason: str
    """A sentence such as `98% of the values look like email addresses`."""


class ColumnProvenance(Entity):
    """How each group of a column's statistics was obtained; None if the group is absent."""

    counts: Provenance = EXACT
    """Nulls, min, max, zeros, negatives, NaN, lengths."""
    distinct: Provenance | None = EXACT
    moments: Provenance | None = EXACT
    """Mean, standard deviation."""
    quantiles: Provenance | None = EXACT
    """Quantiles, histogram, outliers."""
    top: Provenance | None = EXACT
    patterns: Provenance | None = None


class ColumnProfile(Entity):
    """One column. Fields that do not apply to its type are None or empty."""

    name: str
    type: str
    """The type as the source's engine names it."""
    family: Family
    nullable: bool = True
    comment: str | None = None
    """The comment in the source."""
    description: str | None = None
    """The description from annotations."""
    tags: tuple[str, ...] = ()
    rows: int | None = None
    nulls: int | None = None
    distinct: int | None = None
    """Distinct values that are not null."""
    unique: bool | None = None
    """Whether no value occurs twice; None if the distinct count is approximate and does not decide it."""
    constant: bool = False
    """The same value in every row, without nulls."""
    empty: bool = False
    """Only nulls or empty text, and at least one row."""
    min: Scalar = None
    max: Scalar = None
    mean: float | None = None
    stddev: float | None = None
    """Of the sample (n - 1)."""
    zeros: int | None = None
    negatives: int | None = None
    nans: int | None = None
    infinities: int | None = None
    """NaN and infinities are left out of mean, stddev, quantiles and outliers; they count in distinct and top."""
    quantiles: tuple[Scalar, ...] = ()
    """21 quantiles: the smallest value with at least 0%, 5%, ... 100% of the values at or below it.

    Only numbers and dates have them, and texts that are all ISO dates.
    """
    histogram: Histogram | None = None
    outliers: Outliers | None = None
    top: tuple[TopValue, ...] = ()
    """The 10 most frequent values; ties are in the order of the values."""
    lengths: Lengths | None = None
    patterns: tuple[Pattern, ...] = ()
    pii: tuple[PiiHint, ...] = ()
    masked: bool = False
    """Values shown here (min, max, top, samples) are masked."""
    typical_gap_s: float | None = None
    """For a date column, the typical seconds between successive distinct values: the median of the newest 50, or the
    mean of the newer half if the column has many values."""
    provenance: ColumnProvenance = ColumnProvenance()
    notes: tuple[str, ...] = ()

    @property
    def null_share(self) -> float | None:
        """The share of rows that are null, or None without rows."""
        return self.nulls / self.rows if self.rows and self.nulls is not None else None


class KeyEvidence(Entity):
    """Columns that identify a row."""

    columns: tuple[str, ...]
    origin: Origin
    primary: bool = True
    """True for the key to use; False for an alternative key."""
    unique: bool | None = None
    """Whether the data confirms it: False for a declared key that the data violates; None if not checked."""
    not_null: bool | None = None
    score: float = 1.0
    reasons: tuple[str, ...] = ()


class ForeignKeyEvidence(Entity):
    """Columns that refer to columns of another table."""

    columns: tuple[str, ...]
    to_table: str
    to_columns: tuple[str, ...]
    origin: Origin
    containment: float | None = None
    """Share of the distinct values found on the other side."""
    coverage: float | None = None
    """Share of the other side's values that are referred to."""
    values: int | None = None
    """Distinct values compared."""
    missing: int | None = None
    """Distinct values without a match."""
    name_similarity: float | None = None
    cardinality: Literal["one-to-one", "many-to-one"] | None = None
    score: float = 1.0
    reasons: tuple[str, ...] = ()
    provenance: Provenance = EXACT


class Dependency(Entity):
    """Each value of `columns` has one value of `determines`."""

    columns: tuple[str, ...]
    determines: str
    kind: Literal["determines", "one-to-one", "equal"] = "determines"
    rows: int
    """Rows in which both have a value."""
    reason: str
    provenance: Provenance = EXACT


class Correlation(Entity):
    """Two numeric columns that rise and fall together (or against each other)."""

    columns: tuple[str, str]
    coefficient: float
    """Spearman's rank correlation, -1 to 1."""
    rows: int
    """Rows in which both have a value."""
    provenance: Provenance = EXACT


class Freshness(Entity):
    """The newest timestamp of a table, and the column that holds it."""

    column: str
    newest: str
    """A date or time in ISO format."""
    oldest: str
    typical_gap_s: float | None = None


class Samples(Entity):
    """A few rows, with the values of suspected personal data masked."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Scalar, ...], ...]


class TableProfile(Entity):
    """One table or view."""

    name: str
    kind: Literal["table", "view"] = "table"
    comment: str | None = None
    description: str | None = None
    """The description from annotations."""
    owner: str | None = None
    tags: tuple[str, ...] = ()
    plan: Literal["exact", "light", "sampled", "failed"] = "exact"
    """`sampled` if large columns of many values were measured from a sample; `failed` if columns have no statistics.
    `light` is no longer produced."""
    rows: int | None = None
    rows_provenance: Provenance = EXACT
    bytes: int | None = None
    columns: tuple[ColumnProfile, ...] = ()
    keys: tuple[KeyEvidence, ...] = ()
    foreign_keys: tuple[ForeignKeyEvidence, ...] = ()
    dependencies: tuple[Dependency, ...] = ()
    correlations: tuple[Correlation, ...] = ()
    """The strongest ones, from 0.3 on."""
    freshness: Freshness | None = None
    samples: Samples | None = None
    error: str | None = None
    """Why the table could not be profiled."""
    notes: tuple[str, ...] = ()
    """What could not be read, and why."""

    def column(self, name: str) -> ColumnProfile | None:
        """Return the column of that name, or None."""
        return next((c for c in self.columns if c.name == name), None)

    @property
    def primary_key(self) -> KeyEvidence | None:
        """The key to use, declared before inferred, or None."""
        return next((k for k in self.keys if k.primary), None)


class SourceProfile(Entity):
    """The profile of a source. Equal data gives equal bytes (`to_json`)."""

    format: int = FORMAT
    source: str
    kind: str
    dialect: str
    fingerprint: str
    """A hash of tables, columns and types."""
    tables: tuple[TableProfile, ...] = ()
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = {}
    made_at: datetime | None = None
    """When the profile was made; not part of `to_json`."""

    def table(self, name: str) -> TableProfile | None:
        """Return the table of that name, ignoring case, or None."""
        wanted = name.lower()
        return next((t for t in self.tables if t.name.lower() == wanted), None)


def to_json(profile: SourceProfile) -> bytes:
    """Encode the profile as JSON without defaults and without its time: equal for equal data."""
    return profile.model_dump_json(exclude={"made_at"}, exclude_defaults=True).encode()


def profile_to_line(profile: SourceProfile) -> bytes:
    """The profile as `catalog.json` holds it, with its time: one line."""
    return profile.model_dump_json(exclude_defaults=True).encode() + b"\n"


def from_json(data: bytes | str) -> SourceProfile:
    """Decode a profile that `to_json` wrote."""
    return SourceProfile.model_validate_json(data)


def profile_number(value: Scalar) -> float | None:
    """Parse a value as a finite float; None if it is not a number."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        result = float(value)
    except (ValueError, OverflowError):
        return None
    return result if math.isfinite(result) else None


def profile_datetime(value: Scalar) -> datetime | None:
    """Parse a date or timestamp in ISO format as a datetime, naive unless it has a time zone; else None."""
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        pass
    try:
        return datetime.combine(date.fromisoformat(value), time())
    except ValueError:
        return None
