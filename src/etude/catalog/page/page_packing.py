"""Compress parts of a page for its script to decompress, so that a catalog of many tables stays small."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence

from etude.catalog.page.html_markup import Markup, fill_html_template

PACK = 200_000
"""Characters in one pack."""


def pack_page_bodies(bodies: Sequence[Markup]) -> tuple[list[Markup], list[str]]:
    """Compress several sections per pack, since they are similar; also return the pack and position of each."""
    groups: list[list[str]] = [[]]
    positions = []
    for body in bodies:
        if groups[-1] and sum(map(len, groups[-1])) + len(body) > PACK:
            groups.append([])
        positions.append(f"{len(groups) - 1}.{len(groups[-1])}")
        groups[-1].append(body)
    packs = [
        fill_html_template(
            '<script type="text/plain" id="pack{i}">{data}</script>',
            i=i,
            data=compress_packed_page(json.dumps(g, ensure_ascii=False)),
        )
        for i, g in enumerate(groups)
    ]
    return packs, positions


def compress_packed_page(text: str) -> Markup:
    """Compress text in the form that the page's script decompresses: raw deflate as base64."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    return Markup(base64.b64encode(deflate.compress(text.encode()) + deflate.flush()).decode())
