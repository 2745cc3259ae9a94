"""Documents of numpy values and packed lists; tensors and images in ``media``."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from slime_store.codecs.arrays import DTYPES, dtype_name, dtype_of, is_too_empty, narrow
from slime_store.codecs.documents import bodies, keys
from slime_store.codecs.lists import array_to_list
from slime_store.errors import BlobCorruptError, UnsupportedValueError

if TYPE_CHECKING:
    from slime_store.codecs.documents.decoder import DocumentDecoder
    from slime_store.codecs.documents.encoder import DocumentEncoder

_ARRAY_TYPES = (np.ndarray, np.memmap)


_MAX_DTYPE_DEPTH = 32
_OTHER_DTYPE = re.compile(r"[<>|=]?([mM]8(\[\d{0,10}[A-Za-z]{1,9}\])?|[SUV]\d{1,10}|O)", re.ASCII)
"""Dtypes as ``_encode_dtype`` writes them by their ``str``."""


def find_encoder(value: Any) -> Callable[[Any, DocumentEncoder], Any] | None:
    """Return the handler for a numpy value, or None."""
    if isinstance(value, np.generic):
        return _encode_scalar
    if type(value) in _ARRAY_TYPES:
        return _encode_array
    if isinstance(value, np.dtype):
        return lambda v, encoder: _described(v, v, encoder, lambda dtype: {"$dtype": dtype})
    return None


def encode_list(array: np.ndarray[Any, Any], item_type: str, encoder: DocumentEncoder) -> Any:
    """Encode a long list of one number type, as ``codecs.lists`` converted it."""
    small = narrow(array)
    body = {"item": item_type, "dtype": dtype_name(small.dtype), "n": len(small)}
    return {"$list": body | encoder.payload(small)}


def _decode_list(body: dict[str, Any], decoder: DocumentDecoder) -> list[Any]:
    return array_to_list(decoder.array(body, dtype_of(body["dtype"]), (body["n"],)), body["item"])


def _described(
    value: Any, dtype: np.dtype[Any], encoder: DocumentEncoder, make: Callable[[Any], dict[str, Any]]
) -> Any:
    """Make the document of a value from its dtype's, or refuse the whole value when the dtype cannot be stored."""
    try:
        body = encoder.whole(value, lambda: _encode_dtype(dtype, encoder))
    except UnsupportedValueError as error:
        return encoder.unsupported(value, error.reason)
    return body if keys.is_placeholder(body) else make(body)


def _encode_dtype(dtype: np.dtype[Any], encoder: DocumentEncoder, depth: int = 0) -> Any:
    """A plain dtype is its ``str`` (byte order included); a structured one its fields, offsets and all."""
    if depth > _MAX_DTYPE_DEPTH:
        raise UnsupportedValueError("", f"a dtype that nests deeper than {_MAX_DTYPE_DEPTH} levels")
    name = dtype_name(dtype)
    if name is not None and not dtype.metadata:
        return name if dtype.isnative else [name, "swapped"]
    if dtype.hasobject and dtype != np.dtype(object):
        raise UnsupportedValueError("", "structured arrays that hold objects cannot be stored exactly")
    if dtype.metadata:
        raise UnsupportedValueError("", "a dtype with metadata cannot be stored exactly")
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return {"base": _encode_dtype(base, encoder, depth + 1), "shape": list(shape)}
    if dtype.fields is not None:
        if dtype.type not in (np.void, np.record):
            raise UnsupportedValueError("", f"a structure of class {dtype.type.__name__} cannot be stored exactly")
        described: dict[str, tuple[Any, ...]] = dict(dtype.fields)
        fields = [(n, *described[n], None)[:4] for n in dtype.names or ()]
        return {
            "names": [encoder.text(n) for n, _, _, _ in fields],
            "formats": [_encode_dtype(d, encoder, depth + 1) for _, d, _, _ in fields],
            "offsets": [offset for _, _, offset, _ in fields],
            "itemsize": dtype.itemsize,
            "aligned": dtype.isalignedstruct,
            "record": dtype.type is np.record,
            "titles": encoder.items(title for _, _, _, title in fields),
        }
    if dtype.kind in "MmSUO" or dtype.type is np.void:
        return dtype.str
    raise UnsupportedValueError("", f"dtype {dtype} cannot be stored exactly")


