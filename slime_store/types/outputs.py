"""What a rollout function returns, and the batch that training reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import torch

    from slime_store.types.sample import Sample

# Field name -> one entry per sample. Every list of a batch has the same length and order.
RolloutBatch: TypeAlias = dict[str, list["torch.Tensor"] | list[int] | list[float] | list[str]]


@dataclass
class RolloutFnTrainOutput:
    """What one training call of a rollout function returns.

    Attributes:
        samples: by group, ``[rollout_batch_size][n_samples_per_prompt]``. A third level appears
            where one execution was split into segments, and older functions return a flat list.
        metrics: figures of this rollout, e.g. ``{"filter_drop_rate": 0.15}``. None if there are none.
    """

    samples: list[list[Sample]]
    metrics: dict[str, Any] | None = None


@dataclass
class RolloutFnEvalOutput:
    """What one evaluation call of a rollout function returns.

    Attributes:
        data: dataset name -> ``{"rewards": [...], "truncated": [...], "samples": [...]}``, all in
            the order of the samples. Any of the three may be missing and other keys may be present.
        metrics: figures of this eval, e.g. ``{"gsm8k_accuracy": 0.87}``. None if there are none.
    """

    data: dict[str, dict[str, Any]]
    metrics: dict[str, Any] | None = None


def iter_leaf_samples(tree: Any) -> Iterator[Any]:
    """Walk nested lists and tuples of any depth and shape and yield their samples in order.

    Whatever is not a list or tuple is a leaf, so a single sample yields itself. Depth is bounded by
    memory only.
    """
    pending = [iter((tree,))]
    while pending:
        for node in pending[-1]:
            if isinstance(node, (list, tuple)):
                pending.append(iter(node))
                break
            yield node
        else:
            pending.pop()
