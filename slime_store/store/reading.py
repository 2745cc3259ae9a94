"""The reading half of a run: loading rollouts, walking samples, listing what is there."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from slime_store.database import reconnecting
from slime_store.repositories.rollouts import RolloutRepository
from slime_store.repositories.runs import RunRepository
from slime_store.repositories.weight_versions import WeightVersionRepository
from slime_store.store import loading, walking
from slime_store.store.diagnosis import damage_named
from slime_store.store.handle import StoreHandle
from slime_store.store.infos import (
    attempt_number,
    lineage_text,
    rollout_info,
    rollout_number,
    run_info,
    session_info,
    weight_version_info,
)
from slime_store.store.resume import resume_point
from slime_store.types import (
    ResumePoint,
    RolloutBatch,
    RolloutFnEvalOutput,
    RolloutFnTrainOutput,
    RolloutInfo,
    RunInfo,
    SampleFilter,
    SessionInfo,
    WeightVersionInfo,
)
from slime_store.types.conditions import one_kind, to_count, to_kind


@dataclass(frozen=True)
class RunReader:
    """What can be read of one run.

    Attributes:
        name: the run's name, unique in the store.
    """

    name: str
    _pk: int
    _handle: StoreHandle

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self._handle.config.display_url!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {"name": self.name, "_handle": self._handle}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        """Look for the run's key when an unpickled run first needs it: the store may have been made anew meanwhile.

        Raises:
            RunNotFoundError: the store has no run of this name.
        """
        if name != "_pk":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        object.__setattr__(self, "_pk", self._find_key())
        return self._pk

    @reconnecting
    def _find_key(self) -> int:
        with self._handle.reading() as connection:
            return RunRepository(connection).get(self.name).id

    @reconnecting
    def load_train(
        self, rollout_id: int, *, attempt: int | None = None, sample_type: type[Any] | None = None
    ) -> RolloutFnTrainOutput:
        """Return a train rollout equal to what was recorded: nesting, order, types, values.

        Args:
            rollout_id: which rollout.
            attempt: which recording of it; None: the newest complete one.
            sample_type: class of the samples; None: slime's where it is importable, else ours.

        Raises:
            RolloutNotFoundError: it is not recorded; the error lists the nearest ids that are.
            ArraysPrunedError: its arrays were deleted by ``prune``.
            BlobCorruptError, BlobMissingError: stored bytes are damaged or gone.
        """
        kind = loading.sample_class(sample_type)
        return loading.load_train(
            self._handle, self.name, self._pk, rollout_number(rollout_id), attempt_number(attempt), kind
        )

    @reconnecting
    def load_eval(
        self, rollout_id: int, *, attempt: int | None = None, sample_type: type[Any] | None = None
    ) -> RolloutFnEvalOutput:
        """Return an eval rollout equal to what was recorded; arguments and errors as for ``load_train``."""
        kind = loading.sample_class(sample_type)
        return loading.load_eval(
            self._handle, self.name, self._pk, rollout_number(rollout_id), attempt_number(attempt), kind
        )

    @reconnecting
    def load_batch(self, rollout_id: int, *, attempt: int | None = None, reward_key: str | None = None) -> RolloutBatch:
        """Return a train rollout as the batch that training reads, without making samples or lists of numbers.

        Every entry is a list with one item for each sample, in the order of a walk of the nested samples. Under the
        documented names: ``tokens`` (int64 tensors, prompt and response), ``response_length``, ``rewards``,
        ``loss_mask`` (int32 tensors of response_length; ones where a sample has none, zeros where it is removed from
        training), ``prompt``, ``response``. Under the names that slime's trainer reads: ``response_lengths``,
        ``loss_masks``, ``raw_reward`` (from the metadata, where it is there), ``truncated`` (0 or 1),
        ``sample_indices``, ``rollout_ids``, ``rollout_mask_sums``, and, when a sample has them, ``rollout_log_probs``
        and ``teacher_log_probs`` (float32 tensors), ``rollout_top_p_token_ids`` and ``rollout_top_p_token_offsets``
        (int32), ``rollout_routed_experts`` (the recorded dtype), ``multimodal_train_inputs``, ``metadata`` (the
        samples' ``train_metadata``) and ``round_number``. Rewards are as recorded: normalising them within groups is
        the trainer's choice.

        No two tensors share memory, and each can be changed or sent to another process alone. The memory of some dozens
        of neighbours (a pack) is freed when the last of them goes.

        Args:
            rollout_id: which rollout.
            attempt: which recording of it; None: the newest complete one.
            reward_key: entry of dict rewards to take.

        Raises:
            RolloutNotFoundError: it is not recorded; the error lists the nearest ids that are.
            BatchError: a sample's values make no tensor, its mask is not as long as its response, or its reward has no
                such entry.
            BlobCorruptError, BlobMissingError: stored bytes are damaged or gone.
        """
        number, which = rollout_number(rollout_id), attempt_number(attempt)
        return loading.load_batch(self._handle, self.name, self._pk, number, which, reward_key)

    def iter_samples(
        self,
        where: SampleFilter | None = None,
        *,
        fields: Collection[str] | None = None,
        batch_size: int = 256,
        sample_type: type[Any] | None = None,
    ) -> Iterator[Any]:
        """Yield the samples that a filter names: train before eval, then by rollout id, then in their order.

        Memory stays at about ``batch_size`` samples, or 16 MB of stored bytes where that is less, and no transaction
        stays open between them.

        Args:
            where: which samples; None: all of the newest attempts.
            fields: read only these attributes; the others have the class's defaults. Arrays, texts and documents that
                are not asked for are not read.
            batch_size: samples read at a time.
            sample_type: as for ``load_train``.

        Raises:
            ArraysPrunedError: while iterating, at a rollout whose arrays were pruned, when ``fields`` asks for some.
        """
        if batch_size < 1:
            raise ValueError(f"batch_size is at least 1, not {batch_size}")
        if where is not None and not isinstance(where, SampleFilter):
            raise TypeError(f"where is a SampleFilter, e.g. SampleFilter(kind='train'), not {type(where).__name__}")
        if isinstance(fields, str):
            raise TypeError(f"fields is a collection of names, e.g. [{fields!r}]")
        wanted = None if fields is None else frozenset(fields)
        kind = loading.sample_class(sample_type)
        return walking.iter_samples(self._handle, self._pk, where or SampleFilter(), wanted, batch_size, kind)

    @damage_named
    @reconnecting
    def rollouts(self, kind: Literal["train", "eval"] | None = None, *, attempts: bool = False) -> list[RolloutInfo]:
        """Return what is recorded: train first, then by rollout id.

        Args:
            kind: only these.
            attempts: every attempt instead of the newest of each rollout.
        """
        to_kind(kind)
        with self._handle.reading() as connection:
            rows = RolloutRepository(connection, self._pk).infos(kind, all_attempts=attempts)
        return [rollout_info(row) for row in rows]

    @reconnecting
    def rollout(
        self, rollout_id: int, *, kind: Literal["train", "eval"] = "train", attempt: int | None = None
    ) -> RolloutInfo:
        """Return what is recorded of one rollout, without its samples.

        Args:
            rollout_id: which rollout.
            kind: "train" or "eval".
            attempt: which recording of it; None: the newest complete one.

        Raises:
            RolloutNotFoundError: it is not recorded; the error lists the nearest ids that are.
            ValueError: there is no such kind.
        """
        one_kind(kind)
        with self._handle.reading() as connection:
            rollouts = RolloutRepository(connection, self._pk)
            found = rollouts.find(self.name, kind, rollout_number(rollout_id), attempt_number(attempt))
            return rollout_info(rollouts.info(found.id))

    @reconnecting
    def info(self) -> RunInfo:
        """Return the run's record."""
        with self._handle.reading() as connection:
            return run_info(RunRepository(connection).get(self.name))

    @damage_named
    @reconnecting
    def sessions(self) -> list[SessionInfo]:
        """Return every process that wrote to the run, oldest first."""
        with self._handle.reading() as connection:
            rows = RunRepository(connection).sessions(self._pk)
        return [session_info(row) for row in rows]

    @damage_named
    @reconnecting
    def weight_versions(self) -> list[WeightVersionInfo]:
        """Return every weight version of the run, in the order of first use."""
        with self._handle.reading() as connection:
            rows = WeightVersionRepository(connection).of_run(self._pk)
        return [weight_version_info(row) for row in rows]

    @reconnecting
    def resume(
        self,
        *,
        checkpoint_rollout_id: int | None = None,
        lineage: dict[str, Any] | None = None,
        max_adopted: int | None = None,
        sample_type: type[Any] | None = None,
    ) -> ResumePoint:
        """Return where the run goes on after a crash.

        The state is that of the rollout to go on from: of the attempt after which the checkpoint was saved, or of the
        last one to be adopted. What did not follow that very attempt, since training went back meanwhile, is refused.

        Args:
            checkpoint_rollout_id: the rollout of the checkpoint that training starts from, -1 for none; default: the
                checkpoint noted last (``run.recovery.record_checkpoint``), or the start.
            lineage: what recorded rollouts must agree with to be adopted: their session's lineage is compared key by
                key, where both have the key.
            max_adopted: adopt at most this many rollouts.
            sample_type: class of the samples, as for ``load_train``.

        Raises:
            ArraysPrunedError: the state of the rollout to go on from held tensors or samples, which were pruned.
            InvalidOutputError, ValueError, UnsupportedValueError: ``checkpoint_rollout_id``, ``max_adopted`` or
                ``lineage`` is none.
        """
        kind = loading.sample_class(sample_type)
        start = (
            None if checkpoint_rollout_id is None else rollout_number(checkpoint_rollout_id, "checkpoint_rollout_id")
        )
        most = to_count(max_adopted, "max_adopted", least=0)
        lineage_text(lineage)
        return resume_point(self._handle, self.name, self._pk, kind, start, lineage, most)
