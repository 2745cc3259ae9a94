"""The root of the tree."""

from __future__ import annotations


class StoreError(Exception):
    """Base of all errors of slime_store."""
