"""Codecs by their frozen ids."""

from __future__ import annotations

from slime_store.codecs.base import Codec
from slime_store.codecs.bits import BitsCodec
from slime_store.codecs.raw import RawCodec
from slime_store.codecs.zstd import ZstdCodec
from slime_store.errors import BlobCorruptError

RAW = RawCodec()
ZSTD = ZstdCodec()
BITS = BitsCodec()

_CODECS: dict[str, Codec] = {codec.codec_id: codec for codec in (RAW, ZSTD, BITS)}


def codec_ids() -> tuple[str, ...]:
    """Return every id that this version reads."""
    return tuple(_CODECS)


def get_codec(codec_id: str) -> Codec:
    """Return the codec with this id.

    Raises:
        BlobCorruptError: there is none; a newer slime_store may have written the bytes.
    """
    codec = _CODECS.get(codec_id)
    if codec is None:
        known = ", ".join(_CODECS)
        raise BlobCorruptError(f"codec {codec_id!r} is unknown here (known: {known}); it may need a newer slime_store")
    return codec
