"""Mutations of SQL text: comments, blanks, quotes, nesting, Unicode, parameters and fragments of attacks."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

TOKEN = re.compile(r"\w+|\s+|'(?:[^']|'')*'|\"[^\"]*\"|[^\w\s]")
COMMENTS = ["--", "-- x\n", "--\n", "-- x\r", "--x\n", "/**/", "/* x */", "/* /* */ */", "/* /* */", "*/", "/*", "#"]
COMMENTS += ["# x\n", "/*! */", "/*!50000 ", "/*M!100000 ", "/*+ x */", "-- '\n", '/* " */', "/*'*/", "--\u2028", ";--"]
BLANKS = [" ", "\t", "\n", "\r", "\f", "\v", "\r\n", "\u00a0", "\u3000", "\u200b", "\ufeff", "\0", "\x1a", "\x85", ""]
BLANKS += ["\u2028", "\u1680", "\x1c", "\u180e", "\u2060"]
QUOTES = [
    '"{}"',
    "`{}`",
    "[{}]",
    "'{}'",
    'U&"{}"',
    "U&'{}'",
    "N'{}'",
    "n'{}'",
    "E'{}'",
    "_utf8'{}'",
    "$${}$$",
    "$a${}$a$",
]
QUOTES += [
    "x'{}'",
    "b'{}'",
    '"{}""',
    "'{}''",
    "\\'{}\\'",
    "({})",
    "(({}))",
    '"{}"."{}"',
    "{}.{}",
    "_latin1 '{}'",
    "{}\\",
]
CONFUSABLES = {"k": "\u212a", "s": "\u017f", "a": "\u0430", "e": "\u0435", "o": "\u03bf", "i": "\u0131", "c": "\u0441"}
PIECES = [
    "'",
    '"',
    "`",
    "[",
    "]",
    "(",
    ")",
    "\\",
    "$$",
    "$a$",
    "E'",
    "U&",
    ";",
    ",",
    ".",
    "*",
    "::",
    "?",
    "$1",
    "@x",
    ":x",
]
MARKS = ["?", "$1", "$2", "$x", ":x", ":y", "$secret", ":secret", "?1", "??", "$01", "$99999", "::x", ":x::text"]
"""Parameters, and text that looks like one."""
PIECES += ["--", "/*", "*/", "0x", "1e", "->", "||", "&&", "=", "{", "}", "=>", ":="]
NUMBERS = [
    "1",
    "1e0",
    "1E1",
    "1.",
    ".1",
    "1e+0",
    "1.5",
    "0x1",
    "0xF",
    "0b1",
    "0o7",
    "1_0",
    "1e",
    "x'41'",
    "b'1'",
    "'a'",
    "N'a'",
]
NUMBERS += ["_utf8'a'", "$$a$$", "@a", "@@a", "date'2024-01-01'", "\u0661"]
FIRST = [
    "1",
    "2",
    "1e0",
    "0x",
    "\u00b2",
    "\u2167",
    "\u0661",
    "\u0301",
    "\u00b7",
    "\U00010400",
    "$",
    "@",
    "#",
    "_",
    "`",
    "?",
]
"""Unusual first characters of names."""
WRAPS = [
    "SELECT * FROM ({}) q",
    "WITH q AS ({}) SELECT * FROM q",
    "SELECT ({})",
    "({})",
    "{0} UNION ALL {0}",
    "EXPLAIN {}",
    "SELECT 1 WHERE EXISTS ({})",
    "SELECT * FROM (SELECT 1 AS a) x, LATERAL ({}) y",
    "WITH RECURSIVE q AS ({}) SELECT * FROM q",
    "SELECT 1 FROM (SELECT 1) z WHERE 1 IN ({})",
    "{};",
    "{} -- x",
    "DESCRIBE {}",
    "SUMMARIZE {}",
    "PIVOT ({}) ON 1",
]


def make_mutator(seeds: Sequence[str], attacks: Sequence[str]) -> Callable[[str, random.Random], str]:
    """Return a function that mutates one text with fragments of seeds and attacks."""

    def mutate(text: str, rng: random.Random) -> str:
        for _ in range(rng.choice((1, 1, 2, 2, 3, 5))):
            text = _change(text, rng, seeds, attacks)
        return text

    return mutate


def _change(text: str, rng: random.Random, seeds: Sequence[str], attacks: Sequence[str]) -> str:
    tokens = TOKEN.findall(text) or [""]
    place = rng.randrange(len(tokens))
    match rng.randrange(20):
        case 0 | 1:
            tokens.insert(place, rng.choice(COMMENTS))
        case 2:
            blanks = [i for i, t in enumerate(tokens) if t.isspace()]
            tokens[rng.choice(blanks) if blanks else place] = rng.choice(BLANKS)
        case 3:
            words = [i for i, t in enumerate(tokens) if t[:1].isalnum()]
            index = rng.choice(words) if words else place
            tokens[index] = rng.choice(QUOTES).format(tokens[index], tokens[index])
        case 4:
            index = rng.randrange(len(tokens))
            letters = [c for c in tokens[index] if c.lower() in CONFUSABLES]
            if letters:
                letter = rng.choice(letters)
                tokens[index] = tokens[index].replace(letter, CONFUSABLES[letter.lower()], 1)
            elif tokens[index].isascii() and tokens[index].isalpha():
                tokens[index] = "".join(chr(ord(c) + 0xFEE0) for c in tokens[index])
        case 5:
            tokens[place] = rng.choice((tokens[place].upper(), tokens[place].lower(), tokens[place].title()))
        case 6:
            return rng.choice(WRAPS).format(text)
        case 7 | 8 | 9:
            piece = rng.choice(attacks)
            tokens[place : place + rng.randrange(2)] = [f" {piece} " if rng.random() < 0.7 else piece]
        case 10:
            other = TOKEN.findall(rng.choice(seeds)) or [""]
            start = rng.randrange(len(other))
            tokens[place : place + rng.randrange(4)] = other[start : start + rng.randrange(1, 12)]
        case 11:
            other = TOKEN.findall(rng.choice(seeds)) or [""]
            return "".join(tokens[:place] + other[rng.randrange(len(other)) :])
        case 12:
            tokens.insert(place, rng.choice(PIECES))
        case 13 | 14 | 15:
            values = [i for i, t in enumerate(tokens) if t[:1].isdigit() or t[:1] == "'"]
            index = rng.choice(values) if values and rng.random() < 0.8 else place
            tokens[index] = rng.choice(MARKS[:2] if rng.random() < 0.6 else MARKS)
        case 16 | 17:
            # Take away a blank, or put a number in its place, so that a number or a text touches a word.
            blanks = [i for i, t in enumerate(tokens) if t.isspace()]
            tokens[rng.choice(blanks) if blanks else place] = rng.choice(("", *NUMBERS))
            if rng.random() < 0.5:
                tokens.insert(place, f", {rng.choice(NUMBERS)}")
        case 18:
            words = [i for i, t in enumerate(tokens) if t[:1].isalpha()]
            index = rng.choice(words) if words else place
            tokens[index] = rng.choice(FIRST) + tokens[index]
        case _:
            start = rng.randrange(len(tokens))
            if rng.random() < 0.5:
                del tokens[start : start + rng.randrange(1, 3)]
            else:
                tokens[place], tokens[start] = tokens[start], tokens[place]
    return "".join(tokens)
