"""assert_same for numpy, torch and Pillow: what it sees, and what it must not mind."""

from __future__ import annotations

import copy
import io
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from slime_store.testing import assert_same, same

F4 = np.array([0.0, np.nan, 1.5], "<f4")
RECORDS = np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")])
PADDED = np.dtype({"names": ["a", "b"], "formats": ["i1", "f8"], "offsets": [0, 8], "itemsize": 16})


class Marked(np.void):
    """A scalar class of somebody's own."""


TAGGED = np.dtype("O", metadata={"vlen": str})


def _object_array(*values: Any) -> Any:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _image(mode: str = "RGB", size: tuple[int, int] = (2, 2), color: Any = 0, **info: Any) -> Image.Image:
    image = Image.new(mode, size, color)
    image.info.update(info)
    return image


def _palette(first: int) -> Image.Image:
    image = Image.new("P", (2, 2))
    image.putpalette([first, 2, 3, 4, 5, 6])
    return image


def _saved(image: Image.Image, **options: Any) -> Image.Image:
    file = io.BytesIO()
    image.save(file, **options)
    return Image.open(io.BytesIO(file.getvalue()))


def _animation(*colors: int) -> Image.Image:
    first, *rest = (Image.new("L", (4, 4), color) for color in colors)
    return _saved(first, format="GIF", save_all=True, append_images=rest)


def _sparse(value: float) -> torch.Tensor:
    return torch.sparse_coo_tensor([[0, 1]], [1.0, value], (3,), check_invariants=True).coalesce()


def _compressed(value: float) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch calls the layout a beta
        return torch.tensor([[0.0, value], [1.0, 0.0]]).to_sparse_csr()


