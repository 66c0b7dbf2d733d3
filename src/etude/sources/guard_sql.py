"""The guard for databases other than DuckDB: an allow-list over sqlglot's tree and over the tokens that will run.

The text that runs is rebuilt from the checked tokens: comments are removed, each token is proven to be one lexeme of
the engine, and table names are replaced if the engine would not find them as written. The text is not regenerated from
the tree, because that changes results: names of columns (`count(*)` becomes `COUNT(*)`), types (`date_part` becomes
`EXTRACT`, `CAST(x AS NUMERIC)` becomes `REAL`), and functions (MariaDB has no `REGEXP_LIKE`). The guard is one layer;
the others are the engine's read-only transaction, its time limit and the privileges of its role.
"""

from __future__ import annotations

import difflib
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NoReturn

from etude.errors import Invalid, InvalidQuery, Refused, UnknownTable
from etude.sources.base import CheckedQuery
from etude.sources.cte_scope import CteScope, first_cte_positions
from etude.sources.functions import allowed_functions
from etude.sources.postgres_grammar import IMPLIED_FUNCTIONS, read_postgres_query
from etude.sources.query_hints import ENGINES, function_hint, missing_function_hint
from etude.sources.quoting import quote_identifier, quote_literal
from etude.sources.sql_parsing import MAX_DEPTH, check_text_size, parse_sql_tokens, tokenize_sql, too_deep_error


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


Described = Sequence[tuple[str, str, bool, str]]
"""Columns of a table: name, type, whether it may be null, and `PRI`, `UNI` or nothing."""


@dataclass(frozen=True)
class UserCode:
    """A cast, an operator with the name of a built-in one, or an operator class that runs a user-defined function.

    A query may reach it through a value of its type: from one of `tables`, or if the text names one of `types`.
    """

    shown: str
    kind: str = "cast"
    operator: str = ""
    """The name of the operator; empty for the others, which need not be written to run."""
    types: frozenset[str] = frozenset()
    tables: frozenset[str] = frozenset()
    always: bool = False
    """Whether values of built-in types are enough to reach it."""


@dataclass(frozen=True)
class Granted:
    """The tables that a query may read. `tables` maps display names to (schema, table) as the engine spells them."""

    source: str
    tables: Mapping[str, tuple[str, str]]
    schemas: frozenset[str] = frozenset()
    describe: Callable[[str], Described] = field(default=lambda name: ())
    callable: frozenset[str] | None = None
    """For Postgres: the names of all functions that take one argument, because `value.name` calls such a function."""
    shadowed: frozenset[str] = frozenset()
    """User-defined functions. A call by an allowed name might run one of them instead of the built-in function."""
    operators: frozenset[str] = frozenset()
    """For Postgres: user-defined operators; each calls a function."""
    types: frozenset[str] = frozenset()
    """For Postgres: types that are not built in, but whose input runs no user-defined code, such as enumerations."""
    domains: frozenset[str] = frozenset()
    """For Postgres: types whose input may run user-defined code."""
    fields: frozenset[str] = frozenset()
    """For Postgres: the names of the fields of composite types."""
    user_code: tuple[UserCode, ...] = ()
    """For Postgres: casts, operators and operator classes that a value may run without a function in the text."""

    @cached_property
    def exact(self) -> Mapping[str, list[str]]:
        """Display names by table name. An index, because a source may have thousands of tables."""
        return self._by_table(lambda text: text)

    @cached_property
    def folded(self) -> Mapping[str, list[str]]:
        """Display names by table name in lower case."""
        return self._by_table(_ascii_lower)

    def _by_table(self, same: Callable[[str], str]) -> Mapping[str, list[str]]:
        found: dict[str, list[str]] = {}
        for shown, (_, table) in self.tables.items():
            found.setdefault(same(table), []).append(shown)
        return found


def check_sql(sql: str, dialect: str, granted: Granted, params: int = 0) -> CheckedQuery:
    """Return the statement as it will run and its tables; raise `Refused`, `UnknownTable` or `InvalidQuery`.

    It may have `params` parameters: `$1` and so on for Postgres, `?` for the others.
    """
    if dialect not in _EXPLAIN:
        raise Invalid(
            f"The guard has no rules for the SQL dialect `{dialect}`.",
            hint=f"It has those of {', '.join(_EXPLAIN)}. `docs/add-a-source.md` lists what a new dialect needs.",
        )
    if dialect == "postgres" and granted.callable is None:
        raise ValueError("The guard for Postgres needs `callable`, the functions of the database.")
    check_text_size(sql)
    if "\0" in sql or (not sql.isascii() and any("\ud800" <= c <= "\udfff" for c in sql)):
        raise InvalidQuery(
            "The query contains U+0000 or a lone surrogate, which are not text.", hint="Remove the character."
        )
    try:
        return _check(sql, dialect, granted, params)
    except RecursionError:
        raise too_deep_error() from None


def _check(sql: str, dialect: str, granted: Granted, params: int) -> CheckedQuery:
    if shown := _SHOW_TABLES.fullmatch(sql):
        return CheckedQuery(_rows_query(dialect, ("name",), [(name,) for name in sorted(granted.tables)]), ())
    if shown := _DESCRIBE.fullmatch(sql):
        return _check_describe(sql, shown, dialect, granted)
    if shown := _EXPLAIN[dialect].match(sql):
        # Replace EXPLAIN by blanks, so that the positions in error messages are those in the caller's text.
        inner = _check_query(_blank(sql, shown.end()), dialect, granted, params)
        return CheckedQuery(" ".join(shown.group(1).upper().split()) + " " + inner.sql.lstrip(), inner.tables)
    return _check_counts(sql, dialect, granted) or _check_query(sql, dialect, granted, params)


def _check_counts(sql: str, dialect: str, granted: Granted) -> CheckedQuery | None:
    """Check the statements that etude itself writes for counts and distinct values; None for all other text.

    etude measures every table of a source with these long statements, and parsing them takes ten times as long as
    running them. So a regular expression matches the whole statement: quoted ASCII names and three aggregates. All
    other text is parsed, and on Postgres all text, because a Postgres database can define its own aggregates, operators
    and types.
    """
    grammar = _COUNTS.get(dialect)
    if grammar is None or grammar.fullmatch(sql) is None:
        return None
    tables = set()
    for found in _COUNTED[dialect].finditer(sql):
        path = [part for part in found.groups() if part is not None]
        exact = dialect != "sqlite"
        shown = _find(path if exact else [_ascii_lower(part) for part in path], granted, exact=exact)
        if shown is None:
            return None
        tables.add(shown)
    return CheckedQuery(sql, tuple(sorted(tables)))


def _counts_grammar(quote: str) -> re.Pattern[str]:
    name = f"{quote}[A-Za-z0-9_]+{quote}"
    table = rf"{name}(?:\.{name})?"
    part = rf"(?:COUNT\(\*\)|(?:COUNT|MIN|MAX)\({name}\)|COUNT\(DISTINCT {name}\)) AS c[0-9]+"
    counts = rf"SELECT {part}(?:, {part})* FROM {table}"
    stacked = rf"SELECT [0-9]+ AS n, {part}(?:, (?:{part}|0 AS c[0-9]+))* FROM {table}"
    values = rf"SELECT DISTINCT [0-9]+ AS n, {name} AS v FROM {table} WHERE NOT {name} IS NULL"
    beside = rf"SELECT \* FROM \({counts}\) AS t[0-9]+(?: CROSS JOIN \({counts}\) AS t[0-9]+)*"
    inside = rf"SELECT COUNT\(DISTINCT {name}\) FROM {table} WHERE {name} IN \(SELECT {name} FROM {table}\)"
    listed = rf"SELECT \({inside}\) AS c[0-9]+(?:, \({inside}\) AS c[0-9]+)*"
    several = (rf"{each}(?: UNION ALL {each})*" for each in (stacked, values))
    return re.compile("|".join((counts, beside, inside, listed, *several)))


