"""Exact JSON documents back to Python values."""

from __future__ import annotations

import base64
import binascii
import json
import struct
import weakref
from collections.abc import Callable, Collection
from typing import Any, Protocol

import numpy as np

from slime_store.codecs.arrays import is_too_empty
from slime_store.codecs.documents import arrays, bodies, classes, keys, media, samples, stdlib
from slime_store.errors import BlobCorruptError, StoreError
from slime_store.types import Placeholder, Sample

_DAMAGE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError, MemoryError, struct.error)
_MAX_DIMENSIONS = 64  # of numpy's arrays


class BlobSource(Protocol):
    """Gives back what a ``BlobSink`` took."""

    def get(self, name: str) -> bytes | memoryview:
        """Return the bytes kept under this name."""


class DocumentDecoder:
    """Decodes documents.

    Args:
        source: where large payloads are.
        sample_type: the class that samples inside documents come back as.
    """

    def __init__(self, source: BlobSource, sample_type: type[Any] = Sample) -> None:
        self.sample_type = sample_type
        self._source = source
        self._tagged = json.JSONDecoder(object_hook=_hook(self)).decode

    def document(self, text: str, only: Collection[str] | None = None) -> Any:
        """Return the value of a document; with ``only``, a dict with just these keys, reading no other blob.

        Raises:
            BlobCorruptError: the text is not a document, or a payload does not fit its description.
            BlobMissingError: a payload is gone.
        """
        try:
            if '{"$' not in text:
                value = json.loads(text)
                return value if only is None else {k: v for k, v in value.items() if k in only}
            if only is None:
                return self._tagged(text)
            return {k: v for k, v in self._tagged(part_of(text, only)).items() if k in only}
        except StoreError:
            raise
        except _DAMAGE as exc:
            raise BlobCorruptError(f"a document does not decode: {type(exc).__name__}: {exc}") from exc

    def payload(self, body: dict[str, Any]) -> bytes | memoryview:
        """Return the bytes that ``DocumentEncoder.payload`` kept."""
        if "blob" in bodies.mapping(body):
            return self._source.get(body["blob"])
        try:
            return base64.b64decode(body["data"], validate=True)
        except binascii.Error as exc:
            raise BlobCorruptError("an inline payload is not base64") from exc

    def array(self, body: dict[str, Any], dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """Return a fresh, writable array of a payload."""
        if len(shape) > _MAX_DIMENSIONS:
            raise BlobCorruptError(f"an array of {len(shape)} dimensions")
        data = self.payload(body)
        expected = dtype.itemsize
        for n in shape:
            if not isinstance(n, int) or n < 0:
                raise BlobCorruptError(f"{shape} is not a shape")
            expected *= n
        if len(data) != expected:
            raise BlobCorruptError(f"an array of {dtype} {shape} has {len(data)} bytes, not {expected}")
        if is_too_empty(dtype, shape):
            raise BlobCorruptError(f"an array of {dtype} {shape} has no bytes")
        if expected == 0:
            return np.empty(shape, dtype)
        array: np.ndarray[Any, Any] = np.frombuffer(data, dtype).reshape(shape).copy()
        return array


def part_of(text: str, only: Collection[str]) -> str:
    """Return the document of a dict without the keys that are not among ``only``; keys that are no plain text stay.

    Raises:
        ValueError, TypeError, LookupError: it is no document of a dict.
    """
    tree = json.loads(text)
    if "$dict" not in tree:
        return json.dumps({key: value for key, value in tree.items() if key in only})
    pairs = tree["$dict"]  # one of the keys begins with "$"
    return json.dumps({"$dict": [pair for pair in pairs if type(pair[0]) is not str or pair[0] in only]})


def _hook(decoder: DocumentDecoder) -> Callable[[dict[str, Any]], Any]:
    """Return what decodes a tagged object. It does not keep the decoder alive, whose source may hold gigabytes."""
    this = weakref.ref(decoder)

    def decoded(body: dict[str, Any]) -> Any:
        if len(body) != 1:
            return body
        tag = next(iter(body))
        if tag[:1] != "$":
            return body
        decode = _DECODERS.get(tag)
        if decode is None:
            raise BlobCorruptError(f"a document has the unknown tag {tag!r}; it may be from a newer slime_store")
        return decode(body[tag], this())

    return decoded


def _decode_str(body: dict[str, Any], decoder: DocumentDecoder) -> str:
    return bytes(decoder.payload(body)).decode("utf-8", "surrogatepass")


def _decode_placeholder(body: dict[str, Any], decoder: DocumentDecoder) -> Placeholder:
    return Placeholder(bodies.text(body["type"]), bodies.text(body["text"]))


_DECODERS: dict[str, Any] = {
    "$str": _decode_str,
    "$text": _decode_str,
    "$int": lambda body, decoder: int(bodies.text(body), 16),
    "$dict": lambda body, decoder: keys.to_dict(bodies.pairs(body)),
    "$placeholder": _decode_placeholder,
    **stdlib.DECODERS,
    **arrays.DECODERS,
    **media.DECODERS,
    **classes.DECODERS,
    **samples.DECODERS,
}
