"""The only way from foreign SQL text to a tree of sqlglot: within limits of length, nesting and work.

sqlglot reads `DATE(` first as a type and then again as a function, so each level of such brackets doubles its work, and
forty levels would take years. Some text is parsed in the server's own process, where no time limit applies. So all code
that parses text of a caller, a run, a file or a model uses this module; `tests/test_layout.py` checks it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from etude.errors import Refused

if TYPE_CHECKING:
    from sqlglot import exp

MAX_TEXT = 1 << 20
MAX_TOKENS = 100_000
MAX_PIECES = 2 * MAX_TOKENS
MAX_DEPTH = 40
MAX_TYPE_DEPTH = 8
"""The limit of brackets inside each other that follow the name of a type."""
_NODES, _NODES_PER_TOKEN = 3_000, 4
"""The limit of nodes that the parser may make, also of those that it discards. A usual query has fewer than tokens."""


_PIECE = re.compile(r"\w+|[^\w\s]")


def too_deep_error() -> Refused:
    """Return the error for a text whose nesting the parser might not finish."""
    return Refused(
        f"The query is nested too deeply; the limit is {MAX_DEPTH} levels of brackets, "
        f"and {MAX_TYPE_DEPTH} after the names of types, such as `date(`.",
        hint="Move inner queries into a WITH clause.",
        reason="depth",
    )


def check_text_size(sql: str) -> None:
    """Raise `Refused` if the text is too long to be parsed."""
    if len(sql) > MAX_TEXT:
        raise Refused(
            f"The query has {len(sql):,} characters; the limit is {MAX_TEXT:,}.",
            hint="Split the query, or join with a table instead of listing values.",
            reason="size",
        )


def tokenize_sql(sql: str, dialect: str) -> list[Any]:
    """Return the tokens of a text; raise `Refused` if it has too many, or sqlglot's `TokenError`."""
    from sqlglot.dialects.dialect import Dialect

    check_text_size(sql)
    tokens = Dialect.get_or_raise(dialect).tokenize(sql)
    if len(tokens) > MAX_TOKENS:
        raise Refused(
            f"The query has {len(tokens):,} tokens; the limit is {MAX_TOKENS:,}.",
            hint="Join with a table instead of listing values.",
            reason="size",
        )
    return list(tokens)


def parse_sql_tokens(tokens: Sequence[Any], sql: str, dialect: str) -> list[exp.Expr | None]:
    """Return the trees of the statements; raise `Refused` if they are nested too deeply, or sqlglot's `ParseError`."""
    from sqlglot.dialects.dialect import Dialect
    from sqlglot.errors import ParseError

    known = Dialect.get_or_raise(dialect)
    _check_depth(tokens, known.parser_class.TYPE_TOKENS)
    try:
        return known.parser(max_nodes=_NODES + _NODES_PER_TOKEN * len(tokens)).parse(list(tokens), sql)
    except RecursionError:
        raise too_deep_error() from None
    except ParseError as error:
        if "Maximum number of AST nodes" in str(error):
            raise too_deep_error() from None
        raise


def parse_sql(sql: str, dialect: str) -> list[exp.Expr | None]:
    """Return the trees of the statements in a text; raise `Refused` beyond a limit, or an error of sqlglot."""
    _check_pieces(sql)
    return parse_sql_tokens(tokenize_sql(sql, dialect), sql, dialect)


def _check_pieces(sql: str) -> None:
    """Raise `Refused` if the text may have far too many tokens: making a million takes seconds and 300 MiB.

    The words inside texts and comments count too, because only the tokenizer knows where these end.
    """
    pieces = _PIECE.finditer(sql) if len(sql) > MAX_PIECES else iter(())
    if next(islice(pieces, MAX_PIECES, None), None) is not None:
        raise Refused(
            f"The query has more than {MAX_PIECES:,} words and symbols.",
            hint="Join with a table instead of listing values.",
            reason="size",
        )


def parse_one_sql(sql: str, dialect: str) -> exp.Expr:
    """Return the tree of the first statement in a text; raise `Refused` beyond a limit, or an error of sqlglot."""
    from sqlglot.errors import ParseError

    trees = parse_sql(sql, dialect)
    if not trees or trees[0] is None:
        raise ParseError("The text contains no statement.")
    return trees[0]


def _check_depth(tokens: Sequence[Any], types: Any) -> None:
    from sqlglot.tokenizer_core import TokenType

    opening = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
    closing = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
    after_type: list[bool] = []
    typed = 0
    before = None
    for token in tokens:
        kind = token.token_type
        if kind in opening:
            after_type.append(before in types)
            typed += after_type[-1]
            if len(after_type) > MAX_DEPTH or typed > MAX_TYPE_DEPTH:
                raise too_deep_error()
        elif kind in closing and after_type:
            typed -= after_type.pop()
        before = kind
