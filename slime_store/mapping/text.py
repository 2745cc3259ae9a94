"""Text that every database keeps: what to store in a TEXT column for searching."""

from __future__ import annotations

from slime_store.codecs.documents import is_clean

NUL_STANDS_FOR = "\u2400"  # SYMBOL FOR NULL


def searchable(text: str) -> str:
    """Return the text itself when it is clean; else with U+2400 for NUL and U+FFFD for lone surrogates."""
    if is_clean(text):
        return text
    return text.replace("\0", NUL_STANDS_FOR).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
