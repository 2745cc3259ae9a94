"""A model parameter, as the trainer describes it when it sends new weights to the engines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class ParamInfo:
    """One parameter of a weight update.

    Attributes:
        name: full name in the model.
        dtype: element type.
        shape: shape of the whole parameter.
        attrs: attributes of the parameter, e.g. how it is split over ranks.
        size: number of elements.
        src_rank: rank that holds it.
    """

    name: str
    dtype: torch.dtype
    shape: torch.Size
    attrs: dict[str, Any]
    size: int
    src_rank: int
