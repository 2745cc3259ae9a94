"""The stored bytes of a rollout: what is there against what was recorded, so that no row is missing unseen."""

from __future__ import annotations

from slime_store.store.verification.stored import RolloutCheck


def check_totals(check: RolloutCheck) -> None:
    """Compare a rollout's ``n_bytes`` with what its texts, documents, arrays and blobs take."""
    row = check.row
    if row is None or not check.is_whole or check.bytes == row.n_bytes:
        return
    what = f"{check.bytes} bytes of texts, documents, arrays and blobs are there, {row.n_bytes} were recorded"
    check.add("bytes_disagree", f"{what}; arrays are there of {', '.join(sorted(check.arrays)) or 'no field'}")