def _decode_dtype(body: Any) -> np.dtype[Any]:
    if isinstance(body, str):
        if body in DTYPES:
            return DTYPES[body]
        if not _OTHER_DTYPE.fullmatch(body):  # numpy has a little language for dtypes, and a parser for it
            raise BlobCorruptError(f"{body[:40]!r} is not the name of a dtype")
        return np.dtype(body)
    if isinstance(body, list):
        swapped: np.dtype[Any] = DTYPES[bodies.items(body, 2)[0]].newbyteorder("S")
        return swapped
    if "base" in bodies.mapping(body):
        return np.dtype((_decode_dtype(body["base"]), tuple(bodies.whole(body["shape"]))))
    spec = {
        "names": bodies.items(body["names"]),
        "formats": [_decode_dtype(d) for d in bodies.items(body["formats"])],
        "offsets": bodies.whole(body["offsets"]),
        "itemsize": body["itemsize"],
    }
    if any(title is not None for title in bodies.items(body["titles"])):
        spec["titles"] = body["titles"]
    dtype: np.dtype[Any] = np.dtype(spec, align=body["aligned"] is True)  # type: ignore[call-overload]
    return np.dtype((np.record, dtype)) if body["record"] is True else dtype


def _encode_scalar(value: np.generic, encoder: DocumentEncoder) -> Any:
    if isinstance(value, np.str_):
        return {"$np.str": encoder.text(str.__str__(value))}  # str() would cut NULs at the end
    if isinstance(value, np.bytes_):
        return {"$np.bytes": encoder.payload(np.frombuffer(bytes(value), np.uint8))}
    dtype = np.asarray(value).dtype
    if is_too_empty(dtype, ()):
        return encoder.unsupported(value, "a numpy scalar of too many parts that have no bytes")
    if dtype.hasobject or (dtype_name(dtype) is not None and DTYPES[dtype_name(dtype) or ""].type is not type(value)):
        return encoder.unsupported(value, f"a numpy scalar of type {type(value).__name__} cannot be stored exactly")
    frozen = {"frozen": True} if isinstance(value, np.void) and not value.flags.writeable else {}
    return _described(
        value,
        dtype,
        encoder,
        lambda body: {"$np": {"dtype": body} | frozen | encoder.payload(_bytes_of(np.asarray(value)))},
    )


def _decode_scalar(body: dict[str, Any], decoder: DocumentDecoder) -> Any:
    dtype = _decode_dtype(body["dtype"])
    if dtype.hasobject:
        raise BlobCorruptError("a document describes stored bytes as objects")
    array = decoder.array(body, dtype, ())
    if body.get("frozen") is True:  # numpy takes no other record as a key
        array.flags.writeable = False
    return array[()]


def _encode_array(value: np.ndarray[Any, Any], encoder: DocumentEncoder) -> Any:
    shape = list(value.shape)
    if value.dtype == np.dtype(object) and not value.dtype.metadata:
        return {"$ndarray": {"objects": encoder.items(value.reshape(-1).tolist()), "shape": shape}}
    if is_too_empty(value.dtype, shape):
        return encoder.unsupported(value, f"an array of {value.size} elements that have no bytes")
    return _described(
        value,
        value.dtype,
        encoder,
        lambda body: {"$ndarray": {"dtype": body, "shape": shape} | encoder.payload(_bytes_of(value))},
    )


def _decode_array(body: dict[str, Any], decoder: DocumentDecoder) -> np.ndarray[Any, Any]:
    shape = tuple(bodies.whole(body["shape"]))
    if "objects" in body:
        objects = bodies.items(body["objects"])
        array = np.empty(len(objects), object)
        for i, item in enumerate(objects):
            array[i] = item
        return array.reshape(shape)
    dtype = _decode_dtype(body["dtype"])
    if dtype.hasobject:
        raise BlobCorruptError("a document describes stored bytes as objects")
    return decoder.array(body, dtype, shape)


def _bytes_of(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array's bytes in C order; plain numbers keep their dtype, which helps the compressor."""
    array = np.ascontiguousarray(value)
    if dtype_name(array.dtype) is not None and array.dtype.isnative:
        return array
    return np.frombuffer(array.tobytes(), np.uint8)


DECODERS: dict[str, Callable[[Any, DocumentDecoder], Any]] = {
    "$list": _decode_list,
    "$np": _decode_scalar,
    "$np.str": lambda body, decoder: np.str_(bodies.text(body)),
    "$np.bytes": lambda body, decoder: np.bytes_(decoder.payload(body)),
    "$ndarray": _decode_array,
    "$dtype": lambda body, decoder: _decode_dtype(body),
}