_QUOTES = {"mysql": "`", "sqlite": '"'}
_COUNTS = {dialect: _counts_grammar(quote) for dialect, quote in _QUOTES.items()}
_COUNTED = {d: re.compile(f" FROM {q}([A-Za-z0-9_]+){q}(?:\\.{q}([A-Za-z0-9_]+){q})?") for d, q in _QUOTES.items()}


def _check_query(sql: str, dialect: str, granted: Granted, params: int) -> CheckedQuery:
    statement = _Statement(sql, dialect, params)
    walk = _Walk(statement, granted)
    walk.tree(statement.parse())
    walk.calls()
    if dialect == "postgres":
        walk.fields()
        walk.operators()
        walk.user_code()
        walk.returned_types()
        walk.compare_with_postgres()
    return CheckedQuery(statement.text(walk.edits), tuple(sorted(walk.tables)))


_NAME = r"""((?:[\w$]+|"[^"]*"|`[^`]*`|\[[^\]]*\])(?:\.(?:[\w$]+|"[^"]*"|`[^`]*`|\[[^\]]*\]))*)"""
# `\s*(?:;\s*)?`, not `\s*;?\s*`: two runs of blanks side by side take quadratic time on a text that does not match.
_SHOW_TABLES = re.compile(r"\s*show\s+tables\s*(?:;\s*)?", re.IGNORECASE)
_DESCRIBE = re.compile(rf"\s*(?:describe|desc|show\s+columns\s+from)\s+{_NAME}\s*(?:;\s*)?", re.IGNORECASE)
_EXPLAIN = {
    "postgres": re.compile(r"\s*(explain)\s+(?=select|with|values|table|\()(?!\(\s*\w+[\s,)](?!\())", re.IGNORECASE),
    "mysql": re.compile(r"\s*(explain(?:\s+format\s*=\s*json)?)\s+(?=select|with|\()", re.IGNORECASE),
    "sqlite": re.compile(r"\s*(explain(?:\s+query\s+plan)?)\s+(?=select|with|values|\()", re.IGNORECASE),
}
_PARTS = re.compile(r"""[\w$]+|"[^"]*"|`[^`]*`|\[[^\]]*\]""")


def _blank(sql: str, end: int) -> str:
    return re.sub(r"[^\n]", " ", sql[:end]) + sql[end:]


def _check_describe(sql: str, found: re.Match[str], dialect: str, granted: Granted) -> CheckedQuery:
    parts = [_Part.from_text(text) for text in _PARTS.findall(found.group(1))]
    name, _ = _resolve(parts, dialect, granted, partial(_position, sql, found.start(1)))
    rows = [(column, kind, "YES" if null else "NO", key) for column, kind, null, key in granted.describe(name)]
    return CheckedQuery(_rows_query(dialect, ("column_name", "column_type", "null", "key"), rows), (name,))


def _rows_query(dialect: str, columns: Sequence[str], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a query whose result is these rows. They come from the catalog, so no system table is read."""
    names = [quote_identifier(column, dialect) for column in columns]
    literals = [
        [quote_literal(value.replace("\0", ""), dialect) for value in row] for row in rows or [("",) * len(columns)]
    ]
    end = "" if rows else " WHERE 1 = 0"
    if dialect == "mysql":
        first = ", ".join(f"{value} AS {name}" for value, name in zip(literals[0], names))
        others = (", ".join(row) for row in literals[1:])
        return " UNION ALL ".join([f"SELECT {first} FROM dual{end}", *(f"SELECT {row}" for row in others)])
    values = ", ".join(f"({', '.join(row)})" for row in literals)
    shown = ", ".join(f"column{i} AS {name}" for i, name in enumerate(names, 1))
    return f"SELECT {shown} FROM (VALUES {values}) AS shown{end}"


def _position(text: str, offset: int) -> dict[str, int]:
    return {"line": text.count("\n", 0, offset) + 1, "column": offset - text.rfind("\n", 0, offset)}


# How each engine reads a token of more than one character. A token that does not match is refused: for the engine it
# might end elsewhere, and then the tokens that run would not be those that were checked.
_DOUBLED = r"'(?:[^']|'')*'"
_ESCAPED = r"'(?:[^'\\]|\\.|'')*'"
# A word begins with a letter or `_`. `_check_letters` refuses the other characters that Python counts as parts of
# words, such as `\u00b2` and `\u2167`.
_WORD = r"[^\W\d][\w$]*(?:[ \t\r\n]+[^\W\d][\w$]*)*"
_WORDS_ALONE = re.compile(_WORD)
# Only ASCII digits: for the engines, the digits of other alphabets are letters.
_DECIMAL = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_HEX = r"0[xX][0-9a-fA-F]+|[xX]'[0-9a-fA-F]*'"
_BITS = r"0[bB][01]+|[bB]'[01]*'"
_NUMBER = rf"{_DECIMAL}|{_HEX}|{_BITS}"
_LEXEMES = {
    "postgres": re.compile(
        rf"""{_WORD}|{_NUMBER}|[nN]?{_DOUBLED}|[uU]&{_DOUBLED}|[eE]{_ESCAPED}|"(?:[^"]|"")+\"
        |\$([^\W\d]\w*|)\$(?:(?!\$\1\$).)*\$\1\$""".replace("\n        ", ""),
        re.DOTALL,
    ),
    # MySQL allows names that begin with a digit, such as `1a`, but it reads `1e0FROM` as `1e0` and `FROM`. So the guard
    # requires quotes around such names.
    "mysql": re.compile(rf"""{_WORD}|{_NUMBER}|[nN]?{_ESCAPED}|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)+`""", re.DOTALL),
    "sqlite": re.compile(
        rf"""{_WORD}|{_DECIMAL}|{_HEX}|{_DOUBLED}|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]""", re.DOTALL
    ),
}
_SYMBOL = re.compile(r"(?!.*(?:--|/\*|\*/))[-+*/%^&|~!=<>@#?:.,()\[\]{}]{1,4}")
# The text between two tokens: blanks and comments, each ending where the engine ends it. If the parser ends one
# elsewhere, the engine would read the text differently from the guard, so the text is refused.
_GAPS = {
    "postgres": re.compile(r"(?:\s|--[^\r\n]*)+"),
    "mysql": re.compile(r"(?:\s|--(?=[\s\x00-\x1f]|$)[^\n]*|#[^\n]*|/\*(?!M?!)(?:(?!\*/).)*\*/)+", re.DOTALL),
    "sqlite": re.compile(r"(?:\s|--[^\n]*|/\*(?:(?!\*/).)*(?:\*/|$))+", re.DOTALL),
}
_TEXT = re.compile(r"""[nNeExXbB]?'|[uU]&['"]|"|\$""")
_NESTED = re.compile(r"/\*|\*/")
_PARAMETER = re.compile(r"\$([1-9][0-9]{0,4})(?=[\s),]|$)")
_BLANK = re.compile(r"[ \t\r\n]*")
_WORDLIKE = re.compile(r"""[\w$'"`]""")

# Unquoted words that are refused anywhere in the text, whatever the tree says.
_SESSION = _words("current_user session_user current_role current_catalog current_schema system_user user")
_FORBIDDEN = {
    "postgres": _SESSION | {"into"},
    "mysql": frozenset({"into", "outfile", "dumpfile", "procedure", "current_user", "current_role"}),
    "sqlite": frozenset({"into", "pragma", "attach"}),
}
_OBJECT_NAMES = _words(
    """regclass regproc regprocedure regoper regoperator regtype regrole regnamespace regconfig regdictionary
    regcollation"""
)
# Words that engines accept as names only in quotes. If the parser took one as a name, it misread the text.
_CORE = """select from where group having order limit union table join on using with into for in case when then else as
    and or not null is distinct all create """
_RESERVED = {
    "postgres": _words(
        _CORE
        + """analyse analyze any array asc asymmetric both cast check collate column constraint default deferrable desc
        do end except false fetch foreign grant initially intersect lateral leading offset only placing primary
        references returning some symmetric to trailing true unique variadic window"""
    ),
    "mysql": _words(
        _CORE
        + """by exists between like left right inner cross natural outer update delete insert drop alter lock procedure
        call set partition straight_join force ignore use"""
    ),
    # SQLite accepts many keywords as names; its own authorizer reports what a statement really reads.
    "sqlite": _words(_CORE),
}
_STARTS = frozenset({"SELECT", "WITH", "VALUES", "TABLE", "("})


def _looks_ascii(word: str) -> bool:
    """Return whether the word is ASCII in another case: a parser may read `\u017felect` as `select`, engines do not."""
    return not word.isascii() and (word.upper().isascii() or word.lower().isascii())


def _is_letter(character: str) -> bool:
    return character == "_" or character.isalpha()


def _is_digit(character: str) -> bool:
    return "0" <= character <= "9"


def _ends_value(character: str) -> bool:
    return character in ")]}?." or _WORDLIKE.match(character) is not None


def _skip_gap(sql: str, start: int, end: int, dialect: str) -> int:
    """Return where the blanks and comments at `start` end by the engine's own rules; `start` if there are none."""
    found = _GAPS[dialect].match(sql, start, end)
    if found:
        return found.end()
    if dialect != "postgres" or not sql.startswith("/*", start):
        return start
    # Comments nest on Postgres.
    depth = 0
    for mark in _NESTED.finditer(sql, start, end):
        depth += 1 if mark.group() == "/*" else -1
        if depth == 0:
            return mark.end()
    return start


