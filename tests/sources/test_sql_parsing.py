"""Parsing of foreign SQL ends within limits of length, nesting and work."""

from __future__ import annotations

import logging
import time
from contextlib import suppress

import pytest
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from etude.errors import Invalid, Refused
from etude.replays.query_facts import read_query_facts
from etude.replays.replaced_tables import NotReplaced, replace_tables
from etude.replays.script_file import format_script_sql
from etude.replays.script_parameters import find_script_parameters
from etude.search.match import parse_match_condition
from etude.sources.query_hints import query_hint_date_difference, query_hint_for_dialect
from etude.sources.sql_parsing import MAX_TEXT, MAX_TYPE_DEPTH, parse_one_sql, parse_sql, tokenize_sql

DIALECTS = ["duckdb", "postgres", "mysql", "sqlite"]
LONGEST_S = 5.0
"""Processor time that no text of a few hundred characters needs, on a slow machine either."""


def nested(opening: str, levels: int = 40, closing: str = ")") -> str:
    return f"SELECT {opening * levels}1{closing * levels}"


def words(dialect: str) -> list[str]:
    """Return the keywords, types and functions that the parser of a dialect knows."""
    known = Dialect.get_or_raise(dialect)
    found = {*known.tokenizer_class.KEYWORDS, *known.parser_class.FUNCTIONS, *known.parser_class.FUNCTION_PARSERS}
    return sorted({word for word in found if word.replace("_", "").replace(" ", "").isalpha()})


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("shape", "closing", "every"),
    [("{}(", ")", 1), ("{} ", "", 1), ("{}<", ">", 2), ("{}[", "]", 40), ("f({}(", "))", 20), ("(1 {} ", ")", 40)],
)
def test_no_nesting_of_a_keyword_takes_long(dialect: str, shape: str, closing: str, every: int) -> None:
    logging.getLogger("sqlglot").setLevel(logging.CRITICAL)
    for word in words(dialect)[::every]:
        started = time.process_time()
        # sqlglot crashes on some invalid texts.
        with suppress(Refused, SqlglotError, AttributeError, IndexError, KeyError, TypeError, ValueError):
            parse_sql(nested(shape.format(word), 20, closing), dialect)
        assert time.process_time() - started < LONGEST_S, word


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("opening", ["DATE(", "date (", "ROW(", "STRUCT(", "DECIMAL(", "f(TIME(", "("])
def test_deep_nesting_is_refused(dialect: str, opening: str) -> None:
    with pytest.raises(Refused, match="nested too deeply"):
        parse_sql(nested(opening, 41, ")" * opening.count("(")), dialect)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_usual_nesting_passes(dialect: str) -> None:
    assert parse_one_sql(nested("date(", MAX_TYPE_DEPTH), dialect)
    assert parse_one_sql(nested("(", 30), dialect)
    many = ", ".join(["cast(date(a) AS date)", "decimal(1)", "CASE WHEN a < 1 THEN date(b) END"] * 200)
    assert parse_one_sql(f"SELECT {many} FROM t WHERE a::date < b", dialect)


def test_long_texts_are_refused() -> None:
    with pytest.raises(Refused, match="characters"):
        parse_sql("SELECT 1" + " " * MAX_TEXT, "duckdb")
    with pytest.raises(Refused, match="tokens"):
        tokenize_sql("SELECT 1" + ",1" * 60_000, "duckdb")


def test_a_text_without_a_statement_is_an_error() -> None:
    with pytest.raises(SqlglotError):
        parse_one_sql("-- nothing", "duckdb")


@pytest.mark.parametrize("word", ["DATE", "ROW", "STRUCT", "TIMESTAMP"])
def test_every_reader_of_foreign_text_ends(word: str) -> None:
    condition = f"1 - 1 = {word}(" * 40 + "1" + ")" * 40
    sql = f"SELECT a::int FROM t WHERE {condition}"
    started = time.process_time()
    with pytest.raises((Refused, Invalid)):
        parse_match_condition(condition, "duckdb")
    assert format_script_sql(sql, "duckdb") == sql
    assert read_query_facts(sql, "duckdb", {}).ordered is False
    assert find_script_parameters(sql, "duckdb", (), {}) == ((), ())
    with pytest.raises(NotReplaced):
        replace_tables(sql, "duckdb", {"t": "SELECT 1"})
    list(query_hint_for_dialect(sql, "sqlite"))
    assert query_hint_date_difference(sql, ["a"]) == ""
    assert time.process_time() - started < LONGEST_S


def test_a_text_of_very_many_words_is_refused_before_it_is_tokenized() -> None:
    started = time.process_time()
    with pytest.raises(Refused, match="words and symbols"):
        parse_one_sql("SELECT " + "1," * 500_000 + "1", "duckdb")
    assert time.process_time() - started < 1
    assert parse_one_sql(f"SELECT '{'word ' * 150_000}'", "duckdb") is not None
