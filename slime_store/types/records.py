"""What the store says about its contents. Frozen: the database is changed by methods, not by fields.

Every ``_at`` is an aware ``datetime`` in UTC, every ``_bytes`` a number of bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import datetime

    from slime_store.types.params import ParamInfo


@dataclass(frozen=True)
class RunInfo:
    """One training run.

    Attributes:
        name: its name, unique in the store.
        config: what it was started with, exactly as given. None if nothing was given.
        created_at: when the run was first opened for writing, UTC.
        n_rollouts: recorded rollouts of both kinds; attempts of one rollout count once.
    """

    name: str
    config: dict[str, Any] | None
    created_at: datetime
    n_rollouts: int


@dataclass(frozen=True)
class SessionInfo:
    """One process that wrote to a run; a restart is a new session.

    Attributes:
        session: its ordinal in the run, from 1.
        host: name of its machine.
        pid: its process.
        started_at: when it began to write, UTC.
        n_rollouts: rollouts it recorded, every attempt counted.
        checkpoint_rollout_id: the rollout of the checkpoint it started from; -1: from the start; None: not known.
        config: what it was started with. None if nothing was given.
    """

    session: int
    host: str
    pid: int
    started_at: datetime
    n_rollouts: int
    checkpoint_rollout_id: int | None
    config: dict[str, Any] | None


@dataclass(frozen=True)
class RolloutInfo:
    """One attempt at one rollout.

    Attributes:
        run: name of the run.
        kind: ``"train"`` or ``"eval"``.
        rollout_id: the number slime handed to the rollout function. Train and eval count apart.
        attempt: n-th recording of this (run, kind, rollout_id), from 1.
        status: ``"open"`` while groups are still journalled, then ``"complete"``.
        session: ordinal, in its run, of the session that wrote it, from 1.
        n_groups: prompts' groups, the entries of the outer level of ``samples``; 0 for an eval.
        n_samples: samples at all levels.
        n_tokens: prompt and response tokens of all samples together.
        n_bytes: bytes of its arrays, blobs, texts and documents as stored; rows and indexes come on top. Blobs that it
            shares with other rollouts are counted in full.
        metrics: the rollout function's metrics, exactly as given. None if it gave none.
        started_at: when recording began: the call, or the first journalled group. UTC.
        finished_at: when it became complete, UTC. None while it is open.
        n_trajectories: executions; segments that one execution was split into count once.
        placeholders: paths of values that lenient mode could not keep, in order, e.g.
            ``"group 17, sample 1, metadata['fh']"``.
        pruned_at: when its arrays were deleted by ``prune``, UTC. None while they are there.
    """

    run: str
    kind: str
    rollout_id: int
    attempt: int
    status: str
    session: int
    n_groups: int
    n_samples: int
    n_tokens: int
    n_bytes: int
    metrics: dict[str, Any] | None
    started_at: datetime
    finished_at: datetime | None
    n_trajectories: int = 0
    placeholders: tuple[str, ...] = ()
    pruned_at: datetime | None = None


@dataclass(frozen=True)
class SamplePlace:
    """Where a sample was recorded.

    Attributes:
        run: name of the run.
        kind: ``"train"`` or ``"eval"``.
        rollout_id: the number slime handed to the rollout function.
        attempt: n-th recording of that rollout, from 1.
        session: ordinal, in its run, of the session that wrote it, from 1.
        dataset: name of the eval dataset, as SQL shows it; None for training.
        position: its place in the order of the rollout, from 0.
    """

    run: str
    kind: str
    rollout_id: int
    attempt: int
    session: int
    dataset: str | None
    position: int


@dataclass(frozen=True)
class LocatedSample:
    """A sample and its place.

    Attributes:
        place: where it was recorded.
        sample: the sample, slime's or ours.
    """

    place: SamplePlace
    sample: Any


@dataclass(frozen=True)
class WeightVersionInfo:
    """One version of the policy's weights, as the engine named it in one session.

    Attributes:
        session: ordinal, in its run, of the session that used it, from 1. Labels start again in
            every process, so only (session, label) names the weights.
        label: the engine's name for it, e.g. ``"7"``. Compare for equality only, never as a number.
        ordinal: its place in the order of first use in the run, from 1.
        first_seen_at: when it was first recorded, UTC.
        params: the parameters of the update, if they were recorded.
        metadata: notes on the version, if any were recorded.
    """

    session: int
    label: str
    ordinal: int
    first_seen_at: datetime
    params: list[ParamInfo] | None
    metadata: dict[str, Any] | None


@dataclass(frozen=True)
class StoreStats:
    """How much a store holds.

    Attributes:
        url: where it is, without the password.
        size_bytes: bytes on disk, database and blob directory together.
        n_runs: runs.
        n_rollouts: recorded rollouts, every attempt counted.
        n_samples: samples, in every attempt.
        n_tokens: prompt and response tokens of these samples.
        n_prompts: distinct prompts.
        n_blobs: distinct blobs.
        blob_bytes: bytes of these blobs as stored, after compression.
    """

    url: str
    size_bytes: int
    n_runs: int
    n_rollouts: int
    n_samples: int
    n_tokens: int
    n_prompts: int
    n_blobs: int
    blob_bytes: int


@dataclass(frozen=True)
class ResumePoint:
    """Where a run goes on after a crash.

    Attributes:
        checkpoint_rollout_id: the rollout of the checkpoint that training starts from; -1: from the start.
        next_rollout_id: the first rollout that has to be generated; those before it are ``complete``.
        complete: the recorded rollouts after the checkpoint that may be handed to training as they are, in order.
        journalled_groups: finished groups of rollouts under way, nested as the rollout function had them, oldest first.
        state: the data source's state at the end of rollout ``next_rollout_id - 1``; None if none was recorded.
        buffer: the data source's buffer in that state: groups partly generated, first in first out.
        refused: why later recorded rollouts are not among ``complete``; None if there is none.
        journalled_sessions: which sessions generated the journalled groups, by group index; of equal ones the last's.
    """

    checkpoint_rollout_id: int
    next_rollout_id: int
    complete: tuple[RolloutInfo, ...]
    journalled_groups: list[Any]
    state: Any
    buffer: list[Any]
    refused: str | None = None
    journalled_sessions: dict[int, int] = field(default_factory=dict)
