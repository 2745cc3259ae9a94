"""Rules for torch: tensors as views of the mapped file, on the cpu, without grad and hooks."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slime_store.codecs.tensors import SPARSE_LAYOUTS, parts_to_sparse
from slime_store.interchange.restricted.archive import TorchArchive
from slime_store.interchange.restricted.rules import Rule, dimensions, integer, refuse, require, sizes

if TYPE_CHECKING:
    import torch

_STORAGE_TYPES = {  # torch's names of typed storages -> dtype
    "Double": "float64",
    "Float": "float32",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
    "ComplexDouble": "complex128",
    "ComplexFloat": "complex64",
}
_DTYPE = re.compile(r"torch\.(bool|complex\d+|b?float[0-9a-z_]*|u?int\d+)")
_MAX_EXPANDED = 1 << 28  # elements of a tensor that repeats those of its storage
_KEY = re.compile(r"\w{1,40}")


@dataclass(frozen=True)
class StorageType:
    """A class of storages; ``dtype`` is None for untyped ones, which are counted in bytes."""

    dtype: Any


_ALIGNED_BYTES = 16
"""Of the largest elements."""


@dataclass(frozen=True)
class Storage:
    """A record of the archive: its bytes, and the dtype of its elements where the storage says one."""

    content: torch.Tensor
    dtype: Any

    def elements(self, dtype: torch.dtype) -> torch.Tensor:
        """Return all its elements."""
        whole = self.content.numel() // dtype.itemsize * dtype.itemsize
        content = self.content[:whole]
        return content.view(dtype) if whole else content.new_empty(0, dtype=dtype)


def storage_reader(archive: TorchArchive) -> Callable[..., Storage]:
    """Return the function that makes a storage from a persistent id, each record once."""
    import torch

    known: dict[str, torch.Tensor] = {}

    def read(*pid: Any) -> Storage:
        if len(pid) != 5 or pid[0] != "storage" or not isinstance(pid[1], StorageType):
            refuse("a persistent id that is not a storage's")
        _, kind, key, _location, count = pid
        if type(key) is not str or not _KEY.fullmatch(key) or type(count) is not int:
            refuse("a storage with a strange name or size")
        dtype = kind.dtype or torch.uint8
        if key not in known:
            start, size = archive.record(f"data/{key}")
            content = torch.empty(0, dtype=torch.uint8)
            if size:
                content = torch.frombuffer(archive.buffer, dtype=torch.uint8, count=size, offset=start)
            # torch.save aligns records; others might not
            known[key] = content.clone() if content.data_ptr() % _ALIGNED_BYTES else content
        if known[key].numel() != count * dtype.itemsize:
            refuse(f"a storage {key} whose size is not that of its record")
        return Storage(known[key], kind.dtype)

    return read


def _tensor(storage: Any, offset: Any, size: Any, stride: Any, _requires_grad: Any, _hooks: Any, *rest: Any) -> Any:
    if not isinstance(storage, Storage) or storage.dtype is None:
        refuse("a tensor without a storage")
    return _view(storage.elements(storage.dtype), offset, size, stride, *rest)


def _tensor_of_dtype(
    storage: Any, offset: Any, size: Any, stride: Any, _requires_grad: Any, _hooks: Any, dtype: Any, *rest: Any
) -> Any:
    import torch

    if not isinstance(storage, Storage) or not isinstance(dtype, torch.dtype):
        refuse("a tensor without a storage")
    return _view(storage.elements(dtype), offset, size, stride, *rest)


def _view(elements: torch.Tensor, offset: Any, size: Any, stride: Any, metadata: Any = None) -> torch.Tensor:
    import torch

    shape, steps = dimensions(size, "a tensor's size"), dimensions(stride, "a tensor's stride")
    (start,) = sizes((offset,), "a tensor's offset")
    if len(shape) != len(steps):
        refuse("a tensor with more sizes than strides")
    last = start + sum((n - 1) * step for n, step in zip(shape, steps, strict=True))
    if math.prod(shape) == 0:
        return elements.new_empty(shape)
    if last >= elements.numel():
        refuse("a tensor that reaches beyond its storage")
    if math.prod(shape) > max(elements.numel(), _MAX_EXPANDED):
        refuse("a tensor far larger than its storage")
    made = elements.as_strided(shape, steps, start)
    flags = require(metadata, dict, "a tensor's flags") if metadata else {}
    if flags.get("conj"):
        made = made.conj()
    return torch._neg_view(made) if flags.get("neg") else made


def _parameter(data: Any, _requires_grad: Any, _hooks: Any) -> Any:
    import torch

    if type(data) is not torch.Tensor:
        refuse("a parameter that is no tensor")
    return torch.nn.Parameter(data, requires_grad=False)


def _layout(name: Any) -> str:
    layout = require(name, str, "a layout").removeprefix("torch.")
    if layout not in SPARSE_LAYOUTS:
        refuse(f"a tensor of layout {layout}")
    return layout


def _sparse(layout: Any, data: Any) -> Any:
    parts = list(require(data, tuple, "a sparse tensor"))
    if layout == "sparse_coo":
        indices, values, shape, *coalesced = parts
        described = {
            "indices": indices,
            "values": values,
            "shape": shape,
            "coalesced": bool(coalesced and coalesced[0]),
        }
    else:
        compressed, plain, values, shape = parts
        described = {"compressed_indices": compressed, "plain_indices": plain, "values": values, "shape": shape}
    described["shape"] = dimensions(described["shape"], "a sparse tensor's shape")
    return parts_to_sparse({"layout": require(layout, str, "a layout"), **described})


def _size(shape: Any) -> torch.Size:
    import torch

    return torch.Size(dimensions(shape, "a torch.Size"))


def _device(*args: Any) -> torch.device:
    import torch

    return torch.device(require(args[0], str, "a device"), *[integer(each, "a device") for each in args[1:]])


def rule_for(name: str) -> Rule | None:
    """Return the rule for a name in torch, or None; torch is imported here."""
    import torch

    if name in _CALLS:
        return _CALLS[name]
    if _DTYPE.fullmatch(name):
        dtype = vars(torch).get(name.removeprefix("torch."))
        return Rule(constant=dtype) if isinstance(dtype, torch.dtype) else None
    if name == "torch.storage.UntypedStorage":
        return Rule(constant=StorageType(None))
    kind = _STORAGE_TYPES.get(name.removeprefix("torch.").removesuffix("Storage"))
    if kind is not None and name.endswith("Storage"):
        return Rule(constant=StorageType(getattr(torch, kind)))
    return None


_CALLS: dict[str, Rule] = {
    "torch._utils._rebuild_tensor_v2": Rule(_tensor),
    "torch._utils._rebuild_tensor_v3": Rule(_tensor_of_dtype),
    "torch._utils._rebuild_parameter": Rule(_parameter),
    "torch._utils._rebuild_sparse_tensor": Rule(_sparse),
    "torch.serialization._get_layout": Rule(_layout),
    "torch.Size": Rule(_size),
    "torch.device": Rule(_device),
}
