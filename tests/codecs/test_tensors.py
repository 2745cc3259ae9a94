"""Tensors of every dtype and layout come back as their values."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from slime_store.codecs import decode_array, encode_array, narrow
from slime_store.codecs.tensors import (
    _CARRIERS,
    SPARSE_LAYOUTS,
    bits_to_tensor,
    layout_of,
    parts_to_sparse,
    sparse_to_parts,
    tensor_to_bits,
)
from slime_store.errors import BlobCorruptError, UnsupportedValueError
from slime_store.testing import assert_same

NAMES = [name for name in _CARRIERS if isinstance(getattr(torch, name, None), torch.dtype)]


def _tensor(name: str, count: int = 24) -> torch.Tensor:
    """Random bits of the dtype, so with NaNs, infinities and -0.0 among them."""
    dtype = getattr(torch, name)
    rng = np.random.default_rng(3)
    if name == "bool":
        return torch.from_numpy(rng.integers(0, 2, count).astype(bool))
    return torch.from_numpy(rng.integers(0, 256, count * dtype.itemsize, dtype=np.uint8)).view(dtype)


def _round_trip(tensor: torch.Tensor) -> torch.Tensor:
    array, name, shape = tensor_to_bits(tensor)
    encoded = encode_array(array)
    decoded = decode_array(encoded.codec_id, encoded.dtype, encoded.shape, encoded.data)
    result = bits_to_tensor(decoded, name, shape)
    assert result.device.type == "cpu" and not result.requires_grad
    assert result.is_contiguous()
    return result


def _bits(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy())


def _assert_equal(result: torch.Tensor, expected: torch.Tensor) -> None:
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    assert _bits(result) == _bits(expected)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("shape", [(24,), (2, 3, 4), (0, 3), ()], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_f1_every_dtype_and_shape_comes_back_bit_for_bit(name: str, shape: tuple[int, ...]) -> None:
    tensor = _tensor(name)[:0].reshape(shape) if 0 in shape else _tensor(name)[: int(np.prod(shape))].reshape(shape)
    result = _round_trip(tensor)
    _assert_equal(result, tensor)
    result.view(torch.uint8 if shape else result.dtype).zero_()  # writable


@pytest.mark.filterwarnings("ignore:ComplexHalf")  # torch calls complex32 experimental
@pytest.mark.parametrize("name", NAMES)
def test_f1_non_contiguous_and_expanded_tensors_come_back_as_values(name: str) -> None:
    tensor = _tensor(name).view(4, 6)
    for view in (tensor.t(), tensor[:, 1:5:2], tensor[1:2].expand(5, 6), tensor[0, 0].expand(2, 3)):
        _assert_equal(_round_trip(view), view)


def test_f1_grad_parameters_and_lazy_bits_are_resolved() -> None:
    leaf = torch.randn(3, requires_grad=True)
    _assert_equal(_round_trip(leaf), leaf)
    _assert_equal(_round_trip(leaf * 2), leaf * 2)
    parameter = torch.nn.Parameter(torch.randn(2, 2))
    result = _round_trip(parameter)
    assert type(result) is torch.Tensor and torch.equal(result, parameter)
    lazy = torch.randn(3, 2, dtype=torch.complex64).conj()
    assert lazy.is_conj() and torch.equal(_round_trip(lazy), lazy.resolve_conj())
    assert torch.equal(_round_trip(lazy.t()), lazy.t().resolve_conj())
    negative = torch.randn(3, dtype=torch.complex64).conj().imag
    assert negative.is_neg() and torch.equal(_round_trip(negative), negative.resolve_neg())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_f1_tensors_on_a_gpu_come_back_on_the_cpu() -> None:
    tensor = torch.randn(5, device="cuda", dtype=torch.bfloat16)
    _assert_equal(_round_trip(tensor), tensor.cpu())


def test_f2_a_view_stores_only_what_it_shows() -> None:
    batch = torch.randint(0, 255, (64, 100_000), dtype=torch.uint8)
    array, _, _ = tensor_to_bits(batch[5:6])
    assert array.nbytes == 100_000
    assert len(encode_array(array).data) < 100_100


def test_f2_a_tensor_that_comes_back_has_storage_of_its_own() -> None:
    pack = np.arange(1000, dtype=np.int64)
    first = bits_to_tensor(pack[:10], "int64", (10,))
    second = bits_to_tensor(pack[:10], "int64", (10,))
    assert first.untyped_storage().nbytes() == 80
    first.fill_(-1)
    assert second[3] == 3 and pack[3] == 3
    locked = np.frombuffer(bytes(8), np.int8)
    bits_to_tensor(locked, "int8", (8,)).fill_(1)
    assert locked.tolist() == [0] * 8


def test_integer_tensors_narrow_and_widen_again() -> None:
    tensor = torch.arange(100, dtype=torch.int64)
    array, name, shape = tensor_to_bits(tensor)
    small = narrow(array)
    assert small.dtype == np.uint8
    assert torch.equal(bits_to_tensor(small, name, shape), tensor)


SPARSE_KINDS = [
    "coo",
    "coo uncoalesced",
    "coo hybrid",
    "coo bf16",
    "coo grad",
    "coo nothing",
    "csr",
    "csc",
    "bsr",
    "bsc",
]


def _sparse_tensors() -> dict[str, torch.Tensor]:
    dense = torch.tensor([[0, 2, 0, 0], [3, 0, 0, 1], [0, 0, 0, 0], [0, 0, 4, 5]], dtype=torch.float32)
    uncoalesced = torch.sparse_coo_tensor(torch.tensor([[1, 0, 1], [2, 0, 2]]), torch.tensor([1.0, 2.0, 3.0]), (3, 4))
    return {
        "coo": dense.to_sparse().coalesce(),
        "coo uncoalesced": uncoalesced,
        "coo hybrid": torch.sparse_coo_tensor(torch.tensor([[0, 2]]), torch.ones(2, 3), (4, 3)),
        "coo bf16": dense.bfloat16().to_sparse(),
        "coo grad": dense.clone().requires_grad_().to_sparse(),
        "coo nothing": torch.sparse_coo_tensor(size=(2, 3)),
        "csr": dense.to_sparse_csr(),
        "csc": dense.to_sparse_csc(),
        "bsr": dense.to_sparse_bsr((2, 2)),
        "bsc": dense.to_sparse_bsc((2, 2)),
    }


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("kind", SPARSE_KINDS)
def test_f1_sparse_tensors_keep_their_layout_and_entries(kind: str) -> None:
    tensors = _sparse_tensors()
    assert list(tensors) == SPARSE_KINDS
    tensor = tensors[kind]
    assert layout_of(tensor) in SPARSE_LAYOUTS
    parts = sparse_to_parts(tensor)
    stored = {key: _round_trip(part) if isinstance(part, torch.Tensor) else part for key, part in parts.items()}
    result = parts_to_sparse(stored)
    assert (result.layout, result.dtype, result.shape) == (tensor.layout, tensor.dtype, tensor.shape)
    for key, part in sparse_to_parts(result).items():
        assert_same(part, parts[key]) if not isinstance(part, torch.Tensor) else _assert_equal(part, parts[key])
    assert not result.requires_grad


class Tagged(torch.Tensor):
    pass


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: torch.empty(3, device="meta"), "meta"),
        (lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), "quantized"),
        (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "nested"),
        (lambda: torch.ones(2).as_subclass(Tagged), "Tagged"),
        (lambda: torch.ones(2, 3).to_sparse(), "sparse_coo"),
        (lambda: torch.nn.UninitializedParameter(), "UninitializedParameter"),
    ],
    ids=["meta", "quantized", "nested", "subclass", "sparse as strided", "uninitialized"],
)
@pytest.mark.filterwarnings("ignore")
def test_tensors_that_cannot_be_kept_are_refused_with_a_reason(make: Any, reason: str) -> None:
    try:
        tensor = make()
    except Exception as error:
        pytest.skip(f"this torch cannot make one: {error}")
    with pytest.raises(UnsupportedValueError, match=reason):
        tensor_to_bits(tensor)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.sparse_csr_tensor(torch.tensor([0, 2]), torch.tensor([1, 0]), torch.ones(2), (1, 2)),
        lambda: torch.sparse_csr_tensor(torch.tensor([0, 1]), torch.tensor([5]), torch.ones(1), (1, 2)),
        lambda: torch.sparse_coo_tensor(torch.tensor([[1, 0]]), torch.ones(2), (2,), is_coalesced=True),
    ],
    ids=["columns out of order", "column out of range", "not coalesced as it says"],
)
@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_tensors_that_torch_would_not_make_again_are_refused_when_they_are_written(make: Any) -> None:
    with pytest.raises(UnsupportedValueError, match="cannot be made again"):
        sparse_to_parts(make())


def test_a_tensor_of_more_dimensions_than_numpy_has_is_refused() -> None:
    with pytest.raises(UnsupportedValueError, match="cannot be read"):
        tensor_to_bits(torch.ones([1] * 65))


def test_a_dense_tensor_is_not_taken_apart_as_a_sparse_one() -> None:
    with pytest.raises(UnsupportedValueError, match="not sparse"):
        sparse_to_parts(torch.ones(2))


@pytest.mark.parametrize("name", ["save", "Tensor", "float", "torch.int64", "qint8", "", "__dict__", "float99"])
def test_dtype_names_from_a_damaged_store_are_refused(name: str) -> None:
    with pytest.raises(BlobCorruptError):
        bits_to_tensor(np.zeros(3, np.uint8), name, (3,))


@pytest.mark.filterwarnings("ignore:Sparse")
def test_shapes_and_sparse_parts_from_a_damaged_store_are_refused() -> None:
    with pytest.raises(BlobCorruptError):
        bits_to_tensor(np.zeros(3, np.uint8), "uint8", (4,))
    good = sparse_to_parts(torch.eye(3).to_sparse())
    far = torch.full_like(good["indices"], 10**9)
    for change in (
        {"indices": far},
        {"layout": "strided"},
        {"layout": "save"},
        {"layout": None},
        {"shape": (-1, 3)},
        {"shape": "abc"},
        {"values": torch.ones(5)},
    ):
        with pytest.raises(BlobCorruptError):
            parts_to_sparse(good | change)
    with pytest.raises(BlobCorruptError):
        parts_to_sparse({"layout": "sparse_csr", "shape": (2, 2)})


def test_the_room_imports_neither_torch_nor_pil() -> None:
    code = (
        "import sys, slime_store.codecs, slime_store.codecs.tensors, slime_store.codecs.images;"
        "sys.exit(any(name in sys.modules for name in ('torch', 'PIL', 'pandas', 'sqlalchemy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
