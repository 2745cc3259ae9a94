"""Samples as one JSON text and a few plain arrays: what a system without a codec of its own can store."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image

from slime_store import Sample

LISTS = {"tokens": np.dtype(np.int32), "loss_mask": np.dtype(np.uint8), "rollout_log_probs": np.dtype(np.float32)}
"""The token lists of the workloads, and the smallest plain dtype that holds each."""

_BATCH = {"tokens": np.dtype(np.int64), "loss_mask": np.dtype(np.int32), "rollout_log_probs": np.dtype(np.float32)}


@dataclass(frozen=True)
class Part:
    """A tensor, an array or an image of a sample, as bytes."""

    name: str
    of: str
    dtype: str
    shape: tuple[int, ...]
    data: Any


def split(sample: Any) -> tuple[str, dict[str, np.ndarray[Any, Any]], list[Part]]:
    """Return (everything else as JSON, the token lists as arrays, tensors and images)."""
    head = sample.to_dict()
    arrays = {name: np.array(head.pop(name), dtype) for name, dtype in LISTS.items()}
    experts = head.pop("rollout_routed_experts")
    parts = [] if experts is None else [_part("rollout_routed_experts", experts)]
    for image in (head.pop("multimodal_inputs") or {}).get("images", []):
        parts.append(Part("images", "image", image.mode, image.size, image.tobytes()))
    for name, value in (head.pop("multimodal_train_inputs") or {}).items():
        parts.append(_part(name, value))
    return json.dumps(head), arrays, parts


def join(head: str, lists: dict[str, list[Any]], parts: list[Part]) -> Sample:
    """Return the sample that was split."""
    data = json.loads(head) | lists
    for part in parts:
        if part.of == "image":
            image = Image.frombytes(part.dtype, part.shape, bytes(part.data))
            data.setdefault("multimodal_inputs", {"images": []})["images"].append(image)
        elif part.name == "rollout_routed_experts":
            data[part.name] = value_of(part)
        else:
            data.setdefault("multimodal_train_inputs", {})[part.name] = value_of(part)
    return Sample.from_dict(data)


def value_of(part: Part) -> Any:
    """Return a part's tensor or array, with memory of its own."""
    carrier = "int16" if part.dtype == "bfloat16" else part.dtype
    array = np.frombuffer(part.data, carrier).reshape(part.shape).copy()
    return array if part.of == "ndarray" else torch.from_numpy(array).view(getattr(torch, part.dtype))


def batch_of(rows: list[tuple[str, dict[str, np.ndarray[Any, Any]], list[Part]]]) -> dict[str, list[Any]]:
    """Return the tensors that training reads, from rows as ``split`` makes them; lists are never made."""
    heads = [json.loads(head) for head, _, _ in rows]
    batch: dict[str, list[Any]] = {
        name: [torch.from_numpy(arrays[name].astype(dtype)) for _, arrays, _ in rows] for name, dtype in _BATCH.items()
    }
    batch["rewards"] = [head["reward"] for head in heads]
    batch["response_lengths"] = [head["response_length"] for head in heads]
    batch["truncated"] = [int(head["status"] == "truncated") for head in heads]
    for name in ("prompt", "response"):
        batch[name] = [head[name] for head in heads]
    if any(parts for _, _, parts in rows):
        batch["tensors"] = [{part.name: value_of(part) for part in parts if part.of != "image"} for _, _, parts in rows]
    return batch


def batch_of_samples(samples: list[Any]) -> dict[str, list[Any]]:
    """Return the tensors that training reads, from samples, as slime's trainer makes them."""
    batch: dict[str, list[Any]] = {
        name: [torch.tensor(getattr(sample, name), dtype=getattr(torch, dtype.name)) for sample in samples]
        for name, dtype in _BATCH.items()
    }
    batch["rewards"] = [sample.reward for sample in samples]
    batch["response_lengths"] = [sample.response_length for sample in samples]
    batch["truncated"] = [int(sample.status == Sample.Status.TRUNCATED) for sample in samples]
    for name in ("prompt", "response", "rollout_routed_experts", "multimodal_train_inputs"):
        batch[name] = [getattr(sample, name) for sample in samples]
    return batch


def _part(name: str, value: Any) -> Part:
    if isinstance(value, np.ndarray):
        return Part(name, "ndarray", value.dtype.name, value.shape, memoryview(np.ascontiguousarray(value)).cast("B"))
    bits = value.view(torch.int16) if value.dtype == torch.bfloat16 else value
    array = bits.contiguous().numpy()
    dtype = str(value.dtype).removeprefix("torch.")
    return Part(name, "tensor", dtype, tuple(value.shape), memoryview(array).cast("B"))
