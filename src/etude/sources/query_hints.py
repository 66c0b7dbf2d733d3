"""What to write instead: functions by dialect, casts for types that do not fit, and syntax of other dialects."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from etude.similar_names import similar_names
from etude.sources.sql_parsing import parse_sql

if TYPE_CHECKING:
    from sqlglot import exp

ENGINES = {"duckdb": "DuckDB", "sqlite": "SQLite", "postgres": "Postgres", "mysql": "MySQL"}

_PARTS = "year month day hour minute dayofweek weekday week quarter"
_EQUIVALENTS: dict[str, dict[str, str]] = {
    "sqlite": {
        "date_trunc datetrunc": "strftime('%Y-%m-01', x) for months, strftime('%Y-01-01', x) for years, date(x) for "
        "days",
        f"extract date_part datepart {_PARTS}": "CAST(strftime('%Y', x) AS INTEGER); %m is the month, %d the day, "
        "%H the hour, %w the weekday from 0 for Sunday",
        "to_char date_format format_date format_datetime formatdatetime": "strftime('%Y-%m', x)",
        "datediff date_diff timestampdiff age months_between": "julianday(b) - julianday(a), in days",
        "date_add dateadd date_sub datesub adddate interval": "date(x, '+1 month') or date(x, '-7 days')",
        "to_date str_to_date to_timestamp strptime": "date(x), if x is text such as 2026-01-31",
        "now getdate sysdate curdate": "date('now') or datetime('now')",
        "median percentile_cont percentile_disc quantile quantile_cont": "Python, or ROW_NUMBER() and count(*) "
        "in a subquery",
        "stddev stddev_samp stddev_pop std variance var_samp var_pop": "sqrt(avg(x * x) - avg(x) * avg(x)), of the "
        "population",
        "corr covar_pop regr_slope": "Python",
        "concat concat_ws": "a || ' ' || b",
        "string_agg listagg array_agg": "group_concat(x, ', ')",
        "left": "substr(x, 1, n)",
        "right": "substr(x, -n)",
        "split_part substring_index": "substr(x, 1, instr(x, ',') - 1)",
        "position strpos charindex locate": "instr(x, 'text')",
        "regexp_matches regexp_like regexp_replace regexp_extract similar": "LIKE or GLOB, or Python",
        "greatest": "max(a, b)",
        "least": "min(a, b)",
        "isnull nvl": "coalesce(x, 0)",
        "lpad rpad to_string": "printf('%05d', x)",
        "generate_series range": "WITH RECURSIVE",
        "len char_length character_length": "length(x)",
        "bool_or": "max(x)",
        "bool_and": "min(x)",
        "mode": "GROUP BY x ORDER BY count(*) DESC LIMIT 1",
        "cbrt": "power(x, 1.0 / 3)",
    },
    "duckdb": {
        "date_format to_char format_datetime formatdatetime": "strftime(x, '%Y-%m')",
        "dateadd adddate date_sub datesub": "x + INTERVAL 1 DAY or x - INTERVAL 7 DAY",
        "timestampdiff months_between": "date_diff('month', a, b)",
        "to_date str_to_date": "CAST(strptime(x, '%d/%m/%Y') AS DATE)",
        "isnull nvl": "coalesce(x, 0)",
        "julianday": "date_diff('day', a, b) for a difference",
        "getdate sysdate curdate": "current_date",
        "charindex locate": "strpos(x, 'text')",
        "substring_index": "split_part(x, ',', 1)",
        "convert": "CAST(x AS DOUBLE)",
        "iff": "CASE WHEN ... THEN ... ELSE ... END",
        "iif": "CASE WHEN ... THEN ... ELSE ... END",
        "wm_concat": "string_agg(x, ', ')",
        "datetime": "CAST(x AS TIMESTAMP)",
        "weekofyear": "week(x)",
        "safe_divide": "a / nullif(b, 0)",
    },
    "postgres": {
        "strftime date_format format_datetime formatdatetime": "to_char(x, 'YYYY-MM')",
        f"{_PARTS} datepart": "extract(year FROM x)",
        "group_concat listagg wm_concat": "string_agg(x::text, ', ')",
        "ifnull nvl isnull": "coalesce(x, 0)",
        "datediff date_diff timestampdiff julianday": "b::date - a::date, in days",
        "dateadd date_add date_sub adddate": "x + interval '1 day'",
        "median quantile quantile_cont": "percentile_cont(0.5) WITHIN GROUP (ORDER BY x)",
        "instr charindex locate": "strpos(x, 'text')",
        "if iif iff": "CASE WHEN ... THEN ... ELSE ... END",
        "str_to_date strptime": "to_date(x, 'YYYY-MM-DD')",
        "getdate sysdate curdate": "current_date",
        "substring_index": "split_part(x, ',', 1)",
        "len": "length(x)",
        "datetime": "x::timestamp",
        "any_value": "min(x)",
        "safe_divide": "a / nullif(b, 0)",
    },
    "mysql": {
        "date_trunc datetrunc": "DATE_FORMAT(x, '%Y-%m-01') for months, DATE(x) for days",
        "to_char strftime format_datetime formatdatetime": "DATE_FORMAT(x, '%Y-%m')",
        "date_part datepart": "EXTRACT(YEAR FROM x)",
        "string_agg listagg": "GROUP_CONCAT(x SEPARATOR ', ')",
        "array_agg": "JSON_ARRAYAGG(x)",
        "date_diff julianday": "DATEDIFF(b, a), in days",
        "dateadd": "DATE_ADD(x, INTERVAL 1 DAY)",
        "to_date strptime to_timestamp": "STR_TO_DATE(x, '%Y-%m-%d')",
        "nvl isnull": "IFNULL(x, 0)",
        "strpos charindex": "LOCATE('text', x)",
        "split_part": "SUBSTRING_INDEX(x, ',', 1)",
        "median percentile_cont quantile quantile_cont": "Python, or ROW_NUMBER() and COUNT(*) in a subquery",
        "getdate sysdate": "CURRENT_DATE",
        "iif iff": "IF(condition, a, b)",
        "len": "CHAR_LENGTH(x)",
        "safe_divide": "a / NULLIF(b, 0)",
        "corr": "Python",
    },
}
_BY_NAME = {
    dialect: {name: text for names, text in table.items() for name in names.split()}
    for dialect, table in _EQUIVALENTS.items()
}


def function_hint(name: str, dialect: str) -> str:
    """Return what a dialect has in place of a function of other dialects; empty if nothing is known."""
    return _BY_NAME.get(dialect, {}).get(name.lower(), "")


def missing_function_hint(name: str, dialect: str) -> tuple[str, str] | None:
    """Return the message and the hint for a function that a dialect does not have; None if it is not known."""
    instead = function_hint(name, dialect)
    if not instead:
        return None
    return f"{ENGINES[dialect]} has no function `{name}`.", f"Use {instead}."


# --- words that are spelt wrong

_COMMANDS = frozenset(
    ["delete", "insert", "update", "drop", "create", "alter", "set", "copy", "attach", "load", "call", "merge", "grant"]
)
_CLAUSES = (
    "SELECT",
    "WITH",
    "VALUES",
    "EXPLAIN",
    "DESCRIBE",
    "SHOW",
    "FROM",
    "WHERE",
    "GROUP",
    "ORDER",
    "HAVING",
    "LIMIT",
)


def suggest_query_word(word: str) -> str:
    """Return which word of a query a misspelt one is near to, as a question; empty if there is none."""
    if word.lower() in _COMMANDS or word.upper() in _CLAUSES:
        return ""
    near = similar_names(word.upper(), _CLAUSES, n=1, cutoff=0.75)
    return f"Did you mean `{near[0]}`? " if near else ""


# --- types that do not fit

_CALL = re.compile(
    r"(?:argument types '|function call \")(?P<name>[^('\"]+)\((?P<types>[^'\"]*)\)['\"]"  # DuckDB
    r"|function (?P<name2>[\w.]+)\((?P<types2>[^)]*)\) does not exist"  # Postgres
)
_COMPARED = re.compile(
    r"Cannot compare values of type (?P<left>[\w ()]+?) and type (?P<right>[\w ()]+?) -"  # DuckDB
    r"|operator does not exist: (?P<left2>[\w ]+?) (?P<op>[^\w\s]+) (?P<right2>[\w ]+)"  # Postgres
)
_CONVERSION = re.compile(
    r"Could not convert string|Conversion Error|invalid input syntax for type|date/time field value out of range"
)
_ZERO = re.compile(r"(?i)division by zero(?: in expression \((.{1,200})\)\.)?")
_TEXT = frozenset({"VARCHAR", "TEXT", "CHARACTER VARYING", "UNKNOWN"})
_FOR_DATES = frozenset(
    {
        "date_part",
        "date_trunc",
        "date_diff",
        "datediff",
        "date_sub",
        "date_add",
        "year",
        "month",
        "day",
        "hour",
        "quarter",
    }
    | {"week", "dayofweek", "weekday", "strftime", "age", "last_day", "monthname", "dayname", "extract", "to_char"}
    | {"datepart", "epoch", "isodow", "dayofyear"}
)
_FOR_TIMES = frozenset(["hour", "minute", "second"])
_EXAMPLES = {"DOUBLE": "1234.5", "DATE": "2024-12-31", "TIME": "13:05:00"}
_FOR_TEXT = frozenset(
    {"length", "lower", "upper", "trim", "substr", "substring", "replace", "split_part", "~~", "concat"}
)


def type_error_hint(message: str, sql: str, dialect: str) -> tuple[str, str] | None:
    """Return the message and the hint for an engine's error about types, without its list of overloads; else None."""
    message = message[:4000]  # it may quote a long value, and the patterns take quadratic time
    zero = _ZERO.search(message)
    if zero is not None:
        where = f" in `{zero[1]}`" if zero[1] else ""
        return f"Division by zero{where}.", "Divide by `nullif(x, 0)`: the result is null if x is 0."
    call = _CALL.search(message)
    if call is not None:
        name = (call["name"] or call["name2"]).strip().strip('"')
        types = [t.strip() for t in (call["types"] or call["types2"] or "").split(",")]
        if call["name2"] and (known := missing_function_hint(name, dialect)) is not None:
            return known
        return f"`{name}` does not take ({', '.join(_plain(t) for t in types)}).", _cast_hint(name, types, sql)
    compared = _COMPARED.search(message)
    if compared is not None:
        left, right = (compared[s] or compared[f"{s}2"] for s in ("left", "right"))
        text, other = (left, right) if left.upper() in _TEXT else (right, left)
        what = (
            f"{left} cannot be compared with {right}."
            if not compared["op"]
            else f"`{compared['op']}` does not take ({left}, {right})."
        )
        return what, f"Cast the {text} side: CAST(x AS {other})."
    if _CONVERSION.search(message):
        first = re.sub(r"^\w+ Error: ", "", message.partition("\n")[0]).strip()
        if dialect == "duckdb":
            return first, "TRY_CAST(x AS type) gives null where a value does not fit; look at such values first."
        return first, "Some values have another form: look at them, and filter them out before the cast."
    return None


