"""The indexes of an app: build them, keep them open, and search them."""

from __future__ import annotations

import hashlib
import itertools
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from etude.catalog.model import ColumnProfile, SourceProfile, TableProfile
from etude.catalog.storage.stored_profiles import profiled_data_fingerprint
from etude.entities import Catalog, Limits, Table
from etude.errors import EtudeError, Invalid, LimitExceeded, NotFound, Unavailable
from etude.limits import change_limits
from etude.search import exact_index, lance_index
from etude.search.document_files import find_document_files, read_document_files
from etude.search.documents import (
    TextColumns,
    playbook_documents,
    row_documents,
    run_documents,
    schema_documents,
    value_documents,
)
from etude.search.embeddings import Embeddings, open_embeddings
from etude.search.index_base import FIELDS, KINDS, Document, Mode, Only, OpenIndex, index_document_text, index_schema
from etude.search.index_publication import IndexManifest, IndexPublication, check_publication_backend
from etude.search.ranking import Ranked, cut_ranking_snippet, fuse_ranks
from etude.search.search_results import BuiltIndex, IndexInfo, RankPart, SearchHit, SearchPage, Why
from etude.search.terms import query_terms, terms_of
from etude.store.objects import Objects

if TYPE_CHECKING:
    from etude.app import App
    from etude.search.table_choice import TableChooser
    from etude.sources.source import Source

OnProgress = Callable[[str, float], None]
BATCH = 4_096
OPEN = 8
"""The most indexes that a process keeps open."""
CANDIDATES = 30
"""The least documents that words and vectors each propose."""
FRESH_S = 5.0
"""How long an answer trusts that the data of an index has not changed."""
K = 100
OFFSET = 1_000
QUERY = 2_000


