"""Text from outside made safe for a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """Escape the characters that could control the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable_lines(text: str) -> str:
    """Escape control characters, but keep line breaks."""
    return "\n".join(printable(line) for line in text.split("\n"))
