"""The work between encoding and the transaction: compressing, and writing large payloads to side files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from slime_store.blobs import Payload, PayloadWriter
from slime_store.codecs.arrays import dtype_name
from slime_store.codecs.registry import ZSTD
from slime_store.errors import UnsupportedValueError
from slime_store.mapping.blob_memo import digest_of
from slime_store.mapping.encoded import EncodedRollout
from slime_store.mapping.packs import Pack
from slime_store.mapping.threads import map_in_threads, threads_for


@dataclass
class PreparedPayloads:
    """Compressed packs, and compressed contents of those blobs that the store does not hold yet."""

    packs: list[tuple[Pack, Payload]] = field(default_factory=list)
    blobs: dict[str, Payload] = field(default_factory=dict)


def prepare(rollout: EncodedRollout, known: Iterable[str], writer: PayloadWriter) -> PreparedPayloads:
    """Compress a rollout's packs, and its blobs except those already ``known`` by digest."""
    new = sorted(rollout.blobs.keys() - set(known))
    raw = sum(pack.raw_bytes for pack in rollout.packs) + sum(rollout.blobs[name].nbytes for name in new)

    def pack_payload(pack: Pack) -> Payload:
        raw_bytes = pack.raw_bytes
        encoded = pack.encode()
        return writer.keep(encoded.codec_id, encoded.dtype, raw_bytes, encoded.data)

    threads = threads_for(raw)
    packs = map_in_threads(pack_payload, rollout.packs, threads)
    blobs = map_in_threads(lambda name: blob_payload(name, rollout.blobs[name], writer), new, threads)
    return PreparedPayloads(list(zip(rollout.packs, packs, strict=True)), dict(zip(new, blobs, strict=True)))


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