DIFFERENT: list[tuple[Any, Any]] = [
    (np.float32(0.1), 0.1), (np.float64(0.1), 0.1), (np.int64(1), 1), (np.bool_(True), True), (np.str_("a"), "a"),
    (np.float32(1), np.float64(1)), (np.int32(1), np.int64(1)), (np.float32(0.0), np.float32(-0.0)),
    (np.float64("nan"), np.float64(1)), (np.str_("a"), np.str_("a\0")), (np.bytes_(b"a"), np.bytes_(b"a\0")),
    (np.datetime64("2026", "Y"), np.datetime64("2026-01-01", "D")), (np.datetime64("NaT"), np.datetime64("2026")),
    (np.longdouble(0), -np.longdouble(0)), (np.clongdouble(1), np.clongdouble(1j)), (RECORDS[0], RECORDS[0].item()),
    (np.array(1), np.int64(1)), (np.array([1]), [1]), (np.array([1], "i4"), np.array([1], "i8")),
    (np.array([1], "<i4"), np.array([1], ">i4")), (np.zeros((2, 3)), np.zeros((3, 2))), (np.zeros(0), np.zeros((0, 3))),
    (np.zeros(3), np.array([0, -0.0, 0])), (F4, np.array([0.0, 2.0, 1.5], "<f4")),
    (F4, np.array([0, -np.nan, 1.5], "f4")),
    (np.array(["a"]), np.array(["ab"])), (np.array(["a"], "U4"), np.array(["b"], "U4")),
    (np.array(["a"]), np.array([b"a"])),
    (np.array(["2026"], "M8[D]"), np.array(["2027"], "M8[D]")), (np.array(["NaT"], "M8[D]"), np.array(["1"], "M8[D]")),
    (RECORDS, np.array([(1, 3.0)], RECORDS.dtype)), (RECORDS, np.array([(1, 2.0)], [("a", "i4"), ("c", "f8")])),
    (_object_array(1, None), _object_array(1.0, None)), (_object_array([np.nan]), _object_array([None])),
    (_object_array(1), np.array([1])), (np.zeros(2, bool), np.zeros(2, np.uint8)),
    (np.zeros(1, "g"), -np.zeros(1, "g")),
    (np.ma.masked_array([1, 2], [0, 1]), np.ma.masked_array([1, 2], [1, 0])),
    (np.zeros(2), np.zeros(2).view(np.recarray)),
    (np.zeros(1, TAGGED), np.zeros(1, "O")), (TAGGED, np.dtype("O")),
    (np.zeros(1, np.dtype("i4", metadata={"a": 1})), np.zeros(1, np.dtype("i4", metadata={"a": True}))),
    (np.zeros(1, [("a", "i4", 2), ("b", TAGGED)]), np.zeros(1, [("a", "i4", 2), ("b", "O")])),
    (np.zeros(1, (Marked, [("a", "i4")])), np.zeros(1, [("a", "i4")])),
    (np.dtype((np.record, [("a", "i4")])), np.dtype([("a", "i4")])),
    (torch.zeros(2), np.zeros(2, np.float32)), (torch.tensor(1), 1), (torch.zeros(2), [0.0, 0.0]),
    (torch.zeros(2), torch.zeros(2, dtype=torch.bfloat16)), (torch.zeros(2), -torch.zeros(2)),
    (torch.zeros(2, 3), torch.zeros(3, 2)), (torch.zeros(0), torch.zeros(0, 3)), (torch.tensor(1), torch.tensor([1])),
    (torch.tensor([1.0, torch.nan]), torch.tensor([1.0, 2.0])), (torch.tensor([torch.nan]), -torch.tensor([torch.nan])),
    (torch.tensor([1.0], dtype=torch.bfloat16), torch.tensor([1.0078125], dtype=torch.bfloat16)),
    (torch.tensor([1.0]).to(torch.float8_e4m3fn), torch.tensor([1.125]).to(torch.float8_e4m3fn)),
    (torch.tensor([1], dtype=torch.uint16), torch.tensor([1], dtype=torch.int16)),
    (torch.tensor([1j]), torch.tensor([-1j])),
    (torch.tensor([True]), torch.tensor([False])), (_sparse(2), _sparse(3)), (_sparse(2), _sparse(2).to_dense()),
    (_compressed(2), _compressed(3)), (_compressed(2), _compressed(2).to_sparse_coo()),
    (_image("RGB"), _image("RGBA")), (_image(), _image(size=(2, 3))), (_image(), _image(color=(0, 0, 1))),
    (_image("I;16", color=40000), _image("I;16", color=40001)), (_image("F", color=0.5), _image("F", color=0.25)),
    (_palette(1), _palette(9)), (_image("P"), _palette(1)), (_image("P"), _image("P", transparency=0)),
    (_image("P", transparency=0), _image("P", transparency=b"\0")), (_image("1"), _image("L")), (_image(), None),
    (_image(size=(0, 0)), _image(size=(0, 1))), (_image(), _image(dpi=(72, 72))), (_image(), np.zeros((2, 2, 3), "u1")),
    (_animation(1, 2), _animation(1, 3)), (_animation(1, 2), _animation(1)),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), DIFFERENT, ids=lambda value: f"{type(value).__name__}")
def test_different_values_are_told_apart_in_both_directions_and_at_any_depth(one: Any, other: Any) -> None:
    for actual, expected in ((one, other), (other, one)):
        assert not same(actual, expected)
        with pytest.raises(AssertionError, match=r"^value"):
            assert_same([{"k": actual}], [{"k": expected}])


@pytest.mark.parametrize(
    "value", [value for pair in DIFFERENT for value in pair], ids=lambda value: type(value).__name__
)
def test_a_value_is_the_same_as_its_copy(value: Any) -> None:
    if isinstance(value, Image.Image):
        again = value if getattr(value, "n_frames", 1) > 1 else value.copy()  # a copy has one frame only
    else:
        again = value.clone() if isinstance(value, torch.Tensor) else copy.deepcopy(value)
    assert_same(again, value)


