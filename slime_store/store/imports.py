"""Recording what a file held, once: the rollout and where it came from, in one transaction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from slime_store.database import reconnecting
from slime_store.mapping.encode import RolloutEncoder
from slime_store.repositories.imports import ImportOrigin, ImportRepository
from slime_store.repositories.rollouts import RolloutRepository
from slime_store.repositories.runs import RunRepository
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
        session_pk: of the session that it belongs to; None: this process's.
    """

    digest: bytes
    file_name: str
    nesting: Literal["inferred", "given"]
    extras: dict[Any, Any]
    session_pk: int | None = None


@reconnecting
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
    request = replace(request, session_pk=source.session_pk)
    return write_rollout(run._handle, request, encoded)


@reconnecting
def join_session(run: Run, there: Run, info: RolloutInfo) -> tuple[int, bool]:
    """Return to which session of a run something belongs that was recorded in another store, and whether it is current.

    It is the session of the process that recorded it, else a new one of the same lineage, so that it is adopted exactly
    where its neighbours are. It is not current when a later session has made the same rollout anew.
    """
    with there._handle.reading() as connection:
        origin = ImportRepository(connection, there._pk).session(info.session)
    with run._handle.writing("import a rollout") as connection:
        RunRepository(connection).lock(run._pk)
        imports = ImportRepository(connection, run._pk)
        session_pk = imports.same_session(origin, info.started_at)
        if session_pk is None:
            session_pk = imports.add_session(origin)
        return session_pk, not imports.is_made_anew(info.kind, info.rollout_id, session_pk, origin.started_at)


@reconnecting
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
