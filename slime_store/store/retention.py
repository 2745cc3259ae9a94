"""What of a run is kept: deleting, pruning and pinning its rollouts."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from slime_store.database import reconnecting
from slime_store.mapping.text import searchable
from slime_store.repositories.locks import lock_shared_content
from slime_store.repositories.retention import RetentionRepository
from slime_store.repositories.rollouts import RolloutRepository
from slime_store.repositories.runs import RunRepository
from slime_store.store.infos import attempt_number, rollout_number
from slime_store.store.pruning import prune
from slime_store.store.reading import RunReader
from slime_store.store.sessions import utc_now
from slime_store.store.shared_contents import delete_rollouts
from slime_store.store.side_files import remove_files
from slime_store.types.conditions import one_kind
from slime_store.types.reports import PinInfo, PruneReport

Kind = Literal["train", "eval"]


class RunRetention(RunReader):
    """The part of a run that deletes, and says what must not be deleted."""

    def delete_rollout(self, rollout_id: int, *, kind: Kind = "train", attempt: int | None = None) -> int:
        """Delete a rollout with every attempt of it, or one attempt; return how many were deleted.

        Prompts, images and tensors that other rollouts use stay. A pin goes with the last attempt.

        Raises:
            RolloutNotFoundError: there is nothing to delete.
            ValueError: there is no such kind.
        """
        one_kind(kind)
        return self._delete_rollout(rollout_number(rollout_id), kind, attempt_number(attempt), set())

    @reconnecting
    def _delete_rollout(self, number: int, kind: Kind, attempt: int | None, tried: set[int]) -> int:
        with self._handle.writing("delete a rollout") as connection:
            lock_shared_content(connection, exclusive=True)  # so an earlier try has ended
            RunRepository(connection).lock(self._pk)
            rollouts = RolloutRepository(connection, self._pk)
            found = rollouts.attempts(kind, number)
            if tried and tried.isdisjoint(pk for pk, _ in found):
                return len(tried)
            pks = [pk for pk, n in found if attempt in (None, n)]
            if not pks:
                rollouts.find(self.name, kind, number, attempt)  # raises, with the nearest ids
            tried.update(pks)
            files = delete_rollouts(connection, rollouts, self._handle.blobs(connection), pks)
            if len(pks) == len(found):
                RetentionRepository(connection, self._pk).unpin(kind, number)
        remove_files(self._handle, files)
        return len(pks)

    def prune(
        self, keep_arrays_last: int = 20, keep_rollouts_last: int | None = None, *, dry_run: bool = False
    ) -> PruneReport:
        """Delete the arrays of older rollouts; their scalars, texts, prompts and metadata stay for ever.

        Arrays are the token arrays (tokens, masks, log-probs, routing tables) and the tensors, images, arrays and long
        lists in attributes other than the prompt and the metadata, and in the data source's state. Of train rollouts
        and of evals, each kind on its own, the newest attempts of the highest ``keep_arrays_last`` rollout ids keep
        theirs; so do pinned rollouts, every attempt of them, and what resuming from the last checkpoint needs: the
        checkpointed rollout and those that would be handed back after it. Superseded attempts go first, however new.
        Journalled groups are never touched. Loading a pruned rollout raises ``ArraysPrunedError``.

        One transaction for each rollout, so others can write in between; a prune that was interrupted is gone on with
        by pruning again.

        Args:
            keep_arrays_last: how many rollout ids of each kind keep their arrays.
            keep_rollouts_last: delete older rollouts entirely, except pinned ones and those that resuming needs. None:
                delete none.
            dry_run: delete nothing, and return how many rollouts would be pruned and deleted; ``freed_bytes`` is 0.

        Raises:
            ReadOnlyStoreError: the store was opened with ``read_only=True``.
            DatabaseError: the database failed; what was pruned before stays pruned.
        """
        return prune(self._handle, self._pk, keep_arrays_last, keep_rollouts_last, dry_run)

    def pin(self, rollout_id: int, *, kind: Kind = "train", note: str | None = None) -> None:
        """Keep ``prune`` from touching a rollout: every attempt, also later ones. Again: change the note.

        Args:
            rollout_id: which.
            kind: ``"train"`` or ``"eval"``.
            note: why, for people; symbols stand for NUL and lone surrogates, which not every database keeps.

        Raises:
            RolloutNotFoundError: it is not recorded.
            ValueError: there is no such kind.
        """
        one_kind(kind)
        self._pin(rollout_number(rollout_id), kind, note, utc_now())

    @reconnecting
    def _pin(self, number: int, kind: Kind, note: str | None, now: datetime) -> None:
        with self._handle.writing("pin a rollout") as connection:
            RunRepository(connection).lock(self._pk)
            RolloutRepository(connection, self._pk).find(self.name, kind, number, None)
            RetentionRepository(connection, self._pk).pin(kind, number, None if note is None else searchable(note), now)

    def unpin(self, rollout_id: int, *, kind: Kind = "train") -> bool:
        """Take a pin away; return whether there was one.

        Raises:
            ValueError: there is no such kind.
        """
        one_kind(kind)
        return self._unpin(rollout_number(rollout_id), kind, [])

    @reconnecting
    def _unpin(self, number: int, kind: Kind, found: list[bool]) -> bool:
        with self._handle.writing("unpin a rollout") as connection:
            RunRepository(connection).lock(self._pk)
            found.append(RetentionRepository(connection, self._pk).unpin(kind, number))
        return any(found)

    @reconnecting
    def pins(self) -> list[PinInfo]:
        """Return the pinned rollouts: train first, then by id."""
        with self._handle.reading() as connection:
            return [
                PinInfo(row.kind, row.rollout_id, row.note, row.pinned_at)
                for row in RetentionRepository(connection, self._pk).pins()
            ]
