"""The kind of value that a column holds, from the name of its type in any engine."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

Kind = Literal["number", "text", "boolean", "flag", "date", "timestamp", "timestamptz", "other"]
"""`flag` is a number that stands for true or false; `other` is a type that only the engine knows."""

_KINDS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("number", re.compile(r"u?(tiny|small|medium|big|huge)?int(eger|[0-9]+)?( (un)?signed)?( zerofill)?")),
    ("number", re.compile(r"(small|big)?serial|unsigned big int|decimal|dec|numeric|number|fixed|year")),
    ("number", re.compile(r"real|float[0-9]*( unsigned)?|double( precision)?( unsigned)?|decimal unsigned")),
    ("text", re.compile(r"n?(var)?char[2]?|(native |varying )?character( varying)?|bpchar|nvarchar2?|name")),
    ("text", re.compile(r"(tiny|medium|long)?text|citext|string|clob")),
    ("boolean", re.compile(r"bool(ean)?")),
    ("date", re.compile(r"date")),
    ("timestamp", re.compile(r"datetime|timestamp(_s|_ms|_us|_ns)?( without time zone)?")),
    ("timestamptz", re.compile(r"timestamptz|timestamp with time zone")),
)


@lru_cache(maxsize=10_000)
def column_kind(type_name: str) -> Kind:
    """Return the kind of value that a column of the type holds, whatever engine named the type."""
    text = " ".join(type_name.lower().split())
    if text.startswith("tinyint(1)"):
        return "flag"
    base = re.sub(r" ?\([^)]*\)", "", text)
    return next((kind for kind, pattern in _KINDS if pattern.fullmatch(base)), "other")