def _cast_hint(name: str, types: list[str], sql: str) -> str:
    wanted = "DATE" if name.lower() in _FOR_DATES or (name in "+-" and "DATE" in " ".join(types)) else "DOUBLE"
    wanted = "VARCHAR" if name.lower() in _FOR_TEXT else wanted
    arguments = _arguments(name, sql)
    for position, kind in enumerate(types):
        odd = kind.upper() in _TEXT if wanted != "VARCHAR" else kind.upper() not in _TEXT
        if not odd or "LITERAL" in kind.upper():
            continue
        argument = arguments[position] if len(arguments) == len(types) else ""
        if name.lower() == "strftime" and kind.upper() in _TEXT and len(types) == 2 and argument.startswith("'"):
            continue
        shown = argument or "x"
        said = f"`{shown}` is {kind}: " if argument else f"An argument is {kind}: "
        wanted = "TIME" if name.lower() in _FOR_TIMES and kind.upper() in _TEXT else wanted
        # A cast fails on other texts, such as `1,234` or `9:30 AM`.
        such = f" if all of it is like {_EXAMPLES[wanted]}" if wanted in _EXAMPLES and kind.upper() in _TEXT else ""
        return f"{said}write CAST({shown} AS {wanted}){such}."
    return "Check the order and the types of its arguments."


