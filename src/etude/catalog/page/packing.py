"""Parts of a page that are packed, for the page's script to unpack: a catalog of many tables stays small."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence

from etude.catalog.page.markup import Markup, fill

PACK = 200_000
"""Characters that are packed together."""


def pack_together(bodies: Sequence[Markup]) -> tuple[list[Markup], list[str]]:
    """Sections in packs of several, since they resemble each other, and the place of each: pack and position."""
    groups: list[list[str]] = [[]]
    places = []
    for body in bodies:
        if groups[-1] and sum(map(len, groups[-1])) + len(body) > PACK:
            groups.append([])
        places.append(f"{len(groups) - 1}.{len(groups[-1])}")
        groups[-1].append(body)
    packs = [
        fill(
            '<script type="text/plain" id="pack{i}">{data}</script>', i=i, data=pack(json.dumps(g, ensure_ascii=False))
        )
        for i, g in enumerate(groups)
    ]
    return packs, places


def pack(text: str) -> Markup:
    """Text in the form that the page's script unpacks: raw deflate as base64."""
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
    return Markup(base64.b64encode(squeeze.compress(text.encode()) + squeeze.flush()).decode())