class Indexes:
    """The indexes of the sources of one tenant. Thread-safe."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._opened: OrderedDict[str, tuple[str, OpenIndex]] = OrderedDict()
        self._fresh: dict[str, tuple[float, bool]] = {}
        self._schemas: dict[str, tuple[str, OpenIndex]] = {}
        self._choosers: dict[str, tuple[Catalog, bool, TableChooser]] = {}

    @cached_property
    def embeddings(self) -> Embeddings | None:
        """The model that makes vectors; None if only words are compared."""
        return open_embeddings(self._app.settings)

    @cached_property
    def _pair(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(4, thread_name_prefix="etude-search")

    def close(self) -> None:
        """End the threads of searches."""
        if "_pair" in self.__dict__:
            self._pair.shutdown(wait=False, cancel_futures=True)

    def check_store(self) -> str:
        """Return why LanceDB cannot use the store of indexes; an empty text if it can, or if it is not used."""
        settings = self._app.settings
        url = settings.search.store or settings.objects_url
        if settings.search.backend == "exact" or not lance_index.is_lance_installed() or "://" not in url:
            return ""
        options = settings.search.store_options or settings.objects_options
        return lance_index.check_lance_store(Objects(url, **options), options)

    # Building.

    def build(
        self,
        source: str | Source,
        *,
        columns: Sequence[str] = (),
        rebuild: bool = False,
        on_progress: OnProgress | None = None,
    ) -> BuiltIndex:
        """Make the index of a source, or bring it up to date: only new and changed texts get new vectors.

        `columns` names the columns to index, such as `jobs.description`; the catalog chooses them by default.
        """
        tell = on_progress or (lambda _what, _share: None)
        started, read_at = time.monotonic(), datetime.now(UTC)
        opened, notes = self._app.source(source), list[str]()
        publication = IndexPublication(self._app, opened)
        last = publication.read()
        named = tuple(columns) or (last.named if last is not None else ())
        tell("reading the catalog", 0.0)
        catalog, profile = self._profile(opened)
        chosen = TextColumns(profile, named)
        batches, digest, kinds = self._collect(self._documents(opened, catalog, profile, chosen, notes, tell), tell)
        documents = sum(kinds.values())
        known = self._known(publication, last)
        counts = _compare(batches, known)
        model = self.embeddings
        identity = model.identity if model is not None else None
        backend = self._choose_backend(documents, publication, notes)
        # Engines may return the same rows in another order, which changes only the digest.
        as_before = {k for k, count in counts.items() if count} <= {"unchanged"}
        same = (
            last is not None
            and (last.embeddings, last.backend) == (identity, backend)
            and (last.digest == digest or (as_before and last.named == named))
        )
        if last is not None and same and not rebuild:
            return _built(opened.name, last, counts, started, notes, published=False)
        if last is not None and last.embeddings != identity:
            before, now = last.embeddings or "no embeddings", identity or "no embeddings"
            notes.append(f"The index was made with {before} and now has {now}, so all vectors were made again.")
        maker = _VectorMaker(model, self._old_vectors(publication, last, identity, rebuild))
        schema = index_schema(maker.dimensions)
        version = publication.new_version()
        place = publication.place(version)
        try:
            finished = _finish(batches, maker, schema, documents, tell)
            if backend == "lance":
                lance_index.write_lance_index(
                    publication.objects, publication.options, place, schema, finished, documents
                )
            else:
                exact_index.write_exact_index(publication.objects, place, schema, finished)
        except BaseException:
            with suppress(EtudeError):
                publication.remove_version(version)
            raise
        made = IndexManifest(
            version=version,
            backend=backend,
            embeddings=identity,
            dimensions=maker.dimensions,
            documents=documents,
            kinds=dict(kinds),
            digest=digest,
            schema_fingerprint=catalog.fingerprint if catalog is not None else "",
            data=profiled_data_fingerprint(catalog) if catalog is not None else "",
            named=named,
            texts=chosen.texts,
            masked=chosen.masked,
            keys=chosen.keys,
            read_at=read_at,
            made_at=datetime.now(UTC),
            notes=tuple(notes),
        )
        published = publication.publish(made)
        self._fresh.pop(publication.root, None)
        return _built(opened.name, published, counts, started, notes, embedded=maker.embedded)

    def _profile(self, source: Source) -> tuple[Catalog | None, SourceProfile]:
        """Return the catalog and the profile of a source; a folder of documents alone has no tables."""
        try:
            catalog = self._app.catalog(source)
        except Invalid:
            if not find_document_files(source, None):
                raise
            return None, SourceProfile(source=source.name, kind=source.kind, dialect="duckdb", fingerprint="")
        return catalog, self._app.profile(source)

    def _documents(
        self,
        source: Source,
        catalog: Catalog | None,
        profile: SourceProfile,
        columns: TextColumns,
        notes: list[str],
        tell: OnProgress,
    ) -> Iterator[Document]:
        limits = self._reading_limits()
        yield from schema_documents(profile)
        for number, table in enumerate(profile.tables):
            tell(f"reading {table.name}", 0.4 * number / len(profile.tables))
            if table.kind == "view":
                continue  # its rows are those of tables
            try:
                yield from row_documents(self._app, source, table.name, columns, limits)
            except EtudeError as error:
                raise type(error)(f"`{table.name}` cannot be indexed: {error.message}", hint=error.hint) from error
        yield from value_documents(self._app, source, profile, columns, limits) if catalog is not None else ()
        yield from read_document_files(source, find_document_files(source, catalog), notes)
        yield from playbook_documents(self._app)
        yield from run_documents(self._app, source)

    def _reading_limits(self) -> Limits:
        return change_limits(
            self._app.settings.limits, {"timeout_s": self._app.settings.catalog.timeout_s, "rows": 0, "bytes": 0}
        )

    def _collect(self, documents: Iterable[Document], tell: OnProgress) -> tuple[list[Any], str, Counter[str]]:
        """Return the documents as Arrow batches, their digest, and how many there are of each kind."""
        import pyarrow as pa

        most = self._app.settings.search.documents
        schema = pa.schema([pa.field(name, pa.string()) for name in FIELDS])
        batches, digest, kinds = [], hashlib.blake2b(digest_size=16), Counter[str]()
        remaining = iter(documents)
        while chunk := list(itertools.islice(remaining, BATCH)):
            for each in chunk:
                kinds[each.kind] += 1
                digest.update(f"{each.id}\0{each.fingerprint}\n".encode("utf-8", "surrogatepass"))
            if sum(kinds.values()) > most:
                raise LimitExceeded(
                    f"The index would have more than {most:,} documents.",
                    hint="Name the columns to index (`--columns`), or raise `search.documents`.",
                    limit="documents",
                )
            columns = [pa.array([_storable(v) for v in values], pa.string()) for values in zip(*chunk)]
            batches.append(pa.RecordBatch.from_arrays(columns, schema=schema))
            tell(f"{sum(kinds.values()):,} documents read", 0.4)
        return batches, digest.hexdigest(), kinds

    def _choose_backend(self, documents: int, publication: IndexPublication, notes: list[str]) -> str:
        settings = self._app.settings.search
        chosen = settings.backend
        if chosen == "auto":
            chosen = "lance" if lance_index.is_lance_installed() and documents > settings.exact else "exact"
        if check_publication_backend(chosen) == "lance" and publication.objects.folder is None:
            trouble = lance_index.check_lance_store(publication.objects, publication.options)
            if trouble:
                notes.append(f"{trouble} The index is an exact one, which is read into memory.")
                return "exact"
        return chosen

    def _known(self, publication: IndexPublication, last: IndexManifest | None) -> dict[str, str]:
        """Return the fingerprints of the documents of the last version, by id."""
        known: dict[str, str] = {}
        if last is not None:
            with suppress(NotFound, Unavailable):  # a damaged version is replaced
                for batch in self._open(publication, last).batches(["id", "fingerprint"], Only()):
                    known |= dict(zip(batch.column("id").to_pylist(), batch.column("fingerprint").to_pylist()))
        return known

    def _old_vectors(
        self, publication: IndexPublication, last: IndexManifest | None, identity: str | None, rebuild: bool
    ) -> Iterator[tuple[list[str], Any]]:
        """Yield fingerprints with their vectors from the last version, unless another model made them."""
        if last is None or rebuild or identity is None or last.embeddings != identity:
            return
        with suppress(NotFound, Unavailable):
            for batch in self._open(publication, last).batches(["fingerprint", "vector"], Only()):
                yield batch.column("fingerprint").to_pylist(), exact_index.exact_index_vectors(batch.column("vector"))

    # Opening.

    def find(self, source: str | Source) -> IndexManifest | None:
        """Return the valid version of the index of a source; None if there is none."""
        return IndexPublication(self._app, self._app.source(source)).read()

    def remove(self, source: str | Source) -> None:
        """Remove the index of a source."""
        publication = IndexPublication(self._app, self._app.source(source))
        with self._lock:
            self._opened.pop(publication.root, None)
        publication.remove()

    def _open(self, publication: IndexPublication, manifest: IndexManifest) -> OpenIndex:
        with self._lock:
            known = self._opened.get(publication.root)
            if known is not None and known[0] == manifest.version:
                self._opened.move_to_end(publication.root)
                return known[1]
        place = publication.place(manifest.version)
        opened: OpenIndex
        if manifest.backend == "lance":
            check_publication_backend("lance")
            opened = lance_index.open_lance_index(publication.objects, publication.options, place)
        else:
            opened = exact_index.open_exact_index(publication.objects, place)
        with self._lock:
            self._opened[publication.root] = (manifest.version, opened)
            while len(self._opened) > OPEN:
                self._opened.popitem(last=False)
        return opened

    def open_latest(self, source: Source) -> tuple[IndexManifest, OpenIndex] | None:
        """Return the valid version of an index, open; None if there is none."""
        publication = IndexPublication(self._app, source)
        for _ in range(3):
            manifest = publication.read()
            if manifest is None:
                return None
            # A version may be removed after its name was read, because two newer ones were published.
            with suppress(NotFound):
                return manifest, self._open(publication, manifest)
        raise Unavailable(
            f"The index of `{source.name}` is damaged.", hint=f"`etude index {source.name} --rebuild` makes it again."
        )

    def _open_schema(self, source: Source) -> tuple[OpenIndex, IndexInfo]:
        """Return an index of the tables and columns alone, made now, for a source that has no index."""
        catalog = self._app.catalog(source)
        profile = self._app.known_profile(source) or _bare_profile(catalog)
        key = f"{source.name}\0{catalog.fingerprint}\0{profile.made_at}"
        with self._lock:
            known = self._schemas.get(source.name)
        if known is None or known[0] != key:
            model = self.embeddings if self.embeddings is not None and self.embeddings.quick else None
            batches, _, _ = self._collect(schema_documents(profile), lambda _what, _share: None)
            known = (key, make_index_in_memory(batches, model))
            with self._lock:
                self._schemas[source.name] = known
        index = known[1]
        assert isinstance(index, exact_index.ExactIndex)  # noqa: S101 - for the type checker
        identity = self.embeddings.identity if self.embeddings is not None and index.has_vectors else None
        return index, IndexInfo(source=source.name, embeddings=identity, documents=index.size)

    # Searching.

    def choose_tables(self, source: Source, catalog: Catalog, question: str) -> list[Table]:
        """Return the tables of a source, those that fit a question best first.

        They are compared by words, by frequent values if a profile is known, and by meaning if that is quick. No
        question fails because its tables could not be compared.
        """
        from etude.catalog.storage.stored_profiles import find_any_stored_profile, has_stored_profile
        from etude.search.table_choice import TableChooser, frequent_values

        profiled = False
        with suppress(EtudeError):
            profiled = has_stored_profile(self._app, source, catalog)
        with self._lock:
            known = self._choosers.get(source.name)
        if known is None or known[:2] != (catalog, profiled):
            model, profile = None, None
            with suppress(EtudeError):
                model = self.embeddings if self.embeddings is not None and self.embeddings.quick else None
            with suppress(EtudeError):
                profile = find_any_stored_profile(self._app, source) if profiled else None
            chooser = TableChooser(catalog, model, frequent_values(profile) if profile is not None else None)
            known = (catalog, profiled, chooser)
            with self._lock:
                self._choosers[source.name] = known
        return known[2].choose(question)

    def search(
        self,
        query: str,
        source: str | Source | None = None,
        *,
        kinds: Sequence[str] | None = None,
        tables: Sequence[str] | None = None,
        k: int = 10,
        offset: int = 0,
        mode: Mode = "hybrid",
    ) -> SearchPage:
        """Find what fits a query by words, by meaning, or by both; in one source, or in all of the tenant.

        A source without an index offers its tables and columns.
        """
        started = time.monotonic()
        only = _check(query, kinds, tables, k, offset, mode)
        sources = (
            [self._app.source(source)] if source is not None else [self._app.source(n) for n in self._app.sources()]
        )
        notes: list[str] = []
        asked = _Query(query, query_terms(query), mode, k + offset + 1)
        ranked: list[tuple[str, Ranked]] = []
        opened: dict[str, OpenIndex] = {}
        infos, used = list[IndexInfo](), set[str]()
        for each in sources:
            try:
                opened[each.name], info = self._open_to_search(each, notes)
                by = self._usable_mode(each, info, mode, notes)
                found = self._rank(opened[each.name], asked, by, only)
            except EtudeError as error:
                if source is not None:
                    raise
                notes.append(f"`{each.name}` was not searched: {error.message}")
                continue
            infos.append(info)
            used.add(by)
            ranked += ((each.name, r) for r in found)
        ranked.sort(key=lambda item: (-item[1].score, item[0], item[1].row))
        page = ranked[offset : offset + k]
        effective: Mode = mode if mode in used or not used else "text"
        return SearchPage(
            query=query,
            mode=effective,
            hits=_read_hits(page, opened, asked.terms),
            next=offset + k if len(ranked) > offset + k and offset + k <= OFFSET else None,
            indexes=infos,
            notes=list(dict.fromkeys(notes)),
            elapsed_ms=round((time.monotonic() - started) * 1000, 3),
        )

    def _open_to_search(self, source: Source, notes: list[str]) -> tuple[OpenIndex, IndexInfo]:
        """Return the index of a source, or that of its schema alone; add what a reader should know of it."""
        found = self.open_latest(source)
        if found is None:
            notes.append(
                f"`{source.name}` has no index, so only its tables and columns were searched; "
                f"`etude index {source.name}` makes one."
            )
            return self._open_schema(source)
        manifest, index = found
        if not self._is_fresh(source, manifest):
            notes.append(
                f"The data of `{source.name}` has changed since it was indexed; "
                f"`etude index {source.name}` brings the index up to date."
            )
        return index, IndexInfo(
            source=source.name,
            version=manifest.version,
            embeddings=manifest.embeddings,
            documents=manifest.documents,
            made_at=manifest.made_at,
        )

    def _rank(self, index: OpenIndex, asked: _Query, mode: Mode, only: Only) -> list[Ranked]:
        most = max(CANDIDATES, 2 * asked.most)
        waits = mode == "hybrid" and asked.terms and isinstance(index, lance_index.LanceIndex)
        words = self._pair.submit(index.by_words, asked.terms, most, only) if waits else None
        nearest = index.by_vector(self._vector(asked), most, only) if mode != "text" else []
        if words is not None:
            return fuse_ranks(words.result(), nearest)
        return fuse_ranks(index.by_words(asked.terms, most, only) if mode != "vector" and asked.terms else [], nearest)

    def _vector(self, asked: _Query) -> Any:
        if asked.vector is None:
            assert self.embeddings is not None  # noqa: S101 - the mode was checked
            asked.vector = self.embeddings.embed([asked.text])[0]
        return asked.vector

    def _usable_mode(self, source: Source, info: IndexInfo, mode: Mode, notes: list[str]) -> Mode:
        """Return how an index can be searched: by words alone if it has no vectors of the present model."""
        identity = self.embeddings.identity if self.embeddings is not None else None
        if mode == "text" or (identity is not None and identity == info.embeddings):
            return mode
        if identity is None and info.embeddings is None:
            reason, hint = "No embeddings are installed, so only words can be compared.", "pip install 'etude[search]'"
        elif identity is None:
            reason = f"The index of `{source.name}` was made with {info.embeddings}, which is not available."
            hint = "Install that model, or make the index again."
        else:
            before = info.embeddings or "no embeddings"
            reason = f"The index of `{source.name}` was made with {before}, not with {identity}."
            hint = f"`etude index {source.name}` makes it again."
        if mode == "vector":
            raise Unavailable(reason, hint=hint)
        if info.version or identity is None:
            notes.append(f"{reason} Only words were compared. {hint}")
        return "text"

    def _is_fresh(self, source: Source, manifest: IndexManifest) -> bool:
        """Return whether the data is still that of the index, as far as the source tells it cheaply."""
        if source.network or not manifest.data:
            return True
        now = time.monotonic()
        known = self._fresh.get(manifest.version)
        if known is None or now - known[0] > FRESH_S:
            same = True
            with suppress(EtudeError):
                same = profiled_data_fingerprint(self._app.catalog(source)) == manifest.data
            known = (now, same)
            self._fresh[manifest.version] = known
        return known[1]


class _Query:
    """A query with its terms, and its vector once it is needed."""

    def __init__(self, text: str, terms: list[str], mode: Mode, most: int) -> None:
        self.text = text
        self.terms = terms
        self.mode = mode
        self.most = most
        self.vector: Any = None


class _VectorMaker:
    """Makes the vectors of documents; each text is embedded once, and those of the last version not again."""

    def __init__(self, model: Embeddings | None, old: Iterator[tuple[list[str], Any]]) -> None:
        self._model = model
        self._known: dict[str, Any] = {}
        self.embedded = 0
        self.dimensions = 0
        if model is not None:
            self.dimensions = int(model.embed(["a"]).shape[1])
            for fingerprints, vectors in old:
                if vectors.shape[1] == self.dimensions:
                    self._known |= zip(fingerprints, vectors)

    def make(self, fingerprints: Sequence[str], texts: Sequence[str]) -> Any:
        """Return the vectors as an Arrow array; None for a text without a meaning."""
        import pyarrow as pa

        from etude.search.embeddings.base import load_numpy_for_embeddings

        np = load_numpy_for_embeddings()
        assert self._model is not None  # noqa: S101 - called only if there are dimensions
        missing = {f: t for f, t in zip(fingerprints, texts) if f not in self._known}
        wanted = list(missing)
        for start in range(0, len(wanted), self._model.batch):
            part = wanted[start : start + self._model.batch]
            self._known |= zip(part, self._model.embed([missing[f] for f in part]))
        self.embedded += len(wanted)
        matrix = np.ascontiguousarray(np.stack([self._known[f] for f in fingerprints]), dtype=np.float32)
        empty = (~matrix.any(axis=1)).tolist()
        flat = pa.Array.from_buffers(pa.float32(), matrix.size, [None, pa.py_buffer(matrix.tobytes())])
        return pa.FixedSizeListArray.from_arrays(flat, self.dimensions, mask=pa.array(empty, pa.bool_()))


def _finish(batches: Sequence[Any], maker: _VectorMaker, schema: Any, count: int, tell: OnProgress) -> Iterator[Any]:
    """Yield the batches with terms and vectors."""
    import pyarrow as pa

    done = 0
    for batch in batches:
        titles, texts = batch.column("title").to_pylist(), batch.column("text").to_pylist()
        whole = [index_document_text(title, text) for title, text in zip(titles, texts)]
        columns = [*batch.columns, pa.array([" ".join(terms_of(text)) for text in whole], pa.string())]
        if maker.dimensions:
            columns.append(maker.make(batch.column("fingerprint").to_pylist(), whole))
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
        done += batch.num_rows
        tell(f"{done:,} of {count:,} documents indexed", 0.4 + 0.5 * done / max(count, 1))


def make_index_in_memory(batches: Sequence[Any], model: Embeddings | None) -> exact_index.ExactIndex:
    """Return an index of documents that is not stored."""
    import pyarrow as pa

    maker = _VectorMaker(model, iter(()))
    schema = index_schema(maker.dimensions)
    made = list(_finish(batches, maker, schema, 0, lambda _what, _share: None))
    return exact_index.ExactIndex(pa.Table.from_batches(made, schema))


def _storable(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _compare(batches: Sequence[Any], known: dict[str, str]) -> dict[str, int]:
    """Count the documents that are new, changed, deleted and unchanged."""
    counts = Counter[str]()
    seen = 0
    for batch in batches:
        for id, fingerprint in zip(batch.column("id").to_pylist(), batch.column("fingerprint").to_pylist()):
            before = known.get(id)
            seen += before is not None
            counts["new" if before is None else "unchanged" if before == fingerprint else "changed"] += 1
    counts["deleted"] = len(known) - seen
    return dict(counts)


def _built(
    source: str,
    manifest: IndexManifest,
    counts: dict[str, int],
    started: float,
    notes: Sequence[str],
    published: bool = True,
    embedded: int = 0,
) -> BuiltIndex:
    return BuiltIndex(
        source=source,
        version=manifest.version,
        backend=manifest.backend,
        embeddings=manifest.embeddings,
        documents=manifest.documents,
        kinds=manifest.kinds,
        published=published,
        embedded=embedded,
        seconds=round(time.monotonic() - started, 3),
        notes=list(notes),
        **counts,
    )


def _bare_profile(catalog: Catalog) -> SourceProfile:
    """Return what the schema alone tells, for a source without a profile."""
    tables = tuple(
        TableProfile(
            name=t.name,
            kind=t.kind,
            comment=t.comment,
            columns=tuple(
                ColumnProfile(name=c.name, type=c.type, family="other", comment=c.comment) for c in t.columns
            ),
        )
        for t in catalog.tables
    )
    return SourceProfile(
        source=catalog.source,
        kind=catalog.kind,
        dialect=catalog.dialect,
        fingerprint=catalog.fingerprint,
        tables=tables,
    )


def _check(
    query: str, kinds: Sequence[str] | None, tables: Sequence[str] | None, k: int, offset: int, mode: str
) -> Only:
    if not query.strip():
        raise Invalid("The query is empty.", hint="Write some words.")
    if len(query) > QUERY:
        raise Invalid(f"The query has {len(query):,} characters; at most {QUERY:,} are allowed.", hint="Shorten it.")
    if mode not in ("hybrid", "vector", "text"):
        raise Invalid(f"`{mode}` is not a mode.", hint="Use hybrid, vector or text.")
    for kind in kinds or ():
        if kind not in KINDS:
            raise Invalid(f"`{kind}` is not a kind of document.", hint=f"Kinds: {', '.join(KINDS)}.")
    if not 1 <= k <= K or not 0 <= offset <= OFFSET:
        raise Invalid(
            f"k is {k} and the offset {offset}.", hint=f"k goes from 1 to {K}, and the offset from 0 to {OFFSET:,}."
        )
    return Only(tuple(kinds) if kinds is not None else None, tuple(tables) if tables is not None else None)


def _read_hits(
    page: Sequence[tuple[str, Ranked]], opened: Mapping[str, OpenIndex], terms: Sequence[str]
) -> list[SearchHit]:
    """Read the documents of a page, those of one index at once."""
    rows = {name: [ranked.row for source, ranked in page if source == name] for name in {source for source, _ in page}}
    read = {name: iter(opened[name].read(each)) for name, each in rows.items()}
    return [_hit(source, next(read[source]), ranked, terms) for source, ranked in page]


def _hit(source: str, document: Document, ranked: Ranked, terms: Sequence[str]) -> SearchHit:
    import json

    snippet = cut_ranking_snippet(document.text, terms)
    key: dict[str, Any] = {}
    if document.key:
        key = json.loads(document.key) if document.kind == "row" else {"run_id": document.key}
    parts = {name: RankPart(rank=rank, score=round(score, 4)) for name, (rank, score) in ranked.parts.items()}
    return SearchHit(
        id=document.id,
        kind=document.kind,
        source=source,
        table=document.table,
        column=document.column,
        key=key,
        title=document.title,
        snippet=snippet.text,
        marks=list(snippet.marks),
        score=round(ranked.score, 6),
        why=Why(terms=list(snippet.terms), **parts),
    )
