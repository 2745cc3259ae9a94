"""Writing one encoded rollout: side files first, then one transaction."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from slime_store.blobs import PayloadWriter
from slime_store.database import reconnecting, translated
from slime_store.errors import (
    AlreadyImportedError,
    CommitUnknownError,
    ConnectionFailedError,
    DatabaseError,
    RolloutExistsError,
    StoreError,
)
from slime_store.mapping.encoded import EncodedRollout
from slime_store.repositories.aggregates import AggregateRepository
from slime_store.repositories.blobs import BlobRepository
from slime_store.repositories.digests import RolloutDigests
from slime_store.repositories.histories import Histories
from slime_store.repositories.imports import ImportRepository
from slime_store.repositories.locks import lock_shared_content
from slime_store.repositories.resume import JOURNAL
from slime_store.repositories.rollouts import RolloutRepository
from slime_store.repositories.runs import RunRepository
from slime_store.repositories.samples import SampleRepository
from slime_store.store.clearing import journalled_of, superseded_by
from slime_store.store.handle import StoreHandle
from slime_store.store.infos import rollout_info
from slime_store.store.payloads import PreparedPayloads, compress_packs, own_bytes, prepare, renew
from slime_store.store.requests import MadeAnewError, RecordRequest
from slime_store.store.sessions import Sessions, utc_now
from slime_store.store.shared_contents import SharedContents, delete_rollouts
from slime_store.store.side_files import remove_files, take_back
from slime_store.store.versions import RolloutVersions
from slime_store.types import RolloutInfo


class Tried(NamedTuple):
    """A rollout of a transaction whose end is not known: which of the given, and what tells it from others.

    A list of them is empty once it is known that no try was committed.
    """

    position: int
    pk: int
    session_pk: int
    finished_at: datetime


def write_rollout(handle: StoreHandle, request: RecordRequest, rollout: EncodedRollout) -> RolloutInfo:
    """Store a rollout and return its record; when this returns, it survives power loss.

    Raises:
        RolloutExistsError: it is recorded already, and ``on_conflict`` is "error".
        AlreadyImportedError: the content of its file, or this very recording, is there already.
        MadeAnewError: it is imported with a state, and has been made anew since.
        CommitUnknownError: the answer to a COMMIT was lost, and it could not be found out whether the rollout is kept.
        DatabaseError: the database failed in another way; nothing of this rollout was kept.
    """
    return write_rollouts(handle, [(request, rollout)])[0]


def write_rollouts(handle: StoreHandle, rollouts: Sequence[tuple[RecordRequest, EncodedRollout]]) -> list[RolloutInfo]:
    """Store several rollouts or journalled groups of one run in one transaction.

    Compressing happens before the transaction, so that other writers wait only for the inserts. When the connection
    breaks, the record is tried again; each try first looks whether the one before it was committed after all.

    Raises:
        StoreError: as for ``write_rollout``.
    """
    tried: list[Tried] = []
    try:
        return _write_rollouts(handle, rollouts, tried)
    except StoreError as error:
        if not tried:
            raise
        raise CommitUnknownError(handle.config.display_url, getattr(error, "reason", str(error))) from error


@reconnecting
def _write_rollouts(
    handle: StoreHandle, rollouts: Sequence[tuple[RecordRequest, EncodedRollout]], tried: list[Tried]
) -> list[RolloutInfo]:
    first = rollouts[0][0]
    session_pk = first.session_pk or handle.session(first.run, first.run_pk)
    writer = PayloadWriter(handle.directory)
    infos, files = [], []
    mine: list[Tried] = []
    try:
        prepared = []
        for _, rollout in rollouts:
            known: dict[str, tuple[int, int]] = {}
            if rollout.blobs:
                with handle.reading() as connection:
                    known = handle.blobs(connection).known(rollout.blobs)
            with translated(handle.config):  # side files are written here
                prepared.append(prepare(rollout, known, writer))
        with handle.writing("record a rollout") as connection:
            lock_shared_content(connection, exclusive=False)
            if tried:
                if stored := _stored_by(connection, first, tried):
                    return stored
                tried.clear()
            blobs = handle.blobs(connection)
            _lock_run(connection, handle, first, session_pk)
            recordings = [
                _Recording(connection, handle.sessions, blobs, request, session_pk) for request, _ in rollouts
            ]
            for recording, (_, rollout), payloads in zip(recordings, rollouts, prepared, strict=True):
                recording.check(rollout)
                renew(payloads, rollout, writer)
            contents = SharedContents(connection, blobs, [rollout for _, rollout in rollouts], prepared, writer)
            superseded: list[int] = []
            for recording, (request, rollout), payloads in zip(recordings, rollouts, prepared, strict=True):
                infos.append(recording.run(rollout, payloads, contents, writer))
                superseded += recording.replaced
                if request.clear_journal is not None:
                    superseded += superseded_by(connection, handle.sessions, request, session_pk)
                if request.holds:
                    superseded += journalled_of(connection, request)
                mine.append(Tried(len(infos) - 1, recording.pk, session_pk, recording.finished_at))
            if superseded:
                repository = RolloutRepository(connection, first.run_pk)
                files += delete_rollouts(connection, repository, blobs, sorted(set(superseded)))
            files += [*contents.unneeded_files, *blobs.replaced_files]
            gone = sorted(set(writer.gone()).difference(files))
            if gone:
                raise DatabaseError(handle.config.display_url, f"side file {gone[0]} is gone; nothing was recorded")
            tried += mine  # what fails from here on is the COMMIT
    except BaseException as error:
        if not isinstance(error, ConnectionFailedError):  # then it was answered, and refused
            tried[:] = [each for each in tried if each not in mine]
        take_back(handle, writer.written)
        raise
    remove_files(handle, files)
    handle.trim_log()
    return infos


def _lock_run(connection: sa.Connection, handle: StoreHandle, request: RecordRequest, session_pk: int) -> None:
    """Lock the run; refuse to record under keys of a store that is gone: a file made anew, a schema dropped."""
    locked = RunRepository(connection).lock(request.run_pk, session_pk)
    if locked is None:
        RunRepository(connection).refuse_deleted(request.run)
    started_at = locked.session_started_at
    if locked.name != request.run or not handle.sessions.is_same(request.run_pk, session_pk, started_at):
        raise DatabaseError(handle.config.display_url, "the store was made anew while it was open; open it again")
    newest = locked.newest_session or session_pk
    handle.sessions.look_for_others(connection, request.run, request.run_pk, session_pk, newest)


def _stored_by(connection: sa.Connection, request: RecordRequest, tried: list[Tried]) -> list[RolloutInfo]:
    """Return what an earlier try has stored: the answer to its COMMIT may have been lost with the connection.

    The run is locked first, so that a try whose end the server has not noticed yet is waited for.
    """
    RunRepository(connection).lock(request.run_pk)
    rollouts = RolloutRepository(connection, request.run_pk)
    found = [each for each in sorted(tried) if rollouts.is_stored(*each[1:])]
    return [rollout_info(rollouts.info(each.pk)) for each in found]


class _Recording:
    """One rollout in a transaction that has the shared content and the run locked.

    Attributes:
        pk: the rollout's key, once it has one.
        finished_at: when it was recorded.
        replaced: keys of the attempts that it replaces.
    """

    def __init__(
        self,
        connection: sa.Connection,
        sessions: Sessions,
        blobs: BlobRepository,
        request: RecordRequest,
        session_pk: int,
    ) -> None:
        self.pk = 0
        self.finished_at = request.finished_at or utc_now()
        self.replaced: list[int] = []
        self._connection = connection
        self._request = request
        self._sessions = sessions
        self._session_pk = session_pk
        self._blobs = blobs
        self._rollouts = RolloutRepository(connection, request.run_pk)

    def check(self, rollout: EncodedRollout) -> None:
        """Refuse what is recorded already, if it was asked for, and an imported state of an abandoned way."""
        request, kind = self._request, rollout.kind
        if request.origin is not None:
            imports = ImportRepository(self._connection, request.run_pk)
            known = imports.find(request.origin.digest, kind, request.rollout_id)
            if known is None and request.session_pk is not None:
                known = imports.find_recording(request.session_pk, kind, request.rollout_id, request.started_at)
            if known is not None:
                raise AlreadyImportedError(request.run, kind, request.rollout_id, known)
        if request.on_conflict == "error" and self._rollouts.attempts(kind, request.rollout_id):
            raise RolloutExistsError(request.run, kind, request.rollout_id)
        if request.session_pk is not None and kind == "train" and rollout.state is not None:
            histories = Histories(self._connection, request.run_pk)
            if histories.is_made_anew(request.rollout_id, request.session_pk, request.finished_at):
                raise MadeAnewError()

    def run(
        self, rollout: EncodedRollout, prepared: PreparedPayloads, contents: SharedContents, writer: PayloadWriter
    ) -> RolloutInfo:
        """Insert everything that is the rollout's own, and what refers to shared content."""
        request = self._request
        earlier = self._rollouts.attempts(rollout.kind, request.rollout_id)
        attempt = 1 + max((n for _, n in earlier), default=0)
        versions = RolloutVersions(self._connection, request, self._session_pk, rollout)
        self._sessions.expect(request.run_pk, versions.added_sessions)
        blobs = contents.blobs_of(rollout)
        n_bytes = own_bytes(rollout) + sum(payload.n_bytes for _, payload in prepared.packs)
        n_bytes += sum(size for _, size in blobs)
        self.replaced = [pk for pk, _ in earlier] if request.on_conflict == "replace" else []
        digests = RolloutDigests()
        pk = self._rollouts.add(
            rollout.state,
            digests,
            session_pk=self._session_pk,
            kind=rollout.kind,
            rollout_id=request.rollout_id,
            attempt=attempt,
            status="open" if rollout.kind == JOURNAL else "complete",
            weight_version_pk=versions.of_rollout,
            nesting=rollout.shape,
            layouts=_json(rollout.layouts),
            metrics=rollout.metrics,
            placeholders=_json(rollout.placeholders),
            n_groups=len(rollout.groups),
            n_samples=len(rollout.samples),
            n_trajectories=rollout.n_trajectories,
            n_tokens=rollout.n_tokens,
            n_bytes=n_bytes,
            started_at=request.started_at,
            finished_at=self.finished_at,
        )
        self.pk = pk
        if request.origin is not None:
            ImportRepository(self._connection, request.run_pk).add(pk, request.origin, utc_now(), digests)
        samples = SampleRepository(self._connection, pk)
        samples.add(rollout, contents.prompts, versions.of_samples, digests)
        AggregateRepository(self._connection).add(pk, rollout, versions.of_samples, digests)
        own_blobs = samples.add_arrays(prepared.packs, self._blobs, digests)
        for packs in prepared.later_packs:
            compressed = compress_packs(packs, writer)
            n_bytes += sum(payload.n_bytes for _, payload in compressed)
            own_blobs += samples.add_arrays(compressed, self._blobs, digests)
        if prepared.later_packs:
            self._rollouts.set_bytes(pk, n_bytes)
        digests.store(self._connection, pk)
        self._blobs.refer(pk, [*own_blobs, *(blob_pk for blob_pk, _ in blobs)])
        return rollout_info(self._rollouts.info(pk))


def _json(names: Sequence[Any]) -> str:
    """JSON in ASCII: names of any characters pass every database."""
    return json.dumps(names, separators=(",", ":"))
