"""Array packs straight to tensors, in the dtypes that training reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from slime_store.codecs.base import Array
from slime_store.errors import BatchError
from slime_store.mapping.decode import StoredSamples
from slime_store.mapping.opening import StoredPack, opened_packs
from slime_store.mapping.packs import OpenPack, holds_bits, piece_value

if TYPE_CHECKING:
    import torch

BATCH_DTYPES: dict[str, np.dtype[Any] | None] = {
    "tokens": np.dtype("int64"),
    "loss_mask": np.dtype("int32"),
    "rollout_log_probs": np.dtype("float32"),
    "teacher_log_probs": np.dtype("float32"),
    "rollout_top_p_token_ids": np.dtype("int32"),
    "rollout_top_p_token_offsets": np.dtype("int32"),
    "rollout_routed_experts": None,
}
"""What slime's trainer moves to the GPU, by field; None: the dtype that was recorded."""

_MOST_COUNTED = 1 << 16  # elements of a range that becomes a tensor
_NESTING = frozenset({list, tuple, range})
_TOGETHER_BYTES = 24 << 20
"""Stored bytes of packs that are in memory, and decompressed, at a time."""


@dataclass(frozen=True)
class BatchTensors:
    """The tensors of a batch.

    Attributes:
        columns: by field of ``BATCH_DTYPES``, one tensor for each sample in order; None where it has no value.
        mask_sums: sums of loss masks, by the sample's number in the batch, as far as they are known already.
    """

    columns: dict[str, list[torch.Tensor | None]]
    mask_sums: dict[int, int]


def opened_for_batch(packs: Sequence[StoredPack]) -> Iterator[tuple[StoredPack, OpenPack]]:
    """Decompress and convert the packs of a batch as they are asked for."""
    return opened_packs([pack for pack in packs if pack.field in BATCH_DTYPES], _TOGETHER_BYTES, BATCH_DTYPES)


def batch_tensors(
    stored: StoredSamples,
    packs: Iterable[tuple[StoredPack, OpenPack]],
    exact: Mapping[int, Mapping[str, Any]],
    where: str,
) -> BatchTensors:
    """Make the tensors of all samples.

    No two tensors have memory in common, and each has a storage of just its own bytes, so that a part of the batch can
    be sent to another process alone. Tensors of one pack (half a megabyte as stored) keep each other's memory alive.

    Args:
        stored: the rows.
        packs: what ``opened_for_batch`` gives.
        exact: values from the ``extra`` documents, by the sample's number in the batch; they win.
        where: names the rollout in errors.

    Raises:
        BatchError: a value makes no tensor.
        BlobCorruptError: stored bytes are damaged.
    """
    from torch import from_numpy

    numbers = {row["position"]: i for i, row in enumerate(stored.columns)}
    columns: dict[str, list[Any]] = {name: [None] * len(numbers) for name in BATCH_DTYPES}
    mask_sums: dict[int, int] = {}
    for stored_pack, pack in packs:
        column, dtype = columns[stored_pack.field], BATCH_DTYPES[stored_pack.field]
        is_converted = dtype is not None and not holds_bits(pack.of, stored_pack.dtype)
        for position, array in pack.arrays(stored_pack.first_position, numbers):
            column[numbers[position]] = from_numpy(array) if is_converted else _tensor(pack, array, dtype)
        if stored_pack.field == "loss_mask" and is_converted and pack.is_flat:
            sums = pack.sums(stored_pack.first_position)
            mask_sums.update({numbers[at]: total for at, total in sums.items() if at in numbers})
    for i, values in exact.items():
        for name, dtype in BATCH_DTYPES.items():
            if values.get(name) is not None:
                columns[name][i] = _exact_tensor(values[name], dtype, where, i, name)
                if name == "loss_mask":
                    mask_sums.pop(i, None)
    return BatchTensors(columns, mask_sums)


def empty_tensor(name: str) -> torch.Tensor:
    """Return the field's tensor of a sample without any values."""
    import torch

    dtype = BATCH_DTYPES[name]
    return torch.empty(0, dtype=None if dtype is None else getattr(torch, dtype.name))


def _is_written_out(value: Any) -> bool:
    """Return False where there is a range in a value that is far longer than the document it came from."""
    if isinstance(value, range):
        return not value[_MOST_COUNTED:]
    if not isinstance(value, (list, tuple)) or not _NESTING & set(map(type, value)):
        return True
    return all(map(_is_written_out, value))


def _tensor(pack: OpenPack, array: Array, dtype: np.dtype[Any] | None) -> torch.Tensor:
    """Return the tensor of a value that is not converted yet."""
    import torch

    tensor = torch.as_tensor(piece_value(pack.of, pack.type, array))
    return tensor if dtype is None else tensor.to(getattr(torch, dtype.name))


def _exact_tensor(value: Any, dtype: np.dtype[Any] | None, where: str, i: int, name: str) -> torch.Tensor:
    import torch

    if not _is_written_out(value):
        raise BatchError(where, i, f"{name} makes no tensor (a range in it is too long)")
    try:
        tensor = torch.as_tensor(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise BatchError(where, i, f"{name} makes no tensor ({error})") from None
    return tensor.clone() if dtype is None else tensor.to(getattr(torch, dtype.name), copy=True)
