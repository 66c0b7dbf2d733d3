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
    for node in ast.walk(tree):
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
        case "text":
            return f"contains the text {name!r}"
        case "bare":
            return "catches every exception, also those that end a test"
        case _:
            return f"uses `{name}` as {kind}"
