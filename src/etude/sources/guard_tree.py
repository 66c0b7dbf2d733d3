"""The allow-list over the tree of a query: nodes, clauses, tables, types, functions, operators and fields."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from typing import Any, NoReturn

from etude.errors import Refused
from etude.similar_names import similar_names
from etude.sources.cte_scope import CteScope, first_cte_positions
from etude.sources.functions import allowed_functions
from etude.sources.granted_tables import (
    Granted,
    TableNamePart,
    ascii_lower,
    fold_name,
    is_schema,
    resolve_table,
    truncate_name,
)
from etude.sources.guard_tokens import (
    ALLOWED_HINT,
    RESERVED,
    SYMBOL,
    GuardedStatement,
    is_digit,
    is_letter,
    position_at,
    word_set,
)
from etude.sources.postgres_grammar import IMPLIED_FUNCTIONS, read_postgres_query
from etude.sources.query_hints import missing_function_hint
from etude.sources.quoting import quote_identifier

# The allowed classes of nodes, except functions, whose names are checked on the tokens. All other classes are refused.
_NODES = word_set(
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
_BARE = word_set("CurrentDate CurrentTime CurrentTimestamp Localtime Localtimestamp Case Any If")
# Built-in types of Postgres. Converting text to one of them runs no user-defined code.
_TYPES = word_set(
    """tsquery tsvector macaddr macaddr8 cidr inet lseg polygon path box circle line point jsonpath name char bpchar oid
    xml money bit varbit timetz timestamptz int2 int4 int8 float4 float8 bool int4range int8range numrange tsrange
    tstzrange daterange int4multirange int8multirange nummultirange tsmultirange tstzmultirange datemultirange uuid
    json jsonb text bytea date time timestamp interval numeric varchar integer bigint smallint real record pg_lsn int
    decimal dec double float boolean character"""
)
_GRAMMAR_TYPES = word_set("int integer bigint smallint real decimal dec double float boolean character")
"""Names that the grammar turns into built-in types; in quotes, they are other types."""
# Functions of Postgres that only convert a value; columns often have these names.
_CONVERSIONS = word_set("bool bpchar bytea char cidr float4 int2 macaddr money name oid text timetz varchar xml")
_RECORD_FIELDS = word_set("key value ordinality")
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
_TEXT = re.compile(r"""[nNeExXbB]?'|[uU]&['"]|"|\$""")


def _operator(run: str) -> str:
    """Return the operator that Postgres reads at the start of a run of symbols."""
    return run if set(run) & set("~!@#%^&|`?") else run.rstrip("+-") or run[0]


def _fold_token(token: Any, raw: str) -> str:
    return truncate_name(str(token.text) if raw.startswith('"') else ascii_lower(token.text))


# The allowed clauses by class of node. If another clause has a value, the query is refused.
_QUERY = ("joins", "laterals", "where", "group", "having", "windows", "order", "limit", "offset")
_CLAUSES: dict[str, frozenset[str]] = {
    "Select": frozenset(["with_", "expressions", "distinct", "from_", *_QUERY]),
    "Subquery": frozenset(["with_", "this", "alias", "sample", *_QUERY]),
    "Table": word_set("this db catalog alias joins laterals ordinality only sample hints"),
    "Join": word_set("this on side kind using method expressions"),
    "Lateral": word_set("this view outer alias ordinality"),
    "CTE": word_set("this alias scalar materialized"),
    "With": word_set("expressions recursive"),
    **{
        c: frozenset(["with_", "this", "expression", "distinct", "by_name", *_QUERY])
        for c in ("Union", "Intersect", "Except")
    },
}
# Words that call no function if a bracket follows.
_BEFORE_BRACKET = word_set(
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


class TreeCheck:
    """Checks the tree, then the tokens, and collects the tables that are read and the edits to their names."""

    def __init__(self, statement: GuardedStatement, granted: Granted) -> None:
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
        self._types: set[str] = set()
        """The types that Postgres reads, without their schemas, in lower case."""
        self._sources: dict[str, set[str | None]] = {}
        self._scopes: dict[int, CteScope | None] = {}
        self._invoked: list[Any] = []

    def tree(self, root: Any) -> None:
        """Check each node and clause, and find the tables that are read."""
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
                    self._named.add(truncate_name(ascii_lower(node.this)))
            elif isinstance(node, exp.In) and node.args.get("field") is not None:
                raise Refused(
                    "`IN` needs a list or a query in brackets.",
                    hint="Write `IN (1, 2)`, `IN (?, ?)` with a mark for each value, or `IN (SELECT ...)`.",
                    reason="table",
                    **self._position_of(node),
                )

    def _identifier(self, node: Any) -> None:
        if node.quoted or node.this.lower() not in RESERVED[self._dialect]:
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
                f"`{node.sql(self._dialect)[:60]}` is a variable, or a parameter without a value, which a query "
                "may not have.",
                hint="Give the value of a parameter beside the query: `db.sql(query, [value])`.",
                reason="parameter",
                **self._position_of(node),
            )
        raise Refused(
            f"`{_WORDS.get(name, name)}` is not allowed in a query.",
            hint=ALLOWED_HINT,
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
                    hint=ALLOWED_HINT,
                    reason="clause",
                    **self._position_of(node),
                )

    def _position_of(self, node: Any) -> dict[str, int]:
        """Return the position of the node, or else of the first node inside or around it that has one."""
        offset = next((o for o in map(_offset, node.walk()) if o is not None), None)
        while offset is None and node.parent is not None:
            node = node.parent
            offset = _offset(node)
        return {} if offset is None else position_at(self._statement.sql, offset)

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
            self._check_type(name, partial(position_at, self._statement.sql, word.start))

    def _check_type(self, name: str, position: Callable[[], Mapping[str, int]]) -> None:
        if ascii_lower(name) not in _TYPES and name not in self._granted.types:
            self._refuse_type(name, position())

    def _refuse_type(self, name: str, position: Mapping[str, int]) -> NoReturn:
        raise Refused(
            f"The type `{name}` is not allowed in a query: a cast to it might run user-defined code.",
            hint="Cast to a built-in type of Postgres, or to an enumeration.",
            reason="type",
            **position,
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
        parts = [TableNamePart(i.this, bool(i.quoted)) for i in identifiers]
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
        name, rewritten = resolve_table(
            parts, self._dialect, self._granted, partial(position_at, self._statement.sql, start)
        )
        self.tables.add(name)
        self._paths.add(rewritten or tuple(fold_name(part, self._dialect) for part in parts))
        self._in_tables |= {i.meta["start"] for i in identifiers}
        if not node.alias:
            self._sources.setdefault(fold_name(parts[-1], self._dialect), set()).add(name)
        if rewritten is not None:
            self._rewrite(node, name, rewritten, start, last["end"])

    def _rewrite(self, node: Any, name: str, target: tuple[str, ...], start: int, end: int) -> None:
        written = ".".join(quote_identifier(part, self._dialect) for part in target)
        # Other parts of the query may qualify columns with the name as it was written.
        known_as = fold_name(TableNamePart(node.name, node.this.quoted), self._dialect)
        if not node.alias and known_as != target[-1]:
            written += f" AS {quote_identifier(known_as, self._dialect)}"
        self.edits[start] = (end + 1, written)

    def _is_dual(self, part: TableNamePart) -> bool:
        return self._dialect == "mysql" and not part.quoted and part.text.lower() == "dual"

    def _is_cte(self, node: Any, part: TableNamePart) -> bool:
        """Return whether the name means a common table expression by the scope rules of every engine."""
        scope = self._scopes.get(id(node))
        return scope is not None and scope.sees(fold_name(part, self._dialect))

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
        if not isinstance(name, exp.Identifier):
            return None
        return fold_name(TableNamePart(name.this, bool(name.quoted)), self._dialect)

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
            alias = fold_name(TableNamePart(node.this.this, bool(node.this.quoted)), self._dialect)
            self._sources.setdefault(alias, set()).add(self._real_table(source))
        if node.this is not None and node.args.get("columns") and (offset := _offset(node.this)) is not None:
            self._declared.add(offset)

    def _real_table(self, node: Any) -> str | None:
        from sqlglot import exp

        if node is None or not isinstance(node.this, exp.Identifier):
            return None
        identifiers = [i for i in (node.args.get("catalog"), node.args.get("db"), node.this) if i is not None]
        parts = [TableNamePart(i.this, bool(i.quoted)) for i in identifiers if isinstance(i, exp.Identifier)]
        if len(parts) == 1 and self._is_cte(node, parts[0]):
            return None
        return resolve_table(parts, self._dialect, self._granted, dict)[0]

    def fields(self) -> None:
        """Refuse `value.name` if it may call the function `name`, as Postgres does if `value` has no such column."""
        tokens, callable_ = self._statement.tokens, self._granted.callable or frozenset()
        for before, dot, token in zip(tokens, tokens[1:], tokens[2:]):
            if self._statement.raw(dot) != "." or token.start in self._in_tables or token.text == "*":
                continue
            if is_digit(token.text[:1]) and is_digit(self._statement.raw(token)[0]):
                # The dot begins a fraction, as `_check_glue` ensures.
                continue
            name, raw = truncate_name(ascii_lower(token.text)), self._statement.raw(before)
            of_table = _NAMES.match(raw) is not None
            # A text beside a result of `pg_typeof` is looked up among all types; here Postgres's tree has no call.
            harmless = (name in self._functions and name != "pg_typeof") or name in _CONVERSIONS
            may_call = name in callable_ and (not harmless or name in self._granted.shadowed)
            if of_table and (not may_call or self._is_column(_fold_token(before, raw), truncate_name(token.text))):
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
        return frozenset(ascii_lower(c) for table in self.tables for c, *_ in self._granted.describe(table))

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
        """Refuse the query if a value in it may run a user-defined cast, operator, operator class or check."""
        if named := self.tables & self._granted.lookups:
            raise Refused(
                f"`{min(named)}` has values of a type such as `regclass`, by which names of other tables can be read.",
                hint="Grant a view that has these columns as text: `column::text`.",
                reason="type",
            )
        if not self._granted.user_code:
            return
        words = {ascii_lower(word) for token in self._statement.tokens for word in token.text.split()}
        words |= self._types
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
        if not isinstance(first, exp.Identifier) or is_schema(TableNamePart(first.this, False), self._granted):
            return
        after = node.args.get("db") if node.args.get("catalog") else node.args.get("table")
        if ascii_lower(first.this) == self._granted.source.lower() and after is not None:
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
            if follows == "(" and not SYMBOL.fullmatch(raw):
                before = self._statement.raw(tokens[index - 1]) if index else ""
                qualifier = tokens[index - 2].text if before == "." and index > 1 else ""
                self._call(token, raw, before, qualifier)
                checked[token.start] = ascii_lower(token.text)
        self._calls |= set(checked.values())
        self._check_invoked(checked)

    def _check_invoked(self, checked: Mapping[int, str]) -> None:
        """Refuse a function of the tree if its name is not among the tokens that were checked: (offset, name)."""
        from sqlglot import exp

        names = frozenset(checked.values())
        for node in self._invoked:
            offset = _offset(node)
            named = isinstance(node, exp.Anonymous)
            if (offset is not None and offset not in checked) or (named and ascii_lower(node.name) not in names):
                self._refuse_call(self._call_name(node), self._position_of(node))

    def _call(self, token: Any, raw: str, before: str, qualifier: str) -> None:
        word = raw.lower().split()[-1]
        if token.start in self._declared:
            return
        if before == "." or not is_letter(raw[0]):
            name = token.text if before != "." else f"{qualifier}.{token.text}"
            position = position_at(self._statement.sql, token.start)
            self._refuse_call(name.lower(), position, hint="Call an allowed function without quotes or a schema.")
        if word not in _BEFORE_BRACKET and word not in self._functions and word not in self._table_functions:
            self._refuse_call(word, position_at(self._statement.sql, token.start))
        if word in self._granted.shadowed:
            hint = f"This database has a user-defined function `{word}`, which might run instead of the built-in one."
            self._refuse_call(word, position_at(self._statement.sql, token.start), hint=hint)

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
        self._types = {path[-1].lower() for path in read.types}
        if foreign := sorted(path for path in read.types if not self._is_allowed_type(path)):
            self._refuse_type(".".join(foreign[0]), {})
        if read.bare_typeof:
            raise Refused(
                "The result of `pg_typeof` is refused here: a text beside it would be looked up among all types.",
                hint="Write `pg_typeof(value)::text`.",
                reason="type",
            )
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

    def _is_allowed_type(self, path: tuple[str, ...]) -> bool:
        """Return whether a type, as Postgres reads its name, is built in or runs no user-defined code."""
        *schema, name = path
        if schema == ["pg_catalog"] or not schema:
            # Without a schema, the built-in type comes first, but in quotes SQL's own names are not built-in types.
            return name in (_TYPES if schema else _TYPES - _GRAMMAR_TYPES) or self._is_safe_type(name)
        return len(schema) == 1 and self._is_safe_type(name)

    def _is_safe_type(self, name: str) -> bool:
        return name in self._granted.types and ascii_lower(name) not in self._granted.domains

    def _refuse_call(self, name: str, position: Mapping[str, int], noun: str = "function", hint: str = "") -> NoReturn:
        allowed = self._table_functions if noun == "table function" else self._functions
        if not hint and noun == "function" and (missing := missing_function_hint(name, self._dialect)) is not None:
            raise Refused(missing[0], hint=missing[1], reason="function", **position)
        near = similar_names(name, allowed, n=1, cutoff=0.8)
        if near and near[0] != name and not hint:
            hint = f"Did you mean `{near[0]}`?"
        if noun == "table function" and not hint:
            hint = "Read a table of this source instead; `SHOW TABLES` lists them."
        raise Refused(
            f"The {noun} `{name}` is not allowed in a query.", hint=hint or ALLOWED_HINT, reason="function", **position
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
