"""What the new code of an edit may use: an allow-list, so that no edit reaches the tests that judge it.

Code under test runs in the process of the tests. Code that could find out about them, change them or end them could
change its own score, so an edit may add only plain computation, waits, retries and caches.
"""

from __future__ import annotations

import ast
import builtins
from collections import Counter
from collections.abc import Iterable

from etude.errors import Refused

MODULES = frozenset(
    {"time", "math", "functools", "itertools", "collections", "datetime", "decimal", "fractions", "statistics"}
    | {"random", "re", "json", "csv", "string", "textwrap", "unicodedata", "contextlib", "logging", "typing"}
    | {"operator", "bisect", "heapq", "enum", "dataclasses", "socket", "urllib.error", "http.client", "sqlite3"}
    | {"playwright.sync_api", "selenium.common.exceptions", "requests", "httpx", "urllib3"}
)
"""Modules that an edit may import, besides those that its file imports already."""
_NAMES = frozenset(
    {"abs", "all", "any", "bool", "bytes", "chr", "dict", "divmod", "enumerate", "filter", "float", "frozenset", "hash"}
    | {"int", "isinstance", "issubclass", "iter", "len", "list", "map", "max", "min", "next", "ord", "pow", "range"}
    | {"repr", "reversed", "round", "set", "slice", "sorted", "str", "sum", "tuple", "zip", "super", "property"}
    | {name for name in dir(builtins) if name.endswith(("Error", "Exception", "Iteration", "Warning"))}
) - {"BaseException", "AssertionError", "BaseExceptionGroup"}
_CLOSED = frozenset(
    {"os", "sys", "subprocess", "shutil", "pathlib", "ctypes", "gc", "inspect", "importlib", "builtins", "signal"}
    | {"threading", "multiprocessing", "atexit", "pytest", "_pytest", "unittest", "pluggy", "types", "traceback"}
    | {"tempfile", "io", "pickle", "marshal", "code", "codeop", "runpy", "site", "faulthandler", "mock", "asyncio"}
    | {"linecache", "tracemalloc", "weakref", "platform", "resource", "pty", "tty", "mmap", "fcntl", "glob", "warnings"}
)
"""Modules of which an edit may use nothing that its file did not use before."""
_METHODS = frozenset(
    {"write_text", "write_bytes", "unlink", "symlink_to", "hardlink_to", "touch", "chmod", "rmdir", "mkdir", "rename"}
    | {"modules", "settrace", "setprofile", "exit", "skip", "xfail", "fail", "importorskip", "environ", "system"}
    | {"popen", "fork", "kill", "execv", "spawn", "open", "write", "writelines", "truncate", "format_map"}
)
_ALLOWED_UNDERSCORE = frozenset({"__init__", "__name__", "__class__"})
_DEFINED_UNDERSCORE = frozenset(
    {"__init__", "__post_init__", "__iter__", "__next__", "__len__", "__getitem__", "__call__", "__str__", "__repr__"}
    | {"__enter__", "__all__", "__version__", "__slots__"}
)
"""The special names that an edit may define.

Others decide how values are compared, calculated with or found, so a value could pass any assertion: one whose `__eq__`
is always true equals whatever a test expects. An `__exit__` can suppress the failure of a test in its `with` block.
"""
_COMPARED = frozenset({"eq", "compare", "order", "cmp", "unsafe_hash"})
"""Arguments that decide how objects of a class are compared."""
_SUPPRESSING = frozenset({"suppress", "ExitStack", "AsyncExitStack", "AbstractContextManager", "ContextDecorator"})
"""Context managers that could be handed to a test, and suppress its failure."""

_TEXTS = (".md", ".txt", ".sql", ".j2", ".yaml", ".yml", ".json")
"""Files besides Python that an edit may change: prompts, playbooks, queries and their values."""


def check_edit_policy(path: str, old: str, new: str) -> None:
    """Raise `Refused` if the new text of a file uses something that an edit may not use."""
    if path.endswith(_TEXTS):
        return
    if not path.endswith(".py"):
        raise Refused(f"`{path}` is not a file that edits may change.", hint=f"Edit .py, {', '.join(_TEXTS)}.")
    try:
        before, after = ast.parse(old), ast.parse(new)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise Refused(f"`{path}` is not valid Python after the edit: {error}.", hint="Correct the new text.") from None
    known, found = Counter(_uses(before)), Counter(_uses(after))
    imported = {name for kind, name in known if kind == "import"}
    for (kind, name), count in (found - known).items():
        reason = _judge(kind, name, imported, _defined(after), known)
        if reason and count:
            raise Refused(
                f"The edit of `{path}` {reason}.",
                hint="An edit may add computation, waits, retries and caches, nothing that could reach its tests.",
            )


