"""The door for data frames: questions about the samples of one run, or of all runs of a store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from sqlalchemy import Connection

from slime_store.database import closed_if_interrupted
from slime_store.mapping.encode import prompt_digest
from slime_store.repositories.prompts import PromptRepository
from slime_store.repositories.questions.rollouts import RolloutQuestions
from slime_store.repositories.questions.samples import SampleScan
from slime_store.repositories.questions.versions import VersionQuestions
from slime_store.repositories.rollouts import RolloutRepository
from slime_store.store.collection import paused
from slime_store.store.handle import StoreHandle
from slime_store.store.reading import RunReader
from slime_store.store.sample_store import SampleStore
from slime_store.types import SampleFilter

Source: TypeAlias = "RunReader | SampleStore"
"""What questions are put to: a run, or a store for all of its runs."""


class Questions:
    """What may be asked inside one read transaction: every answer is of the same moment.

    Attributes:
        where: the filter; one without conditions when none was given.
        scan: the columns of samples.
        versions: weight versions and sums over their samples.
        prompts: prompts by key.
        rollouts: rollouts by key.
    """

    def __init__(self, connection: Connection, handle: StoreHandle, run_pk: int | None, where: SampleFilter) -> None:
        digest = None if where.prompt is None else prompt_digest(where.prompt)
        blobs = handle.blobs(connection)
        self.where = where
        self.scan = SampleScan(connection, blobs, run_pk, where, digest)
        self.versions = VersionQuestions(connection, blobs, run_pk, where, digest)
        self.prompts = PromptRepository(connection)
        self.rollouts = RolloutQuestions(connection, run_pk)
        self._connection = connection
        self._handle = handle
        self._run_pk = run_pk

    def about(self, where: SampleFilter) -> Questions:
        """Return questions about other samples of the same source, asked at the same moment."""
        return Questions(self._connection, self._handle, self._run_pk, where)

    def require_eval(self, run: str, rollout_id: int, attempt: int | None) -> None:
        """Make sure that the run has this eval.

        Raises:
            RolloutNotFoundError: it has not; the error lists the nearest ids that it has.
        """
        assert self._run_pk is not None
        rollouts = RolloutRepository(self._connection, self._run_pk)
        if not any(attempt in (None, number) for _, number in rollouts.attempts("eval", rollout_id)):
            rollouts.find(run, "eval", rollout_id, attempt)  # raises


@closed_if_interrupted
def asking(source: Source, where: SampleFilter | None) -> Iterator[Questions]:
    """Open a read transaction on a source, which waits for a writer, or makes one wait, as `database.read` says.

    Raises:
        TypeError: the source is no run and no store, or the filter no filter.
        UnsupportedValueError: the filter's prompt cannot be stored, so no sample has it.
    """
    if where is not None and not isinstance(where, SampleFilter):
        raise TypeError(f"where is a SampleFilter, e.g. SampleFilter(kind='train'), not {type(where).__name__}")
    if isinstance(source, SampleStore):
        handle, run_pk = source._handle, None
    elif isinstance(source, RunReader):
        handle, run_pk = source._handle, source._pk
    else:
        raise TypeError(f"expected a Run or a SampleStore, not {type(source).__name__}")
    where = where or SampleFilter()
    with paused(), handle.reading() as connection:
        yield Questions(connection, handle, run_pk, where)
