"""Values to bytes and back: arrays, lists, tensors, images. numpy in, bytes out; no SQL, no files.

Importing this room costs numpy and a compressor; torch and PIL are imported only when a tensor or an
image is met.
"""

from __future__ import annotations

from slime_store.codecs.arrays import EncodedArray, decode_array, encode_array, narrow, widen
from slime_store.codecs.base import Array, Codec
from slime_store.codecs.lists import array_to_list, list_to_array
from slime_store.codecs.registry import codec_ids, get_codec

__all__ = [
    "Array",
    "Codec",
    "EncodedArray",
    "array_to_list",
    "codec_ids",
    "decode_array",
    "encode_array",
    "get_codec",
    "list_to_array",
    "narrow",
    "widen",
]