class _Statement:
    """One statement as tokens that are proven to be lexemes of the engine. `text` writes it without comments."""

    def __init__(self, sql: str, dialect: str, params: int = 0) -> None:
        from sqlglot.dialects.dialect import Dialect
        from sqlglot.errors import TokenError

        self.sql, self.dialect, self.params = sql, dialect, params
        self._dialect = Dialect.get_or_raise(dialect)
        try:
            self.tokens = tokenize_sql(sql, dialect)
        except TokenError as error:
            raise InvalidQuery(
                f"The query cannot be split into tokens: {error}.", hint="Close every quote and every comment."
            ) from None
        while self.tokens and self.raw(self.tokens[-1]) == ";":
            self.tokens.pop()
        self._check_shape()
        self._check_lexemes()

    def raw(self, token: Any) -> str:
        return self.sql[token.start : token.end + 1]

    def _check_shape(self) -> None:
        if not self.tokens:
            raise InvalidQuery("The query is empty.", hint="Write a query, such as `SELECT 1`.")
        first = self.tokens[0]
        if first.text.upper() not in _STARTS:
            word = (self.raw(first).split() or [""])[0].upper()
            self.refuse(
                f"`{word}` is not a query; a source is read-only.",
                "statement",
                first.start,
                "Write a query: SELECT, WITH or VALUES; also EXPLAIN, SHOW TABLES and DESCRIBE.",
            )
        depth = 0
        for token in self.tokens:
            raw = self.raw(token)
            if raw == ";":
                self.refuse(
                    "The text contains more than one statement; a query is exactly one.",
                    "statements",
                    token.start,
                    "Send one statement at a time.",
                )
            depth += (raw in "([{") - (raw in ")]}")
            if depth > MAX_DEPTH:
                raise too_deep_error()

    def _check_lexemes(self) -> None:
        from sqlglot.tokenizer_core import TokenType

        end = 0
        for index, token in enumerate(self.tokens):
            self._check_gap(end, token.start)
            raw = self.raw(token)
            if token.token_type == TokenType.HINT:
                self.refuse(
                    "Optimizer hints (`/*+ ... */`) are not allowed.", "comment", token.start, "Remove the hint."
                )
            if raw == "$" and self._is_parameter(token.start):
                end = token.end + 1
                continue
            if not _LEXEMES[self.dialect].fullmatch(raw) and not _SYMBOL.fullmatch(raw):
                self.refuse(_misread(raw), "token", token.start, "Use plain names, numbers and quoted strings.")
            if not raw.isascii() and _WORDS_ALONE.fullmatch(raw):
                self._check_letters(token, raw)
            if index:
                self._check_glue(index)
            self._check_word(token, raw)
            end = token.end + 1
        self._check_gap(end, len(self.sql))

    def _check_letters(self, token: Any, raw: str) -> None:
        """Refuse words of which engines and parsers disagree whether they are names, keywords or numbers."""
        if any(map(_looks_ascii, raw.split())):
            hint = "Write keywords in ASCII letters; if it is a name, put it in quotes."
            message = f"`{_short(raw)}` contains a letter that can be mistaken for an ASCII letter."
            self.refuse(message, "token", token.start, hint)
        if any(not _is_letter(word[0]) for word in raw.split()):
            message = f"`{_short(raw)}` begins with neither a letter nor a digit."
            self.refuse(message, "token", token.start, "If it is a name, put it in quotes.")
        if self.dialect == "mysql" and max(raw) > "\uffff":
            message = f"`{_short(raw)}` contains a character beyond U+FFFF, which MySQL does not allow in names."
            self.refuse(message, "token", token.start, "Use another name.")

    def _check_glue(self, index: int) -> None:
        """Refuse a number or a text that touches the next word: engines differ in where `1e0FROM` or `0xFFROM` ends.

        The same holds for a number and a dot that does not belong to it, as in `a.1` and `1.5.a`. A word may touch the
        quote after it, as in `date'2024-01-01'`.
        """
        token, before = self.tokens[index], self.tokens[index - 1]
        raw, left = self.raw(token), self.raw(before)
        touches = before.end + 1 == token.start
        if left == ".":
            # A dot before a number is the beginning of a fraction, unless it touches a name, a number or a bracket.
            glued = _is_digit(raw[0]) and (not touches or _ends_value(self.sql[max(before.start - 1, 0)]))
        elif raw == ".":
            glued = touches and _is_digit(left[0])
        else:
            ends = _WORDLIKE.match(left[-1]) or _is_digit(left[0])
            glued = touches and left != "$" and bool(ends and _WORDLIKE.match(raw))
            glued = glued and not (_WORDS_ALONE.fullmatch(left) and raw[0] in "'`\"")
        if glued:
            message = f"`{_short(left + raw)}` is refused, because the database might end the first part elsewhere."
            hint = "Write a blank between a number or a text and the next word; put unusual names in quotes."
            self.refuse(message, "token", before.start, hint)

    def _is_parameter(self, offset: int) -> bool:
        """Return whether Postgres reads `$1` here, for which there is a value."""
        found = _PARAMETER.match(self.sql, offset)
        return self.dialect == "postgres" and found is not None and int(found[1]) <= self.params

    def _check_gap(self, start: int, end: int) -> None:
        offset, last = start, end == len(self.sql)
        while offset < end:
            if last and self.sql[offset] == ";":
                offset += 1
                continue
            after = _skip_gap(self.sql, offset, end, self.dialect)
            if after > offset:
                offset = after
                continue
            gap = self.sql[offset:end]
            if self.dialect == "mysql" and re.match(r"/\*M?!", gap):
                message = "Comments that MySQL executes (`/*! ... */`) are not allowed."
                self.refuse(message, "comment", offset, "Remove the comment.")
            hint = "Write a space after `--`, or remove the comment." if gap.startswith("--") else "Remove it."
            self.refuse(_misread(gap), "token", offset, hint)

    def _check_word(self, token: Any, raw: str) -> None:
        word = token.text.lower()
        if self.dialect == "postgres" and word in _OBJECT_NAMES:
            self.refuse(
                f"The type `{word}` is not allowed: it reads the system catalog.",
                "type",
                token.start,
                "Cast to another type, such as `text`; `SHOW TABLES` lists the tables.",
            )
        if word in _FORBIDDEN[self.dialect] and raw[0].isalpha() and not self.follows_dot_or_as(token.start):
            self.refuse(
                f"The keyword `{raw.upper()}` is not allowed in a query.",
                "keyword",
                token.start,
                "Remove it; if it is a name, put it in quotes.",
            )

    def follows_dot_or_as(self, offset: int) -> bool:
        """Return whether a word at this offset can only be a name."""
        while offset and self.sql[offset - 1].isspace():
            offset -= 1
        before = self.sql[max(offset - 3, 0) : offset]
        return before.endswith(".") or re.search(r"\bas$", before, re.IGNORECASE) is not None

    def parse(self) -> Any:
        from sqlglot.errors import ParseError

        try:
            trees = parse_sql_tokens(self.tokens, self.sql, self.dialect)
        except ParseError as error:
            raise self._invalid(error) from None
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            # The parser crashes on some invalid texts instead of raising a ParseError.
            raise InvalidQuery("The query cannot be parsed.", hint="Check its syntax, or simplify it.") from None
        if len(trees) != 1 or trees[0] is None:
            raise Refused(
                f"The text contains {len(trees)} statements; a query is exactly one.",
                hint="Send one statement at a time.",
                reason="statements",
            )
        return trees[0]

    def _invalid(self, error: Any) -> InvalidQuery:
        first = error.errors[0] if error.errors else {}
        near, position = first.get("highlight"), {}
        if near and first.get("line"):
            # The parser reports the column where the word ends.
            position = {"line": first["line"], "column": max(first["col"] - len(near) + 1, 1)}
        said = str(first.get("description", "unexpected text"))[:1000]
        what = re.sub(r" for <class '[^']*'>| but got <Token .*", "", said, flags=re.DOTALL).rstrip(".")
        where = f" near `{_short(near)}`" if near else ""
        return InvalidQuery(
            f"The query cannot be parsed{where}: {what}.",
            hint=f"The dialect is {ENGINES[self.dialect]}." if self.dialect in ENGINES else "",
            **position,
        )

    def is_bound(self, node: Any) -> bool:
        """Return whether a node is a parameter for which there is a value."""
        from sqlglot import exp

        if self.dialect == "postgres":
            number = node.this if isinstance(node, exp.Parameter) else None
            return isinstance(number, exp.Literal) and number.this.isdigit() and 1 <= int(number.this) <= self.params
        return isinstance(node, exp.Placeholder) and not node.args.get("this") and self.params > 0

    @cached_property
    def type_words(self) -> frozenset[str]:
        """The words of the statement that the parser knows as types of any database."""
        types = self._dialect.parser_class.TYPE_TOKENS
        return frozenset(_ascii_lower(token.text) for token in self.tokens if token.token_type in types)

    def bare_functions(self) -> set[str]:
        """Return the names of the parser's classes for functions that this dialect writes without brackets."""
        parser = self._dialect.parser_class
        return {c.__name__ for c in parser.NO_PAREN_FUNCTIONS.values()} | {"NextValueFor"}

    def text(self, edits: Mapping[int, tuple[int, str]]) -> str:
        """Return the statement without comments; `edits` maps the start of a token to (end, replacement)."""
        return "".join(piece for piece, _ in self.pieces(edits))

    def pieces(self, edits: Mapping[int, tuple[int, str]]) -> Iterator[tuple[str, bool]]:
        """Yield the parts of `text`: blanks, replacements and tokens, and whether it is a token."""
        end, skip, before = self.tokens[0].start, 0, ""
        for token in self.tokens:
            if token.start < skip:
                end = token.end + 1
                continue
            gap = self.sql[end : token.start]
            raw = self.raw(token)
            # A `$` is the beginning of a parameter, whose number follows at once.
            glued = not gap and before not in ("", "$") and _joins(before[-1:], raw[0], self.dialect)
            if glued or not _BLANK.fullmatch(gap):
                gap = " "
            yield gap, False
            skip, piece = edits.get(token.start, (0, raw))
            yield piece, not skip
            end, before = token.end + 1, piece

    def refuse(self, message: str, reason: str, offset: int | None, hint: str = "") -> NoReturn:
        position = {} if offset is None else _position(self.sql, offset)
        raise Refused(message, hint=hint or _HINT, reason=reason, **position)


