"""PIL images of every mode come back pixel for pixel, from memory and from files."""

from __future__ import annotations

import copy
import io
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImagePalette, PngImagePlugin, TiffImagePlugin

from slime_store.codecs.documents import DocumentEncoder
from slime_store.codecs.image_info import info_to_plain, plain_to_info
from slime_store.codecs.images import _PIXEL_BYTES, ImageParts, image_to_parts, parts_to_image
from slime_store.errors import BlobCorruptError, UnsupportedValueError

MODES = list(_PIXEL_BYTES)
LAYOUT_TAGS = {273, 279, 324, 325}


def _pixels(count: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8).tobytes()


def _image(mode: str, size: tuple[int, int] = (5, 3), seed: int = 0) -> Image.Image:
    if mode == "1":
        return Image.frombytes("L", size, _pixels(size[0] * size[1], seed)).convert("1")
    return Image.frombytes(mode, size, _pixels(size[0] * size[1] * _PIXEL_BYTES[mode], seed))


def _round_trip(image: Image.Image) -> Image.Image:
    parts = image_to_parts(image)
    assert all(type(frame.pixels) is bytes for frame in parts.frames)
    return parts_to_image(parts)


def _exif(image: Image.Image) -> dict[int, Any]:
    exif = image.getexif()
    return {tag: value for tag, value in exif.items() if tag not in LAYOUT_TAGS} | {"gps": exif.get_ifd(0x8825)}


def _palette(image: Image.Image) -> Any:
    if image.mode not in ("P", "PA"):
        return None
    palette = image.palette and (image.palette.mode, bytes(image.palette.palette))
    return image.getpalette(None), palette, image.convert("RGBA").tobytes()


def _assert_same_image(actual: Image.Image, expected: Image.Image) -> None:
    assert (actual.mode, actual.size) == (expected.mode, expected.size)
    assert actual.tobytes() == expected.tobytes()
    assert actual.info == expected.info and list(actual.info) == list(expected.info)
    assert {key: type(value) for key, value in actual.info.items()} == {k: type(v) for k, v in expected.info.items()}
    assert _palette(actual) == _palette(expected)
    assert _exif(actual) == _exif(expected)
    assert actual.format == expected.format


