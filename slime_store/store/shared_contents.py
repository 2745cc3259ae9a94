"""Prompts, images and tensors that rollouts share: found, added and, when nobody has them any more, deleted."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from slime_store.blobs import Payload, PayloadWriter
from slime_store.errors import BlobMissingError
from slime_store.mapping.encoded import EncodedRollout
from slime_store.repositories.blobs import BlobRepository
from slime_store.repositories.prompts import PromptRepository
from slime_store.repositories.rollouts import RolloutRepository
from slime_store.store.payloads import PreparedPayloads, batched, blob_payload, compress_blobs


class SharedContents:
    """The prompts and blobs of all the rollouts that one transaction records.

    Two transactions that add the same contents wait for each other, and deadlock unless both add them in the same
    order. So those of all rollouts go in at once, sorted, before anything that is a rollout's own.

    Args:
        connection: inside the transaction, which has the shared content locked.
        blobs: of the same transaction.
        rollouts: what is recorded.
        prepared: what is compressed of each.
        writer: of side files.

    Attributes:
        prompts: keys by digest.
        unneeded_files: side files of contents that somebody else has added meanwhile; to remove after the commit.

    Raises:
        BlobMissingError: a content is gone that was found before.
    """

    def __init__(
        self,
        connection: sa.Connection,
        blobs: BlobRepository,
        rollouts: Sequence[EncodedRollout],
        prepared: Sequence[PreparedPayloads],
        writer: PayloadWriter,
    ) -> None:
        self.unneeded_files: list[str] = []
        prompts = {digest: prompt for rollout in rollouts for digest, prompt in rollout.prompts.items()}
        self.prompts = PromptRepository(connection).ensure(prompts)
        self._stored: dict[str, tuple[int, int]] = {}
        arrays = {digest: array for rollout in rollouts for digest, array in rollout.blobs.items()}
        if not arrays:
            return
        known = blobs.known(arrays, hold=True)
        new: dict[str, Payload] = {}
        for digest, payload in (item for each in prepared for item in each.blobs.items()):
            if digest not in known and digest not in new:
                new[digest] = payload
            elif payload.file_name is not None:
                self.unneeded_files.append(payload.file_name)
        later = {digest for each in prepared for digest in each.later_blobs}
        for digest in arrays.keys() - known.keys() - new.keys() - later:  # deleted since we looked
            new[digest] = blob_payload(digest, arrays[digest], writer)
        blobs.add_shared(new)
        missing = sorted(later - known.keys())
        for names in batched(missing, [arrays[name].nbytes for name in missing]):
            blobs.add_shared(compress_blobs(names, arrays, writer))
        self._stored = blobs.known(arrays)
        if lost := sorted(arrays.keys() - self._stored.keys()):
            raise BlobMissingError(lost[0])

    def blobs_of(self, rollout: EncodedRollout) -> list[tuple[int, int]]:
        """Return key and stored bytes of each of a rollout's blobs."""
        return [self._stored[digest] for digest in rollout.blobs]


def delete_rollouts(
    connection: sa.Connection, rollouts: RolloutRepository, blobs: BlobRepository, pks: Sequence[int]
) -> list[str]:
    """Delete rollouts and what only they used; return the side files to remove after the commit.

    What another transaction holds, which may be about to use it, stays.
    """
    prompt_pks, blob_pks = rollouts.contents(pks)
    rollouts.delete(pks)
    PromptRepository(connection).delete_unused(prompt_pks)
    return blobs.delete_unused(blob_pks)
