"""Every rollout: all attempts and journalled groups, each on its own, so that damage to one hides no other."""

from __future__ import annotations

from collections.abc import Callable

from slime_store.codecs.documents import DocumentDecoder
from slime_store.repositories.verification import Rows, VerificationRepository
from slime_store.store.handle import StoreHandle
from slime_store.store.verification.aggregates import check_aggregates
from slime_store.store.verification.cache import CachedBlobs
from slime_store.store.verification.digests import check_digests
from slime_store.store.verification.findings import Findings, Place
from slime_store.store.verification.packs import check_packs
from slime_store.store.verification.references import check_references
from slime_store.store.verification.scalars import check_scalars, check_versions
from slime_store.store.verification.stored import RolloutCheck
from slime_store.store.verification.totals import check_totals
from slime_store.store.verification.writings import check_writings

_LOOKS = (
    check_scalars,
    check_writings,
    check_versions,
    check_packs,
    check_references,
    check_totals,
    check_aggregates,
    check_digests,
)


class RolloutChecks:
    """Checks all rollouts of a store.

    Args:
        handle: the open store.
        findings: takes the problems.
    """

    def __init__(self, handle: StoreHandle, findings: Findings) -> None:
        self.damaged_prompts: set[int] = set()
        self.shared_files: set[int] = set()
        self._handle = handle
        self._findings = findings
        self._decoder = DocumentDecoder(CachedBlobs(handle))

    def count(self) -> int:
        """Return the number of rollouts, 0 where they cannot be counted."""
        return self._findings.counts.get("rollouts", 0)

    def run(self, step: Callable[[], None]) -> None:
        """Check one after the other; ``step`` is called after each."""
        after = end = 0
        with self._findings.noting("the list of rollouts"), self._handle.reading() as connection:
            end = VerificationRepository(connection).last_rollout()  # what is recorded from now on is not looked at
        while True:
            rows: Rows = ()
            with self._findings.noting("the list of rollouts"), self._handle.reading() as connection:
                rows = VerificationRepository(connection).rollouts(after, end)
            if not rows:
                return
            if not self._findings.rises("the list of rollouts", after, [row.id for row in rows]):
                return
            after = rows[-1].id
            for row in rows:
                self._check(row.id, Place(row.name, row.kind, row.rollout_id, row.attempt))
                step()

    def _check(self, pk: int, place: Place) -> None:
        check = RolloutCheck(self._handle, self._decoder, pk, place, self.damaged_prompts, self.shared_files)
        with check.findings.noting("the rollout", place), self._handle.reading() as connection:
            row = VerificationRepository(connection).rollout(pk)
            if row is None:
                return  # deleted meanwhile
            check.row = row
        if check.row is not None:
            for look in _LOOKS:
                with check.findings.noting("its rows", place):  # a number may have become anything
                    look(check)
        self._findings.counts.update(check.findings.counts)
        if check.findings.problems and self._is_as_it_was(check):
            self._findings.needed |= check.findings.needed
            for problem in check.findings.problems:
                self._findings.add(problem.code, problem.what, place, problem.samples)

    def _is_as_it_was(self, check: RolloutCheck) -> bool:
        """What was deleted or pruned while it was looked at has no problem."""
        if check.row is None:
            return True
        is_same = True
        with check.findings.noting("the rollout"), self._handle.reading() as connection:
            row = VerificationRepository(connection).rollout(check.pk)
            is_same = row is not None and row.n_bytes == check.row.n_bytes
        return is_same
