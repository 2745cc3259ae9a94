"""Writing rollouts as files that slime's ``--load-debug-rollout-data`` and ``--load-forge-rollout-data`` read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slime_store.config import refuse_address
from slime_store.errors import ExportError
from slime_store.interchange.dump_names import Kind
from slime_store.interchange.files import TEMPLATE, path_of, whole_file
from slime_store.interchange.portable import PortableSamples
from slime_store.store import Run
from slime_store.store.diagnosis import damage_named
from slime_store.store.imports import find_extras
from slime_store.types import SampleFilter, iter_leaf_samples
from slime_store.types.conditions import one_kind


@dataclass(frozen=True)
class ExportedFile:
    """One file that was written.

    Attributes:
        path: the file.
        kind: "train" or "eval".
        rollout_id: which rollout.
        attempt: which attempt at it.
        n_samples: samples in it.
        replaced: paths of values that only slime_store knows, and that were replaced by plain ones.
    """

    path: str
    kind: Kind
    rollout_id: int
    attempt: int
    n_samples: int
    replaced: tuple[str, ...] = ()


@damage_named
def export_pt(
    run: Run, rollout_id: int, target: str | os.PathLike[str], *, kind: Kind = "train", attempt: int | None = None
) -> ExportedFile:
    """Write one rollout as slime's ``--save-debug-rollout-data`` writes it.

    The file is a dict of ``rollout_id`` and ``samples`` (dicts of ``Sample.to_dict``, flattened); of an eval also
    ``datasets``, from name to number of samples; ``metrics`` where there are any; and what else the file of an imported
    rollout held. slime reads the first two. The file appears whole or not at all, and replaces one of its name.

    Args:
        run: the run.
        rollout_id: which rollout.
        target: a file, in which ``{rollout_id}`` stands for the id, with ``eval_`` before it for an eval, as in slime;
            or a folder, for ``{rollout_id}.pt`` in it. Folders are made.
        kind: "train" or "eval".
        attempt: which attempt; None: the newest complete one.

    Raises:
        RolloutNotFoundError: it is not recorded.
        ExportError: the file cannot be written.
        ValueError: there is no such kind.
    """
    one_kind(kind)
    number, extras = find_extras(run, kind, rollout_id, attempt)
    samples: list[Any]
    content: dict[Any, Any] = {"rollout_id": int(rollout_id), "samples": []}
    if kind == "train":
        train = run.load_train(rollout_id, attempt=number)
        samples, metrics = list(iter_leaf_samples(train.samples)), train.metrics
    else:
        evaluated = run.load_eval(rollout_id, attempt=number)
        datasets = {name: list(iter_leaf_samples(data.get("samples", []))) for name, data in evaluated.data.items()}
        samples, metrics = [sample for each in datasets.values() for sample in each], evaluated.metrics
        content["datasets"] = {name: len(each) for name, each in datasets.items()}
    portable = PortableSamples()
    if metrics is not None:
        content["metrics"] = portable.value(metrics, "metrics")
    content["samples"] = [portable.to_dict(sample, f"sample {i}") for i, sample in enumerate(samples)]
    path = path_of(target, kind, rollout_id, ".pt")
    content |= portable.value(extras, "top level")
    _save(content, path, portable.pickle_protocol)
    return ExportedFile(os.fspath(path), kind, int(rollout_id), number, len(samples), tuple(portable.replaced))


@damage_named
def export_run(
    run: Run,
    target: str | os.PathLike[str],
    *,
    kind: Kind | None = None,
    rollout_ids: int | str | range | Iterable[int] | None = None,
    attempt: int | None = None,
    progress: Callable[[int, int, ExportedFile], None] | None = None,
) -> list[ExportedFile]:
    """Write several rollouts, each into a file of its own, as ``export_pt`` does.

    Args:
        run: the run.
        target: with ``{rollout_id}`` in it, or a folder, unless it is about one rollout.
        kind: only these; None: training rollouts and evals.
        rollout_ids: an id, a range, text such as ``"10:20"`` (without 20), or several ids; None: all.
        attempt: this attempt of each; None: the newest complete ones.
        progress: called after each file with how many are done, how many there are, and the file.

    Raises:
        ValueError: ``rollout_ids`` names no ids.
        ExportError: there is nothing to write, or several rollouts and one file.
    """
    refuse_address(target)
    wanted = select_rollouts(run, kind=kind, rollout_ids=rollout_ids, attempt=attempt)
    if not wanted:
        raise ExportError(os.fspath(target), f"run {run.name!r} has no such rollout; see `slime-store rollout list`")
    if len(wanted) > 1 and path_of(target, "train", 0, ".pt") == path_of(target, "train", 1, ".pt"):
        raise ExportError(os.fspath(target), f"{len(wanted)} rollouts need {TEMPLATE} in the name of the file")
    done: list[ExportedFile] = []
    for each_kind, rollout_id, number in wanted:
        done.append(export_pt(run, rollout_id, target, kind=each_kind, attempt=number))
        if progress is not None:
            progress(len(done), len(wanted), done[-1])
    return done


def select_rollouts(
    run: Run,
    *,
    kind: Kind | None = None,
    rollout_ids: int | str | range | Iterable[int] | None = None,
    attempt: int | None = None,
) -> list[tuple[Kind, int, int]]:
    """Return (kind, rollout_id, attempt) of what ``export_run`` with these arguments writes, training first."""
    where = SampleFilter(kind=kind, rollout_ids=rollout_ids, attempt=attempt)
    return [
        ("train" if info.kind == "train" else "eval", info.rollout_id, info.attempt)
        for info in run.rollouts(kind, attempts=attempt is not None)
        if (where.rollout_ids is None or info.rollout_id in where.rollout_ids) and attempt in (None, info.attempt)
    ]


def _save(content: dict[Any, Any], path: Path, protocol: int) -> None:
    import torch

    try:
        with whole_file(path) as file:
            torch.save(content, file, pickle_protocol=protocol)
    except RuntimeError as error:  # torch's word for a full disk
        raise ExportError(os.fspath(path), str(error)) from error
