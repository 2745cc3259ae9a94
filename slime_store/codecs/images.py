"""PIL images as plain data and pixel bytes, and back. PIL is imported inside, never with this module.

Pixels are kept as PIL holds them: no mode is converted, nothing is encoded as PNG or JPEG (which lose
modes, or pixels). An image that was opened from a file comes back as a plain ``PIL.Image.Image`` with the same
mode, size, pixels, palette, ``info``, EXIF and ``format``; one of several frames as a ``FramedImage``.
Not kept: the file's name, where in the file the pixels were, and attributes of PIL's plug-in classes such as
``tag_v2`` or ``quantization``.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from slime_store.codecs.image_exif import OwnExif, exif_beside_info, put_exif
from slime_store.codecs.image_info import info_to_plain, plain_to_info
from slime_store.errors import BlobCorruptError, UnsupportedValueError

if TYPE_CHECKING:
    from PIL import Image

_PIXEL_BYTES = (
    {"1": 1, "L": 1, "P": 1}
    | dict.fromkeys(("LA", "La", "PA", "I;16", "I;16L", "I;16B", "I;16N"), 2)
    | dict.fromkeys(("RGB", "YCbCr", "LAB", "HSV"), 3)
    | dict.fromkeys(("RGBA", "RGBa", "RGBX", "CMYK", "I", "F"), 4)
)
_NATIVE_ORDER = {"I": 4, "F": 4, "I;16N": 2}  # modes whose tobytes() are in the machine's byte order
_PALETTE_RAW_MODES = {"RGB": "RGBX", "RGBA": "RGBA", "CMYK": "CMYK"}
_MAX_EMPTY_SIDE = 1 << 20  # PIL allocates 8 bytes a row, even for rows of no pixels


@dataclass(frozen=True)
class FrameParts:
    """One frame as plain data.

    Attributes:
        mode: PIL's mode, never converted.
        size: width and height.
        pixels: ``tobytes()``, numbers little-endian; for mode "1" one byte a pixel, as PIL holds them.
        palette: mode and bytes, four a colour, of the palette that the pixels mean; modes P and PA only.
        palette_object: mode and bytes of ``image.palette``, which may be shorter, differ or be None.
        info: ``image.info`` with PIL's own types told by plain ones (``image_info``).
        exif: what ``getexif()`` holds, where ``info`` does not say the same.
    """

    mode: str
    size: tuple[int, int]
    pixels: bytes
    palette: tuple[str, bytes] | None
    palette_object: tuple[str, bytes] | None
    info: dict[Any, Any]
    exif: OwnExif | None


@dataclass(frozen=True)
class ImageParts:
    """An image as plain data: ``format`` as PIL names it or None, its frames, and the one that is shown."""

    format: str | None
    frames: tuple[FrameParts, ...]
    frame: int


def image_to_parts(image: Image.Image) -> ImageParts:
    """Return an image's parts; every pixel is read now, so that the file may go afterwards.

    All frames are read. The caller's image shows the same frame with the same pixels afterwards.

    Raises:
        UnsupportedValueError: pixels that cannot be read (truncated, closed, no such frame), or a
            mode that is not known.
    """
    what = f"{image.format or 'PIL'} image of mode {image.mode or None!r} and size {image.size}"
    try:
        image.load()
        with _kept(image):
            shown_parts = _frame_to_parts(image)
            count = getattr(image, "n_frames", 1)  # some plug-ins look for the frames now, and forget the pixels
            if count == 1:
                return ImageParts(image.format, (shown_parts,), 0)
            shown = image.tell()
            source = _opened_again(image) or image
            frames = []
            for number in range(count):
                if number != shown:
                    source.seek(number)
                    source.load()
                frames.append(shown_parts if number == shown else _frame_to_parts(source))
            return ImageParts(image.format, tuple(frames), shown)
    except UnsupportedValueError:
        raise
    except Exception as error:  # PIL's plug-ins raise whatever their parsing runs into
        raise UnsupportedValueError("", f"{what}: cannot be read ({type(error).__name__}: {error})") from error


def parts_to_image(parts: ImageParts) -> Image.Image:
    """Return the image of ``image_to_parts``, in memory of its own.

    Raises:
        BlobCorruptError: parts that do not fit each other; found before memory is allocated.
    """
    if not parts.frames or not 0 <= parts.frame < len(parts.frames):
        raise BlobCorruptError(f"frame {parts.frame} of an image with {len(parts.frames)} frames")
    frames = [_parts_to_frame(frame) for frame in parts.frames]
    if len(frames) == 1:
        frames[0].format = parts.format
        return frames[0]
    from slime_store.codecs.framed_image import FramedImage

    return FramedImage(frames, parts.frame, parts.format)


@contextmanager
def _kept(image: Image.Image) -> Iterator[None]:
    """Put an image back to the frame, pixels and state that it shows now.

    Seeking back is not enough: it would read the frame from the file again, without the caller's changes.
    """
    if not hasattr(type(image), "n_frames") and image.__dict__.get("n_frames", 1) == 1:
        yield
        return
    state = image._mode, image._size, image.palette, image.info, image._exif
    pixels, info, shown = image.im.copy(), dict(image.info), image.tell()
    try:
        yield
    finally:
        if image.tell() != shown:
            image.seek(shown)
        image.load()
        image.im = pixels
        image._mode, image._size, image.palette, image.info, image._exif = state
        image.info.clear()
        image.info.update(info)


def _opened_again(image: Image.Image) -> Image.Image | None:
    """Return a second image of the same open file, to seek in; None where PIL keeps no such file.

    Reading the frames in order, and not asking it for ``n_frames``, also avoids PIL's rewinding: APNG does not
    survive it, and in older versions a TIFF of several modes does not.
    """
    from PIL import Image

    file = getattr(image, "_fp", None)
    try:
        position = file.tell()  # type: ignore[union-attr]
        try:
            file.seek(0)  # type: ignore[union-attr]
            content = file.read()  # type: ignore[union-attr]
        finally:
            file.seek(position)  # type: ignore[union-attr]
        again = Image.open(io.BytesIO(content))
        return again if type(again) is type(image) else None
    except Exception:  # closed or not a plain file: the caller's image is the only way to the frames
        return None


def _frame_to_parts(image: Image.Image) -> FrameParts:
    from PIL import Image

    mode, (width, height) = image.mode, image.size
    if mode not in _PIXEL_BYTES:
        raise UnsupportedValueError("", f"a PIL image of mode {mode!r}")
    if 0 in (width, height) and max(width, height) > _MAX_EMPTY_SIDE:
        raise UnsupportedValueError("", f"an empty PIL image of size {image.size}")
    # In mode "1" PIL holds bytes, and white may be 255 or 1; tobytes() would not tell them apart.
    pixels = (image.point(list(range(256)), "L") if mode == "1" else image).tobytes()
    palette = palette_object = None
    if mode in ("P", "PA"):
        palette_mode = image.im.getpalettemode()
        if palette_mode not in _PALETTE_RAW_MODES:
            raise UnsupportedValueError("", f"a PIL image with a palette of mode {palette_mode!r}")
        # PIL keeps a fourth byte with each RGB colour, and shows it as alpha in convert("RGBA").
        palette = palette_mode, bytes(image.im.getpalette(palette_mode, _PALETTE_RAW_MODES[palette_mode]))
        if image.palette is not None:
            palette_object = image.palette.mode, bytes(image.palette.palette)
    parts = FrameParts(
        mode=mode,
        size=(width, height),
        pixels=_little_endian(mode, pixels),
        palette=palette,
        palette_object=palette_object,
        info=info_to_plain(image.info),
        exif=exif_beside_info(image),
    )
    if parts.palette or parts.info or parts.exif:
        try:
            _dress(Image.new(mode, (1, 1)), parts)  # as it will be when it is read
        except Exception as error:
            raise UnsupportedValueError("", f"a PIL image that cannot be made again ({error})") from error
    return parts


def _parts_to_frame(parts: FrameParts) -> Image.Image:
    from PIL import Image

    mode, (width, height) = parts.mode, parts.size
    if mode not in _PIXEL_BYTES:
        raise BlobCorruptError(f"image mode {mode!r} is unknown")
    expected = width * height * _PIXEL_BYTES[mode]
    if min(width, height) < 0 or (expected == 0 and max(width, height) > _MAX_EMPTY_SIDE):
        raise BlobCorruptError(f"an image of size {width} x {height}")
    if len(parts.pixels) != expected:
        raise BlobCorruptError(f"{len(parts.pixels)} bytes of pixels where {mode} {width} x {height} takes {expected}")
    try:
        if expected == 0:
            image = Image.new(mode, (width, height))
        elif mode == "1":
            image = Image.frombytes("L", (width, height), parts.pixels).point(list(range(256)), "1")
        else:
            image = Image.frombytes(mode, (width, height), _little_endian(mode, parts.pixels))
        _dress(image, parts)
    except Exception as error:  # damaged palettes and EXIF data make PIL raise whatever it runs into
        raise BlobCorruptError(f"parts that make no {mode} image ({type(error).__name__}: {error})") from error
    return image


def _dress(image: Image.Image, parts: FrameParts) -> None:
    """Give an image what it has besides its pixels."""
    from PIL import ImagePalette

    if parts.palette is not None:
        palette_mode, palette = _checked_palette(parts.palette)
        image.putpalette(palette, _PALETTE_RAW_MODES[palette_mode])
        image.load()
        image.palette = None
        if parts.palette_object is not None:
            palette_mode, palette = _checked_palette(parts.palette_object)
            image.palette = ImagePalette.ImagePalette(palette_mode, bytearray(palette))
    image.info = plain_to_info(parts.info)
    if parts.exif is not None:
        put_exif(image, parts.exif)


def _checked_palette(palette: tuple[str, bytes]) -> tuple[str, bytes]:
    mode, colours = palette
    if type(mode) is not str or type(colours) is not bytes:  # of a number, bytearray() would make as many zeros
        raise BlobCorruptError("a palette that is not of bytes")
    return mode, colours


def _little_endian(mode: str, pixels: bytes) -> bytes:
    """Turn pixels between this machine's byte order and the stored one."""
    if sys.byteorder == "little" or mode not in _NATIVE_ORDER:
        return pixels
    swapped: bytes = np.frombuffer(pixels, f"u{_NATIVE_ORDER[mode]}").byteswap().tobytes()
    return swapped
