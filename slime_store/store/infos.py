"""Rows to the frozen records that come back."""

from __future__ import annotations

import operator
from typing import Any

from sqlalchemy import Row

from slime_store.codecs.documents import DocumentDecoder, DocumentEncoder
from slime_store.errors import ArraysPrunedError, BlobCorruptError, BlobMissingError, InvalidOutputError
from slime_store.repositories.runs import StoredRun
from slime_store.types import RolloutInfo, RunInfo, SessionInfo, WeightVersionInfo


class _NoBlobs:
    """The source of documents that were encoded without a sink: they refer to no blob."""

    def get(self, name: str) -> bytes:
        raise BlobMissingError(name)


_decoder = DocumentDecoder(_NoBlobs())


def encode_inline(value: Any, where: str, *, strict: bool = True) -> str:
    """Return a document that is complete in itself: configs, metrics, notes."""
    return DocumentEncoder(None, strict=strict).document(value, where)


def lineage_text(lineage: Any) -> str | None:
    """Return the document of a session's lineage, or None for None.

    Raises:
        InvalidOutputError: it is no dict.
        UnsupportedValueError: a value in it cannot be kept exactly.
    """
    if lineage is not None and not isinstance(lineage, dict):
        raise InvalidOutputError("lineage", f"expected a dict, got {type(lineage).__name__}")
    return None if lineage is None else encode_inline(lineage, "lineage")


def decode_inline(text: str) -> Any:
    """Return the value of a document from ``encode_inline``."""
    return _decoder.document(text)


def decode_placeholders(text: str) -> tuple[str, ...]:
    """Return the paths of a rollout's placeholders.

    Raises:
        BlobCorruptError: the text is not a list of them.
    """
    paths = decode_inline(text)
    if type(paths) is not list or not all(type(path) is str for path in paths):
        raise BlobCorruptError("a rollout's placeholders are no list of paths")
    return tuple(paths)


def run_info(run: StoredRun) -> RunInfo:
    """Return the record of a run."""
    return RunInfo(run.name, decode_inline(run.config), run.created_at, run.n_rollouts)


def session_info(row: Row[Any]) -> SessionInfo:
    """Return the record of a session from ``RunRepository.sessions``."""
    session, host, pid, started_at, n_rollouts, checkpoint, config = tuple(row)
    return SessionInfo(session, host, pid, started_at, n_rollouts, checkpoint, decode_inline(config))


def rollout_info(row: Row[Any]) -> RolloutInfo:
    """Return the record of a rollout from ``repositories.rollouts.INFO_COLUMNS``."""
    return RolloutInfo(
        run=row.run,
        kind=row.kind,
        rollout_id=row.rollout_id,
        attempt=row.attempt,
        status=row.status,
        session=row.session,
        n_groups=row.n_groups,
        n_samples=row.n_samples,
        n_tokens=row.n_tokens,
        n_bytes=row.n_bytes,
        metrics=decode_inline(row.metrics),
        started_at=row.started_at,
        finished_at=row.finished_at,
        n_trajectories=row.n_trajectories,
        placeholders=decode_placeholders(row.placeholders),
        pruned_at=row.pruned_at,
    )


def weight_version_info(row: tuple[Any, ...]) -> WeightVersionInfo:
    """Return the record of a weight version from ``repositories.weight_versions.VersionFacts``."""
    session, label, ordinal, first_seen_at, params, notes = row
    return WeightVersionInfo(session, label, ordinal, first_seen_at, decode_inline(params), decode_inline(notes))


def refuse_pruned(row: Any | None, run: str) -> None:
    """Raise ArraysPrunedError for the row of a rollout whose arrays were pruned."""
    if row is not None and row.pruned_at is not None:
        at = row.pruned_at.isoformat(sep=" ", timespec="seconds")
        raise ArraysPrunedError(run, row.kind, row.rollout_id, row.attempt, at, row.pruned_by)


def rollout_number(rollout_id: Any, name: str = "rollout_id") -> int:
    """Return a rollout id as a plain int; numpy integers are taken, bools and floats are not."""
    try:
        number = operator.index(rollout_id)
    except TypeError:
        number = None
    if number is None or isinstance(rollout_id, bool) or not -(2**63) <= number < 2**63:
        shown = type(rollout_id).__name__ if not isinstance(rollout_id, (str, float, bool)) else repr(rollout_id)
        raise InvalidOutputError(name, f"expected an integer of 64 bits, got {shown}")
    return number


def attempt_number(attempt: Any) -> int | None:
    """Return the number of an attempt as a plain int, or None for the newest."""
    return None if attempt is None else rollout_number(attempt, "attempt")
