"""Recording what a file held, once: the rollout and where it came from, in one transaction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from slime_store.database import reconnecting
from slime_store.errors import BlobCorruptError
from slime_store.mapping.encode import RolloutEncoder
from slime_store.mapping.encoded import EncodedRollout
from slime_store.repositories.histories import Histories
from slime_store.repositories.imports import Adoption, ImportOrigin, ImportRepository
from slime_store.repositories.rollouts import RolloutRepository
from slime_store.repositories.runs import RunRepository
from slime_store.repositories.weight_versions import WeightVersionRepository
from slime_store.store.collection import paused
from slime_store.store.infos import decode_inline, encode_inline
from slime_store.store.recording import write_rollout
from slime_store.store.requests import MadeAnewError, RecordRequest
from slime_store.store.resume import load_state
from slime_store.store.run import Run
from slime_store.store.sessions import utc_now
from slime_store.types import RolloutFnEvalOutput, RolloutFnTrainOutput, RolloutInfo, Sample

Kind = Literal["train", "eval"]


class StoredSample(Sample):
    """A sample with the attributes that it was recorded with and no others, whatever framework's it was."""

    def __init__(self) -> None:
        pass


@dataclass(frozen=True)
class ImportSource:
    """The file that a rollout comes from.

    Attributes:
        digest: SHA-256 of its content.
        file_name: without its directory.
        nesting: "inferred", or "given" where the file had the lists.
        extras: what else it held at the top level, by name.
        session_pk: of the session that it belongs to; None: this process's.
        recorded: what the file says of how it was recorded, if it is a store.
    """

    digest: bytes
    file_name: str
    nesting: Literal["inferred", "given"]
    extras: dict[Any, Any]
    session_pk: int | None = None
    recorded: Recorded | None = None


@dataclass(frozen=True)
class Recorded:
    """What a store says of a rollout beside its output and its state.

    Attributes:
        started_at: when recording it began.
        finished_at: when that was done.
        weight_version: the version that it was recorded with, or None.
        generated_in: keys of the sessions that generated samples which its own did not, by the samples' positions.
        placeholders: paths of values that could not be kept when it was recorded.
    """

    started_at: datetime
    finished_at: datetime | None
    weight_version: str | None
    generated_in: dict[int, int]
    placeholders: tuple[str, ...]


@reconnecting
def find_import(run: Run, source_digest: bytes, kind: Kind, rollout_id: int) -> int | None:
    """Return the attempt at this rollout that was imported from the same content, or None."""
    with run._handle.reading() as connection:
        return ImportRepository(connection, run._pk).find(source_digest, kind, rollout_id)


@reconnecting
def find_recording(run: Run, there: Run, info: RolloutInfo, sessions: dict[int, int]) -> int | None:
    """Return the attempt of a run that is the very recording which another store has, or None.

    The run has it where the answer to its COMMIT was lost, so that the rollout went to the spool as well, and where the
    other store is a backup or a copy.
    """
    with there._handle.reading() as connection:
        row = RolloutRepository(connection, there._pk).find(info.run, info.kind, info.rollout_id, info.attempt)
    session_pk = sessions.get(row.session_pk)
    if session_pk is None:
        return None
    with run._handle.reading() as connection:
        imports = ImportRepository(connection, run._pk)
        return imports.find_recording(session_pk, info.kind, info.rollout_id, row.started_at)


def record_import(
    run: Run,
    rollout_id: int,
    output: RolloutFnTrainOutput | RolloutFnEvalOutput,
    source: ImportSource,
    *,
    state: Any = None,
    strict: bool = False,
) -> RolloutInfo:
    """Record a rollout as a new attempt, unless the run holds it already: of the same content, or recording.

    A train rollout that the run has made anew since comes without the state: that of an abandoned way must not be taken
    for that of the new one.

    Raises:
        AlreadyImportedError: it does, also where another process was faster.
        UnsupportedValueError: a value cannot be kept exactly (strict only).
        CommitUnknownError: it is not known whether it was kept; importing it again finds out.
        DatabaseError: nothing of it was kept.
    """
    run._handle.check_writable("import a rollout")
    try:
        return _record(run, rollout_id, output, source, state, strict)
    except MadeAnewError:
        return _record(run, rollout_id, output, source, None, strict)


def _record(
    run: Run,
    rollout_id: int,
    output: RolloutFnTrainOutput | RolloutFnEvalOutput,
    source: ImportSource,
    state: Any,
    strict: bool,
) -> RolloutInfo:
    encoder = RolloutEncoder(strict=strict)
    with paused():
        if isinstance(output, RolloutFnTrainOutput):
            encoded = encoder.train(output.samples, output.metrics, state)
        else:
            encoded = encoder.evaluation(output.data, output.metrics, state)
    extras = encode_inline(source.extras, "top level", strict=strict)
    origin = ImportOrigin(source.digest, source.file_name, source.nesting, extras)
    request = RecordRequest(run.name, run._pk, rollout_id, "new_attempt", utc_now(), origin=origin)
    request = replace(request, session_pk=source.session_pk)
    if source.recorded is not None:
        recorded = source.recorded
        encoded.placeholders = list(dict.fromkeys([*recorded.placeholders, *encoded.placeholders]))
        request = replace(
            request,
            started_at=recorded.started_at,
            finished_at=recorded.finished_at,
            weight_version=recorded.weight_version,
            generated_in=recorded.generated_in,
            holds=_groups_of(encoded, source.session_pk, recorded),
        )
    return write_rollout(run._handle, request, encoded)


