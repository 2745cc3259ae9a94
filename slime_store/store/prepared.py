"""A rollout that was encoded and is not stored yet: to be stored later, or in another store when this one fails."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from slime_store.errors import InvalidOutputError
from slime_store.mapping.columns import version_label
from slime_store.mapping.encode import RolloutEncoder, as_eval, as_train
from slime_store.mapping.encoded import EncodedRollout
from slime_store.store.collection import paused
from slime_store.store.infos import rollout_number
from slime_store.store.recording import write_rollout
from slime_store.store.requests import JournalClearing, OnConflict, RecordRequest
from slime_store.store.sessions import utc_now
from slime_store.types import RolloutInfo

if TYPE_CHECKING:
    from slime_store.store.run import Run


@dataclass(frozen=True)
class PreparedRollout:
    """A snapshot of a rollout, made by ``prepare_train`` or ``prepare_eval``. Later changes do not reach it."""

    rollout_id: int
    _rollout: EncodedRollout
    _on_conflict: OnConflict
    _started_at: datetime
    _weight_version: str | None = None
    _clear_journal: JournalClearing | None = None

    def __str__(self) -> str:
        return f"{self._rollout.kind} rollout {self.rollout_id}"

    @property
    def placeholders(self) -> list[str]:
        """Paths of the values that stand in for what could not be kept."""
        return self._rollout.placeholders

    def store(self, run: Run) -> RolloutInfo:
        """Store it; may be called again after a failure, also with a run of another store.

        After a CommitUnknownError the run may hold it; what another store then has too is known for the same recording
        when that is imported.

        Raises:
            RolloutExistsError, DatabaseError: as for ``Run.record_train``.
        """
        request = RecordRequest(
            run.name,
            run._pk,
            self.rollout_id,
            self._on_conflict,
            self._started_at,
            self._weight_version,
            clear_journal=self._clear_journal,
        )
        return write_rollout(run._handle, request, self._rollout)


def prepare_train(
    rollout_id: int,
    output: Any,
    *,
    state: Any = None,
    on_conflict: OnConflict = "new_attempt",
    strict: bool = True,
    clear_journal: JournalClearing | None = None,
) -> PreparedRollout:
    """Take a snapshot of a train rollout; no store is needed for it.

    Args:
        rollout_id: as for ``Run.record_train``, like ``output``, ``state``, ``on_conflict`` and ``strict``.
        output: see there.
        state: see there.
        on_conflict: see there.
        strict: see there.
        clear_journal: which journalled groups it makes needless; None: leave the journal alone.

    Raises:
        UnsupportedValueError: with ``strict``, a value cannot be kept exactly.
    """
    samples, metrics = as_train(output)
    with paused():
        encoded = RolloutEncoder(strict=strict, copy=True).train(samples, metrics, state)
    number = rollout_number(rollout_id)
    return PreparedRollout(number, encoded, on_conflict, utc_now(), _clear_journal=clear_journal)


def prepare_eval(
    rollout_id: int,
    output: Any,
    *,
    weight_version: str | None = None,
    on_conflict: OnConflict = "new_attempt",
    strict: bool = True,
) -> PreparedRollout:
    """Take a snapshot of an eval; arguments and errors as for ``Run.record_eval``."""
    data, metrics = as_eval(output)
    if not isinstance(data, dict):
        raise InvalidOutputError("data", f"expected a dict of eval datasets, found {type(data).__name__}")
    with paused():
        encoded = RolloutEncoder(strict=strict, copy=True).evaluation(data, metrics)
    label = None if weight_version is None else version_label(weight_version)
    return PreparedRollout(rollout_number(rollout_id), encoded, on_conflict, utc_now(), label)
