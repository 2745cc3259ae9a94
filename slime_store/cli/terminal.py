"""What a terminal can show: its width, the widths of characters, and text that cannot command it."""

from __future__ import annotations

import re
import shutil
import sys
import unicodedata
from collections.abc import Callable
from functools import cache

_INVISIBLE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def terminal_width() -> int | None:
    """Return the columns of the terminal that stdout is; None where it is none, and nothing needs to fit."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def one_line(text: str) -> str:
    """Return text in one line, with every run of blanks as one blank, and ``visible``."""
    return visible(" ".join(text.split()))


def visible(text: str) -> str:
    """Return text with control characters, which may command a terminal, as symbols; line feeds and tabs stay."""
    return _INVISIBLE.sub(_symbol, text)


def width_of(text: str) -> int:
    """Return how many columns a text takes; wide characters take two, combining ones none."""
    return len(text) if text.isascii() else sum(map(_width, text))


def cut(text: str, width: int) -> str:
    """Return a text that takes at most ``width`` columns, with … at the end where something is left out."""
    if width_of(text) <= width:
        return text
    taken, kept = 1, []
    for character in text:
        taken += _width(character)
        if taken > width:
            break
        kept.append(character)
    return "".join(kept) + "…"


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Return a text with blanks up to ``width`` columns; ``right``: before it."""
    blanks = " " * max(0, width - width_of(text))
    return blanks + text if right else text + blanks


def wrapped(text: str, width: int | None) -> list[str]:
    """Return the lines of a text, none wider than ``width``; broken at blanks where there are any, and nothing lost."""
    lines = visible(text.replace("\t", "    ")).split("\n")
    if width is None:
        return lines
    return [part for line in lines for part in _parts(line, max(width, 10))]


def _parts(line: str, width: int) -> list[str]:
    parts, start, taken, blank = [], 0, 0, -1
    for i, character in enumerate(line):
        taken += _width(character)
        if taken > width:
            end = blank + 1 if blank >= start else i
            parts.append(line[start:end].rstrip())
            start, blank = end, -1
            taken = width_of(line[start : i + 1])
        if character == " ":
            blank = i
    return [*parts, line[start:]]


def _width(character: str) -> int:
    return 1 if " " <= character <= "~" else max(0, _wcwidth()(character))


@cache
def _wcwidth() -> Callable[[str], int]:
    from wcwidth import wcwidth  # its tables take a while to load, and most text needs none of them

    return wcwidth


def _symbol(found: re.Match[str]) -> str:
    character = found[0]
    if character in "\n\t":
        return character
    if character == "\x7f":
        return "\u2421"
    return chr(0x2400 + ord(character)) if unicodedata.category(character) == "Cc" and character < " " else "\ufffd"
