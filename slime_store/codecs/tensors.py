"""Tensors as numpy arrays of their bits, and back. torch is imported inside, never with this module.

What is kept is the value: dtype, layout, shape and every bit. What is not: the device (tensors come
back on the cpu), ``requires_grad`` and ``nn.Parameter``, strides, and storage that a view does not show.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from slime_store.codecs.base import Array
from slime_store.errors import BlobCorruptError, UnsupportedValueError

if TYPE_CHECKING:
    import torch

_PLAIN = "bool uint8 int8 int16 int32 int64 float16 float32 float64 complex64 complex128"
_CARRIERS = {name: (name, name) for name in _PLAIN.split()} | {
    "uint16": ("int16", "uint16"),  # torch knows these three only by name in its older versions
    "uint32": ("int32", "uint32"),
    "uint64": ("int64", "uint64"),
    "bfloat16": ("int16", "uint16"),
    "complex32": ("int32", "uint32"),
    "float8_e4m3fn": ("uint8", "uint8"),
    "float8_e4m3fnuz": ("uint8", "uint8"),
    "float8_e5m2": ("uint8", "uint8"),
    "float8_e5m2fnuz": ("uint8", "uint8"),
    "float8_e8m0fnu": ("uint8", "uint8"),
    "float4_e2m1fn_x2": ("uint8", "uint8"),
}
"""torch dtype -> the torch dtype through which its bits travel, and the numpy dtype they arrive in."""

_COMPRESSED = {  # layout -> the methods that give its two index tensors
    "sparse_csr": ("crow_indices", "col_indices"),
    "sparse_csc": ("ccol_indices", "row_indices"),
    "sparse_bsr": ("crow_indices", "col_indices"),
    "sparse_bsc": ("ccol_indices", "row_indices"),
}
SPARSE_LAYOUTS = ("sparse_coo", *_COMPRESSED)


def layout_of(tensor: torch.Tensor) -> str:
    """Return "strided" or the name of the tensor's sparse layout."""
    return str(tensor.layout).removeprefix("torch.")


def tensor_to_bits(tensor: torch.Tensor) -> tuple[Array, str, tuple[int, ...]]:
    """Return a strided tensor's values as a C-contiguous array, with its dtype's name and its shape.

    The array has the tensor's shape and the numpy dtype of the same name, or where numpy has none
    (bfloat16, float8) an unsigned dtype of the same width. It may share memory with the tensor: encode
    or copy it before the tensor can change. Costs a copy only where the tensor is not contiguous, not on
    the cpu, or a lazy conjugate.

    Raises:
        UnsupportedValueError: a tensor without values of its own (meta, nested, a subclass) or of a
            dtype or layout that is not stored. Sparse tensors go through ``sparse_to_parts``.
    """
    import torch

    plain = _plain(tensor)
    name = str(plain.dtype).removeprefix("torch.")
    if plain.layout is not torch.strided:
        _refuse(f"a tensor of layout {layout_of(plain)}")
    if name not in _CARRIERS:
        _refuse(f"a tensor of dtype {name}")
    carrier, arrives = _CARRIERS[name]
    try:
        plain = plain.resolve_conj().resolve_neg()
        bits = plain.view(getattr(torch, carrier)).cpu().contiguous().numpy()
    except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:  # numpy takes fewer dimensions
        _refuse(f"a {name} tensor on {tensor.device} that cannot be read ({_first_line(error)})")
    return bits.view(arrives), name, tuple(plain.shape)


def bits_dtype(dtype: str) -> np.dtype[Any]:
    """Return the numpy dtype that ``tensor_to_bits`` gives for a tensor dtype.

    Raises:
        BlobCorruptError: no such tensor dtype is stored.
    """
    if dtype not in _CARRIERS:
        raise BlobCorruptError(f"tensor dtype {dtype!r} is unknown")
    return np.dtype(_CARRIERS[dtype][1])


