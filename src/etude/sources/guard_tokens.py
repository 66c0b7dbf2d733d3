"""The tokens of a query, each proven to be one lexeme of the engine, and the text that runs, rebuilt from them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NoReturn

from etude.errors import InvalidQuery, Refused
from etude.sources.granted_tables import ascii_lower
from etude.sources.query_hints import ENGINES, suggest_query_word
from etude.sources.sql_parsing import MAX_DEPTH, parse_sql_tokens, tokenize_sql, too_deep_error


def word_set(text: str) -> frozenset[str]:
    """Return the words of a list that is written as one text."""
    return frozenset(text.split())


def position_at(text: str, offset: int) -> dict[str, int]:
    """Return the line and column of an offset, for an error."""
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
SYMBOL = re.compile(r"(?!.*(?:--|/\*|\*/))[-+*/%^&|~!=<>@#?:.,()\[\]{}]{1,4}")
# The text between two tokens: blanks and comments, each ending where the engine ends it. If the parser ends one
# elsewhere, the engine would read the text differently from the guard, so the text is refused.
_GAPS = {
    "postgres": re.compile(r"(?:\s|--[^\r\n]*)+"),
    "mysql": re.compile(r"(?:\s|--(?=[\s\x00-\x1f]|$)[^\n]*|#[^\n]*|/\*(?!M?!)(?:(?!\*/).)*\*/)+", re.DOTALL),
    "sqlite": re.compile(r"(?:\s|--[^\n]*|/\*(?:(?!\*/).)*(?:\*/|$))+", re.DOTALL),
}

_NESTED = re.compile(r"/\*|\*/")
_PARAMETER = re.compile(r"\$([1-9][0-9]{0,4})(?=[\s),]|$)")
_BLANK = re.compile(r"[ \t\r\n]*")
_WORDLIKE = re.compile(r"""[\w$'"`]""")

# Unquoted words that are refused anywhere in the text, whatever the tree says.
_SESSION = word_set("current_user session_user current_role current_catalog current_schema system_user user")
_FORBIDDEN = {
    "postgres": _SESSION | {"into"},
    "mysql": frozenset({"into", "outfile", "dumpfile", "procedure", "current_user", "current_role"}),
    "sqlite": frozenset({"into", "pragma", "attach"}),
}
_OBJECT_NAMES = word_set(
    """regclass regproc regprocedure regoper regoperator regtype regrole regnamespace regconfig regdictionary
    regcollation"""
)
# Words that engines accept as names only in quotes. If the parser took one as a name, it misread the text.
_CORE = """select from where group having order limit union table join on using with into for in case when then else as
    and or not null is distinct all create """
RESERVED = {
    "postgres": word_set(
        _CORE
        + """analyse analyze any array asc asymmetric both cast check collate column constraint default deferrable desc
        do end except false fetch foreign grant initially intersect lateral leading offset only placing primary
        references returning some symmetric to trailing true unique variadic window"""
    ),
    "mysql": word_set(
        _CORE
        + """by exists between like left right inner cross natural outer update delete insert drop alter lock procedure
        call set partition straight_join force ignore use"""
    ),
    # SQLite accepts many keywords as names; its own authorizer reports what a statement really reads.
    "sqlite": word_set(_CORE),
}
_STARTS = frozenset({"SELECT", "WITH", "VALUES", "TABLE", "("})


def _looks_ascii(word: str) -> bool:
    """Return whether the word is ASCII in another case: a parser may read `\u017felect` as `select`, engines do not."""
    return not word.isascii() and (word.upper().isascii() or word.lower().isascii())


def is_letter(character: str) -> bool:
    """Return whether a word may begin with the character."""
    return character == "_" or character.isalpha()


def is_digit(character: str) -> bool:
    """Return whether it is an ASCII digit."""
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


class GuardedStatement:
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
        """Return a token as it is written."""
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
                suggest_query_word(word)
                + "Write a query: SELECT, WITH or VALUES; also EXPLAIN, SHOW TABLES and DESCRIBE.",
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
            if not _LEXEMES[self.dialect].fullmatch(raw) and not SYMBOL.fullmatch(raw):
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
        if any(not is_letter(word[0]) for word in raw.split()):
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
            glued = is_digit(raw[0]) and (not touches or _ends_value(self.sql[max(before.start - 1, 0)]))
        elif raw == ".":
            glued = touches and is_digit(left[0])
        else:
            ends = _WORDLIKE.match(left[-1]) or is_digit(left[0])
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
        """Return the tree of the statement."""
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
        return frozenset(ascii_lower(token.text) for token in self.tokens if token.token_type in types)

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
        """Raise `Refused` with the position of the offset."""
        position = {} if offset is None else position_at(self.sql, offset)
        raise Refused(message, hint=hint or ALLOWED_HINT, reason=reason, **position)


ALLOWED_HINT = "A query may use only the functions and clauses on the allow-list, and the tables of this source."


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
