"""Copying a store into another one: between SQLite and PostgreSQL, either way; resumable, and compared at the end."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import Connection, Table

from slime_store.blobs import PayloadWriter
from slime_store.config import StoreConfig
from slime_store.database import translated
from slime_store.errors import CopyError
from slime_store.models import RunRow
from slime_store.repositories.copying import OF_RUNS, CopyRepository
from slime_store.repositories.rollouts import RolloutRepository
from slime_store.store.copy_target import CopyTarget, refuse_outdated
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

_PASSES = 3
"""How often the source is looked through: what is recorded while copying is copied too."""


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
            meanwhile: what is recorded or imported into it is kept, and the copy refused.
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
    refuse_outdated(config)
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
            _Copy(source, target, lambda: _same(connection, source.config), None).run()
    finally:
        target.close()
    return ()


@contextmanager
def _same(connection: Connection, config: StoreConfig) -> Iterator[Connection]:
    with translated(config):
        yield connection


def _same_file(one: StoreConfig, other: StoreConfig) -> bool:
    return os.path.realpath(str(one.path)) == os.path.realpath(str(other.path))


class _Copy:
    """One copy from a source, read by ``reading``, into a target."""

    def __init__(self, source: StoreHandle, target: StoreHandle, reading: Reading, progress: Progress | None) -> None:
        self._source, self._reading = source, reading
        self._target = CopyTarget(target, self._looking)
        self._url = target.config.display_url
        self._progress = progress
        self._done = self._total = 0
        self._copied = self._deleted = self._samples = self._bytes = 0

    def run(self) -> CopyReport:
        self._target.check()
        with self._looking() as there:
            present = there.rollouts().keys()
        with self._target.looking() as here:
            n_present = len(present & here.rollouts().keys())
        for _ in range(_PASSES):
            if not self._bring_up_to_date():
                break
        verified = self._verify()
        with self._target.looking() as here:
            n_runs = here.count(cast(Table, RunRow.__table__))
        return CopyReport(
            self._url,
            n_runs=n_runs,
            n_copied=self._copied,
            n_present=n_present,
            n_deleted=self._deleted,
            n_samples=self._samples,
            n_bytes=self._bytes,
            n_verified=verified,
        )

    @contextmanager
    def _looking(self) -> Iterator[CopyRepository]:
        with self._reading() as connection:
            yield CopyRepository(connection, self._source.blobs(connection))

    def _bring_up_to_date(self) -> bool:
        """Copy what the target lacks and delete what the source lacks; tell whether there was anything to do."""
        with self._looking() as there:
            theirs = self._target.learn(there)
            small = [(table, there.rows(table)) for table in OF_RUNS]
        with self._target.looking() as here:
            ours = here.rollouts()
        gone = [pk for pk, row in ours.items() if theirs.get(pk) != row]
        new = [pk for pk in theirs if ours.get(pk) != theirs[pk]]
        self._total = max(self._total, self._done + len(new) + len(theirs))
        for pk in gone:
            self._delete(pk, ours[pk])
            self._deleted += pk not in theirs
        early = [(table, rows) for table, rows in small if "rollout_pk" not in table.c]
        self._sync(early)
        for pk in new:
            self._copy(pk)
            self._step()
        self._sync([(table, rows) for table, rows in small if "rollout_pk" in table.c])
        return bool(gone or new)

    def _sync(self, tables: list[tuple[Table, dict[tuple[Any, ...], dict[str, Any]]]]) -> None:
        with self._target.changing() as here:
            present = here.rollouts()
            self._target.refuse_others(present)
            for table, rows in tables:
                if "rollout_pk" in table.c:
                    rows = {pk: row for pk, row in rows.items() if row["rollout_pk"] in present}
                here.make_alike(table, rows)

    def _delete(self, pk: int, identity: tuple[Any, ...]) -> None:
        with self._target.changing(exclusive=True) as here:
            self._target.refuse_others({pk: identity})
            rollouts = RolloutRepository(here.connection, identity[1])
            files = delete_rollouts(here.connection, rollouts, here.blobs, [pk])
        remove_files(self._target.handle, files)

    @again_if_overtaken
    def _copy(self, pk: int) -> None:
        writer = PayloadWriter(self._target.handle.directory)
        try:
            with self._looking() as source, self._target.changing() as target:
                identity = source.identity(pk)
                if identity is None or self._target.is_there(target, pk, identity):
                    return
                target.add_rollout(source, pk, writer)
                n_samples, n_bytes = source.size(pk)
        except BaseException:
            take_back(self._target.handle, writer.written)
            raise
        remove_files(self._target.handle, target.blobs.replaced_files)
        self._copied += 1
        self._samples += n_samples
        self._bytes += n_bytes

    def _verify(self) -> int:
        """Compare every rollout on both sides, and the target's shared content with its digests."""
        with self._target.looking() as here:
            pks = here.rollouts()
        verified = 0
        for pk, identity in pks.items():
            expected = self._fingerprint(pk, identity)
            if expected is not None:
                with self._target.looking() as here:
                    if here.fingerprint(pk) != expected:
                        which = f"{identity[3]} rollout {identity[4]}, attempt {identity[5]}"
                        raise CopyError(self._url, f"{which} is not as in the source")
                verified += 1
            self._step()
        findings = Findings()
        check_blobs(self._target.handle, findings)
        check_prompts(self._target.handle, findings)
        for problem in findings.problems:
            raise CopyError(self._url, problem.what)
        return verified

    @again_if_overtaken
    def _fingerprint(self, pk: int, identity: tuple[Any, ...]) -> int | None:
        """Return that of a rollout in the source, or None when it is there no more, or not as it was."""
        with self._looking() as there:
            return there.fingerprint(pk) if there.identity(pk) == identity else None

    def _step(self) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(min(self._done, self._total), self._total)
