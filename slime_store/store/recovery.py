"""What a recording loop does so that its run can be resumed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from slime_store.errors import StoreError
from slime_store.mapping.encode import RolloutEncoder, as_eval, as_train
from slime_store.mapping.text import searchable
from slime_store.repositories.resume import ResumeRepository
from slime_store.repositories.rollouts import RolloutRepository
from slime_store.repositories.runs import RunRepository
from slime_store.store.collection import paused
from slime_store.store.handle import StoreHandle
from slime_store.store.infos import encode_inline, rollout_number
from slime_store.store.journal import Journal
from slime_store.store.loading import sample_class
from slime_store.store.prepared import PreparedRollout
from slime_store.store.recording import OnConflict, RecordRequest
from slime_store.store.resume import load_state
from slime_store.store.sessions import utc_now
from slime_store.types import RolloutInfo


@dataclass(frozen=True)
class Recovery:
    """The recovery side of one run; from ``Run.recovery``."""

    name: str
    _pk: int
    _handle: StoreHandle

    def begin_session(self, *, checkpoint_rollout_id: int | None, lineage: dict[str, Any] | None = None) -> None:
        """Note where this process's session starts.

        Args:
            checkpoint_rollout_id: the rollout of the checkpoint that it starts from; -1: from the start.
            lineage: what must agree for its rollouts to be adopted later, e.g. the arguments that shape them.
        """
        text = None if lineage is None else encode_inline(lineage, "lineage")
        session_pk = self._session()
        with self._handle.writing("begin a session") as connection:
            ResumeRepository(connection, self._pk).describe_session(session_pk, checkpoint_rollout_id, text)

    def record_checkpoint(self, rollout_id: int) -> None:
        """Note that the training state after a rollout was saved, so that ``resume`` starts there by default."""
        session_pk = self._session()
        with self._handle.writing("note a checkpoint") as connection:
            repository = ResumeRepository(connection, self._pk)
            repository.add_checkpoint(session_pk, rollout_number(rollout_id), utc_now())

    def adopt(self, info: RolloutInfo) -> None:
        """Note that this session was handed a recorded rollout, of this or another run, instead of generating it."""
        session_pk = self._session()
        with self._handle.writing("adopt a rollout") as connection:
            source = RunRepository(connection).get(info.run)
            row = RolloutRepository(connection, source.id).find(info.run, info.kind, info.rollout_id, info.attempt)
            ResumeRepository(connection, self._pk).adopt(session_pk, row.id, utc_now())

    def journal(self, *, on_error: Callable[[StoreError], None] | None = None) -> Journal:
        """Return a writer for the finished groups of rollouts under way; see ``Journal``."""
        return Journal(self._handle, self.name, self._pk, on_error)

    def load_state(self, rollout_id: int, *, attempt: int | None = None, sample_type: type[Any] | None = None) -> Any:
        """Return the data source's state that was recorded with a train rollout, or None."""
        number, kind = rollout_number(rollout_id), sample_class(sample_type)
        return load_state(self._handle, self._pk, "train", number, attempt, kind)

    def prepare_train(
        self,
        rollout_id: int,
        output: Any,
        *,
        state: Any = None,
        on_conflict: OnConflict = "new_attempt",
        strict: bool = True,
        clear_journal: Literal["rollout", "groups"] | None = None,
    ) -> PreparedRollout:
        """Take a snapshot of a train rollout, to be stored by ``PreparedRollout.store``.

        Args:
            rollout_id: as for ``Run.record_train``, like ``output``, ``state``, ``on_conflict`` and ``strict``.
            output: see there.
            state: see there.
            on_conflict: see there.
            strict: see there.
            clear_journal: which journalled groups it supersedes: those of "rollout" ids up to its own, or the same
                "groups" by their group index.

        Raises:
            UnsupportedValueError: with ``strict``, a value cannot be kept exactly.
        """
        samples, metrics = as_train(output)
        with paused():
            encoded = RolloutEncoder(strict=strict, copy=True).train(samples, metrics, state)
        return PreparedRollout(self._handle, self._request(rollout_id, on_conflict, None, clear_journal), encoded)

    def prepare_eval(
        self,
        rollout_id: int,
        output: Any,
        *,
        weight_version: str | None = None,
        on_conflict: OnConflict = "new_attempt",
        strict: bool = True,
    ) -> PreparedRollout:
        """Take a snapshot of an eval; arguments as for ``Run.record_eval``."""
        data, metrics = as_eval(output)
        with paused():
            encoded = RolloutEncoder(strict=strict, copy=True).evaluation(data, metrics)
        return PreparedRollout(self._handle, self._request(rollout_id, on_conflict, weight_version, None), encoded)

    def _session(self) -> int:
        return self._handle.sessions.ensure(self._pk, self._handle.writing)

    def _request(
        self,
        rollout_id: int,
        on_conflict: OnConflict,
        weight_version: str | None,
        clear_journal: Literal["rollout", "groups"] | None,
    ) -> RecordRequest:
        number = rollout_number(rollout_id)
        label = None if weight_version is None else searchable(str(weight_version))
        return RecordRequest(self.name, self._pk, number, on_conflict, utc_now(), label, clear_journal)
