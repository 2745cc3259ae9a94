"""Array packs as they are stored, and their way into memory: some at a time, on a few threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slime_store.codecs.arrays import EncodedArray
from slime_store.mapping.packs import OpenPack, open_pack
from slime_store.mapping.threads import map_in_threads, threads_for


@dataclass(frozen=True)
class StoredPack:
    """An array pack as it is stored.

    Attributes:
        n_bytes: of its stored bytes.
        data: these bytes, or for a large pack what reads them, inside the transaction that found it.
    """

    field: str
    first_position: int
    codec: str
    dtype: str
    layout: str
    n_bytes: int
    data: bytes | Callable[[], bytes]

    @property
    def encoded(self) -> EncodedArray:
        """The pack's bytes: those of a large one are read anew each time, and kept only as long as the caller does."""
        data = self.data() if callable(self.data) else self.data
        return EncodedArray(self.codec, self.dtype, (), data)


def opened_packs(
    packs: Sequence[StoredPack], together_bytes: int, dtypes: Mapping[str, np.dtype[Any] | None] | None = None
) -> Iterator[tuple[StoredPack, OpenPack]]:
    """Decompress packs in their order, some together on several threads.

    Args:
        packs: any number.
        together_bytes: stored bytes of the packs that are in memory, and decompressed, at a time; at least one is.
        dtypes: by field, the dtype to convert the values to, as ``open_pack`` does; None: none.

    Raises:
        BlobCorruptError: stored bytes are damaged.
    """

    def opened(pack: StoredPack) -> OpenPack:
        with np.errstate(over="ignore"):  # as in torch, a float64 beyond float32 becomes infinite
            return open_pack(pack.encoded, pack.layout, None if dtypes is None else dtypes[pack.field])

    for chosen in _together(packs, together_bytes):
        threads = threads_for(sum(pack.n_bytes for pack in chosen))
        yield from zip(chosen, map_in_threads(opened, chosen, threads), strict=True)


def _together(packs: Sequence[StoredPack], together_bytes: int) -> Iterator[list[StoredPack]]:
    chosen: list[StoredPack] = []
    n_bytes = 0
    for pack in packs:
        if chosen and n_bytes + pack.n_bytes > together_bytes:
            yield chosen
            chosen, n_bytes = [], 0
        chosen.append(pack)
        n_bytes += pack.n_bytes
    if chosen:
        yield chosen
