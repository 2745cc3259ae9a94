"""Checking a store: that everything it promises to hold is there, whole, and says the same everywhere.

Costs about as much as loading every rollout once, and hashing every shared tensor and image. Memory stays at about one
rollout's scalars, two payloads, and a cache of 64 MB. No transaction is open for longer than one rollout takes, but for
SQLite's own check of the file; writers go on meanwhile, and what is deleted under the check is no problem of it.
"""

from __future__ import annotations

from collections.abc import Callable

from slime_store.store.handle import StoreHandle
from slime_store.store.verification.contents import check_blobs, check_prompts, find_shared_files, find_unused
from slime_store.store.verification.database import check_database
from slime_store.store.verification.digests import check_small_rows
from slime_store.store.verification.files import GRACE_SECONDS, check_side_files
from slime_store.store.verification.findings import Findings
from slime_store.store.verification.fixing import fix_what_is_safe
from slime_store.store.verification.rollouts import RolloutChecks
from slime_store.types.reports import VerifyReport

__all__ = ["GRACE_SECONDS", "verify"]


def verify(
    handle: StoreHandle,
    *,
    fix: bool = False,
    grace_seconds: float = GRACE_SECONDS,
    progress: Callable[[int, int], None] | None = None,
) -> VerifyReport:
    """Check a whole store; see ``SampleStore.verify``."""
    if fix:
        handle.check_writable("fix a store")
    findings = Findings()
    check_database(handle, findings)
    check_small_rows(handle, findings)
    checks = RolloutChecks(handle, findings)
    total, done = checks.count() + 1, 0

    def step() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(min(done, total), total)  # rollouts may be recorded meanwhile

    step()
    check_blobs(handle, findings)
    checks.shared_files = find_shared_files(handle, findings)
    checks.damaged_prompts = check_prompts(handle, findings)
    checks.run(step)
    find_unused(handle, findings)
    check_side_files(handle, findings, grace_seconds)
    if fix:
        fix_what_is_safe(handle, findings, grace_seconds)
    return findings.report()
