"""Copying a store into another one: between SQLite and PostgreSQL, either way; resumable, and compared at the end."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import Connection, Table

from slime_store.blobs import PayloadWriter
from slime_store.config import StoreConfig
from slime_store.errors import CopyError, OutdatedSchemaError, StoreError
from slime_store.models import RunRow, SessionRow
from slime_store.repositories.copying import OF_RUNS, CopyRepository, is_same_recording
from slime_store.repositories.locks import lock_shared_content
from slime_store.repositories.rollouts import RolloutRepository
from slime_store.store.diagnosis import damage_named
from slime_store.store.handle import StoreHandle
from slime_store.store.loading import again_if_overtaken
from slime_store.store.shared_contents import delete_rollouts
from slime_store.store.side_files import remove_files, take_back
from slime_store.store.verification.contents import check_blobs, check_prompts
from slime_store.store.verification.findings import Findings
from slime_store.types.reports import CopyReport

if TYPE_CHECKING:
    from sqlalchemy import URL

    from slime_store.store.sample_store import SampleStore

Progress = Callable[[int, int], None]
Reading = Callable[[], AbstractContextManager[Connection]]
Row = dict[str, Any]

_PASSES = 3
"""How often the source is looked through: what is recorded while copying is copied too."""
_RUNS, _SESSIONS = cast(Table, RunRow.__table__), cast(Table, SessionRow.__table__)
_FIXED = {_RUNS: ("name", "created_at"), _SESSIONS: ("run_pk", "ordinal", "host", "pid", "started_at")}
"""By what a run or session of the target is known to come from the source."""


@damage_named
def copy_store(
    source: SampleStore, target_url: str | os.PathLike[str] | URL, *, progress: Progress | None = None
) -> CopyReport:
    """Copy everything that a store holds into another one, which is made if it is not there.

    Every run, session, weight version, checkpoint and adoption, every rollout with all attempts and the journalled
    groups of rollouts under way, imports, prompts, blobs and side files. A rollout is copied in one transaction: a copy
    that was interrupted is gone on with by running it again, and running it after more was recorded brings the target
    up to date, deleting there the rollouts that were deleted in the source. In the end every rollout's stored bytes
    are compared on both sides, and every shared content with its digest. Memory stays at about two payloads and 16 MB,
    whatever the number of samples.

    Args:
        source: an open store; read-only will do. Others may go on writing to it.
        target_url: an empty place, or an earlier copy of the same store that nobody else has written to, nor does
            meanwhile: what is recorded into it is kept, and the copy refused.
        progress: called with (steps done, steps).

    Raises:
        CopyError: the target holds something else, be it a run that was deleted in the source, or rollouts that it
            lost by being restored from an older backup; or it has an older schema, which is not upgraded unasked; or
            in the end it is not like the source.
        SchemaError: the target is no store that this version can use.
        DatabaseError: one of the databases failed; what was copied so far stays, and running it again goes on.
    """
    config = StoreConfig.parse(target_url)
    handle = source._handle
    if config.url == handle.config.url or (config.path and handle.config.path and _same_file(config, handle.config)):
        raise CopyError(config.display_url, "it is the store itself")
    _refuse_outdated(config)
    target = StoreHandle(config)
    try:
        return _Copy(handle, target, handle.reading, progress).run()
    finally:
        target.close()


def copy_snapshot(source: StoreHandle, path: Path) -> tuple[str, ...]:
    """Copy a store, as it is at one moment, into a new SQLite file; return what is missing: nothing."""
    target = StoreHandle(StoreConfig.parse(path))
    try:
        with source.reading() as connection:
            _Copy(source, target, lambda: _same(connection), None).run()
    finally:
        target.close()
    return ()


@contextmanager
def _same(connection: Connection) -> Iterator[Connection]:
    yield connection


def _same_file(one: StoreConfig, other: StoreConfig) -> bool:
    return os.path.realpath(str(one.path)) == os.path.realpath(str(other.path))


def _refuse_outdated(config: StoreConfig) -> None:
    target = StoreHandle(replace(config, read_only=True))
    try:
        target.engine  # noqa: B018 - looks at the schema
    except OutdatedSchemaError as error:
        reason = f"it has the older schema {error.detail}; upgrade it first (`slime-store db upgrade`)"
        raise CopyError(config.display_url, f"{reason}, or copy to an empty place") from None
    except StoreError:  # there is nothing yet; or opening it for writing says what is wrong
        return
    finally:
        target.close()


class _Copy:
    """One copy from a source, read by ``reading``, into a target."""

    def __init__(self, source: StoreHandle, target: StoreHandle, reading: Reading, progress: Progress | None) -> None:
        self._source, self._target, self._reading = source, target, reading
        self._progress = progress
        self._done = self._total = 0
        self._copied = self._deleted = self._samples = self._bytes = 0
        self._known: dict[Table, dict[Any, Row]] = {_RUNS: {}, _SESSIONS: {}}  # what the source has, or has had

    def run(self) -> CopyReport:
        self._check_target()
        with self._reading() as connection:
            present = self._there(connection).rollouts().keys()
        with self._target.reading() as connection:
            n_present = len(present & self._here(connection).rollouts().keys())
        for _ in range(_PASSES):
            if not self._bring_up_to_date():
                break
        verified = self._verify()
        with self._target.reading() as connection:
            n_runs = self._here(connection).count(_RUNS)
        return CopyReport(
            self._target.config.display_url,
            n_runs=n_runs,
            n_copied=self._copied,
            n_present=n_present,
            n_deleted=self._deleted,
            n_samples=self._samples,
            n_bytes=self._bytes,
            n_verified=verified,
        )

    def _there(self, connection: Connection) -> CopyRepository:
        return CopyRepository(connection, self._source.blobs(connection))

    def _here(self, connection: Connection) -> CopyRepository:
        return CopyRepository(connection, self._target.blobs(connection))

    def _check_target(self) -> None:
        """Refuse a target with runs or sessions that the source has not, or rollouts that it never had.

        Whether the source had a run once, nothing says: it may as well be one that somebody made in the target, or the
        last copy of one that is newer than the backup from which the source was restored. So none is deleted unasked.
        """
        with self._reading() as connection:
            for table in _FIXED:
                self._known[table] |= self._there(connection).rows(table)
        with self._target.reading() as connection:
            self._refuse_foreign(self._here(connection))
        with self._reading() as connection:
            there, last = self._there(connection).rollouts(), self._there(connection).last_key()
        with self._target.reading() as connection:
            here = self._here(connection).rollouts()
        strays = [pk for pk in here if (not is_same_recording(there[pk], here[pk]) if pk in there else pk > last)]
        if strays:
            kind, rollout_id = here[strays[0]][3:5]
            reason = (
                f"it holds {len(strays)} rollouts, {kind} rollout {rollout_id} among them, that the source never had, "
                "as after the source was restored from an older backup; copy to an empty place"
            )
            raise CopyError(self._target.config.display_url, reason)

    def _refuse_foreign(self, here: CopyRepository) -> None:
        for table, names in _FIXED.items():
            for pk, row in here.rows(table, names).items():
                theirs = self._known[table].get(pk)
                if theirs is None or any(theirs[name] != row[name] for name in names):
                    reason = f"it holds {self._foreign(table, row)}copy to an empty place"
                    raise CopyError(self._target.config.display_url, reason)

    @contextmanager
    def _writing(self, *, deletes: bool = False) -> Iterator[CopyRepository]:
        """A transaction in the target, to which nobody has written: each writer has a session of his own there."""
        with self._target.writing("copy a store") as connection:
            lock_shared_content(connection, exclusive=deletes)
            here = self._here(connection)
            here.hold_runs()
            self._refuse_foreign(here)
            yield here

    def _foreign(self, table: Table, row: Row) -> str:
        if table is _SESSIONS:
            return f"a session of process {row['pid']}, which the source has not; "
        return (
            f"run {row['name']!r}, which the source has not; if it was deleted there, delete it in the target too "
            "(`slime-store run delete`), else "
        )

    def _bring_up_to_date(self) -> bool:
        """Copy what the target lacks and delete what the source lacks; tell whether there was anything to do."""
        with self._reading() as connection:
            theirs = self._there(connection).rollouts()
            small = [(table, self._there(connection).rows(table)) for table in OF_RUNS]
        for table, rows in small:
            if table in self._known:
                self._known[table] |= rows
        with self._target.reading() as connection:
            ours = self._here(connection).rollouts()
        gone = [pk for pk, row in ours.items() if theirs.get(pk) != row]
        new = [pk for pk in theirs if ours.get(pk) != theirs[pk]]
        self._total = max(self._total, self._done + len(new) + len(theirs))
        for pk in gone:
            self._delete(pk, ours[pk][1])
            self._deleted += pk not in theirs
        early = [(table, rows) for table, rows in small if "rollout_pk" not in table.c]
        self._sync(early)
        for pk in new:
            self._copy(pk)
            self._step()
        self._sync([(table, rows) for table, rows in small if "rollout_pk" in table.c])
        return bool(gone or new)

    def _sync(self, tables: list[tuple[Table, dict[Any, Row]]]) -> None:
        with self._writing() as here:
            present = here.rollouts().keys()
            for table, rows in tables:
                if "rollout_pk" in table.c:
                    rows = {pk: row for pk, row in rows.items() if row["rollout_pk"] in present}
                here.make_alike(table, rows)

    def _delete(self, pk: int, run_pk: int) -> None:
        with self._writing(deletes=True) as here:
            rollouts = RolloutRepository(here.connection, run_pk)
            files = delete_rollouts(here.connection, rollouts, here.blobs, [pk])
        remove_files(self._target, files)

    @again_if_overtaken
    def _copy(self, pk: int) -> None:
        writer = PayloadWriter(self._target.directory)
        try:
            with self._reading() as there, self._writing() as target:
                source = self._there(there)
                if not target.add_rollout(source, pk, writer):
                    return
                n_samples, n_bytes = source.size(pk)
        except BaseException:
            take_back(self._target, writer.written)
            raise
        remove_files(self._target, target.blobs.replaced_files)
        self._copied += 1
        self._samples += n_samples
        self._bytes += n_bytes

    def _verify(self) -> int:
        """Compare every rollout on both sides, and the target's shared content with its digests."""
        with self._target.reading() as connection:
            pks = self._here(connection).rollouts()
        verified = 0
        for pk, identity in pks.items():
            expected = self._fingerprint(pk, identity)
            if expected is not None:
                with self._target.reading() as connection:
                    if self._here(connection).fingerprint(pk) != expected:
                        which = f"{identity[3]} rollout {identity[4]}, attempt {identity[5]}"
                        raise CopyError(self._target.config.display_url, f"{which} is not as in the source")
                verified += 1
            self._step()
        findings = Findings()
        check_blobs(self._target, findings)
        check_prompts(self._target, findings)
        for problem in findings.problems:
            raise CopyError(self._target.config.display_url, problem.what)
        return verified

    @again_if_overtaken
    def _fingerprint(self, pk: int, identity: tuple[Any, ...]) -> int | None:
        """Return that of a rollout in the source, or None when it is there no more, or not as it was."""
        with self._reading() as connection:
            there = self._there(connection)
            return there.fingerprint(pk) if there.identity(pk) == identity else None

    def _step(self) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(min(self._done, self._total), self._total)