@pytest.mark.parametrize(
    ("actual", "expected", "message"),
    [
        (np.zeros((2, 3)), np.array([[0, 0, 0], [0, 0, 1.0]]), "value[1, 2]: 0.0 != 1.0"),
        (np.zeros(2, "f4"), np.zeros(2), "value.dtype: ndarray of float32 (2,) != ndarray of float64 (2,)"),
        (np.zeros(1, TAGGED), np.zeros(1, "O"), "value.dtype.metadata: dict {'vlen': <class 'str'>} != NoneType"),
        (np.dtype((Marked, "V2")), np.dtype("V2"), "value.type: Marked != void"),
        (np.array(1), np.array(2), "value[()]: 1 != 2"),
        (_object_array(1, [2]), _object_array(1, [3]), "value[1][0]: int 2 != int 3"),
        (RECORDS, np.array([(1, 3.0)], RECORDS.dtype), "value['b'][0]: 2.0 != 3.0"),
        (F4, -F4, "value[0]: 0.0 != -0.0"),
        (F4[1:], -F4[1:], "value[0]: nan != nan, which differ in their bits or parts"),
        (torch.zeros(2, 2), torch.tensor([[0, 0], [1.0, 0]]), "value[1, 0]: 0.0 != 1.0"),
        (_sparse(2), _sparse(3), "value._values()[1]: 2.0 != 3.0"),
        (_image(), _image("L"), "value.mode: str 'RGB' != str 'L'"),
        (_image(dpi=1), _image(dpi=2), "value.info['dpi']: int 1 != int 2"),
    ],
)
def test_the_message_names_the_item(actual: Any, expected: Any, message: str) -> None:
    with pytest.raises(AssertionError) as caught:
        assert_same(actual, expected)
    assert str(caught.value) == message


def test_memory_order_views_device_and_gradients_do_not_count() -> None:
    array = np.arange(6.0).reshape(2, 3)
    assert_same(array.T, np.ascontiguousarray(array.T))
    assert_same(np.broadcast_to(np.int32(1), (3,)), np.ones(3, np.int32))
    tensor = torch.arange(6.0).reshape(2, 3)
    assert_same(tensor.T, tensor.T.contiguous())
    assert_same(torch.ones(1).expand(3), torch.ones(3))
    assert_same(torch.ones(2, requires_grad=True) * 1, torch.ones(2))
    assert_same(torch.nn.Parameter(torch.ones(2)), torch.ones(2))
    assert_same(torch.tensor([1 + 2j]).conj(), torch.tensor([1 - 2j]))
    twice = torch.sparse_coo_tensor([[0, 1, 1]], [1.0, 0.5, 1.5], (3,), check_invariants=True)
    assert_same(twice, _sparse(2))


def test_bytes_between_the_fields_of_a_record_do_not_count() -> None:
    one, other = np.zeros(2, PADDED), np.frombuffer(bytearray(b"\x01" * 32), PADDED)  # no copy: it leaves the gaps out
    other["a"], other["b"] = 0, 0.0
    assert one.tobytes() != other.tobytes()
    assert_same(one, other)


def test_an_image_from_a_file_is_the_same_as_one_in_memory() -> None:
    image = _image("RGB", color=(1, 2, 3))
    assert_same(_saved(image, format="PNG"), image)


def test_exif_counts() -> None:
    exif = Image.Exif()
    exif[0x0112] = 3
    turned = _saved(_image(), format="PNG", exif=exif)
    assert not same(turned, _saved(_image(), format="PNG"))
    assert_same(turned.copy(), turned)


def test_looking_at_an_animation_leaves_it_at_its_frame() -> None:
    animation = _animation(1, 2, 3)
    animation.seek(1)
    assert_same(animation, _animation(1, 2, 3))
    assert animation.tell() == 1


def test_plain_values_are_compared_without_loading_the_libraries() -> None:
    code = "import sys; from slime_store.testing import same; assert same([{2.0}], [{2.0}]); print(sorted(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"torch", "numpy", "PIL", "hypothesis", "pytest"} & set(eval(out))
