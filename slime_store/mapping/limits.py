"""What no database takes in one row is refused while nothing is written yet."""

from __future__ import annotations

from collections.abc import Iterator

from slime_store.errors import UnsupportedValueError
from slime_store.mapping.encoded import SAMPLE_COLUMNS, EncodedRollout

MAX_ROW_BYTES = 900_000_000
"""Most bytes of the documents in one row: SQLite stops at a billion, PostgreSQL at 2**30.

Only documents of very many small values come near it: arrays, tensors, images and long texts in them are blobs.
"""

MAX_LAYOUTS = 2**15 - 1
"""Most sets of attribute names that the samples of one rollout have between them: a SMALLINT counts them."""

_GROUP, _SAMPLE = SAMPLE_COLUMNS.index("group_position"), SAMPLE_COLUMNS.index("sample_position")


def check_sizes(rollout: EncodedRollout) -> None:
    """Refuse a rollout with a row that is too large.

    Raises:
        UnsupportedValueError: it names what makes the row so large.
    """
    for where, texts in _rows(rollout):
        n_bytes = sum(len(text) if text.isascii() else len(text.encode()) for text in texts if text is not None)
        if n_bytes > MAX_ROW_BYTES:
            raise UnsupportedValueError(where, f"{n_bytes} bytes of small values; a row takes {MAX_ROW_BYTES} at most")


def _rows(rollout: EncodedRollout) -> Iterator[tuple[str, tuple[str | None, ...]]]:
    """Yield (name, texts) of every row that has documents."""
    yield "metrics", (rollout.shape, rollout.metrics)
    yield "state", (rollout.state,)
    for prompt in rollout.prompts.values():
        yield "prompt", (prompt.document,)
    for dataset in rollout.datasets:
        yield f"dataset {dataset.name!r}", (dataset.shape, dataset.content)
    for position, sample in enumerate(rollout.samples):
        if sample.metadata is not None or sample.extra is not None:
            group, number = sample.columns[_GROUP], sample.columns[_SAMPLE]
            where = f"sample {position}" if group is None else f"group {group}, sample {number}"
            yield f"{where}, its metadata and other attributes", (sample.metadata, sample.extra)