def _groups_of(encoded: EncodedRollout, session_pk: int | None, recorded: Recorded) -> frozenset[tuple[int, int]]:
    """Return the groups of a rollout as (session that generated it, group index)."""
    if session_pk is None:
        return frozenset()
    generated_in = recorded.generated_in
    return frozenset(
        (generated_in.get(position, session_pk), index)
        for group, index in encoded.groups
        if index is not None
        for position in range(group.first_position, group.first_position + group.n_samples)
    )


@reconnecting
def join_sessions(run: Run, there: Run) -> dict[int, int]:
    """Return, by key, in the place of which sessions of a run those of another store's come that did anything.

    It is the session of the same process, else a new one of the same lineage, so that its rollouts are adopted exactly
    where their neighbours are. Their weight versions are added, with parameters and notes, in the order of first use.

    Raises:
        ReadOnlyStoreError: the store was opened with ``read_only=True``.
    """
    run._handle.check_writable("import a rollout")
    with there._handle.reading() as connection:
        origins = ImportRepository(connection, there._pk)
        sessions, last_active, others = origins.sessions(), origins.last_active(), origins.starts()
        versions = WeightVersionRepository(connection).with_keys(there._pk)
    with run._handle.writing("import a rollout") as connection:
        RunRepository(connection).lock(run._pk)
        imports, joined = ImportRepository(connection, run._pk), {}
        for theirs, origin in sessions.items():
            if theirs in last_active:
                pk = imports.same_session(origin, last_active[theirs], others)
                joined[theirs] = imports.add_session(origin) if pk is None else pk
        taken = [(joined[version[0]], *version[1:]) for version in versions if version[0] in joined]
        WeightVersionRepository(connection).take_over(run._pk, taken)
    return joined


@reconnecting
def stored_adoptions(there: Run) -> list[Adoption]:
    """Return which sessions of another store's run were handed which of its rollouts.

    Raises:
        DamagedStoreError: one is damaged.
    """
    with there._handle.reading() as connection:
        return ImportRepository(connection, there._pk).adoptions()


@reconnecting
def take_over_adoptions(run: Run, adoptions: list[Adoption], sessions: dict[int, int]) -> None:
    """Note which of the rollouts taken from another store which of its sessions were handed; see ``join_sessions``."""
    known = [each for each in adoptions if {each.session_pk, each.recorded_in} <= sessions.keys()]
    if not known:
        return
    with run._handle.writing("import a rollout") as connection:
        RunRepository(connection).lock(run._pk)
        imports = ImportRepository(connection, run._pk)
        for each in known:
            ours = each._replace(session_pk=sessions[each.session_pk], recorded_in=sessions[each.recorded_in])
            imports.add_adoption(ours)


@reconnecting
def stored_rollout(
    run: Run, there: Run, info: RolloutInfo, sessions: dict[int, int], digest: bytes, file_name: str
) -> tuple[ImportSource, Any]:
    """Return what another store says of a rollout beside its output, and the data source's state.

    The state is left out where it is known already that it will not be wanted, see ``record_import``.

    Raises:
        ArraysPrunedError: the state held tensors or samples, which were pruned.
        BlobCorruptError: it belongs to no session of its run.
    """
    with there._handle.reading() as connection:
        row = RolloutRepository(connection, there._pk).find(info.run, info.kind, info.rollout_id, info.attempt)
        imports = ImportRepository(connection, there._pk)
        document = imports.extras(row.id)
        nesting: Literal["inferred", "given"] = "inferred" if imports.nesting(row.id) == "inferred" else "given"
        version = None
        if row.weight_version_pk is not None:
            version = WeightVersionRepository(connection).get(row.weight_version_pk)[1]
        generated_in = imports.generated_in(row.id)
    if unknown := {row.session_pk, *generated_in.values()} - sessions.keys():
        raise BlobCorruptError(f"its session {min(unknown)} is none of its run's")
    session_pk = sessions[row.session_pk]
    with run._handle.reading() as connection:
        histories = Histories(connection, run._pk)
        is_left = info.kind == "train" and histories.is_made_anew(info.rollout_id, session_pk, row.finished_at)
    state = None
    if not is_left:
        where = info.rollout_id, info.attempt
        state = load_state(there._handle, info.run, there._pk, info.kind, *where, StoredSample)
    extras = {} if document is None else dict(decode_inline(document))
    ours = {position: sessions[pk] for position, pk in generated_in.items()}
    recorded = Recorded(row.started_at, row.finished_at, version, ours, info.placeholders)
    return ImportSource(digest, file_name, nesting, extras, session_pk, recorded), state


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