def _arguments(name: str, sql: str) -> list[str]:
    """Return the arguments of the first call of a function in a query; empty if they are unclear."""
    if name.lower() == "date_part" and (
        found := re.search(r"\bextract\s*\(\s*(\w+)\s+from\s+([\w.\"]+)\s*\)", sql, re.I)
    ):
        return [f"'{found[1]}'", found[2]]
    start = re.search(rf"\b{re.escape(name)}\s*\(", sql, re.I)
    if start is None:
        return []
    arguments: list[str] = []
    begin, depth, quoted = start.end(), 0, False
    for at, char in enumerate(sql[begin:], begin):
        quoted ^= char == "'"
        if not quoted and not depth and char in "),":
            arguments.append(sql[begin:at].strip())
            begin = at + 1
            if char == ")":
                return arguments
            continue
        depth += 0 if quoted else (char == "(") - (char == ")")
    return []


def _plain(kind: str) -> str:
    return {"STRING_LITERAL": "a text", "INTEGER_LITERAL": "a number"}.get(kind, kind)


# --- syntax of other dialects

_SYNTAX: tuple[tuple[str, str], ...] = (
    (r"\btop\s+\(?\d+", "tsql"),
    (r"\bqualify\b", "duckdb"),
    (r"::|\bilike\b|\bdistinct\s+on\b|\bto_char\s*\(", "postgres"),
    (r"`|\blimit\s+\d+\s*,\s*\d+|\bdate_format\s*\(|\bseparator\b", "mysql"),
    (r"\bstring_agg\s*\(|\bstrpos\s*\(", "postgres"),
    (r"\bnvl\s*\(|\biff\s*\(|\bdateadd\s*\(", "snowflake"),
    (r"\bifnull\s*\(|\bgroup_concat\s*\(|\bconcat\s*\(|\bif\s*\(", "mysql"),
    (r"\b(?:year|month|quarter)\s*\(|\bmedian\s*\(", "duckdb"),
)
"""Marks of a dialect, with the dialect that a query with that mark is read in."""


