"""EXIF data of an image that its ``info`` does not tell: TIFF tags, and what the caller set.

PIL writes it as bytes, which lose some of it: text beyond ASCII becomes ``?``, a number the type that its tag has by
the book. The tags that the bytes would not bring back are kept beside them, as plain values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from slime_store.codecs.image_info import info_to_plain, plain_to_info
from slime_store.errors import UnsupportedValueError

if TYPE_CHECKING:
    from PIL import Image

_EXIF, _GPS, _INTEROP = 0x8769, 0x8825, 0xA005
_IFDS = (_EXIF, _GPS, _INTEROP)  # looking for one in PIL makes an empty one
_FILE_LAYOUT_TAGS = (273, 279, 324, 325)  # where a TIFF file had its strips and tiles: nothing about the image


class OwnExif(NamedTuple):
    """EXIF data as plain data.

    Attributes:
        data: what PIL writes.
        tags: IFD (None: the first), tag and value, in plain types, of what PIL writes otherwise than it is.
    """

    data: bytes
    tags: tuple[tuple[int | None, int, Any], ...]


def exif_beside_info(image: Image.Image) -> OwnExif | None:
    """Return the EXIF data of an image, None where its ``info`` says the same.

    Raises:
        UnsupportedValueError: tags that would not come back as they are.
    """
    if image._exif is None and not hasattr(image, "tag_v2"):
        return None
    exif, told = image.getexif(), _of(image.info)
    tags = _tags(exif)
    if _is_same(tags, _tags(told.getexif())):
        return None
    written = exif.tobytes()
    kept = _of({}).getexif()
    kept.load(written)
    empty = [tag for tag in _IFDS if tag not in exif and tag in kept and not kept.get_ifd(tag)]
    for tag in (*_FILE_LAYOUT_TAGS, *empty):
        kept.pop(tag, None)
    if not tags and not kept and not told.getexif():
        return None
    data = kept.tobytes()
    read = _read_again(image, OwnExif(data, ()))
    own = {place: value for place, value in tags.items() if place not in read or not _is_same(value, read[place])}
    found = OwnExif(data, tuple((*place, _plain(value)) for place, value in own.items()))
    if not _is_same(tags, _read_again(image, found) if own else read):
        raise UnsupportedValueError("", "EXIF data that PIL does not write as it is")
    return found


def put_exif(image: Image.Image, own: OwnExif) -> None:
    """Set the EXIF data of an image; PIL's errors, of many kinds, for damaged data."""
    exif = image.getexif()
    exif.load(own.data)
    for ifd, tag, value in own.tags:
        (exif if ifd is None else exif.get_ifd(ifd))[tag] = plain_to_info({tag: value})[tag]


def _plain(value: Any) -> Any:
    return info_to_plain({0: value})[0]


def _of(info: dict[Any, Any]) -> Image.Image:
    from PIL import Image

    image = Image.new("L", (0, 0))
    image.info = dict(info)
    return image


def _read_again(image: Image.Image, own: OwnExif) -> dict[tuple[int | None, int], Any]:
    again = _of(image.info)
    put_exif(again, own)
    return _tags(again.getexif())


def _tags(exif: Image.Exif) -> dict[tuple[int | None, int], Any]:
    """Return the values by IFD and tag, without what only says where in a file something is."""
    found: dict[tuple[int | None, int], Any] = {
        (None, int(tag)): exif[tag] for tag in exif if tag not in _FILE_LAYOUT_TAGS and tag not in (_EXIF, _GPS)
    }
    for ifd in (_EXIF, _GPS):
        if ifd in exif or ifd in exif._ifds:
            given = exif.get(ifd)
            entries = given if isinstance(given, dict) else exif.get_ifd(ifd)
            found |= {(ifd, int(tag)): value for tag, value in entries.items() if (ifd, tag) != (_EXIF, _INTEROP)}
            if ifd == _EXIF and _INTEROP in entries:
                given = entries[_INTEROP]
                inner = given if isinstance(given, dict) else exif.get_ifd(_INTEROP)
                found |= {(_INTEROP, int(tag)): value for tag, value in inner.items()}
    return found


def _is_same(one: Any, other: Any) -> bool:
    """Whether values of tags, or dicts of them, are the same, types included; NaN is itself."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_is_same(value, other[key]) for key, value in one.items())
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if type(one).__name__ == "IFDRational":
        return repr((one.numerator, one.denominator)) == repr((other.numerator, other.denominator))
    return repr(one) == repr(other) if isinstance(one, float) else bool(one == other)
