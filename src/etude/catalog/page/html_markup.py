"""Text as HTML: templates in which all but `Markup` is escaped, whole pages, and anchors."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable
from importlib.resources import files
from typing import Any

# Invisible characters that would break the page or reverse its text: C0 and C1 controls except tab and line feed, lone
# surrogates, bidirectional overrides, noncharacters.
_HOSTILE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069\ufffe\uffff]")
_SPECIAL = re.compile(f"[<>&\"']|{_HOSTILE.pattern}")
_CODE = re.compile("`([^`]*)`")


class Markup(str):
    """Text that is already HTML."""

    __slots__ = ()


def escape_html(value: object) -> Markup:
    """Escape a value for use between tags and in quoted attributes; markup stays unchanged."""
    if isinstance(value, Markup):
        return value
    text = str(value)
    return Markup(html.escape(clean_for_html(text)) if _SPECIAL.search(text) else text)


def clean_for_html(text: str) -> str:
    """Replace the characters that must not reach a page."""
    return _HOSTILE.sub("\ufffd", text)


def fill_html_template(template: str, **values: object) -> Markup:
    """Replace the `{names}` of a template by the escaped values; None and False become empty text."""
    return Markup(template.format(**{k: "" if v is None or v is False else escape_html(v) for k, v in values.items()}))


def join_markup(parts: Iterable[object], between: str = "") -> Markup:
    """Escape the parts and join them."""
    return Markup(between.join(escape_html(p) for p in parts))


def sentence_to_html(text: str) -> Markup:
    """Escape a sentence and turn names in backticks into code."""
    return Markup(_CODE.sub(r"<code>\1</code>", escape_html(text)))


def json_for_html_script(value: Any) -> Markup:
    """Encode a value as JSON for a script element: nothing in it can end the element."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def read_html_asset(name: str) -> str:
    """Read a stylesheet or script from the package."""
    return files("etude.catalog").joinpath(name).read_text(encoding="utf-8")


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="etude">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
{body}
<script>{script}</script>
</body>
</html>
"""


_POLICY = (
    "default-src 'none'; style-src '{style}'; script-src '{script}'; img-src data:; base-uri 'none'; form-action 'none'"
)


def html_page(title: str, body: Markup) -> str:
    """Render a self-contained page: style and script are inline, and its security policy forbids all others.

    The policy allows the style and the script by hash. Even if a value got past the escaping, it could neither run
    nor send anything.
    """
    style, script = Markup(read_html_asset("report.css").strip()), Markup(read_html_asset("report.js").strip())
    return fill_html_template(
        _PAGE,
        title=title,
        body=body,
        style=style,
        script=script,
        policy=Markup(_POLICY.format(style=_hash(style), script=_hash(script))),
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def make_html_anchors(names: Iterable[str], prefix: str) -> dict[str, str]:
    """Return an anchor for each name: readable, unique, and stable as long as the names are."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        base = prefix + (re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:60] or "-")
        anchor, number = base, 2
        while anchor in taken:
            anchor, number = f"{base}~{number}", number + 1
        taken.add(anchor)
        found[name] = anchor
    return found


# Numbers and times.