_DATES = frozenset({"date", "datetime", "ts_or_ds_to_date", "current_date"})


def query_hint_for_dialect(sql: str, dialect: str, dates: Collection[str] = ()) -> Iterator[str]:
    """Yield the query in its source's dialect, if it looks like another one. The caller must check that it runs.

    `dates` are the columns with dates: SQLite stores them as text, so their difference is written with julianday().
    """
    import logging

    from sqlglot import exp

    logging.getLogger("sqlglot").setLevel(logging.CRITICAL)
    seen = {" ".join(sql.split()).lower()}
    for mark, other in _SYNTAX:
        if other == dialect or not re.search(mark, sql, re.I):
            continue
        try:
            trees = parse_sql(sql, other)
            if dialect == "sqlite":
                for difference in _date_differences(trees, dates):
                    for side in ("this", "expression"):
                        difference.set(side, exp.Anonymous(this="julianday", expressions=[difference.args[side]]))
            written = [tree.sql(dialect) for tree in trees if tree is not None]
        except Exception:  # noqa: S112 - the text may be anything, and this is only a suggestion
            continue
        if len(written) == 1 and written[0].lower() not in seen:
            seen.add(written[0].lower())
            yield written[0]


def query_hint_date_difference(sql: str, dates: Collection[str]) -> str:
    """Return the first difference of two dates in a query for SQLite, which computes with their years; else empty."""
    if "-" not in sql or not dates:
        return ""
    try:
        found = _date_differences(parse_sql(sql, "sqlite"), dates)
    except Exception:  # the engine has accepted it; this is only a warning
        return ""
    return found[0].sql("sqlite") if found else ""


def _date_differences(trees: Iterable[exp.Expr | None], dates: Collection[str]) -> list[exp.Sub]:
    from sqlglot import exp

    named = {name.lower() for name in dates}

    def is_date(side: exp.Expr) -> bool:
        side = side.unnest()
        if isinstance(side, exp.Column):
            return side.name.lower() in named
        if isinstance(side, exp.Cast):
            return side.to.is_type("date", "timestamp", "datetime")
        name = side.name if isinstance(side, exp.Anonymous) else side.sql_name() if isinstance(side, exp.Func) else ""
        return name.lower() in _DATES

    subs = [sub for tree in trees if tree is not None for sub in tree.find_all(exp.Sub)]
    return [sub for sub in subs if is_date(sub.this) and is_date(sub.expression)]


_USING = re.compile(
    r"cannot join using column (\w+)"  # SQLite
    r"|column \"(\w+)\" specified in USING clause"  # Postgres
    r"|Unknown column '(\w+)' in 'from clause'",  # MySQL
    re.IGNORECASE,
)


def _join_hint(name: str, columns: Sequence[str]) -> str:
    """Return a hint for a join on a column that one of the tables does not have."""
    times = Counter(c.lower() for c in columns)
    shared = [c for c in dict.fromkeys(c.lower() for c in columns) if times[c] > 1]
    near = similar_names(name.lower(), shared or list(times), n=3, cutoff=0.5) or shared[:3]
    shown = ", ".join(f"`{next(c for c in columns if c.lower() == found)}`" for found in near)
    if shared:
        return f"More than one of the tables has {shown}. If the names differ, write ON a.x = b.y."
    return f"Write ON a.x = b.y{f'; there are {shown}' if shown else ''}."


def guard_column_hint(message: str, columns: Iterable[str]) -> str:
    """Return a hint for an engine's error about a name: the most similar column, if one is similar."""
    columns = list(columns)
    known = {c.lower(): c for c in columns}
    if re.search(r"near ['\"]ALL\b", message, re.IGNORECASE):
        return "Only DuckDB has GROUP BY ALL and ORDER BY ALL: write the columns out."
    if (joined := _USING.search(message)) is not None:
        return _join_hint(next(filter(None, joined.groups())), columns)
    absent = re.search(r"no such (?:function: (\w+)|column: (INTERVAL)$)", message)
    if absent and (instead := function_hint(absent[1] or "date_add", "sqlite")):
        return f"Use {instead}."
    if "syntax error" in message or "unrecognized token" in message:
        return ""
    # The message may quote a long value, and finding similar names takes time.
    for word in re.findall(r"[\w$]+", message[:1000]):
        near = similar_names(word.lower(), known, n=1, cutoff=0.75)
        if near and near[0] != word.lower():
            return f"Did you mean `{known[near[0]]}`?"
    return "`DESCRIBE table` lists the columns of a table."