def _saved(image: Image.Image, format: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def _opened(content: bytes) -> Image.Image:
    return Image.open(io.BytesIO(content))


@pytest.mark.parametrize("size", [(5, 3), (1, 1), (1, 9), (17, 2), (0, 0), (0, 4), (4, 0)], ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_g1_every_mode_and_size_comes_back_pixel_for_pixel(mode: str, size: tuple[int, int]) -> None:
    image = _image(mode, size) if 0 not in size else Image.new(mode, size)
    result = _round_trip(image)
    assert type(result) is Image.Image
    _assert_same_image(result, image)
    if 0 not in size:
        assert result.getpixel((0, 0)) == image.getpixel((0, 0))
        result.putpixel((0, 0), image.getpixel((0, 0)))  # writable


@pytest.mark.parametrize(
    ("mode", "value"), [("I;16", 40_000), ("I;16B", 40_000), ("I", 100_000), ("I", -5), ("F", 0.1)]
)
def test_g1_wide_pixels_keep_their_values(mode: str, value: float) -> None:
    image = Image.new(mode, (2, 2), value)
    assert _round_trip(image).getpixel((1, 1)) == image.getpixel((1, 1))


def test_g1_float_pixels_keep_nan_and_negative_zero() -> None:
    image = Image.fromarray(np.array([[np.nan, -0.0, np.inf]], np.float32))
    assert _round_trip(image).tobytes() == image.tobytes()


def test_g1_white_in_mode_1_stays_1_or_255() -> None:
    image = Image.new("1", (3, 2), 1)
    image.putpixel((1, 0), 255)
    result = _round_trip(image)
    assert [result.getpixel((x, y)) for y in range(2) for x in range(3)] == [1, 255, 1, 1, 1, 1]


@pytest.mark.parametrize("rawmode", ["RGB", "RGBA", "BGR", "RGBX", "RGBA;L"])
@pytest.mark.parametrize("mode", ["P", "PA"])
def test_g1_palettes_of_every_kind_and_length_come_back(mode: str, rawmode: str) -> None:
    for colours in (1, 7, 255, 256):
        image = _image(mode)
        image.putpalette(_pixels(colours * len(rawmode.partition(";")[0])), rawmode)
        _assert_same_image(_round_trip(image), image)


def test_g1_an_adaptive_palette_and_a_changed_palette_object_come_back() -> None:
    image = _image("RGB", (20, 20)).quantize(9)
    _assert_same_image(_round_trip(image), image)
    image.palette = ImagePalette.ImagePalette("RGB", bytes(range(30)))  # not the core's
    _assert_same_image(_round_trip(image), image)
    image.palette = None
    result = _round_trip(image)
    assert result.getpalette() == image.getpalette()


@pytest.mark.parametrize("transparency", [0, 3, bytes([0, 255, 7])], ids=str)
def test_g1_a_palette_image_keeps_its_transparency(transparency: int | bytes) -> None:
    image = _image("RGB", (20, 20)).quantize(9)
    opened = _opened(_saved(image, "PNG", transparency=transparency))
    assert opened.info["transparency"] == transparency
    _assert_same_image(_round_trip(opened), opened)


def test_g1_info_comes_back_as_an_independent_copy() -> None:
    image = _image("RGB")
    image.info = {"dpi": (72, 72.5), "exif": b"x", "nested": {"a": [1, (2,)]}, ("tuple", 1): None}
    parts = image_to_parts(image)
    image.info["nested"]["a"].append(9)
    result = parts_to_image(parts)
    assert result.info == {"dpi": (72, 72.5), "exif": b"x", "nested": {"a": [1, (2,)]}, ("tuple", 1): None}
    result.info["nested"]["a"].clear()
    assert parts.frames[0].info["nested"]["a"] == [1, (2,)]


@pytest.mark.parametrize(
    ("format", "mode", "options"),
    [
        ("PNG", "RGB", {"dpi": (100, 100)}),
        ("PNG", "RGBA", {}),
        ("PNG", "I;16", {}),
        ("PNG", "1", {}),
        ("PNG", "LA", {}),
        ("JPEG", "RGB", {"quality": 90, "dpi": (72, 72), "comment": b"hello", "icc_profile": b"not a profile"}),
        ("JPEG", "CMYK", {}),
        ("JPEG", "L", {}),
        ("TIFF", "RGB", {"dpi": (72.5, 300)}),
        ("TIFF", "CMYK", {"compression": "raw"}),
        ("TIFF", "F", {}),
        ("TIFF", "LAB", {}),
        ("TIFF", "I;16B", {}),
        ("TIFF", "P", {}),
        ("GIF", "RGB", {"transparency": 1}),
        ("BMP", "RGB", {}),
        ("PPM", "I", {}),
        ("ICO", "RGBA", {"sizes": [(5, 3)]}),
        ("TGA", "P", {}),
    ],
)
def test_g2_files_are_read_and_come_back_with_info_and_exif(
    format: str, mode: str, options: dict[str, Any], tmp_path: Path
) -> None:
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "hello"
    exif.get_ifd(0x8825)[1] = "N"
    if format in ("PNG", "JPEG", "TIFF"):
        options = options | {"exif": exif}
    path = tmp_path / "image"
    path.write_bytes(_saved(_image(mode), format, **options))
    with Image.open(path) as lazy:
        parts = image_to_parts(lazy)
    with Image.open(path) as expected:
        expected.load()
        reference_exif = _exif(expected)
        path.unlink()
        result = parts_to_image(parts)
        assert type(result) is Image.Image
        assert _exif(result) == reference_exif
        _assert_same_image(result, expected)


def test_g2_tiff_rationals_and_png_texts_keep_their_types() -> None:
    tiff = _opened(_saved(_image("RGB"), "TIFF", x_resolution=72.5, y_resolution=300, resolution_unit=1))
    result = _round_trip(tiff)
    assert [type(value) for value in result.info["resolution"]] == [TiffImagePlugin.IFDRational] * 2
    text = PngImagePlugin.PngInfo()
    text.add_itxt("Title", "grün", "de", "Titel")
    png = _round_trip(_opened(_saved(_image("RGB"), "PNG", pnginfo=text)))
    title = png.info["Title"]
    assert (type(title), title, title.lang, title.tkey) == (PngImagePlugin.iTXt, "grün", "de", "Titel")


@pytest.mark.parametrize("text", ["caf\u00e9", "\U0001f600", "\ud800"], ids=["latin", "astral", "surrogate"])
def test_g2_exif_text_beyond_ascii_comes_back(text: str) -> None:
    image = _image("RGB")
    exif = image.getexif()
    exif[270], exif[282], exif[0x8769], exif[0x8825] = text, 72, {0x9286: text, 0xA005: {1: text}}, {29: text}
    again = _round_trip(_round_trip(image)).getexif()
    assert again[270] == text and again[282] == 72 and type(again[282]) is int
    assert again.get_ifd(0x8769)[0x9286] == again.get_ifd(0x8825)[29] == again.get_ifd(0xA005)[1] == text


@pytest.mark.parametrize("name", ["TIFF", "JPEG"])
def test_g2_exif_text_beyond_ascii_of_a_file_comes_back(name: str) -> None:
    file = io.BytesIO()
    exif = Image.Exif()
    exif[270] = "caf\u00e9".encode()
    _image("RGB").save(file, name, **({"tiffinfo": exif} if name == "TIFF" else {"exif": exif}))
    opened = Image.open(file)
    told = opened.getexif()[270]
    assert not told.isascii() and _round_trip(opened).getexif()[270] == told
    opened.getexif()[270] = "\u00e4\u00f6\u00fc\u00df\u00e6"  # as many letters
    assert _round_trip(opened).getexif()[270] == "\u00e4\u00f6\u00fc\u00df\u00e6"


def test_g2_exif_that_was_set_in_memory_comes_back() -> None:
    image = _image("RGB")
    image.getexif()[0x0112] = 3
    result = _round_trip(image)
    assert dict(result.getexif()) == {0x0112: 3} and result.info == {}
    again = _round_trip(result)
    assert dict(again.getexif()) == {0x0112: 3}
    content = _saved(_image("RGB"), "JPEG", exif=result.getexif())
    opened = _opened(content)
    opened.getexif()[0x0112] = 8
    assert dict(_round_trip(opened).getexif()) == {0x0112: 8}


@pytest.mark.parametrize("format", ["JPEG", "PNG", "TIFF", "GIF"])
def test_g2_truncated_files_are_refused_with_a_reason(format: str) -> None:
    content = _saved(_image("RGB", (200, 200)), format)
    with pytest.raises(UnsupportedValueError, match=rf"{format} image .*cannot be read"):
        image_to_parts(_opened(content[: len(content) // 2]))


def test_g2_a_closed_image_is_refused_with_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "image.png"
    _image("RGB").save(path)
    lazy = Image.open(path)
    lazy.close()
    with pytest.raises(UnsupportedValueError, match="cannot be read"):
        image_to_parts(lazy)
    path.unlink()


def test_g2_an_overwritten_file_does_not_matter_after_encoding(tmp_path: Path) -> None:
    path = tmp_path / "image.bmp"
    image = _image("RGB", (40, 40), seed=1)
    image.save(path)
    with Image.open(path) as lazy:
        parts = image_to_parts(lazy)
    _image("RGB", (40, 40), seed=2).save(path)
    assert parts_to_image(parts).tobytes() == image.tobytes()


def _frames_file(format: str, count: int = 4) -> bytes:
    frames = [_image("RGB", (16, 12), seed) for seed in range(count)]
    options: dict[str, Any] = {} if format == "TIFF" else {"duration": [10 * (i + 1) for i in range(count)], "loop": 2}
    if format == "WEBP":
        options["lossless"] = True
    return _saved(frames[0], format, save_all=True, append_images=frames[1:], **options)


MULTI = ["GIF", "TIFF", "WEBP", "PNG"]


@pytest.mark.parametrize("shown", [0, 2, 3])
@pytest.mark.parametrize("format", MULTI)
def test_g6_every_frame_of_a_file_comes_back(format: str, shown: int) -> None:
    content = _frames_file(format)
    image, reference = _opened(content), _opened(content)
    image.seek(shown)
    result: Any = _round_trip(image)
    assert image.tell() == shown == result.tell()
    assert result.is_animated and result.n_frames == 4 and result.format == format
    for number in (0, 1, 2, 3):
        reference.seek(number)
        reference.load()
        result.seek(number)
        _assert_same_image(result, reference)
    with pytest.raises(EOFError):
        result.seek(4)
    assert result.tell() == 3


@pytest.mark.parametrize("format", MULTI)
def test_g6_encoding_leaves_the_callers_image_as_it_was(format: str) -> None:
    image = _opened(_frames_file(format))
    image.seek(2)
    image.load()
    image.putpixel((0, 0), image.getpixel((5, 5)))
    image.info["note"] = "mine"
    before, mode, info = image.tobytes(), image.mode, dict(image.info)
    result = _round_trip(image)
    assert (image.tell(), image.mode, image.tobytes(), image.info) == (2, mode, before, info)
    assert (result.tobytes(), result.info) == (before, info)
    if format != "PNG":  # there PIL cannot seek back from a frame that was loaded
        image.seek(1)
        image.seek(2)


def test_g6_frames_of_different_modes_and_sizes_keep_theirs() -> None:
    frames = [_image("L", (3, 3)), _image("RGB", (4, 2)), _image("RGB", (9, 9)).quantize(4), _image("1", (5, 5))]
    content = _saved(frames[0], "TIFF", save_all=True, append_images=frames[1:])
    result: Any = _round_trip(_opened(content))
    for number, frame in enumerate(frames):
        result.seek(number)
        assert (result.mode, result.size, result.tobytes()) == (frame.mode, frame.size, frame.tobytes())
    assert [frame.mode for frame in image_to_parts(result).frames] == ["L", "RGB", "P", "1"]


def test_g6_an_image_that_came_back_is_stored_copied_and_pickled_with_its_frames() -> None:
    result: Any = _round_trip(_opened(_frames_file("GIF")))
    result.seek(1)
    result.putpixel((0, 0), (1, 2, 3))
    result.seek(3)
    for other in (_round_trip(result), copy.deepcopy(result), pickle.loads(pickle.dumps(result))):
        assert (other.tell(), other.n_frames, other.format) == (3, 4, "GIF")
        other.seek(1)
        assert other.getpixel((0, 0)) == (1, 2, 3)
        other.putpixel((0, 0), (9, 9, 9))
    result.seek(1)
    assert result.getpixel((0, 0)) == (1, 2, 3)
    assert type(result.copy()) is Image.Image


def test_g6_frames_behind_a_closed_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "image.gif"
    path.write_bytes(_frames_file("GIF"))
    with Image.open(path) as image:
        image.load()
    with pytest.raises(UnsupportedValueError, match="cannot be read"):
        image_to_parts(image)


def test_an_unknown_mode_is_refused_and_named() -> None:
    image = _image("RGB")
    image._mode = "XYZ"
    with pytest.raises(UnsupportedValueError, match="XYZ"):
        image_to_parts(image)


@pytest.mark.parametrize(
    "change",
    [
        {"mode": "XYZ"},
        {"mode": "RGBA"},
        {"size": (500_000, 500_000)},
        {"size": (-5, -3)},
        {"size": (0, 2**31 - 1), "pixels": b""},
        {"size": (5, 2)},
        {"pixels": b""},
        {"mode": "P", "pixels": bytes(15), "palette": ("XYZ", bytes(3))},
        {"mode": "P", "pixels": bytes(15), "palette": ("RGB", bytes(3000))},
        {"palette": ("RGB", bytes(3))},
        {"exif": b"Exif\0\0garbage"},
        {"info": {"dpi": {"$rational": [1]}}},
        {"info": {"dpi": {"$itxt": 5}}},
    ],
    ids=str,
)
def test_damaged_parts_are_refused_without_allocating(change: dict[str, Any]) -> None:
    parts = image_to_parts(_image("RGB"))
    with pytest.raises(BlobCorruptError):
        parts_to_image(ImageParts(None, (replace(parts.frames[0], **change),), 0))
    for frames, frame in (((), 0), (parts.frames, 1), (parts.frames, -1)):
        with pytest.raises(BlobCorruptError):
            parts_to_image(ImageParts(None, frames, frame))


PLAIN = st.recursive(
    st.none()
    | st.integers()
    | st.text(max_size=3)
    | st.binary(max_size=3)
    | st.fractions().map(TiffImagePlugin.IFDRational),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from(["a", "$plain", "$rational", "$itxt"]) | st.integers(), inner, max_size=2)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=3), PLAIN, max_size=4))
def test_any_info_goes_to_plain_types_and_back(info: dict[Any, Any]) -> None:
    plain = info_to_plain(info)
    assert "IFDRational" not in repr([type(value) for value in plain.values()])
    assert plain_to_info(plain) == info


@given(st.sampled_from(MODES), st.integers(1, 20), st.integers(1, 20), st.integers(0, 1000))
def test_g1_any_pixels_come_back(mode: str, width: int, height: int, seed: int) -> None:
    image = _image(mode, (width, height), seed)
    _assert_same_image(_round_trip(image), image)


def test_an_error_says_where_in_an_image_the_value_is() -> None:
    image = _image("RGB")
    image.info["x"] = object()
    with pytest.raises(UnsupportedValueError, match=r"^value\['a'\]\.info\['x'\]: "):
        DocumentEncoder(None).document({"a": image})