def _uses(tree: ast.AST) -> Iterable[tuple[str, str]]:
    """Yield what code imports, names, reaches by attribute, assigns to by attribute, and whether it has odd parts."""
    yield from _odd_values(tree)
    for node in ast.walk(tree):
        for name in _bound(node):
            if name.startswith("__") or name == "self":
                yield "defined", name
                if name not in _DEFINED_UNDERSCORE and isinstance(node, ast.FunctionDef):
                    yield "body", f"{name}:{ast.dump(node)}"
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield "import", alias.name
            case ast.ImportFrom(module=module, names=names, level=level):
                for alias in names:
                    yield "from", f"{'.' * level}{module or ''}:{alias.name}"
            case ast.Name(id=name, ctx=ast.Load()):
                yield "name", name
            case ast.Attribute(attr=attribute, ctx=context):
                root = _root(node)
                stored = isinstance(context, ast.Store | ast.Del)
                yield ("stored" if stored else "attribute"), f"{root}.{attribute}" if root else attribute
            case ast.Global() | ast.Nonlocal():
                yield "global", ", ".join(node.names)
            case ast.Constant(value=str(text)) if _is_telling(text):
                yield "text", text[:80]
            case ast.Try() | ast.ExceptHandler(type=None):
                if isinstance(node, ast.ExceptHandler):
                    yield "bare", "except"
            case ast.AsyncFunctionDef() | ast.Await():
                yield "async", "await"


def _bound(node: ast.AST) -> Iterable[str]:
    """Yield the names that a node binds, except the arguments of functions."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.alias(name=name, asname=other):
            yield other or name.partition(".")[0]
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            yield name
        case ast.ExceptHandler(name=str(name)):
            yield name


def _odd_values(tree: ast.AST) -> Iterable[tuple[str, str]]:
    """Yield values and blocks that could reach the code of a test: modules, context managers, rules of comparison."""
    modules = {
        alias.asname or alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    # A module as the root of an attribute, and `suppress` as the head of a `with` block, stay where they are.
    plain = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    heads = {
        id(item.context_expr.func)
        for node in ast.walk(tree)
        if isinstance(node, ast.With)
        for item in node.items
        if isinstance(item.context_expr, ast.Call) and item.optional_vars is None
    }
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()) if name in modules and id(node) not in plain:
                yield "module", name
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in _SUPPRESSING and id(node) not in heads:
                yield "manager", name
            case ast.alias(name=name, asname=str(other)) if name in _SUPPRESSING and other != name:
                yield "manager", name
            case ast.keyword(arg=str(name)) if name in _COMPARED or name.startswith("__"):
                yield "keyword", name
            case ast.Try(handlers=[_, *_], body=body):
                yield from (("caught", "yield") for _ in _yields(body))
            case ast.With(items=items, body=body) if any(_suppresses(item.context_expr) for item in items):
                yield from (("caught", "yield") for _ in _yields(body))


def _yields(body: Iterable[ast.AST]) -> Iterable[ast.AST]:
    """Yield the `yield` expressions of a block, without those of functions in it."""
    for node in body:
        if isinstance(node, ast.Yield | ast.YieldFrom):
            yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield from _yields(ast.iter_child_nodes(node))


def _suppresses(made: ast.expr) -> bool:
    function = made.func if isinstance(made, ast.Call) else made
    return (function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")) in _SUPPRESSING


def _is_telling(text: str) -> bool:
    lowered = text.lower()
    return any(word in lowered for word in ("pytest", "etude_", "junit", "conftest", "__", "/proc", "/dev/"))


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _defined(tree: ast.AST) -> set[str]:
    """Return the names that the file itself binds."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.arg(arg=name) | ast.ExceptHandler(name=str(name)):
                names.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names |= {(alias.asname or alias.name).partition(".")[0] for alias in aliases}
    return names


def _judge(kind: str, name: str, imported: set[str], defined: set[str], known: Counter[tuple[str, str]]) -> str | None:
    """Return why a new use is refused, or None."""
    root, _, attribute = name.rpartition(".")
    match kind:
        case "import":
            return None if name in MODULES or (name in imported and name not in _CLOSED) else f"imports `{name}`"
        case "from":
            module, _, what = name.partition(":")
            fine = module in MODULES and what != "*" and not what.startswith("_")
            return None if fine else f"imports from `{module}`"
        case "name":
            if name.partition(".")[0] in _CLOSED:
                return f"uses `{name}`"
            return None if name in _NAMES or name in defined else f"uses `{name}`"
        case "attribute":
            if attribute.startswith("_") and attribute not in _ALLOWED_UNDERSCORE and ("attribute", name) not in known:
                return f"uses `{name}`"
            if root in _CLOSED:
                return f"uses `{name}`"
            return f"uses `{name}`" if attribute in _METHODS and ("attribute", name) not in known else None
        case "stored":
            return None if root == "self" and not attribute.startswith("__") else f"assigns to `{name}`"
        case "defined":
            return None if name in _DEFINED_UNDERSCORE or name == "__" else f"defines `{name}`"
        case "body":
            return f"changes `{name.partition(':')[0]}`"
        case "keyword":
            return f"passes `{name}`, which decides how values are compared"
        case "module":
            return f"passes on the module `{name}`"
        case "manager":
            return f"uses `{name}` other than as `with {name}(...):`"
        case "caught":
            return "catches exceptions around a `yield`, also those of a test that uses the context manager"
        case "text":
            return f"contains the text {name!r}"
        case "bare":
            return "catches every exception, also those that end a test"
        case _:
            return f"uses `{name}` as {kind}"
