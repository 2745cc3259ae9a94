"""PostgreSQL's advisory locks that are ours.

Each is a pair of numbers: one of these, unlikely to be any other program's in the same database (``SLS`` and a
counter), and the hash of the schema's name, since every schema is a store of its own.
"""

from __future__ import annotations

SCHEMA_CHANGE = 0x534C5301
"""Held alone by whoever checks and changes the schema."""

SHARED_CONTENT = 0x534C5302
"""Shared by those who refer to prompts and blobs that they found, held alone by whoever deletes them."""
