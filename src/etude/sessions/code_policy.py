"""Early errors for code that the sandbox would stop anyway, or that a team does not want.

The policy reads the syntax tree and names the line. It is not a security boundary: Python has many ways to write the
same thing. The sandbox is the boundary, with or without a policy.
"""

from __future__ import annotations

import ast
import threading
from collections.abc import Iterator

from etude.entities import Entity
from etude.errors import Refused

_WRITING = frozenset("wax+")
_parsing = threading.Lock()
"""Python 3.11 keeps one depth counter for all threads that parse, so two threads that parse at once can fail."""
CONNECTING = frozenset({"http.client", "requests", "socket", "ssl", "urllib.request"})
"""Modules that a session with a network needs."""


class Policy(Entity):
    """Code that is refused. An empty field refuses nothing."""

    imports: frozenset[str] = frozenset(
        {"ctypes", "cffi", "ftplib", "http.client", "multiprocessing", "pty", "requests", "smtplib", "socket"}
        | {"socketserver", "ssl", "subprocess", "telnetlib", "urllib.request", "xmlrpc"}
    )
    """Modules and their submodules. By default, those that need programs or a network, which sessions do not have."""
    calls: frozenset[str] = frozenset(
        {"os.system", "os.popen", "os.fork", "os.kill", "os.execv", "os.execve", "os.spawnv", "breakpoint", "input"}
    )
    """Functions, by the name that the call uses."""
    attributes: frozenset[str] = frozenset(
        {"__subclasses__", "__globals__", "__builtins__", "__code__", "__closure__", "__bases__", "__mro__"}
        | {"__reduce__", "__reduce_ex__", "f_back", "f_globals", "gi_frame", "cr_frame", "tb_frame"}
    )
    """Attributes that give access to the internals of the interpreter."""
    write_outside: bool = False
    """True if code may open a file for writing at an absolute path outside the scratch folder."""


def check_code_policy(code: str, policy: Policy) -> None:
    """Raise `Refused` with the line and a hint if the policy forbids the code.

    Code that does not parse passes: the interpreter reports the syntax error.
    """
    try:
        with _parsing:
            tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError, SystemError):
        return
    for node in ast.walk(tree):
        for what, hint in _complaints(node, policy):
            line = getattr(node, "lineno", None)
            raise Refused(
                f"Line {line}: {what} is not allowed by the policy.",
                hint=hint,
                reason="policy",
                line=line,
                column=getattr(node, "col_offset", 0) + 1,
            )


def _complaints(node: ast.AST, policy: Policy) -> Iterator[tuple[str, str]]:
    data = "Data comes from `db = etude.connect()`; a session has no programs and no network."
    match node:
        case ast.Import(names=names):
            yield from ((f"`import {n.name}`", data) for n in names if _is_below(n.name, policy.imports))
        case ast.ImportFrom(module=str(module), names=names):
            full = [f"{module}.{n.name}" for n in names]
            if _is_below(module, policy.imports) or any(f in policy.imports for f in full):
                yield f"`from {module} import ...`", data
        case ast.Call(func=func) if _name(func) in policy.calls:
            absent = "A session has no keyboard: put the value into the code."
            yield f"`{_name(func)}()`", absent if _name(func) == "input" else "A session can only run Python code."
        case ast.Call(func=func, args=args, keywords=keywords) if _name(func) in ("open", "io.open"):
            if not policy.write_outside and _writes_outside(args, keywords):
                yield (
                    "writing outside the scratch folder",
                    "Write to a relative path: the scratch folder is the working directory.",
                )
        case ast.Attribute(attr=attribute) if attribute in policy.attributes:
            yield f"`.{attribute}`", "Use the public attributes of the object."


def _is_below(name: str, roots: frozenset[str]) -> bool:
    parts = name.split(".")
    return any(".".join(parts[:n]) in roots for n in range(1, len(parts) + 1))


def _name(node: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):  # a loop, because a long chain would exceed the recursion limit
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def _writes_outside(args: list[ast.expr], keywords: list[ast.keyword]) -> bool:
    given = {k.arg: k.value for k in keywords if k.arg}
    path = args[0] if args else given.get("file")
    mode = args[1] if len(args) > 1 else given.get("mode")
    if not (isinstance(path, ast.Constant) and isinstance(path.value, str)):
        return False
    outside = path.value.startswith("/") and not path.value.startswith(("/scratch/", "/tmp/", "/dev/null"))  # noqa: S108
    writes = isinstance(mode, ast.Constant) and bool(_WRITING & set(str(mode.value)))
    return outside and writes
