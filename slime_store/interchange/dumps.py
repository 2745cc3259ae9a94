"""Rollout dumps of slime and miles: what a file of ``--save-debug-rollout-data`` or ``--dump-details`` says.

Such a file is a dict of ``rollout_id``, ``samples`` (dicts of ``Sample.to_dict``, flattened) and whatever a fork adds.
It does not say whether it is of a training rollout or an eval (the file's name does), how the samples lay in lists, or
to which dataset they belonged. The rules by which this is inferred:

* **Kind**: a file that says the names of its datasets is an eval; else its name tells, see ``dump_names``.
* **Groups**: neighbours with the same ``group_index`` are a group; a sample without one is a group of its own. Where
  two samples of a group share a ``Sample.rollout_id``, they are segments of one execution, and every execution of that
  group becomes a list. The order of the samples never changes.
* **Datasets**: slime numbers an eval's samples from 0 in each dataset, one after the other. Each return to 0 begins a
  new dataset; they are called ``eval_0``, ``eval_1``, ... in their order. Where the numbers do not follow this pattern
  there is one, ``eval_0``. A file that this package exported says the names itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Literal

import numpy as np

from slime_store.errors import InvalidDumpError
from slime_store.interchange.dump_names import DumpName, Kind, Neighbours, name_of
from slime_store.interchange.restricted import TorchArchive, read_archive
from slime_store.interchange.saying import shown
from slime_store.types import RolloutFnEvalOutput, RolloutFnTrainOutput, Sample, iter_leaf_samples
from slime_store.types.duck import is_sample

_FREE_ELEMENTS = 8_000
_ELEMENT_BYTES = 20
"""Bytes of a file for each sample, or list of them, beyond these: one takes some 2,000 bytes of memory to record,
whatever is in it, and a file may take a hundred for each of its own. Samples that frameworks write take 75 at the very
least, by the references to the names of their attributes."""
_KNOWN_KEYS = ("rollout_id", "samples", "metrics", "datasets")


@dataclass(frozen=True)
class Dump:
    """One rollout as a dump holds it.

    Attributes:
        kind: "train" or "eval".
        rollout_id: which rollout.
        output: the samples in the nesting that is inferred, and the metrics if the file has any. A sample has exactly
            the attributes that the file gives it.
        nesting: "inferred", or "given" where the file itself has nested lists.
        extras: what else the file has at its top level, e.g. miles's ``metadata``.
        notes: what is unusual about single samples, for people.
    """

    kind: Kind
    rollout_id: int
    output: RolloutFnTrainOutput | RolloutFnEvalOutput
    nesting: Literal["inferred", "given"]
    extras: dict[Any, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def read_dump(
    source: str | os.PathLike[str] | TorchArchive,
    *,
    kind: Kind | None = None,
    trust: bool = False,
    strict: bool = False,
    neighbours: Neighbours | None = None,
) -> Dump:
    """Read a dump; no code in it runs unless ``trust`` is given.

    Args:
        source: a file, or one that is mapped already.
        kind: what it is of; None: an eval if it has ``datasets``, which this package exports, else as its name says.
        trust: let torch unpickle it, which runs whatever code it holds.
        strict: refuse samples with an unknown ``status``, or without one. Otherwise an unknown word is kept as it is,
            and a missing one is slime's default.
        neighbours: what is beside it, where its folder was listed already.

    Raises:
        UntrustedPickleError: it needs something that is not on the list of harmless types.
        InvalidDumpError: it is no dump, or damaged.
    """
    archive = source if isinstance(source, TorchArchive) else TorchArchive(source)
    content = read_archive(archive, trust=trust)
    if isinstance(content, (list, tuple)):  # the samples alone
        content = {"samples": content}
    if not isinstance(content, dict) or not isinstance(content.get("samples"), (list, tuple)):
        raise InvalidDumpError(archive.path, "it holds no list of samples, so it is not a rollout dump")
    rollout_id = content.get("rollout_id", name_of(archive.path, neighbours=neighbours).number)
    if type(rollout_id) is not int or not -(2**63) <= rollout_id < 2**63:
        raise InvalidDumpError(
            archive.path, f"its rollout_id is {shown(rollout_id)}, and its name has no number either"
        )
    name = name_of(archive.path, rollout_id, neighbours)
    try:
        dump = _Reader(archive, kind or _kind_of(content, name), strict).read(rollout_id, content)
        return dump if kind is not None else replace(dump, notes=(*dump.notes, *_doubts(name, dump)))
    except RecursionError:
        raise InvalidDumpError(archive.path, "its samples are in lists that nest too deeply") from None


def _kind_of(content: dict[Any, Any], name: DumpName) -> Kind:
    samples = content["samples"]
    is_flat = not any(isinstance(each, (list, tuple)) for each in samples)
    return "eval" if is_flat and _sizes(content.get("datasets"), len(samples)) is not None else name.kind


def _doubts(name: DumpName, dump: Dump) -> Iterator[str]:
    """Yield what to say of a file that slime may have called so because it is an eval: their samples have no group."""
    if isinstance(dump.output, RolloutFnTrainOutput) and name.template is not None:
        samples = iter_leaf_samples(dump.output.samples)
        if all(getattr(sample, "group_index", None) is None for sample in samples):
            yield (
                f"its name may mean an eval, as slime's template {name.template} makes them; it counts as a training "
                "rollout, unless the kind is given (kind='eval', `--kind eval`)"
            )


class _Reader:
    def __init__(self, archive: TorchArchive, kind: Kind, strict: bool) -> None:
        self._path, self._kind, self._strict = archive.path, kind, strict
        self._elements_left = _FREE_ELEMENTS + archive.size_bytes // _ELEMENT_BYTES
        self._notes: list[str] = []
        self._count = 0

    def read(self, rollout_id: int, content: dict[Any, Any]) -> Dump:
        samples = [self._element(each) for each in content["samples"]]
        is_flat = all(map(is_sample, samples))
        metrics = content.get("metrics")
        output: RolloutFnTrainOutput | RolloutFnEvalOutput
        if self._kind == "train":
            output = RolloutFnTrainOutput(infer_groups(samples) if is_flat else samples, metrics)
        elif is_flat:
            output = RolloutFnEvalOutput(infer_datasets(samples, content.get("datasets")), metrics)
        else:
            raise InvalidDumpError(self._path, "it is called an eval, but has its samples in nested lists")
        extras = {key: value for key, value in content.items() if key not in _KNOWN_KEYS}
        if self._kind == "train" and "datasets" in content:
            extras["datasets"] = content["datasets"]
        nesting: Literal["inferred", "given"] = "inferred" if is_flat else "given"
        return Dump(self._kind, rollout_id, output, nesting, extras, tuple(self._notes))

    def _element(self, value: Any) -> Any:
        self._elements_left -= 1
        if self._elements_left < 0:
            raise InvalidDumpError(self._path, "it holds more samples than a file of its size can mean to hold")
        if isinstance(value, (list, tuple)):
            return [self._element(each) for each in value]
        self._count += 1
        if isinstance(value, dict):
            return self._sample(value, f"sample {self._count - 1}")
        if is_sample(value):
            return value
        raise InvalidDumpError(self._path, f"sample {self._count - 1} is a {type(value).__name__}")

    def _sample(self, data: dict[Any, Any], where: str) -> Sample:
        if not all(type(name) is str for name in data):
            raise InvalidDumpError(self._path, f"{where} has a key that is no name of an attribute")
        attributes = {**data, "status": self._status(data, where)}
        for name, info in (("spec_info", Sample.SpecInfo), ("prefix_cache_info", Sample.PrefixCacheInfo)):
            if isinstance(data.get(name), dict):
                attributes[name] = info.from_dict(data[name])
        sample = Sample()
        vars(sample).clear()  # it has no field that its version of slime does not have
        vars(sample).update(attributes)
        return sample

    def _status(self, data: dict[str, Any], where: str) -> Any:
        if "status" not in data:
            self._note(where, "it has no status; it counts as pending")
            return Sample.Status.PENDING
        word = data["status"]
        known = {status.value: status for status in Sample.Status}
        if isinstance(word, str) and word in known:
            return known[word]
        if type(word) is not Sample.Status:
            self._note(where, f"its status {shown(word)} is not one of slime's; it is kept as it is")
        return word

    def _note(self, where: str, what: str) -> None:
        if self._strict:
            raise InvalidDumpError(self._path, f"{where}: {what.partition(';')[0]}")
        self._notes.append(f"{where}: {what}")


def infer_groups(samples: list[Any]) -> list[Any]:
    """Return a flat list of samples in groups, by the rules of this module."""
    groups: list[Any] = []
    for (index, _), members in groupby(samples, lambda each: _key(getattr(each, "group_index", None))):
        if index is None:
            groups += [[sample] for sample in members]
        else:
            groups.append(_executions(list(members)))
    return groups


def _executions(group: list[Any]) -> list[Any]:
    """Return a group as it is, or as lists of segments where two of its samples are of one execution."""
    executions = []
    for (execution, _), members in groupby(group, lambda each: _key(getattr(each, "rollout_id", None))):
        segments = list(members)
        executions += [segments] if execution is not None else [[segment] for segment in segments]
    return group if len(executions) == len(group) else executions


def _key(value: Any) -> tuple[Any, Any]:
    """Return something to compare by, in which 1 and True differ; what is neither number nor text counts as None."""
    return (value, type(value)) if isinstance(value, (int, str, np.integer)) else (None, None)


def infer_datasets(samples: list[Any], named: Any = None) -> dict[str, dict[str, Any]]:
    """Return an eval's samples by dataset, by the rules of this module.

    ``rewards`` and ``truncated`` are filled in from the samples; ``rewards`` is left out where a reward is a dict,
    since nobody knows which of its entries was meant.
    """
    sizes = _sizes(named, len(samples))
    if sizes is None:
        sizes = {f"eval_{i}": n for i, n in enumerate(_dataset_sizes(samples))}
    data, start = {}, 0
    for name, n in sizes.items():
        data[name] = _dataset(samples[start : start + n])
        start += n
    return data


def _sizes(named: Any, n_samples: int) -> dict[Any, int] | None:
    """Return how many samples each dataset has, by name, if a file says that of as many samples as it has."""
    if not isinstance(named, dict) or not all(type(n) is int and n >= 0 for n in named.values()):
        return None
    return named if sum(named.values()) == n_samples else None


def _dataset_sizes(samples: list[Any]) -> list[int]:
    sizes, before = [0], 0
    for i, sample in enumerate(samples):
        index = getattr(sample, "index", None)
        if type(index) is not int or (index != 0 and (i == 0 or index < before)):
            return [len(samples)]
        if index < before:
            sizes.append(0)
        sizes[-1] += 1
        before = index
    return sizes


def _dataset(samples: list[Any]) -> dict[str, Any]:
    rewards = [getattr(each, "reward", None) for each in samples]
    truncated = [getattr(each, "status", None) is Sample.Status.TRUNCATED for each in samples]
    given: dict[str, Any] = {} if any(isinstance(reward, dict) for reward in rewards) else {"rewards": rewards}
    return given | {"truncated": truncated, "samples": samples}