_HINT = "A query may use only the functions and clauses on the allow-list, and the tables of this source."


def _misread(text: str) -> str:
    return f"`{_short(text)}` is refused, because the database might read it differently from the guard."


def _joins(left: str, right: str, dialect: str) -> bool:
    """Return whether two adjacent tokens might be read as one, such as `U&"x"` or `_utf8'x'`."""
    if left + right in ("--", "/*", "*/"):
        # Keep apart what would begin or end a comment, such as the operators `|/` and `*`.
        return True
    words = bool(_WORDLIKE.match(left)), bool(_WORDLIKE.match(right))
    return all(words) or (dialect == "postgres" and any(words) and ("&" in (left, right)))


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


# The allowed classes of nodes, except functions, whose names are checked on the tokens. All other classes are refused.
_NODES = _words(
    """Select Union Intersect Except SetOperation Subquery Values With CTE TableAlias Table From Join Lateral
    Where Group Having Order Ordered Limit Offset Fetch LimitOptions Distinct Window WindowSpec Filter WithinGroup
    IgnoreNulls RespectNulls Rollup Cube GroupingSets TableSample Alias Aliases Star Column Identifier Literal Null
    Boolean Var Paren Tuple Dot Add Sub Mul Div IntDiv Mod Neg Not EQ NEQ GT GTE LT LTE NullSafeEQ NullSafeNEQ Is In
    Between Like ILike SimilarTo Glob Match Escape Any All BitwiseAnd BitwiseOr BitwiseXor BitwiseNot
    BitwiseLeftShift BitwiseRightShift DPipe AtTimeZone Interval IntervalSpan Operator Overlaps Distance Adjacent
    ExtendsLeft ExtendsRight Kwarg PropertyEQ DataType DataTypeParam Bracket Slice ByteString BitString HexString
    UnicodeString RawString National Introducer CharacterSet Heredoc ColumnDef JSON JSONKeyValue JSONValue JSONPath
    JSONPathRoot JSONPathKey JSONPathSubscript JSONPathWildcard JSONPathSlice JSONPathUnion JSONPathRecursive JSONSchema
    JSONColumnDef JSONExtractQuote FormatJson OnCondition OverflowTruncateBehavior IndexTableHint Variadic"""
)
# Allowed functions without brackets. The other functions without brackets reveal the session or advance a sequence.
_BARE = _words("CurrentDate CurrentTime CurrentTimestamp Localtime Localtimestamp Case Any If")
# Built-in types of Postgres. Converting text to one of them runs no user-defined code.
_TYPES = _words(
    """tsquery tsvector macaddr macaddr8 cidr inet lseg polygon path box circle line point jsonpath name char bpchar oid
    xml money bit varbit timetz timestamptz int2 int4 int8 float4 float8 bool int4range int8range numrange tsrange
    tstzrange daterange int4multirange int8multirange nummultirange tsmultirange tstzmultirange datemultirange uuid
    json jsonb text bytea date time timestamp interval numeric varchar integer bigint smallint real record pg_lsn int
    decimal dec double float boolean character"""
)
# Functions of Postgres that only convert a value; columns often have these names.
_CONVERSIONS = _words("bool bpchar bytea char cidr float4 int2 macaddr money name oid text timetz varchar xml")
_RECORD_FIELDS = _words("key value ordinality")
_OPERATOR_CHARACTERS = frozenset("+-*/<>=~!@#%^&|`?")
# Operators of Postgres that a keyword stands for.
_EQUAL = ("=", "<>")
_IMPLIED = {
    "like": ("~~", "!~~"),
    "ilike": ("~~*", "!~~*"),
    "similar": ("~", "!~"),
    "between": ("<", "<=", ">", ">="),
    "!=": _EQUAL,
    "is": _EQUAL,
    **{word: _EQUAL for word in ("in", "any", "all", "some", "distinct", "case", "nullif", "using", "natural")},
}
_NAMES = re.compile(r'[^\W\d]|"')


