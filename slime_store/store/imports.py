"""Recording what a file held, once: the rollout and where it came from, in one transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from slime_store.mapping.encode import RolloutEncoder
from slime_store.repositories.imports import ImportOrigin, ImportRepository
from slime_store.repositories.rollouts import RolloutRepository
from slime_store.store.collection import paused
from slime_store.store.infos import decode_inline, encode_inline
from slime_store.store.recording import RecordRequest, write_rollout
from slime_store.store.run import Run
from slime_store.store.sessions import utc_now
from slime_store.types import RolloutFnEvalOutput, RolloutFnTrainOutput, RolloutInfo

Kind = Literal["train", "eval"]


@dataclass(frozen=True)
class ImportSource:
    """The file that a rollout comes from.

    Attributes:
        digest: SHA-256 of its content.
        file_name: without its directory.
        nesting: "inferred", or "given" where the file had the lists.
        extras: what else it held at the top level, by name.
    """

    digest: bytes
    file_name: str
    nesting: Literal["inferred", "given"]
    extras: dict[Any, Any]


def find_import(run: Run, source_digest: bytes, kind: Kind, rollout_id: int) -> int | None:
    """Return the attempt at this rollout that was imported from the same content, or None."""
    with run._handle.reading() as connection:
        return ImportRepository(connection, run._pk).find(source_digest, kind, rollout_id)


def record_import(
    run: Run,
    rollout_id: int,
    output: RolloutFnTrainOutput | RolloutFnEvalOutput,
    source: ImportSource,
    *,
    state: Any = None,
    strict: bool = False,
) -> RolloutInfo:
    """Record a rollout as a new attempt, unless the run holds it from the same content already.

    Raises:
        AlreadyImportedError: it does, also where another process was faster.
        UnsupportedValueError: a value cannot be kept exactly (strict only).
        DatabaseError: nothing of it was kept.
    """
    run._handle.check_writable("import a rollout")
    encoder = RolloutEncoder(strict=strict)
    with paused():
        if isinstance(output, RolloutFnTrainOutput):
            encoded = encoder.train(output.samples, output.metrics, state)
        else:
            encoded = encoder.evaluation(output.data, output.metrics)
    extras = encode_inline(source.extras, "top level", strict=strict)
    origin = ImportOrigin(source.digest, source.file_name, source.nesting, extras)
    request = RecordRequest(run.name, run._pk, rollout_id, "new_attempt", utc_now(), origin=origin)
    return write_rollout(run._handle, request, encoded)


def find_extras(run: Run, kind: Kind, rollout_id: int, attempt: int | None) -> tuple[int, dict[Any, Any]]:
    """Return the number of an attempt (None: the newest complete one), and what else the file that it came from held.

    The dict is empty for a rollout that was recorded and not imported.

    Raises:
        RolloutNotFoundError: there is no such rollout.
    """
    with run._handle.reading() as connection:
        row = RolloutRepository(connection, run._pk).find(run.name, kind, rollout_id, attempt)
        document = ImportRepository(connection, run._pk).extras(row.id)
    return row.attempt, {} if document is None else dict(decode_inline(document))
