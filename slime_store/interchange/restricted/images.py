"""Rules for PIL: images from their mode, size and pixels, and never by PIL's own ``__setstate__``.

An image of any of PIL's plug-in classes comes back as a plain ``PIL.Image.Image`` with the same format. PIL is imported
when the first image is met, and only its own classes are looked at, never one that the file names.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from slime_store.interchange.restricted.rules import Rule, integer, names, refuse, require, sizes

if TYPE_CHECKING:
    from PIL import Image

_CLASS = re.compile(r"PIL\.(Image\.Image|\w+ImagePlugin\.\w+)")
_BITS = {  # bits of a pixel in what tobytes() gives
    "1": 1,
    **dict.fromkeys(("L", "P"), 8),
    **dict.fromkeys(("LA", "La", "PA", "I;16", "I;16L", "I;16B", "I;16N"), 16),
    **dict.fromkeys(("RGB", "YCbCr", "LAB", "HSV"), 24),
    **dict.fromkeys(("RGBA", "RGBa", "RGBX", "CMYK", "I", "F"), 32),
}
_MAX_SIDE = 1 << 20


def rule_for(name: str) -> Rule | None:
    """Return the rule for a name in PIL, or for our own image of several frames, or None."""
    if name in _CALLS:
        return _CALLS[name]
    return Rule(lambda: None, state=_image_of(name), needs_state=True) if _CLASS.fullmatch(name) else None


def _image_of(name: str) -> Callable[[Any, Any], Image.Image]:
    def make(_value: Any, state: Any) -> Image.Image:
        from PIL import Image

        if type(state) is not list or len(state) < 5:
            refuse("an image of another form")
        info, mode, size, palette, pixels = state[:5]  # plug-in classes add file names and the like
        width, height = sizes(size, "an image's size")
        if mode not in _BITS or max(width, height) > _MAX_SIDE:
            refuse(f"an image of mode {mode!r} and size {size}")
        if len(require(pixels, bytes, "an image's pixels")) != (width * _BITS[mode] + 7) // 8 * height:
            refuse("an image whose pixels do not fit its size")
        image = Image.frombytes(mode, (width, height), pixels) if pixels else Image.new(mode, (width, height))
        image.palette = None
        if mode in ("P", "PA") and palette:
            image.putpalette(_palette(palette))
        image.info = require(info, dict, "an image's info")
        image.format = _formats().get(name)
        return image

    return make


def _palette(colours: Any) -> list[int]:
    if len(require(colours, list, "a palette")) > 768 or not all(type(n) is int and 0 <= n < 256 for n in colours):
        refuse("a palette of another form")
    return list(colours)


@lru_cache(maxsize=1)
def _formats() -> dict[str, str]:
    """Return PIL's name of the format for the name of each of its plug-in classes."""
    from PIL import Image

    Image.init()
    classes = [factory for factory, _accept in Image.OPEN.values() if isinstance(factory, type)]
    named = {f"{kind.__module__}.{kind.__qualname__}": str(getattr(kind, "format", "")) for kind in classes}
    # opened through functions that are no classes
    return {"PIL.JpegImagePlugin.JpegImageFile": "JPEG", "PIL.MpoImagePlugin.MpoImageFile": "MPO", **named}


def _frames(frames: Any, frame: Any, format: Any) -> Image.Image:
    from PIL import Image

    from slime_store.codecs.framed_image import FramedImage

    if type(frames) is not list or not frames or not all(type(each) is Image.Image for each in frames):
        refuse("an image of other frames")
    (shown,) = sizes((frame,), "a frame's number")
    if shown >= len(frames) or not (format is None or type(format) is str):
        refuse("an image without such a frame")
    return FramedImage(frames, shown, format)


def _rational(*_args: Any) -> None:
    return None


def _rational_state(_value: Any, state: Any) -> Any:
    """A TIFF's resolution: value, numerator and denominator, of which the last two say all."""
    from PIL.TiffImagePlugin import IFDRational

    if type(state) is not list or len(state) != 3:
        refuse("a rational number of another form")
    if type(state[1]) not in (int, float):
        refuse("a rational number of another form")
    if type(state[1]) is int:
        integer(state[1], "a numerator")
    return IFDRational(state[1], integer(state[2], "a denominator"))


def _text(text: Any) -> str:
    return require(text, str, "an image's text")


def _text_state(text: str, state: Any) -> Any:
    from PIL.PngImagePlugin import iTXt

    given = names(state, "an image's text")
    language, key = given.get("lang"), given.get("tkey")
    if not all(each is None or type(each) in (str, bytes) for each in (language, key)):
        refuse("an image's text of another form")
    return iTXt(text, language, key)


_CALLS: dict[str, Rule] = {
    "PIL.TiffImagePlugin.IFDRational": Rule(_rational, state=_rational_state, needs_state=True),
    "PIL.PngImagePlugin.iTXt": Rule(_text, state=_text_state, needs_state=True),
    "slime_store.codecs.framed_image.FramedImage": Rule(_frames),
}
