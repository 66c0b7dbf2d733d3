"""Which encoding a text has that is not UTF-8, as far as its bytes tell, and whether Windows-1252 is doubtful."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import NamedTuple

SAMPLE_BYTES = 1 << 16
"""This many bytes of lines that are not ASCII are looked at."""
MOST_COMMON = 0.9
"""In the right encoding of East Asia, this share of the characters is among the frequent ones."""
IN_WORDS = 0.7
"""This share of them stands beside another one; accents, dashes and quotes of western text stand alone."""
FEWEST_KOREAN = 8
"""Of this many characters, some Chinese ones are outside the range of Korean syllables."""
FEWEST_JAPANESE = 4
NOT_WESTERN = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")
"""Bytes without a meaning in Windows-1252."""
FEWEST_CYRILLIC = 20
MOST_FREQUENT_CYRILLIC = 0.55
RUSSIAN = frozenset("оеаинтсрвлк".encode("cp1251"))
LONG_RUN = 3
HIGH = re.compile(rb"[\xc0-\xff]+")
# Signs of Windows-1252 such as `³` and `¹` inside words are letters of central Europe.
SIGN_IN_WORD = re.compile(rb"[A-Za-z\xc0-\xff][\xa3\xa5\xaf\xb3\xb9\xbe\xbf][A-Za-z\xc0-\xff]")


class EncodingGuess(NamedTuple):
    """An encoding, empty if nothing speaks against Windows-1252, and whether another one is as likely."""

    encoding: str
    doubtful: bool


def collect_lines_beyond_ascii(lines: Iterable[bytes]) -> bytes:
    """Return the first lines that are not ASCII, which tell the encoding."""
    found: list[bytes] = []
    size = 0
    for line in lines:
        if not line.isascii():
            found.append(line)
            size += len(line)
            if size > SAMPLE_BYTES:
                break
    return b"".join(found)


def guess_old_encoding(sample: bytes) -> EncodingGuess:
    """Return the encoding that the bytes suggest: one of East Asia or that of Russian, else none."""
    fitting = [name for name, is_common in COMMON.items() if _fits(sample, name, is_common)]
    if fitting:
        return EncodingGuess(fitting[0], False)
    runs = HIGH.findall(sample)
    letters = b"".join(runs)
    in_runs = sum(len(run) for run in runs if len(run) >= LONG_RUN)
    if not letters or 2 * in_runs < len(letters):
        return EncodingGuess("", bool(SIGN_IN_WORD.search(sample)))
    # Words of letters beyond ASCII alone: another script than the Latin one.
    lower = letters.decode("cp1251").lower().encode("cp1251")
    frequent = sum(byte in RUSSIAN for byte in lower)
    if len(letters) >= FEWEST_CYRILLIC and frequent >= MOST_FREQUENT_CYRILLIC * len(letters):
        return EncodingGuess("cp1251", False)
    return EncodingGuess("", True)


def _fits(sample: bytes, encoding: str, is_common: Callable[[bytes], bool]) -> bool:
    """Return whether all bytes have a meaning in the encoding, and most make frequent characters that form words."""
    try:
        text = sample.decode(encoding)
    except UnicodeDecodeError:
        return False
    characters = [c for c in text if not c.isascii()]
    common = sum(is_common(c.encode(encoding)) for c in characters)
    runs = [len(list(run)) for beyond, run in groupby(text, lambda c: not c.isascii()) if beyond]
    in_words = sum(length for length in runs if length > 1)
    if encoding == "cp949" and len(characters) < FEWEST_KOREAN:
        return False
    if common < MOST_COMMON * len(characters):
        return False
    return in_words >= IN_WORDS * len(characters) or (encoding == "cp932" and _is_sure_japanese(sample, characters))


def _is_sure_japanese(sample: bytes, characters: list[str]) -> bool:
    """Return whether bytes that Windows-1252 lacks, and second bytes beyond ASCII, leave nothing but Japanese.

    In a western text of an old Macintosh, an ASCII letter follows each of these bytes.
    """
    codes = [code for code in (c.encode("cp932") for c in characters) if len(code) == 2]
    beyond = sum(code[1] >= 0x80 for code in codes)
    return len(codes) >= FEWEST_JAPANESE and 3 * beyond >= len(codes) and NOT_WESTERN.search(sample) is not None


def _is_japanese(code: bytes) -> bool:
    return len(code) == 2 and (code[0] in (0x81, 0x82, 0x83) or 0x88 <= code[0] <= 0x97)


def _is_japanese_on_unix(code: bytes) -> bool:
    return len(code) == 2 and (code[0] in (0xA1, 0xA3, 0xA4, 0xA5) or 0xB0 <= code[0] <= 0xCF)


def _is_korean(code: bytes) -> bool:
    return len(code) == 2 and (code[0] in (0xA1, 0xA3) or 0xB0 <= code[0] <= 0xC8) and code[1] >= 0xA1


def _is_chinese(code: bytes) -> bool:
    return len(code) == 2 and (code[0] in (0xA1, 0xA3) or 0xB0 <= code[0] <= 0xD7) and code[1] >= 0xA1


def _is_traditional_chinese(code: bytes) -> bool:
    return len(code) == 2 and 0xA1 <= code[0] <= 0xC6


COMMON: dict[str, Callable[[bytes], bool]] = {
    "cp932": _is_japanese,
    "cp949": _is_korean,
    "gb18030": _is_chinese,
    "euc_jp": _is_japanese_on_unix,
    "big5": _is_traditional_chinese,
}
"""The frequent characters of each encoding, by their bytes: punctuation, kana, and those of the first level."""
