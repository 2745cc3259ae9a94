"""A rollout that was encoded and is not stored yet: to be stored later, or in another store when this one fails."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slime_store.mapping.encoded import EncodedRollout
from slime_store.store.handle import StoreHandle
from slime_store.store.recording import RecordRequest, write_rollout
from slime_store.types import RolloutInfo

if TYPE_CHECKING:
    from slime_store.store.run import Run


@dataclass(frozen=True)
class PreparedRollout:
    """A snapshot of a rollout, made by ``Run.prepare_train`` or ``prepare_eval``. Later changes do not reach it."""

    _handle: StoreHandle
    _request: RecordRequest
    _rollout: EncodedRollout

    @property
    def what(self) -> str:
        """What it is, for messages."""
        return f"{self._rollout.kind} rollout {self._request.rollout_id} of run {self._request.run!r}"

    def store(self, run: Run | None = None) -> RolloutInfo:
        """Store it, in the run that prepared it or in another one; may be called again after a failure.

        Raises:
            RolloutExistsError, DatabaseError: as for ``Run.record_train``.
        """
        if run is None:
            return write_rollout(self._handle, self._request, self._rollout)
        request = replace(self._request, run=run.name, run_pk=run._pk, clear_journal=None)
        return write_rollout(run._handle, request, self._rollout)
