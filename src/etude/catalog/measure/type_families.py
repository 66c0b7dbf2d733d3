"""The family of a column's type, which decides its statistics, independent of the engine's name for the type."""

from __future__ import annotations

import re
from typing import Any

from etude.catalog.model import Family

_WORD = re.compile(r"[a-z_][a-z_0-9]*(?: (?:precision|varying|with|without|time|zone|unsigned))*")
_WORDS: dict[Family, str] = {
    "boolean": "boolean,bool",
    "integer": "tinyint,smallint,integer,int,bigint,hugeint,utinyint,usmallint,uinteger,ubigint,uhugeint,int2,int4,"
    "int8,mediumint,serial,bigserial,smallserial,year,bignum,varint,unsigned",
    "decimal": "decimal,numeric,number,dec,fixed",
    "float": "float,double,real,double precision,float4,float8",
    "text": "varchar,char,bpchar,text,string,character,character varying,nvarchar,nchar,citext,tinytext,mediumtext,"
    "longtext,enum,set,name,clob",
    "date": "date",
    "time": "time,time without time zone",
    "timestamp": "timestamp,datetime,timestamptz,timestamp with time zone,timestamp without time zone,timestamp_s,"
    "timestamp_ms,timestamp_ns",
    "interval": "interval",
    "uuid": "uuid",
    "binary": "blob,bytea,binary,varbinary,tinyblob,mediumblob,longblob",
    "json": "json,jsonb",
    "nested": "struct,map,list,union,array,tuple,variant",
}
_BY_WORD: dict[str, Family] = {word: family for family, listed in _WORDS.items() for word in listed.split(",")}


def type_family_of(dialect: str, type_name: str) -> Family:
    """Return the family of a type, given its name in that dialect."""
    name = " ".join(type_name.lower().split())
    if name.endswith("]"):
        return "nested"
    if dialect == "sqlite":
        return _sqlite_family(name)
    found = _WORD.match(name)
    word = found[0] if found else ""
    if "time zone" in name and name.startswith("timestamp"):
        return "timestamp"
    if name.startswith("time") and "with time zone" in name:
        return "other"
    return _BY_WORD.get(word) or _BY_WORD.get(word.split(" ")[0], "other")


def _sqlite_family(name: str) -> Family:
    """Return the family of a SQLite type, which may be any word: known names first, then SQLite's affinity rules."""
    word = (_WORD.match(name) or [""])[0]
    known = _BY_WORD.get(word)
    # SQLite stores all other types as text or numbers; the values decide (`settled_type_family`).
    if known in ("boolean", "integer", "float", "decimal", "text", "binary", "json"):
        return known
    if "int" in name:
        return "integer"
    return "text" if word else "other"


def settled_type_family(family: Family, arrow: Any) -> Family:
    """Return the family of the received values: an engine with loose types may send others than it declares."""
    import pyarrow as pa

    types = pa.types
    if types.is_null(arrow):
        return family
    if types.is_boolean(arrow):
        return "boolean"
    if types.is_integer(arrow):
        return family if family in ("integer", "decimal") else "integer"
    if types.is_floating(arrow):
        return "float"
    if types.is_decimal(arrow):
        return family if family == "integer" else "decimal"
    if types.is_date(arrow):
        return "date"
    if types.is_timestamp(arrow):
        return "timestamp"
    if types.is_binary(arrow) or types.is_large_binary(arrow):
        return "binary"
    # Numbers that fit no Arrow type arrive as text.
    return "text" if family in ("boolean", "float", "date", "timestamp", "binary") else family