def _operator(run: str) -> str:
    """Return the operator that Postgres reads at the start of a run of symbols."""
    return run if set(run) & set("~!@#%^&|`?") else run.rstrip("+-") or run[0]


def _fold_token(token: Any, raw: str) -> str:
    return _truncate(str(token.text) if raw.startswith('"') else _ascii_lower(token.text))


def _truncate(name: str) -> str:
    """Return the name as Postgres reads it: at most 63 bytes, without a part of a character."""
    return name if len(name) < 16 else name.encode()[:63].decode(errors="ignore")


# The allowed clauses by class of node. If another clause has a value, the query is refused.
_QUERY = ("joins", "laterals", "where", "group", "having", "windows", "order", "limit", "offset")
_CLAUSES: dict[str, frozenset[str]] = {
    "Select": frozenset(["with_", "expressions", "distinct", "from_", *_QUERY]),
    "Subquery": frozenset(["with_", "this", "alias", "sample", *_QUERY]),
    "Table": _words("this db catalog alias joins laterals ordinality only sample hints"),
    "Join": _words("this on side kind using method expressions"),
    "Lateral": _words("this view outer alias ordinality"),
    "CTE": _words("this alias scalar materialized"),
    "With": _words("expressions recursive"),
    **{
        c: frozenset(["with_", "this", "expression", "distinct", "by_name", *_QUERY])
        for c in ("Union", "Intersect", "Except")
    },
}
# Words that call no function if a bracket follows.
_BEFORE_BRACKET = _words(
    """cast select distinct all from join on using where by having limit offset and or not xor in exists any some
    between like ilike to escape is case when then else as over filter group sets rollup cube lateral values
    union intersect except with recursive materialized interval placing for array row first next only collate
    regexp rlike glob match against div mod binary columns tablesample system bernoulli repeatable index zone
    symmetric within ordinality exclude range rows preceding isnull notnull similar separator straight_join
    full window percent ties character set bit varying char character varchar nchar varbinary decimal dec
    numeric float real double precision timestamp timestamptz time timetz datetime date int integer bigint
    smallint tinyint mediumint year unsigned signed text blob bpchar varbit fixed number"""
)
_LOCKS = re.compile(r"(?:update|share|no|key)\b", re.IGNORECASE)


@dataclass(frozen=True)
class _Part:
    """One part of a qualified name, and whether it was in quotes."""

    text: str
    quoted: bool

    @classmethod
    def from_text(cls, text: str) -> _Part:
        return cls(text[1:-1], True) if text[0] in '"`[' else cls(text, False)


def _fold(part: _Part, dialect: str) -> str:
    """Return the name as the engine compares it. Only ASCII is lower-cased: a Kelvin sign is not a `k`."""
    if dialect == "postgres":
        return _truncate(part.text if part.quoted else _ascii_lower(part.text))
    return part.text if dialect == "mysql" else _ascii_lower(part.text)


def _ascii_lower(text: str) -> str:
    return text.lower() if text.isascii() else "".join(c.lower() if c.isascii() else c for c in text)


def _resolve(
    parts: list[_Part], dialect: str, granted: Granted, position: Callable[[], Mapping[str, int]]
) -> tuple[str, tuple[str, ...] | None]:
    """Return the granted table that a name means, and how to write it if the engine would not find it as written."""
    path, dropped = list(parts), False
    if len(path) > 1 and _ascii_lower(path[0].text) == granted.source.lower() and not _is_schema(path[0], granted):
        path, dropped = path[1:], True
    if len(path) <= 2:
        found = _find([_fold(p, dialect) for p in path], granted, exact=dialect != "sqlite")
        if found is not None:
            return found, tuple(granted.tables[found]) if dropped else None
        # More lenient than the engine: ignore case if only one table matches then.
        found = _find([_ascii_lower(p.text) for p in path], granted, exact=False)
        if found is not None:
            return found, granted.tables[found]
    shown = ".".join(p.text for p in parts)
    raise UnknownTable(
        f"`{shown}` is not a table of `{granted.source}`.",
        hint=_nearest(shown, granted),
        reason="table",
        **position(),
    )


def _is_schema(part: _Part, granted: Granted) -> bool:
    return _ascii_lower(part.text) in {_ascii_lower(s) for s in granted.schemas}


def _find(path: list[str], granted: Granted, *, exact: bool) -> str | None:
    same: Callable[[str], str] = (lambda text: text) if exact else _ascii_lower
    matches = [
        shown
        for shown in (granted.exact if exact else granted.folded).get(path[-1], ())
        if same(granted.tables[shown][0] if len(path) == 2 else shown) == path[0]
    ]
    return matches[0] if len(matches) == 1 else None


