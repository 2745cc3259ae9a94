"""Documents of torch values and PIL images; neither library is imported before one of its values is met."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from slime_store.codecs.documents import bodies, keys
from slime_store.codecs.image_exif import OwnExif
from slime_store.codecs.images import FrameParts, ImageParts, image_to_parts, parts_to_image
from slime_store.codecs.tensors import (
    bits_dtype,
    bits_to_tensor,
    layout_of,
    parts_to_sparse,
    sparse_to_parts,
    tensor_to_bits,
)
from slime_store.errors import BlobCorruptError, UnsupportedValueError

if TYPE_CHECKING:
    from slime_store.codecs.documents.decoder import DocumentDecoder
    from slime_store.codecs.documents.encoder import DocumentEncoder


def find_encoder(value: Any) -> Callable[[Any, DocumentEncoder], Any] | None:
    """Return the handler for a torch value or an image, or None."""
    torch = sys.modules.get("torch")
    if torch is not None:
        if isinstance(value, torch.Tensor):
            return _encode_tensor
        if isinstance(value, torch.Size):
            return lambda v, encoder: {"$torch.size": list(v)}
        if isinstance(value, torch.dtype):
            return lambda v, encoder: {"$torch.dtype": str(v).removeprefix("torch.")}
        if isinstance(value, torch.device):
            return lambda v, encoder: {"$torch.device": str(v)}
    pil = sys.modules.get("PIL.Image")
    if pil is not None and isinstance(value, pil.Image):
        return _encode_image
    return None


def _encode_tensor(value: Any, encoder: DocumentEncoder) -> Any:
    try:
        if layout_of(value) != "strided":
            parts = sparse_to_parts(value)
            return encoder.whole(value, lambda: {"$sparse": encoder.mapping(parts)})
        bits, dtype, shape = tensor_to_bits(value)
    except UnsupportedValueError as error:
        return encoder.unsupported(value, error.reason)
    return {"$tensor": {"dtype": dtype, "shape": list(shape)} | encoder.payload(bits)}


def _decode_tensor(body: dict[str, Any], decoder: DocumentDecoder) -> Any:
    shape = tuple(bodies.whole(body["shape"]))
    return bits_to_tensor(decoder.array(body, bits_dtype(body["dtype"]), shape), body["dtype"], shape)


def _encode_image(value: Any, encoder: DocumentEncoder) -> Any:
    try:
        parts = image_to_parts(value)
    except UnsupportedValueError as error:
        return encoder.unsupported(value, error.reason)
    colours = encoder.whole(value, lambda: [_encode_colours(frame, encoder) for frame in parts.frames])
    if keys.is_placeholder(colours):
        return colours
    frames = [_encode_frame(*pair, encoder) for pair in zip(parts.frames, colours, strict=True)]
    return {"$image": {"format": encoder.encode(parts.format, ".format"), "frame": parts.frame, "frames": frames}}


def _encode_colours(frame: FrameParts, encoder: DocumentEncoder) -> dict[str, Any]:
    """Encode what an image cannot be made without, besides its pixels."""
    return {
        "palette": encoder.encode(frame.palette, ".palette"),
        "palette_object": encoder.encode(frame.palette_object, ".palette"),
        **_encode_exif(frame.exif, encoder),
    }


def _encode_exif(exif: OwnExif | None, encoder: DocumentEncoder) -> dict[str, Any]:
    if exif is None or not exif.tags:
        return {"exif": encoder.encode(exif and exif.data, ".exif")}
    tags = [[ifd, tag, encoder.encode(value, f".exif[{tag}]")] for ifd, tag, value in exif.tags]
    return {"exif": encoder.encode(exif.data, ".exif"), "exif_tags": tags}


def _decode_exif(body: dict[str, Any]) -> OwnExif | None:
    if body["exif"] is None:
        return None
    if type(body["exif"]) is not bytes:
        raise BlobCorruptError("EXIF data that is not of bytes")
    tags = [bodies.items(entry, 3) for entry in bodies.items(body.get("exif_tags", []))]
    if not all(type(tag) is int and (ifd is None or type(ifd) is int) for ifd, tag, _ in tags):
        raise BlobCorruptError("EXIF tags that are not numbered")
    return OwnExif(body["exif"], tuple((ifd, tag, value) for ifd, tag, value in tags))


def _encode_frame(frame: FrameParts, colours: dict[str, Any], encoder: DocumentEncoder) -> dict[str, Any]:
    return {
        "mode": frame.mode,
        "size": list(frame.size),
        "pixels": encoder.payload(np.frombuffer(frame.pixels, np.uint8)),
        "palette": colours.pop("palette"),
        "palette_object": colours.pop("palette_object"),
        "info": encoder.mapping(frame.info, wholly=True, step=".info"),
        **colours,
    }


def _decode_image(body: dict[str, Any], decoder: DocumentDecoder) -> Any:
    frames = tuple(_decode_frame(frame, decoder) for frame in bodies.items(body["frames"]))
    return parts_to_image(ImageParts(body["format"], frames, body["frame"]))


def _decode_frame(body: dict[str, Any], decoder: DocumentDecoder) -> FrameParts:
    width, height = bodies.whole(body["size"], 2)
    return FrameParts(
        mode=body["mode"],
        size=(width, height),
        pixels=bytes(decoder.payload(body["pixels"])),
        palette=body["palette"],
        palette_object=body["palette_object"],
        info=body["info"],
        exif=_decode_exif(body),
    )


def _decode_dtype(body: str, decoder: DocumentDecoder) -> Any:
    import torch

    dtype = vars(torch).get(body)  # getattr would let torch import what has the name
    if not isinstance(dtype, torch.dtype):
        raise BlobCorruptError(f"{body!r} is not a torch dtype")
    return dtype


def _decode_size(body: list[int], decoder: DocumentDecoder) -> Any:
    import torch

    return torch.Size(bodies.whole(body))


def _decode_device(body: str, decoder: DocumentDecoder) -> Any:
    import torch

    return torch.device(bodies.text(body))


DECODERS: dict[str, Callable[[Any, DocumentDecoder], Any]] = {
    "$tensor": _decode_tensor,
    "$sparse": lambda body, decoder: parts_to_sparse(body),
    "$image": _decode_image,
    "$torch.size": _decode_size,
    "$torch.dtype": _decode_dtype,
    "$torch.device": _decode_device,
}
