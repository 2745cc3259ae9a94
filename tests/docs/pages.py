"""Pages of the docs as blocks: code with its language, and what the page says that it answers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_LINES = r"(?:(?!```).*\n)*"
_FENCE = re.compile(rf"^```(\w+)\n({_LINES})```\n(?:\n(?:((?:\|.*\n)+)|```text\n({_LINES})```))?", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block; ``answer`` is the Markdown table or the ``text`` block right after it, if there is one."""

    language: str
    code: str
    answer: str


def blocks(page: str, *languages: str) -> list[Block]:
    """Return the blocks of a page of the docs in these languages, in order."""
    text = (ROOT / "docs" / page).read_text()
    found = [Block(m[1], m[2].strip(), (m[3] or m[4] or "")) for m in _FENCE.finditer(text)]
    return [block for block in found if block.language in languages]


def as_table(names: Iterable[str], rows: Iterable[tuple[Any, ...]]) -> str:
    """Return an answer as the docs show it: a Markdown table."""
    head = list(names)
    lines = [head, ["---"] * len(head), *[["NULL" if v is None else str(v) for v in row] for row in rows]]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