def is_granted_table(wanted: Sequence[str] | None, *names: str) -> bool:
    """Return whether any of a table's names is among the wanted names; None means that all tables are wanted."""
    return wanted is None or bool({_ascii_lower(w) for w in wanted} & {_ascii_lower(n) for n in names})


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
    near = difflib.get_close_matches(name.lower(), shared or list(times), n=3, cutoff=0.5) or shared[:3]
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
        near = difflib.get_close_matches(word.lower(), known, n=1, cutoff=0.75)
        if near and near[0] != word.lower():
            return f"Did you mean `{known[near[0]]}`?"
    return "`DESCRIBE table` lists the columns of a table."


def _nearest(name: str, granted: Granted) -> str:
    by_name = {shown.lower(): shown for shown in granted.tables}
    by_name |= {table.lower(): shown for shown, (_, table) in granted.tables.items()}
    wanted = name.lower()
    near = difflib.get_close_matches(wanted, by_name, n=1) or difflib.get_close_matches(
        wanted.rpartition(".")[2], by_name, n=1
    )
    if near:
        return f"Did you mean `{by_name[near[0]]}`?"
    listed = ", ".join(f"`{shown}`" for shown in sorted(granted.tables)[:8])
    more = ", ..." if len(granted.tables) > 8 else ""
    return f"Tables: {listed}{more}." if listed else "The source grants no tables."


