"""Text that every database keeps: what to store in a TEXT column for searching."""

from __future__ import annotations

import hashlib

from slime_store.codecs.documents import is_clean

MAX_INDEXED = 600
"""Longest text, in characters, that goes into an index as it is."""

NUL_STANDS_FOR = "\u2400"  # SYMBOL FOR NULL

_LONG_INT = 10_000  # bits; Python turns no longer ones than 4,300 digits into text


def searchable(text: str) -> str:
    """Return the text itself when it is clean; else with U+2400 for NUL and U+FFFD for lone surrogates."""
    if is_clean(text):
        return text
    return text.replace("\0", NUL_STANDS_FOR).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def shown_int(value: int) -> int | str:
    """Return the integer; beyond the digits that Python, or its user, allows in a text a hexadecimal one."""
    try:
        if value.bit_length() >= _LONG_INT:
            str(value)
    except ValueError:
        return hex(value)
    return value


def indexable(text: str) -> str:
    """Return ``searchable`` text that an index takes: longer ones keep their beginning and get a digest.

    PostgreSQL refuses index entries of more than about 2,700 bytes.
    """
    clean = searchable(text)
    if len(clean) <= MAX_INDEXED:
        return clean
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{clean[:200]}... {digest}"