def bits_to_tensor(array: Array, dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    """Return the tensor of ``tensor_to_bits``, from its array in any exactly narrowed dtype.

    The tensor is on the cpu, without grad, writable and C-contiguous. It takes the array's memory
    where that is the array's own and exactly as large, and copies otherwise.

    Raises:
        BlobCorruptError: an unknown dtype name, or an array that has another shape.
    """
    import torch

    torch_dtype = vars(torch).get(dtype) if dtype in _CARRIERS else None
    if not isinstance(torch_dtype, torch.dtype):
        raise BlobCorruptError(f"tensor dtype {dtype!r} is unknown to torch {torch.__version__}")
    if array.shape != tuple(shape):
        raise BlobCorruptError(f"an array of shape {array.shape} for a tensor of shape {tuple(shape)}")
    if array.size == 0:  # numpy's strides of no elements are not torch's
        return torch.empty(array.shape, dtype=torch_dtype)
    carrier, arrives = _CARRIERS[dtype]
    bits = array.astype(arrives, order="C", copy=False)
    if not _owns_its_memory(bits):
        bits = bits.copy()
    return torch.from_numpy(bits.view(carrier)).view(torch_dtype)


def sparse_to_parts(tensor: torch.Tensor) -> dict[str, Any]:
    """Return a sparse tensor as plain data and strided tensors.

    For "sparse_coo": ``layout, shape, coalesced, indices, values``, uncoalesced entries in their order.
    For "sparse_csr", "_csc", "_bsr" and "_bsc": ``layout, shape, compressed_indices, plain_indices, values``.

    Raises:
        UnsupportedValueError: not a sparse tensor, one without values of its own, or one that torch made without a look
            and would refuse: with indices that are out of range or out of order, or entries twice.
    """
    parts = _parts(tensor)
    try:
        parts_to_sparse(parts)
    except BlobCorruptError as error:
        _refuse(f"a {parts['layout']} tensor that cannot be made again ({error.reason})")
    return parts


def _parts(tensor: torch.Tensor) -> dict[str, Any]:
    plain = _plain(tensor)
    layout = layout_of(plain)
    if layout not in SPARSE_LAYOUTS:
        _refuse(f"a tensor of layout {layout} is not sparse")
    parts: dict[str, Any] = {"layout": layout, "shape": tuple(plain.shape)}
    if layout == "sparse_coo":
        return parts | {
            "coalesced": plain.is_coalesced(),
            "indices": plain._indices(),
            "values": plain._values(),
        }
    compressed, other = (getattr(plain, method)() for method in _COMPRESSED[layout])
    return parts | {"compressed_indices": compressed, "plain_indices": other, "values": plain.values()}


def parts_to_sparse(parts: dict[str, Any]) -> torch.Tensor:
    """Return the sparse tensor of ``sparse_to_parts``.

    Raises:
        BlobCorruptError: parts that do not make a valid sparse tensor.
    """
    import torch

    layout = parts.get("layout")
    try:
        written_out = type(parts["shape"]) in (tuple, list, torch.Size)  # and no range, which is as long as it likes
        named = [part for name, part in parts.items() if name == "values" or name.endswith("indices")]
        if not written_out or not all(type(part) is torch.Tensor for part in named):
            raise BlobCorruptError(f"parts of other types than a {layout} tensor has")
        shape = torch.Size(parts["shape"])
        if layout == "sparse_coo":
            return torch.sparse_coo_tensor(
                parts["indices"],
                parts["values"],
                shape,
                check_invariants=True,
                is_coalesced=bool(parts["coalesced"]),
            )
        if layout in _COMPRESSED:
            return torch.sparse_compressed_tensor(
                parts["compressed_indices"],
                parts["plain_indices"],
                parts["values"],
                shape,
                layout=getattr(torch, layout),
                check_invariants=True,
            )
    except (KeyError, RuntimeError, TypeError, ValueError, IndexError) as error:
        raise BlobCorruptError(f"parts that make no {layout} tensor ({_first_line(error)})") from None
    raise BlobCorruptError(f"tensor layout {layout!r} is unknown")


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor without grad, or refuse one that has no values of its own."""
    import torch

    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        _refuse(f"a tensor subclass {type(tensor).__qualname__}; give it as .as_subclass(torch.Tensor)")
    if tensor.is_quantized:
        _refuse(f"a quantized tensor ({tensor.dtype}); give its int_repr() and scales")
    if tensor.is_nested:
        _refuse("a nested tensor; give it as a list of tensors")
    if tensor.device.type == "meta":
        _refuse("a tensor on the meta device, which has no values")
    if any(name is not None for name in getattr(tensor, "names", ())):
        _refuse("a tensor with named dimensions; give it as .rename(None)")
    return tensor.detach()


def _owns_its_memory(array: Array) -> bool:
    root: Any = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    return bool(array.flags.writeable and array.flags.aligned and root.base is None and root.nbytes == array.nbytes)


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]


def _refuse(reason: str) -> NoReturn:
    raise UnsupportedValueError("", reason)
