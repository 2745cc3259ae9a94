"""Rows and packs to the batch that training reads: tensors from the stored bytes, no Python lists of numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from slime_store.codecs.documents import BlobSource, DocumentDecoder
from slime_store.errors import BatchError
from slime_store.mapping import rewards
from slime_store.mapping.batch_tensors import BATCH_DTYPES, BatchTensors, batch_tensors, empty_tensor
from slime_store.mapping.decode import StoredSamples
from slime_store.mapping.fields import ARRAY_FIELDS
from slime_store.mapping.opening import StoredPack
from slime_store.mapping.packs import OpenPack

_DOCUMENTS = ("train_metadata", "multimodal_train_inputs")

BATCH_FIELDS = frozenset(BATCH_DTYPES).union(
    _DOCUMENTS,
    ("index", "rollout_id", "prompt", "response", "response_length", "reward", "remove_sample", "status", "metadata"),
)
"""The attributes of samples that a batch is made of."""

BATCH_ARRAYS = BATCH_FIELDS.intersection(ARRAY_FIELDS)
BATCH_ROW_FIELDS = BATCH_FIELDS - BATCH_ARRAYS
"""Those that are in packs, and those that are in rows."""

_MOST_WITHOUT_TOKENS = 1 << 20
_METADATA_KEYS = ("raw_reward", "round_number")


class BatchDecoder:
    """Makes the columns of a batch from rows; each is a list with one entry for each sample, in order.

    Args:
        stored: the rows, read with ``BATCH_ROW_FIELDS``.
        packs: what ``opened_for_batch`` gives of the packs of ``BATCH_ARRAYS``.
        blobs: where the documents' large payloads are.
        where: names the rollout in errors.
        reward_key: entry of dict rewards to take; None: the reward as it is.
    """

    def __init__(
        self,
        stored: StoredSamples,
        packs: Iterable[tuple[StoredPack, OpenPack]],
        blobs: BlobSource,
        where: str,
        reward_key: str | None,
    ) -> None:
        self._stored = stored
        self._packs = packs
        self._documents = DocumentDecoder(blobs)
        self._where = where
        self._reward_key = reward_key
        self._exact = {
            i: self._documents.document(text, BATCH_FIELDS)
            for i, position in enumerate(row["position"] for row in stored.columns)
            if (text := stored.documents.get(position, (None, None))[1]) is not None
        }

    def batch(self) -> dict[str, list[Any]]:
        """Return the batch; a column that no sample has a value for is left out, unless slime always has it.

        Raises:
            BatchError: a sample has values that fit no tensor, or masks of another length than its response.
            BlobCorruptError: stored bytes are damaged.
        """
        prompts, responses = self._prompts(), self._responses()
        tensors = batch_tensors(self._stored, self._packs, self._exact, self._where)
        arrays = tensors.columns
        lengths = self._column("response_length")
        masks, sums = self._loss_masks(tensors, lengths)
        reward = self._rewards()
        columns: dict[str, list[Any]] = {
            "tokens": self._all(arrays["tokens"], "tokens"),
            "response_length": lengths,
            "response_lengths": list(lengths),
            "rewards": reward,
            "raw_reward": list(reward),
            "truncated": [int(status == "truncated") for status in self._statuses()],
            "sample_indices": self._column("index", "sample_index"),
            "rollout_ids": self._execution_ids(),
            "loss_mask": masks,
            "loss_masks": list(masks),
            "prompt": prompts,
            "response": responses,
        }
        columns["rollout_mask_sums"] = self._mask_sums(columns["rollout_ids"], sums)
        for name in BATCH_DTYPES.keys() - {"tokens", "loss_mask"}:
            if any(value is not None for value in arrays[name]):
                columns[name] = arrays[name]
        for name, key in (("train_metadata", "metadata"), ("multimodal_train_inputs", "multimodal_train_inputs")):
            values = [self._exact.get(i, {}).get(name) for i in range(len(lengths))]
            if any(value is not None for value in values):
                columns[key] = values
        self._add_from_metadata(columns)
        return columns

    def _all(self, values: list[Any], name: str) -> list[Any]:
        return [empty_tensor(name) if value is None else value for value in values]

    def _loss_masks(self, tensors: BatchTensors, lengths: list[Any]) -> tuple[list[Any], list[int]]:
        """Return each sample's mask and the sum of it."""
        import torch

        masks, sums = [], []
        rows = zip(self._stored.columns, tensors.columns["loss_mask"], lengths, strict=True)
        for i, (row, mask, length) in enumerate(rows):
            tokens = tensors.columns["tokens"][i]
            if mask is None and not self._is_length(length, 0 if tokens is None else tokens.numel()):
                raise BatchError(self._where, i, f"it has no loss_mask, and its response_length is {length!r}")
            if mask is not None and (len(mask) != length or mask.numel() < length):
                raise BatchError(self._where, i, f"loss_mask has {len(mask)} entries, and response_length is {length}")
            total = tensors.mask_sums.get(i)
            if row["remove_sample"]:
                mask, total = torch.zeros(length, dtype=torch.int32), 0
            elif mask is None:
                mask, total = torch.ones(length, dtype=torch.int32), length
            masks.append(mask)
            sums.append(int(mask.sum()) if total is None else total)
        return masks, sums

    @staticmethod
    def _is_length(length: Any, n_tokens: int) -> bool:
        """Return whether a mask may be made of a length, of which nothing but a number may be stored."""
        whole = isinstance(length, (int, np.integer)) and not isinstance(length, np.timedelta64)
        return whole and 0 <= int(length) <= max(n_tokens, _MOST_WITHOUT_TOKENS)

    @staticmethod
    def _mask_sums(rollout_ids: list[Any], sums: list[int]) -> list[int]:
        """The mask's sum over all samples with the same execution id, for each sample."""
        totals: dict[Any, int] = {}
        for key, total in zip(rollout_ids, sums, strict=True):
            totals[key] = totals.get(key, 0) + total
        return [totals[key] for key in rollout_ids]

    # -- scalars, texts, documents ----------------------------------------------------------------

    def _column(self, name: str, column: str | None = None) -> list[Any]:
        values = [row[column or name] for row in self._stored.columns]
        for i, exact in self._exact.items():
            if name in exact:
                values[i] = exact[name]
        return values

    def _statuses(self) -> Iterator[Any]:
        for i, row in enumerate(self._stored.columns):
            exact = self._exact.get(i, {}).get("status")
            yield row["status"] if exact is None else getattr(exact, "value", exact)

    def _rewards(self) -> list[Any]:
        values = [rewards.from_columns(row["reward"], row["reward_type"]) for row in self._stored.columns]
        for i, exact in self._exact.items():
            if "reward" in exact:
                values[i] = exact["reward"]
        if self._reward_key is None:
            return values
        try:
            return [value[self._reward_key] for value in values]
        except (KeyError, TypeError, IndexError):
            i = next(i for i, v in enumerate(values) if not isinstance(v, dict) or self._reward_key not in v)
            raise BatchError(self._where, i, f"its reward has no {self._reward_key!r}") from None

    def _execution_ids(self) -> list[Any]:
        """``Sample.rollout_id``; where it is None, the smallest numbers that no sample has."""
        ids = self._column("rollout_id", "execution_id")
        used, free = {value for value in ids if value is not None}, 0
        for i, value in enumerate(ids):
            if value is None:
                while free in used:
                    free += 1
                ids[i] = free
                free += 1
        return ids

    def _prompts(self) -> list[Any]:
        values: list[Any] = []
        for i, row in enumerate(self._stored.columns):
            exact = self._exact.get(i, {})
            pk = row["prompt_pk"]
            text, document = self._stored.prompts[pk] if pk is not None else (None, "null")
            if "prompt" in exact:
                values.append(exact["prompt"])
            else:
                values.append(text if document is None else self._documents.document(document))
        return values

    def _responses(self) -> list[Any]:
        texts = self._stored.texts
        values: list[Any] = [texts.get(row["position"], (None, ""))[1] for row in self._stored.columns]
        for i, exact in self._exact.items():
            if "response" in exact:
                values[i] = exact["response"]
        return values

    def _add_from_metadata(self, columns: dict[str, list[Any]]) -> None:
        """Take ``raw_reward`` from the metadata, and ``round_number`` when the first sample has it, as slime does."""
        found: dict[str, dict[int, Any]] = {name: {} for name in _METADATA_KEYS}
        for i, row in enumerate(self._stored.columns):
            metadata = self._exact.get(i, {}).get("metadata")
            if metadata is None:
                text = self._stored.documents.get(row["position"], (None, None))[0]
                if text is None or ('"raw_reward"' not in text and '"round_number"' not in text):
                    continue
                metadata = self._documents.document(text)
            if isinstance(metadata, dict):
                for name in _METADATA_KEYS:
                    if name in metadata:
                        found[name][i] = metadata[name]
        for i, value in found["raw_reward"].items():
            columns["raw_reward"][i] = value
        if 0 in found["round_number"]:
            columns["round_number"] = [found["round_number"].get(i) for i in range(len(columns["tokens"]))]
