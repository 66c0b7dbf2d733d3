"""Rows that pass a filter, ranked by their similarity to a text or to another row.

The engine executes the filter: it decides which rows there are, and the ranking only sorts them. Texts come from the
rows as they are now; an index only saves the time to embed them.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from etude.cancellation import Cancellation
from etude.catalog.measure.pii import mask_pii_value
from etude.cell_text import cell_to_json, cut_json_cell
from etude.entities import Table
from etude.errors import Invalid, LimitExceeded, NotFound, UnknownTable
from etude.limits import change_limits
from etude.search.documents import TextColumns, row_document_text
from etude.search.exact_index import K1, B, exact_index_vectors
from etude.search.index_base import Mode, Only, index_document_fingerprint
from etude.search.ranking import cut_ranking_snippet
from etude.search.search_results import FacetValue, MatchedRow, MatchPage
from etude.search.terms import query_terms, terms_of
from etude.similar_names import similar_names
from etude.sources.quoting import quote_identifier, quote_table
from etude.sources.sql_parsing import parse_sql

if TYPE_CHECKING:
    from etude.app import App
    from etude.result import Result
    from etude.search.indexes import Indexes
    from etude.sources.source import Source

K = 1_000
OFFSET = 100_000
FACETS = 8
FACET_VALUES = 50
CHUNK = 1_024
CHUNK_BYTES = 32 << 20
"""Rows that are compared at once: this many, or of about this many bytes."""
HELD_BYTES = 128 << 20
"""The bytes of the best rows that are held until the page is known."""
FACET_BYTES = 128 << 20
"""The bytes of the values that are counted for facets."""
WHOLE_VALUE = 200
"""Characters of a value that is counted as it is."""
VALUE_BYTES = 200
"""About what it takes to count one more value."""
LIKE = 20_000
SHOWN_NAMES = 12
Filter = str | Mapping[str, Any] | Sequence[Mapping[str, Any]]


def _nearest(name: str, known: Sequence[str], noun: str) -> str:
    """Return a hint with the most similar name, or with the first ones; a table may be named without its schema."""
    by_name = {known_name.rpartition(".")[2].lower(): known_name for known_name in reversed(known)}
    by_name |= {known_name.lower(): known_name for known_name in known}
    near = similar_names(name[:200].lower(), by_name, n=1)
    if near:
        return f"Did you mean `{by_name[near[0]]}`?"
    return f"{noun}: {', '.join(f'`{n}`' for n in known[:SHOWN_NAMES])}{', ...' if len(known) > SHOWN_NAMES else ''}."


class FacetCounts:
    """Counts the values of columns. Long values are kept by their hash and as they are shown."""

    def __init__(self, columns: Iterable[str]) -> None:
        self._counts: dict[str, Counter[Any]] = {name: Counter() for name in columns}
        self._shown: dict[bytes, Any] = {}
        self._held = 0

    def add(self, row: Mapping[str, Any]) -> None:
        """Count the values of a row; raise `LimitExceeded` if there are too many different ones to hold."""
        for name, counts in self._counts.items():
            value = _countable(row[name])
            if isinstance(value, str | bytes) and len(value) > WHOLE_VALUE:
                data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
                digest = hashlib.sha256(data).digest()
                if digest not in self._shown:
                    self._shown[digest] = cut_json_cell(value, "table")
                    self._held += len(str(self._shown[digest]))
                value = _LongValue(digest)
            if value not in counts:
                self._held += VALUE_BYTES
            counts[value] += 1
            if self._held > FACET_BYTES:
                raise LimitExceeded(
                    f"`{name}` has too many different values to count: they take more than {FACET_BYTES:,} bytes.",
                    hint="Narrow `where`, or count a column with fewer values.",
                    limit="facets",
                    value=FACET_BYTES,
                )

    def most_common(self) -> dict[str, list[FacetValue]]:
        """Return the most frequent values of each column as they are shown."""
        return {
            name: [FacetValue(value=self._show(v), count=n) for v, n in counts.most_common(FACET_VALUES)]
            for name, counts in self._counts.items()
        }

    def _show(self, value: Any) -> Any:
        return self._shown[value.digest] if isinstance(value, _LongValue) else cut_json_cell(value, "table")


@dataclass(frozen=True)
class _LongValue:
    digest: bytes


class Matcher:
    """One match on a table of a source."""

    def __init__(self, app: App, indexes: Indexes, source: Source, table: str, columns: Sequence[str]) -> None:
        self._app = app
        self._indexes = indexes
        self._source = source
        self._catalog = app.catalog(source)
        found = self._catalog.table(table)
        if found is None:
            hint = _nearest(table, [t.name for t in self._catalog.tables], "Tables")
            raise UnknownTable(f"`{source.name}` has no table `{table[:200]}`.", hint=hint)
        self._table: Table = found
        self._open = indexes.open_latest(source)
        texts, self._masked, self._key = self._facts()
        self._columns = self._check_columns(columns) if columns else texts
        if not self._columns:
            raise Invalid(f"`{found.name}` has no column of text that can be compared.", hint="Name some: `columns`.")

    def _facts(self) -> tuple[tuple[str, ...], dict[str, str], tuple[str, ...]]:
        """Return the text columns, the masked columns and the key, from the index if the schema is still the same."""
        name = self._table.name
        if self._open is not None and self._open[0].schema_fingerprint == self._catalog.fingerprint:
            manifest = self._open[0]
            return manifest.texts.get(name, ()), manifest.masked.get(name, {}), manifest.keys.get(name, ())
        facts = TextColumns(self._app.profile(self._source))
        if name not in facts.texts:
            raise NotFound(f"The catalog has no table `{name}` yet.", hint="Try again.")
        return facts.texts[name], facts.masked[name], facts.keys[name]

    def _check_columns(self, columns: Sequence[str]) -> tuple[str, ...]:
        return tuple(self._column(name, "compared") for name in columns)

    def _column(self, name: str, use: str) -> str:
        found = next((c.name for c in self._table.columns if c.name.lower() == name.lower()), None)
        if found is None:
            raise self._no_column(name)
        if found in self._masked:
            raise Invalid(
                f"`{found}` is masked as personal data ({self._masked[found]}), so it cannot be {use}.",
                hint="Name another column.",
            )
        return found

    def match(
        self,
        where: Filter | None,
        like: str | Mapping[str, Any],
        k: int,
        offset: int,
        facets: Sequence[str],
        cancel: Cancellation | None = None,
    ) -> MatchPage:
        """Return a page of the rows that pass the filter, most similar first.

        The limit of time of a query holds for reading and comparing the rows together.
        """
        started = time.monotonic()
        if cancel is not None:
            cancel.check()  # its client may have left while it waited for its turn
        if not 1 <= k <= K or not 0 <= offset <= OFFSET:
            raise Invalid(f"k is {k} and the offset {offset}.", hint=f"k goes from 1 to {K}, the offset to {OFFSET:,}.")
        if len(facets) > FACETS:
            raise Invalid(f"There are {len(facets)} facets; at most {FACETS} are allowed.", hint="Ask for fewer.")
        counted = FacetCounts(self._column(name, "counted") for name in facets)
        text, itself = self._like(like)
        sql, shown = self._select(where)
        names = [c.name for c in self._table.columns]
        ranking = self._ranking(text)
        best: list[tuple[float, str, int, int, tuple[Any, ...]]] = []
        total, most = 0, self._app.settings.search.candidates
        for rows in _chunks(self._rows(sql, most)):
            self._check_time(started)
            if cancel is not None:
                cancel.check()
            values = [dict(zip(names, row)) for row in rows]
            scores = ranking.score([row_document_text(each, self._columns) for each in values])
            for row, each, score in zip(rows, values, scores):
                if itself is not None and all(each[name] == value for name, value in itself.items()):
                    continue  # a row is not compared with itself
                total += 1
                counted.add(each)
                # Ties are in the order of the keys, so that pages do not overlap.
                key = repr([each[name] for name in self._key])
                best.append((-score, key, total, _count_row_bytes(row) + len(key), row))
            best = heapq.nsmallest(offset + k + 1, best)
            _check_held(sum(size for *_, size, _ in best))
        page = [(-score, dict(zip(names, row))) for score, *_, row in best[offset : offset + k]]
        return MatchPage(
            source=self._source.name,
            table=self._table.name,
            where=shown,
            mode=ranking.mode,
            columns=list(self._columns),
            rows=[self._matched(row, score, shown, text, ranking) for score, row in page],
            total=total,
            next=offset + k if len(best) > offset + k else None,
            facets=counted.most_common(),
            notes=ranking.notes,
            elapsed_ms=round((time.monotonic() - started) * 1000, 3),
        )

    # The filter.

    def _select(self, where: Filter | None) -> tuple[str, str]:
        """Return the query for the rows that pass the filter, and the filter as text."""
        dialect = self._catalog.dialect
        listed = ", ".join(quote_identifier(c.name, dialect) for c in self._table.columns)
        if not where or (isinstance(where, str) and not where.strip()):
            return f"SELECT {listed} FROM {quote_table(self._table.name, dialect)}", ""
        if isinstance(where, str):
            condition = parse_match_condition(where, dialect)
            return f"SELECT {listed} FROM {quote_table(self._table.name, dialect)} WHERE ({condition})", condition
        filters = [where] if isinstance(where, Mapping) else list(where)
        plan = {"from": self._table.name, "select": [{"column": c.name} for c in self._table.columns], "where": filters}
        sql = self._app.compile(self._source, plan)[1]
        return sql, describe_match_filters(filters)

    def _rows(self, sql: str, most: int) -> Iterator[tuple[Any, ...]]:
        limits = change_limits(self._app.settings.limits, {"rows": most})
        try:
            result: Result = self._app.sql(self._source, sql, limits=limits, record=False)
        except LimitExceeded as error:
            if error.details.get("limit") != "rows":
                raise
            raise LimitExceeded(
                f"More than {most:,} rows pass the filter.",
                hint="Narrow `where`, or raise `search.candidates`.",
                limit="candidates",
            ) from None
        yield from result.iter_rows_in_pieces()

    def _check_time(self, started: float) -> None:
        seconds = self._app.settings.limits.timeout_s
        if time.monotonic() - started > seconds:
            raise LimitExceeded(
                f"Comparing the rows of `{self._table.name}` exceeded the time limit of {seconds:g} s.",
                hint="Narrow `where`, or compare fewer `columns`.",
                limit="timeout_s",
                value=seconds,
            )

    # The text to compare with.

    def _like(self, like: str | Mapping[str, Any]) -> tuple[str, dict[str, Any] | None]:
        """Return the text to compare with; and, if it is that of a row, the key of this row."""
        if isinstance(like, str):
            if not like.strip():
                raise Invalid("`like` is empty.", hint="Write a text, or the key of a row.")
            if len(like) > LIKE:
                raise Invalid(f"`like` has {len(like):,} characters; at most {LIKE:,} are allowed.", hint="Shorten it.")
            return like, None
        if not like:
            raise Invalid("`like` is an empty key.", hint='Write the columns of the key: {"id": 17}.')
        names = {self._any_column(name): value for name, value in like.items()}
        filters = [{"column": {"column": n}, "op": "=", "value": v} for n, v in names.items()]
        columns = list(dict.fromkeys((*self._columns, *names)))
        plan = {"from": self._table.name, "select": [{"column": c} for c in columns], "where": filters}
        rows = self._app.plan(
            self._source, plan, limits=change_limits(self._app.settings.limits, {"limit": 2}), record=False
        ).rows()
        if len(rows) != 1:
            found = "no row" if not rows else "several rows"
            raise NotFound(
                f"`{self._table.name}` has {found} with the key {json.dumps(dict(like), default=str)[:200]}.",
                hint="Give the key of one row.",
            )
        values = dict(zip(columns, rows[0]))
        return row_document_text(values, self._columns), {name: values[name] for name in names}

    def _no_column(self, name: str) -> Invalid:
        hint = _nearest(name, [c.name for c in self._table.columns], "Columns")
        return Invalid(f"`{self._table.name}` has no column `{name[:200]}`.", hint=hint)

    def _any_column(self, name: str) -> str:
        found = next((c.name for c in self._table.columns if c.name.lower() == name.lower()), None)
        if found is None:
            raise self._no_column(name)
        return found

    # Ranking.

    def _ranking(self, text: str) -> _Ranking:
        model = self._indexes.embeddings
        if model is None:
            note = "No embeddings are installed, so rows are ranked by their words. pip install 'etude[search]'"
            return _WordRanking(text, [note])
        known: dict[str, Any] = {}
        if self._open is not None and self._open[0].embeddings == model.identity:
            only = Only(("row",), (self._table.name,))
            for batch in self._open[1].batches(["fingerprint", "vector"], only):
                known |= zip(batch.column("fingerprint").to_pylist(), exact_index_vectors(batch.column("vector")))
        return _VectorRanking(text, model, known)

    def _matched(self, row: Mapping[str, Any], score: float, where: str, text: str, ranking: _Ranking) -> MatchedRow:
        column, similarity = ranking.nearest_column(row, self._columns)
        terms = cut_ranking_snippet(row_document_text(row, self._columns), query_terms(text)).terms
        said = f"{similarity:.2f} similar in {column}" if ranking.mode == "vector" else ""
        if ranking.mode == "text":
            said = f"contains {', '.join(terms)}" if terms else "contains none of the words"
        shown = {name: self._shown(name, value) for name, value in row.items()}
        because = "; ".join(part for part in (where, said) if part)
        return MatchedRow(row=shown, score=round(score, 4), because=because, terms=list(terms))

    def _shown(self, name: str, value: Any) -> Any:
        kind = self._masked.get(name)
        plain = cell_to_json(value)
        if kind is None or plain is None:
            return cut_json_cell(plain, "table")
        return mask_pii_value(kind, plain if isinstance(plain, str | int | float | bool) else str(plain))


class _Ranking(ABC):
    """Scores texts by their similarity to one text."""

    mode: Mode
    notes: list[str]

    @abstractmethod
    def score(self, texts: Sequence[str]) -> list[float]:
        """Return the scores of texts."""

    @abstractmethod
    def nearest_column(self, row: Mapping[str, Any], columns: Sequence[str]) -> tuple[str, float]:
        """Return the column that is most similar, and how much."""


class _VectorRanking(_Ranking):
    """By the cosine of their vectors."""

    mode: Mode = "vector"

    def __init__(self, text: str, model: Any, known: dict[str, Any]) -> None:
        self._model = model
        self._known = known
        self._vector = model.embed([text])[0]
        self.notes = []

    def score(self, texts: Sequence[str]) -> list[float]:
        from etude.search.embeddings.base import load_numpy_for_embeddings

        np = load_numpy_for_embeddings()
        fingerprints = [index_document_fingerprint(text) for text in texts]
        missing = {f: t for f, t in zip(fingerprints, texts) if f not in self._known}
        embedded = dict(zip(missing, self._model.embed(list(missing.values())))) if missing else {}
        vectors = [embedded[f] if f in embedded else self._known[f] for f in fingerprints]
        return [float(s) for s in np.stack(vectors) @ self._vector]

    def nearest_column(self, row: Mapping[str, Any], columns: Sequence[str]) -> tuple[str, float]:
        filled = [c for c in columns if row[c] not in (None, "")]
        if not filled:
            return columns[0], 0.0
        scores = self.score([row_document_text(row, [c]) for c in filled])
        best = max(range(len(filled)), key=lambda place: scores[place])
        return filled[best], scores[best]


class _WordRanking(_Ranking):
    """By their words: BM25 with the frequencies of the rows seen so far, which is all that a stream can know."""

    mode: Mode = "text"

    def __init__(self, text: str, notes: list[str]) -> None:
        self._terms = query_terms(text)
        self.notes = notes

    def score(self, texts: Sequence[str]) -> list[float]:
        return [self._score(text) for text in texts]

    def _score(self, text: str) -> float:
        counts = Counter(terms_of(text))
        length = sum(counts.values())
        # Rare and common terms count alike: their frequencies among the rows that pass the filter are not known yet.
        return sum(
            counts[t] * (K1 + 1) / (counts[t] + K1 * (1 - B + B * length / 20)) for t in self._terms if t in counts
        )

    def nearest_column(self, row: Mapping[str, Any], columns: Sequence[str]) -> tuple[str, float]:
        return columns[0], 0.0


def _countable(value: Any) -> Any:
    plain = cell_to_json(value)
    return json.dumps(plain) if isinstance(plain, list | dict) else plain


def _chunks(rows: Iterator[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    chunk: list[tuple[Any, ...]] = []
    size = 0
    for row in rows:
        chunk.append(row)
        size += _count_row_bytes(row)
        if len(chunk) == CHUNK or size > CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _count_row_bytes(row: tuple[Any, ...]) -> int:
    """Return about how many bytes the texts of a row take."""
    return sum(len(v) if isinstance(v, str | bytes) else len(str(v)) for v in row if v is not None)


def _check_held(size: int) -> None:
    if size > HELD_BYTES:
        raise LimitExceeded(
            f"The rows up to this page have {size:,} bytes; {HELD_BYTES:,} are allowed.",
            hint="Narrow `where`, or ask for an earlier page or a smaller `k`.",
            limit="match",
        )


def parse_match_condition(text: str, dialect: str) -> str:
    """Return one SQL condition as it will be executed: parsed, and written again from its syntax tree.

    What is executed is what was parsed. A text that would close the parenthesis around it, or that contains a further
    clause or statement, has no such tree.
    """
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    hint = "Write one condition, such as: state = 'IL' AND skill LIKE '%forklift%'."
    if len(text) > LIKE:
        raise Invalid(f"`where` has {len(text):,} characters; at most {LIKE:,} are allowed.", hint="Shorten it.")
    try:
        parsed = parse_sql(f"SELECT 1 WHERE {text}", dialect)
    except SqlglotError as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise Invalid(f"`where` is not a valid condition: {reason}", hint=hint) from None
    select = parsed[0] if len(parsed) == 1 else None
    clauses = {name for name, value in select.args.items() if value} if isinstance(select, exp.Select) else set()
    if select is None or clauses != {"expressions", "where"}:
        raise Invalid("`where` is more than one condition.", hint=hint)
    condition = select.args["where"].this
    return str(condition.sql(dialect=dialect, comments=False))


def describe_match_filters(filters: Sequence[Any]) -> str:
    """Return the filters of a QueryPlan as a person would say them."""
    return " and ".join(_describe(each) for each in filters)


def _describe(each: Any) -> str:
    if not isinstance(each, Mapping):
        return json.dumps(each, default=str)
    for word in ("and", "or"):
        if word in each and isinstance(each[word], Sequence):
            return "(" + f" {word} ".join(_describe(part) for part in each[word]) + ")"
    if "not" in each:
        return f"not {_describe(each['not'])}"
    column = each.get("column")
    name = column.get("column") if isinstance(column, Mapping) and set(column) <= {"column", "table"} else column
    shown = name if isinstance(name, str) else json.dumps(name, default=str)
    op = str(each.get("op", "")).replace("_", " ")
    value = each.get("value")
    return (
        f"{shown} {op}" if "value" not in each else f"{shown} {op} {json.dumps(value, default=str, ensure_ascii=False)}"
    )
