"""A data source's state: what it takes to hand out the same prompts again."""

from __future__ import annotations

import hashlib
import operator
from collections import deque
from typing import Any

from slime_store.mapping.snapshot import snapshot
from slime_store.plugins.stable import stable_text

_COUNTERS = ("sample_offset", "epoch_id", "sample_group_index", "sample_index", "metadata")
_CURSOR = "sample_offset"


def capture(source: Any) -> dict[str, Any] | None:
    """Return the state of a data source, its buffer included; None for a class that does not show all of it.

    A class with ``state_dict`` and ``load_state_dict`` says its state itself; of others, the counters and the buffer of
    slime's and miles's own data sources are taken, as a snapshot, if their cursor is among them.
    """
    if hasattr(source, "state_dict") and hasattr(source, "load_state_dict"):
        return {"custom": snapshot(source.state_dict())}
    state = {name: getattr(source, name) for name in _COUNTERS if hasattr(source, name)}
    buffer = getattr(source, "buffer", None)
    if _CURSOR not in state or not isinstance(buffer, (list, deque, type(None))):
        return None
    if buffer is not None:
        state["buffer"] = list(buffer)
    copied: dict[str, Any] = snapshot(state)
    return copied


def restore(source: Any, state: dict[str, Any]) -> None:
    """Put a data source back to a captured state; its dataset is shuffled as the state's epoch had it."""
    if "custom" in state:
        source.load_state_dict(state["custom"])
        return
    for name in _COUNTERS:
        if name in state:
            setattr(source, name, state[name])
    if "buffer" in state and isinstance(getattr(source, "buffer", None), (list, deque)):
        source.buffer.clear()
        source.buffer.extend(state["buffer"])
    dataset = getattr(source, "dataset", None)
    if dataset is not None and getattr(getattr(source, "args", None), "rollout_shuffle", False):
        dataset.shuffle(source.epoch_id)


def dataset_fingerprint(source: Any) -> str | None:
    """Return a digest of the dataset's size and of up to 1,000 of its prompts and labels, in unshuffled order."""
    dataset = getattr(source, "dataset", None)
    samples = getattr(dataset, "origin_samples", None)
    if samples is None:
        return None
    digest = hashlib.blake2b(str(len(samples)).encode(), digest_size=16)
    for sample in samples[:: max(1, len(samples) // 1000)]:
        digest.update(stable_text((sample.prompt, sample.label)).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def leaves(tree: Any) -> list[Any]:
    """Return the samples of a nested list, in order."""
    if not isinstance(tree, (list, tuple)):
        return [tree]
    return [leaf for item in tree for leaf in leaves(item)]


def group_index_of(group: Any) -> int | None:
    """Return the group index that a group's samples carry; None where there is none, or none that is a number."""
    samples = leaves(group)
    index = getattr(samples[0], "group_index", None) if samples else None
    try:
        return None if isinstance(index, bool) else operator.index(index)  # type: ignore[arg-type]
    except TypeError:
        return None
