"""``image.info`` by plain types: PIL keeps two types of its own there, which must come back as they were.

A TIFF's resolution is an ``IFDRational`` (2/1 is not 2, and 0/0 is allowed), a PNG's international text an
``iTXt``, a str with a language. Each becomes a dict of one key: ``{"$rational": [2, 1]}`` and
``{"$itxt": [text, language, key]}``; a dict that looks like one of these goes into ``{"$plain": [[key, value]]}``.
Other values pass unchanged, and are for the caller to store or refuse.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from slime_store.errors import BlobCorruptError, UnsupportedValueError

_EXACT = (int, float, bool)
_NUMBERS = (int, float, np.number)
_MARKS = frozenset({"$rational", "$itxt", "$plain"})


def info_to_plain(info: dict[Any, Any]) -> dict[Any, Any]:
    """Return a copy of ``image.info`` in plain types; its dicts, lists and tuples are new ones.

    Raises:
        UnsupportedValueError: an ``IFDRational`` that is not of two numbers, or two keys that are equal.
    """
    plain = {key: _to_plain(value) for key, value in info.items()}
    if len(plain) < len(info):
        raise UnsupportedValueError("", "two keys of image info have become equal")
    return plain


def plain_to_info(plain: dict[Any, Any]) -> dict[Any, Any]:
    """Return the ``image.info`` of ``info_to_plain``; BlobCorruptError for marks that do not read."""
    return {key: _from_plain(value) for key, value in plain.items()}


def _to_plain(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        if len(value) == 1 and next(iter(value)) in _MARKS:
            return {"$plain": [[key, _to_plain(item)] for key, item in value.items()]}
        return info_to_plain(value)
    if kind in (list, tuple):
        return kind(map(_to_plain, value))
    if kind.__module__ == "PIL.TiffImagePlugin" and kind.__name__ == "IFDRational":
        parts = [value.numerator, value.denominator]
        if not all(type(part) in _EXACT or isinstance(part, np.number) for part in parts):
            raise UnsupportedValueError("", f"a rational number of {parts!r} in image info")
        return {"$rational": parts}
    if kind.__module__ == "PIL.PngImagePlugin" and kind.__name__ == "iTXt":
        return {"$itxt": [str(value), value.lang, value.tkey]}
    return value


def _from_plain(value: Any) -> Any:
    if type(value) in (list, tuple):
        return type(value)(map(_from_plain, value))
    if type(value) is not dict:
        return value
    if len(value) != 1 or next(iter(value)) not in _MARKS:
        return plain_to_info(value)
    ((mark, content),) = value.items()
    try:
        if mark == "$rational":
            from PIL.TiffImagePlugin import IFDRational

            numerator, denominator = content
            if not isinstance(numerator, _NUMBERS) or not isinstance(denominator, _NUMBERS):
                raise TypeError("not of two numbers")  # a text with an exponent takes all memory
            return IFDRational(numerator, denominator)  # type: ignore[arg-type]
        if mark == "$itxt":
            from PIL.PngImagePlugin import iTXt

            text, language, key = content
            return iTXt(text, language, key)
        return {key: _from_plain(item) for key, item in content}
    except (TypeError, ValueError) as error:
        raise BlobCorruptError(f"{mark} in image info ({error})") from None
