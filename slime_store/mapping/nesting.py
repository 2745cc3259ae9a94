"""How samples lie in lists: the nested list of a rollout, to a shape and back.

A shape is the nested list with each run of samples replaced by their number: ``[[a, b], [[c, d], [e]], [f]]``
is ``[[2], [[2], [1]], [1]]``. A tuple is ``{"$tuple": [...]}``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from slime_store.errors import BlobCorruptError, InvalidOutputError
from slime_store.types.duck import is_sample_type

_MAX_DEPTH = 50


@dataclass(frozen=True)
class Place:
    """Where a sample lies: its group, its execution inside the group, its segment of a split execution."""

    group: int
    sample: int
    segment: int | None


@dataclass
class Group:
    """A top-level element: the samples of one prompt."""

    first_position: int
    n_samples: int = 0
    n_trajectories: int = 0


@dataclass
class FlatSamples:
    """A nested list of samples, flattened.

    Attributes:
        samples: in the order of a depth-first walk.
        places: one for each sample.
        groups: in order; groups without samples included.
        shape: JSON text from which ``nest`` rebuilds the lists.
    """

    samples: list[Any] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    shape: str = "[]"


def flatten(tree: Any, where: str = "samples") -> FlatSamples:
    """Flatten a nested list of samples of any depth.

    The elements of the outer list are the groups. In a flat list of samples, neighbours that share a ``group_index``
    are a group, and each sample without one is a group of its own.

    Raises:
        InvalidOutputError: an element is neither a list, a tuple nor a sample.
    """
    flat = FlatSamples()
    flat.shape = json.dumps(_shape_of(tree, where, flat.samples, 0), separators=(",", ":"))
    position = 0
    last_index: Any = None
    for element in tree:
        if is_sample_type(type(element)):
            index = getattr(element, "group_index", None)
            index = index if isinstance(index, (int, str)) else None
            if not flat.groups or index is None or index != last_index:
                flat.groups.append(Group(position))
            last_index = index
            leaves: list[list[Any]] = [[element]]
        else:
            flat.groups.append(Group(position))
            last_index = None
            leaves = [list(_leaves(child)) for child in element]
        group = flat.groups[-1]
        nested = not is_sample_type(type(element)) and _is_nested(element)
        for execution in leaves:
            split = nested or len(execution) > 1
            for segment in range(len(execution)):
                flat.places.append(Place(len(flat.groups) - 1, group.n_trajectories, segment if split else None))
            group.n_trajectories += bool(execution)
            group.n_samples += len(execution)
            position += len(execution)
    return flat


def nest(shape: str, samples: Sequence[Any]) -> Any:
    """Rebuild the nested list from its shape.

    Raises:
        BlobCorruptError: the shape does not take exactly these samples.
    """
    return _build(checked_shape(shape, len(samples)), iter(samples))


def checked_shape(shape: str, n_samples: int) -> Any:
    """Return a shape, parsed, that takes exactly so many samples; nothing is made of what it counts.

    Raises:
        BlobCorruptError: it takes more or fewer, or is no shape.
    """
    try:
        tree = json.loads(shape)
        taken = _count(tree)
    except (ValueError, TypeError, KeyError, RecursionError) as exc:
        raise BlobCorruptError(f"the nesting {shape[:80]!r} does not fit {n_samples} samples") from exc
    if taken != n_samples:
        relation = "fewer" if taken < n_samples else "more"
        raise BlobCorruptError(f"the nesting {shape[:80]!r} takes {relation} than {n_samples} samples")
    return tree


def _shape_of(tree: Any, where: str, samples: list[Any], depth: int) -> Any:
    if not isinstance(tree, (list, tuple)) or depth > _MAX_DEPTH:
        kind = type(tree).__name__
        hint = "; make samples of dicts by Sample.from_dict" if isinstance(tree, dict) and depth else ""
        hint = "; an eval goes to record_eval" if isinstance(tree, dict) and not depth else hint
        raise InvalidOutputError(where, f"expected nested lists of samples, found {kind} at depth {depth}{hint}")
    shape: list[Any] = []
    for i, element in enumerate(tree):
        if is_sample_type(type(element)):
            samples.append(element)
            if shape and isinstance(shape[-1], int):
                shape[-1] += 1
            else:
                shape.append(1)
        else:
            shape.append(_shape_of(element, f"{where}[{i}]", samples, depth + 1))
    if type(tree) not in (list, tuple):
        raise InvalidOutputError(where, f"{type(tree).__name__} is not a plain list or tuple")
    return {"$tuple": shape} if type(tree) is tuple else shape


def _count(shape: Any) -> int:
    items = shape["$tuple"] if isinstance(shape, dict) else shape
    numbers = [item for item in items if isinstance(item, int)]
    if any(number < 0 for number in numbers):
        raise ValueError("fewer samples than none")
    return sum(numbers) + sum(_count(item) for item in items if not isinstance(item, int))


def _build(shape: Any, samples: Iterator[Any]) -> Any:
    if isinstance(shape, dict):
        return tuple(_build(shape["$tuple"], samples))
    tree: list[Any] = []
    for item in shape:
        if isinstance(item, int):
            tree.extend(islice(samples, item))
        else:
            tree.append(_build(item, samples))
    return tree


def _leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, (list, tuple)):
        for child in tree:
            yield from _leaves(child)
    else:
        yield tree


def _is_nested(element: Any) -> bool:
    return any(isinstance(child, (list, tuple)) for child in element)
