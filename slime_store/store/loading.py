"""Reading rollouts and samples back as objects."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from itertools import chain
from typing import Any, ParamSpec, TypeVar

from slime_store.errors import BlobCorruptError, BlobMissingError, ReadOvertakenError, StoreError
from slime_store.mapping.batch import BATCH_ARRAYS, BATCH_FIELDS, BATCH_ROW_FIELDS, BatchDecoder
from slime_store.mapping.batch_tensors import opened_for_batch
from slime_store.mapping.decode import SampleDecoder, documents_of, eval_data, layouts_of
from slime_store.mapping.nesting import nest
from slime_store.repositories.blobs import DocumentBlobs
from slime_store.repositories.rollouts import RolloutRepository
from slime_store.repositories.samples import SampleRepository
from slime_store.store.collection import paused
from slime_store.store.handle import StoreHandle
from slime_store.store.infos import decode_inline, refuse_pruned
from slime_store.types import RolloutFnEvalOutput, RolloutFnTrainOutput, Sample
from slime_store.types.duck import is_sample_type

P = ParamSpec("P")
T = TypeVar("T")

_READS = 3
"""How often a read is tried while other processes delete what it reads."""


def sample_class(sample_type: type[Any] | None) -> type[Any]:
    """Return the class that samples come back as: the one given, else slime's where it is importable, else ours.

    One sample is made of a class that is given: what its constructor raises is the caller's, and no damage.

    Raises:
        TypeError: the class given is no sample class.
    """
    if sample_type is None:
        return _slime_sample() or Sample
    if not is_sample_type(sample_type):
        raise TypeError(f"sample_type is a Sample class of slime, miles or slime_store, not {sample_type!r}")
    sample_type()
    return sample_type


def _slime_sample() -> type[Any] | None:
    """Return slime's class; found anew at each call, since slime may become importable later."""
    if "slime" not in sys.modules and importlib.util.find_spec("slime") is None:
        return None
    try:
        found: type[Any] = importlib.import_module("slime.utils.types").Sample
    except Exception:  # another package of this name, or one that lacks its own dependencies here
        return None
    return found if is_sample_type(found) else None


@contextmanager
def rows_of(what: str) -> Iterator[None]:
    """Report rows that do not fit each other as damage, whatever they make Python run into, and say whose damage is."""
    try:
        yield
    except BlobCorruptError as error:
        raise BlobCorruptError(f"{what}: {error.reason}") from error
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError) as error:
        if isinstance(error, StoreError):
            raise
        raise BlobCorruptError(f"the rows of {what} do not fit each other: {type(error).__name__}: {error}") from error


def again_if_overtaken(read: Callable[P, T]) -> Callable[P, T]:
    """Read anew when a side file is missing, or the file was written to while it was read without locks.

    A side file goes with its rollout, also beneath a transaction that still sees its row.
    """

    @wraps(read)
    def reading(*args: P.args, **kwargs: P.kwargs) -> T:
        for _ in range(_READS - 1):
            try:
                return read(*args, **kwargs)
            except (BlobMissingError, ReadOvertakenError):
                continue
        return read(*args, **kwargs)

    return reading


@again_if_overtaken
def load_train(
    handle: StoreHandle, run: str, run_pk: int, rollout_id: int, attempt: int | None, sample_type: type[Any]
) -> RolloutFnTrainOutput:
    """Return a train rollout. Costs one query a table, and two for each 500 distinct blobs in its documents."""
    with paused(), handle.reading() as connection, rows_of(f"train rollout {rollout_id}"):
        row = RolloutRepository(connection, run_pk).find(run, "train", rollout_id, attempt)
        refuse_pruned(row, run)
        blobs = handle.blobs(connection)
        stored = SampleRepository(connection, row.id).read(layouts_of(row.layouts), blobs)
        decoder = SampleDecoder(DocumentBlobs(blobs, documents_of(stored, None)), sample_type)
        samples = decoder.samples(stored)
        return RolloutFnTrainOutput(samples=nest(row.nesting, samples), metrics=decode_inline(row.metrics))


@again_if_overtaken
def load_batch(
    handle: StoreHandle, run: str, run_pk: int, rollout_id: int, attempt: int | None, reward_key: str | None
) -> dict[str, list[Any]]:
    """Return a train rollout as a batch. Costs what ``load_train`` costs in queries, and makes no lists of numbers."""
    where = f"train rollout {rollout_id}"
    with paused(), handle.reading() as connection, rows_of(where):
        row = RolloutRepository(connection, run_pk).find(run, "train", rollout_id, attempt)
        refuse_pruned(row, run)
        blobs = handle.blobs(connection)
        samples = SampleRepository(connection, row.id)
        packs = opened_for_batch(samples.packs(blobs, fields=sorted(BATCH_ARRAYS)))
        stored = samples.read(layouts_of(row.layouts), blobs, fields=BATCH_ROW_FIELDS)
        documents = DocumentBlobs(blobs, documents_of(stored, BATCH_FIELDS))
        return BatchDecoder(stored, packs, documents, where, reward_key).batch()


@again_if_overtaken
def load_eval(
    handle: StoreHandle, run: str, run_pk: int, rollout_id: int, attempt: int | None, sample_type: type[Any]
) -> RolloutFnEvalOutput:
    """Return an eval rollout, with the datasets in the order in which they were recorded."""
    with paused(), handle.reading() as connection, rows_of(f"eval rollout {rollout_id}"):
        rollouts = RolloutRepository(connection, run_pk)
        row = rollouts.find(run, "eval", rollout_id, attempt)
        refuse_pruned(row, run)
        blobs = handle.blobs(connection)
        stored = SampleRepository(connection, row.id).read(layouts_of(row.layouts), blobs)
        rows = rollouts.datasets(row.id)
        documents = chain(documents_of(stored, None), (dataset.content for dataset in rows))
        decoder = SampleDecoder(DocumentBlobs(blobs, documents), sample_type)
        samples = decoder.samples(stored)
        datasets = [
            (
                dataset.nesting,
                decoder.document(dataset.content),
                samples[dataset.first_position : dataset.first_position + dataset.n_samples],
            )
            for dataset in rows
        ]
        data = eval_data(decode_inline(row.nesting), datasets)
        return RolloutFnEvalOutput(data=data, metrics=decode_inline(row.metrics))
