"""The work between encoding and the transaction: compressing, and writing large payloads to side files.

Where there are no side files, large payloads are compressed batch by batch inside the transaction instead: all of them
together would take as much memory as the rollout takes on disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from slime_store.blobs import FILE_BYTES, MAX_BYTES, Payload, PayloadWriter
from slime_store.codecs.arrays import dtype_name
from slime_store.codecs.registry import ZSTD
from slime_store.errors import UnsupportedValueError
from slime_store.mapping.blob_memo import digest_of
from slime_store.mapping.encoded import EncodedRollout
from slime_store.mapping.packs import Pack
from slime_store.mapping.threads import map_in_threads, threads_for

T = TypeVar("T")

BATCH_BYTES = 64 << 20
"""Raw bytes that are compressed together in the transaction, and all that may wait for it compressed already."""


@dataclass
class PreparedPayloads:
    """Compressed packs, and compressed contents of those blobs that the store does not hold yet.

    ``later_packs``, one list at a time, and ``later_blobs`` (digests) are still to be compressed. Whether a blob is
    among the later ones depends on nothing but its size, so that all writers add the same blobs in the same order and
    wait for each other instead of deadlocking.
    """

    packs: list[tuple[Pack, Payload]] = field(default_factory=list)
    blobs: dict[str, Payload] = field(default_factory=dict)
    later_packs: list[list[Pack]] = field(default_factory=list)
    later_blobs: list[str] = field(default_factory=list)


def prepare(rollout: EncodedRollout, known: Iterable[str], writer: PayloadWriter) -> PreparedPayloads:
    """Compress a rollout's packs, and its blobs except those already ``known`` by digest.

    Raises:
        UnsupportedValueError: one is larger than what can be stored; nothing was written.
    """
    new = sorted(rollout.blobs.keys() - set(known))
    sizes = {name: rollout.blobs[name].nbytes for name in new}
    total = sum(pack.raw_bytes for pack in rollout.packs) + sum(sizes.values())
    later_packs: list[Pack] = []
    later_blobs: list[str] = []
    if not writer.has_files:
        largest = max([pack.raw_bytes for pack in rollout.packs] + list(sizes.values()), default=0)
        if largest > MAX_BYTES:
            raise UnsupportedValueError("", f"an array of {largest} bytes; at most {MAX_BYTES} are stored as one")
        if total > BATCH_BYTES:
            later_packs = [pack for pack in rollout.packs if pack.raw_bytes >= FILE_BYTES]
        later_blobs = [name for name in new if sizes[name] >= FILE_BYTES]  # always: see ``PreparedPayloads``
    waiting = set(map(id, later_packs))
    prepared = PreparedPayloads(
        later_packs=list(batched(later_packs, [pack.raw_bytes for pack in later_packs])),
        later_blobs=later_blobs,
    )
    prepared.packs = compress_packs([pack for pack in rollout.packs if id(pack) not in waiting], writer)
    prepared.blobs = compress_blobs(sorted(sizes.keys() - set(later_blobs)), rollout.blobs, writer)
    return prepared


def renew(prepared: PreparedPayloads, rollout: EncodedRollout, writer: PayloadWriter) -> None:
    """Write again what is no longer where it was put.

    A process may be stopped for longer than ``verify`` waits before it takes a side file for one that a crash has left.
    Call it in the transaction that is to name the files: nobody removes them from there on.
    """
    for position, (pack, payload) in enumerate(prepared.packs):
        if not writer.is_there(payload):
            writer.give_up(payload)
            prepared.packs[position] = compress_packs([pack], writer)[0]
    for digest, payload in prepared.blobs.items():
        if not writer.is_there(payload):
            writer.give_up(payload)
            prepared.blobs[digest] = blob_payload(digest, rollout.blobs[digest], writer)


def compress_packs(packs: Sequence[Pack], writer: PayloadWriter) -> list[tuple[Pack, Payload]]:
    """Compress packs, in threads where it pays."""

    def payload(pack: Pack) -> Payload:
        encoded = pack.encode()
        return writer.keep(encoded.codec_id, encoded.dtype, pack.raw_bytes, encoded.data)

    payloads = map_in_threads(payload, packs, threads_for(sum(pack.raw_bytes for pack in packs)))
    return list(zip(packs, payloads, strict=True))


def compress_blobs(
    names: Sequence[str], arrays: Mapping[str, np.ndarray[Any, Any]], writer: PayloadWriter
) -> dict[str, Payload]:
    """Compress contents by digest, in threads where it pays."""
    threads = threads_for(sum(arrays[name].nbytes for name in names))
    payloads = map_in_threads(lambda name: blob_payload(name, arrays[name], writer), names, threads)
    return dict(zip(names, payloads, strict=True))


def blob_payload(digest: str, array: np.ndarray[Any, Any], writer: PayloadWriter) -> Payload:
    """Compress one blob.

    The array may be the caller's, who may have changed it since its digest was taken; stored under that digest it would
    be wrong for every rollout to come. So one copy is both checked and compressed.

    Raises:
        UnsupportedValueError: it was changed.
    """
    array = np.array(array, order="C")
    if digest_of(array) != digest:
        raise UnsupportedValueError("", "an array, a tensor or an image was changed while it was being recorded")
    name = dtype_name(array.dtype)
    if name is None:  # bytes of a dtype that no codec knows by name
        array, name = array.reshape(-1).view(np.uint8), "uint8"
    return writer.keep(ZSTD.codec_id, name, array.nbytes, ZSTD.encode(array))


def batched(items: Sequence[T], sizes: Sequence[int]) -> Iterator[list[T]]:
    """Cut items into lists of about ``BATCH_BYTES`` together, at least one each."""
    batch: list[T] = []
    total = 0
    for item, size in zip(items, sizes, strict=True):
        if batch and total + size > BATCH_BYTES:
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size
    if batch:
        yield batch


def own_bytes(rollout: EncodedRollout) -> int:
    """Bytes of text and documents, as UTF-8."""
    texts = [rollout.shape, rollout.metrics, rollout.state or ""]
    for sample in rollout.samples:
        texts += [sample.metadata or "", sample.extra or "", *(t or "" for t in sample.text or ())]
    return sum(len(text) if text.isascii() else len(text.encode()) for text in texts)
