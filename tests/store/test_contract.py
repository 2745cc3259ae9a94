"""The shipped contract suite, over both databases."""

from __future__ import annotations

from slime_store.testing.contract import StoreContract


class TestStore(StoreContract):
    """Every test of the contract, on each ``store_url`` in turn."""