class _Walk:
    """Checks the tree, then the tokens, and collects the tables that are read and the edits to their names."""

    def __init__(self, statement: _Statement, granted: Granted) -> None:
        self.tables: set[str] = set()
        self.edits: dict[int, tuple[int, str]] = {}
        self._statement = statement
        self._dialect = statement.dialect
        self._granted = granted
        self._functions = allowed_functions(self._dialect)
        self._table_functions = allowed_functions(f"{self._dialect}_tables")
        # The parser has its own classes for some functions, whose names have no underscores.
        self._table_functions_plain = {name.replace("_", "") for name in self._table_functions}
        self._bare = statement.bare_functions()
        self._declared: set[int] = set()
        self._in_tables: set[int] = set()
        self._named: set[str] = set()
        self._paths: set[tuple[str, ...]] = set()
        """The tables that are read, as they are written in the text that runs."""
        self._calls: set[str] = set()
        self._sources: dict[str, set[str | None]] = {}
        self._scopes: dict[int, CteScope | None] = {}
        self._invoked: list[Any] = []

    def tree(self, root: Any) -> None:
        from sqlglot import exp

        if not isinstance(root, (exp.Query, exp.Values)):
            word = self._statement.tokens[0]
            name = type(root).__name__.upper()
            hint = "Write a query: SELECT, WITH or VALUES."
            self._statement.refuse(f"`{name}` is not a query; a source is read-only.", "statement", word.start, hint)
        for node in root.walk():
            self._enter(node)
            name = type(node).__name__
            if name not in _NODES:
                self._unlisted(node, name)
            self._clauses(node, name)
            if isinstance(node, exp.Table):
                self._table(node)
            elif isinstance(node, exp.Lateral):
                self._from_call(node, node.this)
            elif isinstance(node, exp.TableAlias):
                self._declare(node)
            elif isinstance(node, exp.DataType):
                self._type(node)
            elif isinstance(node, exp.Column):
                self._column(node)
            elif isinstance(node, exp.Identifier):
                self._identifier(node)
                if isinstance(node.parent, (exp.Alias, exp.TableAlias, exp.ColumnDef)):
                    self._named.add(_truncate(_ascii_lower(node.this)))
            elif isinstance(node, exp.In) and node.args.get("field") is not None:
                raise Refused(
                    "`IN` needs a list or a query in brackets.",
                    hint="Write `IN (1, 2)` or `IN (SELECT ...)`.",
                    reason="table",
                    **self._position_of(node),
                )

    def _identifier(self, node: Any) -> None:
        if node.quoted or node.this.lower() not in _RESERVED[self._dialect]:
            return
        offset = _offset(node)
        if offset is None or not self._statement.follows_dot_or_as(offset):
            hint = "If it is a name, put it in quotes; otherwise check the syntax before it."
            self._statement.refuse(f"`{node.this}` is a reserved word and cannot be a name.", "token", offset, hint)

    def _unlisted(self, node: Any, name: str) -> None:
        from sqlglot import exp

        if isinstance(node, exp.Func):
            if name in self._bare and name not in _BARE:
                self._refuse_call(str(node.sql_name()).lower(), self._position_of(node))
            self._invoked.append(node)
            return
        if self._statement.is_bound(node):
            return
        if isinstance(node, (exp.Placeholder, exp.Parameter, exp.SessionParameter)):
            raise Refused(
                "Variables, and parameters without a value, are not allowed in a query.",
                hint="Give the value of a parameter beside the query: `db.sql(query, [value])`.",
                reason="parameter",
                **self._position_of(node),
            )
        raise Refused(
            f"`{_WORDS.get(name, name)}` is not allowed in a query.",
            hint=_HINT,
            reason="node",
            **self._position_of(node),
        )

    def _clauses(self, node: Any, name: str) -> None:
        allowed = _CLAUSES.get(name)
        if allowed is None:
            return
        for key, value in node.args.items():
            if value and key not in allowed:
                clause = _WORDS.get(key, key.strip("_").upper())
                raise Refused(
                    f"`{clause}` is not allowed in a query.",
                    hint=_HINT,
                    reason="clause",
                    **self._position_of(node),
                )

    def _position_of(self, node: Any) -> dict[str, int]:
        """Return the position of the node, or else of the first node inside or around it that has one."""
        offset = next((o for o in map(_offset, node.walk()) if o is not None), None)
        while offset is None and node.parent is not None:
            node = node.parent
            offset = _offset(node)
        return {} if offset is None else _position(self._statement.sql, offset)

    def _type(self, node: Any) -> None:
        """Refuse casts to user-defined types on Postgres: such a cast may run a user-defined function or check."""
        from sqlglot import exp

        if self._dialect != "postgres" or isinstance(node.this, exp.Expression):
            return
        if node.this == exp.DataType.Type.USERDEFINED:
            kind = node.args.get("kind")
            name = kind.name if isinstance(kind, exp.Expression) else str(kind or "").rpartition(".")[2].strip('"')
        else:
            # The parser has one class for many spellings. Postgres knows some; others may be user-defined types.
            name = min(self._statement.type_words & self._granted.domains, default="text")
        self._check_type(name, lambda: self._position_of(node))

    def returned_types(self) -> None:
        """Check the type after `RETURNING` in JSON functions, which the tree does not contain for all of them."""
        tokens = self._statement.tokens
        for index, word in enumerate(tokens):
            if self._statement.raw(word).lower() != "returning":
                continue
            named = [t.text for t in tokens[index + 1 : index + 4]]
            name = named[2] if named[1:2] == ["."] and len(named) > 2 else next(iter(named), "")
            self._check_type(name, partial(_position, self._statement.sql, word.start))

    def _check_type(self, name: str, position: Callable[[], Mapping[str, int]]) -> None:
        if _ascii_lower(name) not in _TYPES and name not in self._granted.types:
            raise Refused(
                f"The type `{name}` is not allowed in a query: a cast to it might run user-defined code.",
                hint="Cast to a built-in type of Postgres, or to an enumeration.",
                reason="type",
                **position(),
            )

    def _table(self, node: Any) -> None:
        from sqlglot import exp

        if not isinstance(node.this, exp.Identifier):
            self._from_call(node, node.this)
            return
        identifiers = [i for i in (node.args.get("catalog"), node.args.get("db"), node.this) if i is not None]
        if not all(isinstance(i, exp.Identifier) for i in identifiers):
            raise Refused(
                "A table name in the query cannot be checked.",
                hint="Write it as `table` or `schema.table`.",
                reason="table",
                **self._position_of(node),
            )
        parts = [_Part(i.this, bool(i.quoted)) for i in identifiers]
        if len(parts) == 1 and (self._is_cte(node, parts[0]) or self._is_dual(parts[0])):
            return
        start, last = identifiers[0].meta.get("start"), identifiers[-1].meta
        if start is None or "end" not in last:
            raise Refused(
                "A table name in the query cannot be checked.",
                hint="Write it as `table` or `schema.table`.",
                reason="table",
                **self._position_of(node),
            )
        name, rewritten = _resolve(parts, self._dialect, self._granted, partial(_position, self._statement.sql, start))
        self.tables.add(name)
        self._paths.add(rewritten or tuple(_fold(part, self._dialect) for part in parts))
        self._in_tables |= {i.meta["start"] for i in identifiers}
        if not node.alias:
            self._sources.setdefault(_fold(parts[-1], self._dialect), set()).add(name)
        if rewritten is not None:
            self._rewrite(node, name, rewritten, start, last["end"])

    def _rewrite(self, node: Any, name: str, target: tuple[str, ...], start: int, end: int) -> None:
        written = ".".join(quote_identifier(part, self._dialect) for part in target)
        # Other parts of the query may qualify columns with the name as it was written.
        if not node.alias and _fold(_Part(node.name, node.this.quoted), self._dialect) != target[-1]:
            written += (
                f" AS {quote_identifier(_fold(_Part(node.name, node.this.quoted), self._dialect), self._dialect)}"
            )
        self.edits[start] = (end + 1, written)

    def _is_dual(self, part: _Part) -> bool:
        return self._dialect == "mysql" and not part.quoted and part.text.lower() == "dual"

    def _is_cte(self, node: Any, part: _Part) -> bool:
        """Return whether the name means a common table expression by the scope rules of every engine."""
        scope = self._scopes.get(id(node))
        return scope is not None and scope.sees(_fold(part, self._dialect))

    def _enter(self, node: Any) -> None:
        """Find the scope of a node from that of its parent, which the walk has visited before."""
        from sqlglot import exp

        scope = self._scopes.get(id(node.parent)) if node.parent is not None else None
        if isinstance(node, exp.Query) and (clause := node.args.get("with_")) is not None:
            positions = first_cte_positions(map(self._cte_name, clause.expressions))
            more = 1 if clause.args.get("recursive") else 0
            for position, cte in enumerate(clause.expressions):
                # A common table expression sees those before it, and itself if the WITH is recursive.
                self._scopes[id(cte)] = CteScope(positions, position + more, scope)
            scope = CteScope(positions, len(clause.expressions), scope)
        self._scopes.setdefault(id(node), scope)

    def _cte_name(self, cte: Any) -> str | None:
        from sqlglot import exp

        name = cte.args["alias"].this if cte.args.get("alias") is not None else None
        return _fold(_Part(name.this, bool(name.quoted)), self._dialect) if isinstance(name, exp.Identifier) else None

    def _from_call(self, node: Any, call: Any) -> None:
        from sqlglot import exp

        if isinstance(call, (exp.Subquery, exp.Unnest)):
            return
        if not isinstance(call, exp.Func):
            raise Refused(
                "An item in `FROM` is not a table, a query or a function.",
                hint="Read a table of this source instead; `SHOW TABLES` lists them.",
                reason="table",
                **self._position_of(node),
            )
        name = self._call_name(call)
        if node.args.get("db") is not None or name.replace("_", "") not in self._table_functions_plain:
            self._refuse_call(name, self._position_of(call), "table function")

    def _call_name(self, call: Any) -> str:
        if "start" in call.meta:
            return self._statement.sql[call.meta["start"] : call.meta["end"] + 1].lower()
        return str(call.name if type(call).__name__ == "Anonymous" else call.sql_name()).lower()

    def _declare(self, node: Any) -> None:
        from sqlglot import exp

        if isinstance(node.this, exp.Identifier):
            # The table behind the alias; None for a query, a function or a common table expression.
            source = node.parent if isinstance(node.parent, exp.Table) else None
            alias = _fold(_Part(node.this.this, bool(node.this.quoted)), self._dialect)
            self._sources.setdefault(alias, set()).add(self._real_table(source))
        if node.this is not None and node.args.get("columns") and (offset := _offset(node.this)) is not None:
            self._declared.add(offset)

    def _real_table(self, node: Any) -> str | None:
        from sqlglot import exp

        if node is None or not isinstance(node.this, exp.Identifier):
            return None
        identifiers = [i for i in (node.args.get("catalog"), node.args.get("db"), node.this) if i is not None]
        parts = [_Part(i.this, bool(i.quoted)) for i in identifiers if isinstance(i, exp.Identifier)]
        if len(parts) == 1 and self._is_cte(node, parts[0]):
            return None
        return _resolve(parts, self._dialect, self._granted, dict)[0]

    def fields(self) -> None:
        """Refuse `value.name` if it may call the function `name`, as Postgres does if `value` has no such column."""
        tokens, callable_ = self._statement.tokens, self._granted.callable or frozenset()
        for before, dot, token in zip(tokens, tokens[1:], tokens[2:]):
            if self._statement.raw(dot) != "." or token.start in self._in_tables or token.text == "*":
                continue
            if _is_digit(token.text[:1]) and _is_digit(self._statement.raw(token)[0]):
                # The dot begins a fraction, as `_check_glue` ensures.
                continue
            name, raw = _truncate(_ascii_lower(token.text)), self._statement.raw(before)
            of_table = _NAMES.match(raw) is not None
            harmless = name in self._functions or name in _CONVERSIONS
            may_call = name in callable_ and (not harmless or name in self._granted.shadowed)
            if of_table and (not may_call or self._is_column(_fold_token(before, raw), _truncate(token.text))):
                continue
            if not of_table and not may_call and self._is_field(name):
                continue
            problem = f"might call the function `{token.text}`" if may_call else "is not a known column or field"
            self._statement.refuse(
                f"`.{token.text}` {problem}; only columns and fields may follow a dot.",
                "function",
                token.start,
                "If it is a column, rename it in an inner query. Call an allowed function as `name(value)`.",
            )

    def _is_column(self, qualifier: str, name: str) -> bool:
        """Return whether every table that the qualifier may mean has such a column."""
        sources = self._sources.get(qualifier, set())
        return bool(sources) and all(
            source is not None and any(name == column for column, *_ in self._granted.describe(source))
            for source in sources
        )

    def _is_field(self, name: str) -> bool:
        if name in self._granted.fields or name in _RECORD_FIELDS or re.fullmatch(r"f\d+|column\d+", name):
            return True
        return name in self._columns or name in self._named

    @cached_property
    def _columns(self) -> frozenset[str]:
        """The columns of all tables that the query reads, in lower case; complete after the walk over the tree."""
        return frozenset(_ascii_lower(c) for table in self.tables for c, *_ in self._granted.describe(table))

    def operators(self) -> None:
        """Refuse user-defined operators: they call functions that are not on the allow-list."""
        for name, start in self._operators():
            if name in self._granted.operators:
                self._statement.refuse(
                    f"The operator `{name}` is user-defined, so it is not allowed in a query.",
                    "operator",
                    start,
                    "Use the built-in operators of Postgres.",
                )

    def _operators(self) -> Iterator[tuple[str, int]]:
        """Yield each operator of the text, and where it starts."""
        run, end = "", -1
        for token in [*self._statement.tokens, None]:
            raw = "" if token is None else self._statement.raw(token)
            if token is not None and raw and set(raw) <= _OPERATOR_CHARACTERS and (not run or token.start == end):
                run, end = run + raw, token.end + 1
                continue
            if run:
                yield _operator(run), end - len(run)
            run, end = (raw, token.end + 1) if token and raw and set(raw) <= _OPERATOR_CHARACTERS else ("", -1)

    def user_code(self) -> None:
        """Refuse the query if a value in it may run a user-defined cast, overload of an operator or operator class."""
        if not self._granted.user_code:
            return
        words = {_ascii_lower(word) for token in self._statement.tokens for word in token.text.split()}
        used = {name for name, _ in self._operators()}
        used |= {name for word, names in _IMPLIED.items() if word in words for name in names}
        for code in self._granted.user_code:
            if code.operator and code.operator not in used:
                continue
            if code.always or code.tables & self.tables or code.types & words:
                raise Refused(
                    f"The query might run the user-defined {code.kind} `{code.shown}`, which calls a function.",
                    hint=f"Drop the {code.kind} in the database, or grant a view without columns of its types.",
                    reason=code.kind,
                )

    def _column(self, node: Any) -> None:
        """Remove the source's name from `source.table.column`."""
        from sqlglot import exp

        first = node.args.get("catalog") or node.args.get("db")
        if not isinstance(first, exp.Identifier) or _is_schema(_Part(first.this, False), self._granted):
            return
        after = node.args.get("db") if node.args.get("catalog") else node.args.get("table")
        if _ascii_lower(first.this) == self._granted.source.lower() and after is not None:
            start, stop = _offset(first), _offset(after)
            if start is not None and stop is not None:
                self.edits[start] = (stop, "")

    def calls(self) -> None:
        """Refuse a name before a bracket unless it is an allowed function, a keyword or a declared alias."""
        tokens, checked = self._statement.tokens, dict[int, str]()
        for index, token in enumerate(tokens):
            raw = self._statement.raw(token)
            follows = self._statement.raw(tokens[index + 1]) if index + 1 < len(tokens) else ""
            if raw.lower() == "for" and _LOCKS.match(follows):
                message = "Row locks (`FOR UPDATE`, `FOR SHARE`) are not allowed; a source is read-only."
                self._statement.refuse(message, "lock", token.start, "Remove the clause.")
            if follows == "(" and not _SYMBOL.fullmatch(raw):
                before = self._statement.raw(tokens[index - 1]) if index else ""
                qualifier = tokens[index - 2].text if before == "." and index > 1 else ""
                self._call(token, raw, before, qualifier)
                checked[token.start] = _ascii_lower(token.text)
        self._calls |= set(checked.values())
        self._check_invoked(checked)

    def _check_invoked(self, checked: Mapping[int, str]) -> None:
        """Refuse a function of the tree if its name is not among the tokens that were checked: (offset, name)."""
        from sqlglot import exp

        names = frozenset(checked.values())
        for node in self._invoked:
            offset = _offset(node)
            named = isinstance(node, exp.Anonymous)
            if (offset is not None and offset not in checked) or (named and _ascii_lower(node.name) not in names):
                self._refuse_call(self._call_name(node), self._position_of(node))

    def _call(self, token: Any, raw: str, before: str, qualifier: str) -> None:
        word = raw.lower().split()[-1]
        if token.start in self._declared:
            return
        if before == "." or not _is_letter(raw[0]):
            name = token.text if before != "." else f"{qualifier}.{token.text}"
            position = _position(self._statement.sql, token.start)
            self._refuse_call(name.lower(), position, hint="Call an allowed function without quotes or a schema.")
        if word not in _BEFORE_BRACKET and word not in self._functions and word not in self._table_functions:
            self._refuse_call(word, _position(self._statement.sql, token.start))
        if word in self._granted.shadowed:
            hint = f"This database has a user-defined function `{word}`, which might run instead of the built-in one."
            self._refuse_call(word, _position(self._statement.sql, token.start), hint=hint)

    def compare_with_postgres(self) -> None:
        """Refuse the query if Postgres reads other texts, tables or functions in it than those that were checked."""
        text, start, mine, edited = [], 0, set[tuple[int, int]](), list[tuple[int, int]]()
        for piece, is_token in self._statement.pieces(self.edits):
            end = start + len(piece.encode())
            if not is_token and not piece.isspace():
                edited.append((start, end))
            elif is_token and piece != "$" and _TEXT.match(piece):  # a `$` begins a parameter
                # `N` is a word of its own for Postgres.
                mine.add((start + (piece[0] in "nN"), end))
            text.append(piece)
            start = end
        read = read_postgres_query("".join(text))
        known = self._calls | IMPLIED_FUNCTIONS
        # A replacement is a name in quotes that etude itself wrote.
        starts = [start for start, _ in edited]
        outside = {(s, e) for s, e in read.texts if not (at := bisect_right(starts, s)) or e > edited[at - 1][1]}
        if outside != mine:
            other = "where a text or a name in quotes ends"
        elif strange := [p for p in read.tables if p not in self._paths and not (len(p) == 1 and p[0] in read.ctes)]:
            other = f"the table `{'.'.join(strange[0])}`"
        elif called := read.functions - known:
            other = f"the function `{min(called)}`"
        else:
            return
        raise Refused(
            f"The query is refused, because Postgres reads it differently from the guard: {other}.",
            hint="Write the query in plainer SQL.",
            reason="token",
        )

    def _refuse_call(self, name: str, position: Mapping[str, int], noun: str = "function", hint: str = "") -> NoReturn:
        allowed = self._table_functions if noun == "table function" else self._functions
        if not hint and noun == "function" and (missing := missing_function_hint(name, self._dialect)) is not None:
            raise Refused(missing[0], hint=missing[1], reason="function", **position)
        near = difflib.get_close_matches(name, allowed, n=1, cutoff=0.8)
        if near and near[0] != name and not hint:
            hint = f"Did you mean `{near[0]}`?"
        if noun == "table function" and not hint:
            hint = "Read a table of this source instead; `SHOW TABLES` lists them."
        raise Refused(
            f"The {noun} `{name}` is not allowed in a query.", hint=hint or _HINT, reason="function", **position
        )


_WORDS = {
    "locks": "FOR UPDATE",
    "Lock": "FOR UPDATE",
    "into": "INTO",
    "Into": "INTO",
    "operation_modifiers": "a keyword between SELECT and the first column",
    "Delete": "DELETE",
    "Insert": "INSERT",
    "Update": "UPDATE",
    "Merge": "MERGE",
    "Command": "COMMAND",
    "rows_from": "ROWS FROM",
    "ObjectIdentifier": "regclass",
    "system_time": "FOR SYSTEM_TIME",
}


def _offset(node: Any) -> int | None:
    start = node.meta.get("start")
    return start if isinstance(start, int) else None
