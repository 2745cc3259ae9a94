"""slime's and miles's own classes, from the checkouts that SLIME_CHECKOUT and MILES_CHECKOUT name.

Neither is on PyPI. A checkout is on ``sys.path`` only while a test uses it, and its types module needs
torch and numpy alone: no ray.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any

from tests.services.outside import checkout


def import_types(framework: str) -> Iterator[Any]:
    """Yield ``<framework>.utils.types`` and forget it afterwards; skip the test without a checkout."""
    path = checkout(framework)
    before = set(sys.modules)
    sys.path.insert(0, path)
    try:
        yield importlib.import_module(f"{framework}.utils.types")
    finally:
        sys.path.remove(path)
        for name in set(sys.modules) - before:  # other tests must not find the framework importable
            if name.split(".")[0] == framework:
                del sys.modules[name]


def fill_every_field(cls: Any) -> Any:
    """Return a sample of this class in which every field differs from its default."""
    import numpy as np
    import torch

    special = {
        "prompt": [{"role": "user", "content": "2+2"}],
        "status": cls.Status.ABORTED,
        "reward": {"task": 0.5, "length": -0.0},
        "remove_sample": True,
        "non_generation_time": 0.25,
        "rollout_routed_experts": np.arange(6, dtype=np.int32).reshape(3, 1, 2),
        "rollout_top_p_token_ids": torch.tensor([1, 2], dtype=torch.int32),
        "multimodal_train_inputs": {"pixel_values": torch.ones(2, dtype=torch.bfloat16)},
        "spec_info": cls.SpecInfo(1, 2, 3, 4),
        "prefix_cache_info": cls.PrefixCacheInfo(5, 6),
    }
    values = {name: special.get(name, f"a value of {name}") for name in cls.__dataclass_fields__}
    sample = cls(**values)
    sample.tool_call_count = 3
    return sample
