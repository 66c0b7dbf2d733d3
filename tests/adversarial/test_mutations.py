"""Mutations of legitimate queries: none reveals a secret or changes a file."""

from __future__ import annotations

import re

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etude.errors import EtudeError

from .battery import Attempt
from .test_sql_duckdb import BATTERY, SECRET, Place, place

__all__ = ["place"]  # the fixture is shared with the battery

LEGITIMATE = [a.sql for a in BATTERY if a.kind == "legit"]
WORDS = [
    *("hidden", "main.hidden", '"HIDDEN"', "shop.main.hidden", "(SELECT k FROM hidden)", "FROM hidden", "hidden AS ok"),
    *("read_text('@S@/secret.txt')", "(SELECT content FROM read_text('@S@/secret.txt'))", "'@S@/s.csv'", "peek()"),
    *("UNION ALL SELECT k FROM hidden", ", hidden", "JOIN hidden ON true", "query_table('hidden')", "WITH hidden AS ("),
    *(";", "--", "/*", "*/", "'", '"', "(", ")", "$$", "E'", "\\", "\n", "\u00a0", "\u200b", "EXPLAIN", "PIVOT", "ON"),
    *(
        "1e0FROM hidden",
        "k, 1.FROM hidden",
        "0x1FROM hidden",
        "'a'FROM hidden",
        "1e0",
        "0b1",
        ".1",
        "\u00b2peek()",
        "2peek()",
    ),
    *("DROP TABLE ok", "SET threads = 1", "COPY ok TO '@O@/x'", "?", "$1", "*", "COLUMNS(*)", "IN (NULL)", "USING"),
]
FIRST = ["1", "1e0", "0x", "\u00b2", "\u2167", "\u0661", "\u0301", "\U00010400", "$", "@", "#", "_"]
"""Unusual first characters of names."""
TOKEN = re.compile(r"\w+|\s+|[^\w\s]")


@st.composite
def mutations(draw: st.DrawFn) -> str:
    tokens = TOKEN.findall(draw(st.sampled_from(LEGITIMATE)))
    for _ in range(draw(st.integers(1, 4))):
        position = draw(st.integers(0, len(tokens)))
        match draw(st.sampled_from(["insert", "replace", "delete", "swap", "glue", "first"])):
            case "insert":
                tokens.insert(position, f" {draw(st.sampled_from(WORDS))} ")
            case "replace" if position < len(tokens):
                tokens[position] = draw(st.sampled_from(WORDS))
            case "delete" if position < len(tokens):
                del tokens[position]
            case "glue":
                # Take away a blank, so that a number or a text may touch a word.
                blanks = [i for i, token in enumerate(tokens) if token.isspace()]
                if blanks:
                    tokens[draw(st.sampled_from(blanks))] = draw(st.sampled_from(["", "1e0", "0x1", "1.", ".1", "'a'"]))
            case "first" if position < len(tokens) and tokens[position][0].isalpha():
                tokens[position] = draw(st.sampled_from(FIRST)) + tokens[position]
            case "swap" if position < len(tokens):
                other = draw(st.integers(0, len(tokens) - 1))
                tokens[position], tokens[other] = tokens[other], tokens[position]
    return "".join(tokens)


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sql=mutations())
def test_a_bent_query_gets_nothing(place: Place, sql: str) -> None:
    before = place.files()
    try:
        seen = place.run(Attempt("bent", "leak", sql), timeout_s=5)
    except EtudeError:
        seen = ""
    assert SECRET not in seen
    assert place.files() == before
