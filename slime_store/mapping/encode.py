"""Rollouts to rows, documents and packs."""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict, defaultdict
from typing import Any

import numpy as np

from slime_store.codecs.documents import DocumentEncoder
from slime_store.errors import UnsupportedValueError
from slime_store.mapping import columns, rewards
from slime_store.mapping.blob_memo import DIGEST_BYTES, BlobMemo
from slime_store.mapping.encoded import EncodedDataset, EncodedPrompt, EncodedRollout, EncodedSample
from slime_store.mapping.fields import ARRAY_FIELDS, FIELDS, MAX_TEXT, Home, is_omitted
from slime_store.mapping.limits import MAX_LAYOUTS, check_sizes
from slime_store.mapping.nesting import FlatSamples, Place, flatten
from slime_store.mapping.packs import PackBuilder, to_piece
from slime_store.mapping.text import indexable, searchable

_INT64 = range(-(2**63), 2**63)


class RolloutEncoder:
    """Encodes one rollout; make a new one for each.

    Args:
        strict: raise for values that cannot be kept exactly, instead of storing placeholders.
        copy: copy tensors and arrays, so that the caller may change them at once (background recording).
    """

    def __init__(self, *, strict: bool = True, copy: bool = False) -> None:
        self._copy = copy
        self._memo = BlobMemo(copy=copy)
        self._documents = DocumentEncoder(self._memo, strict=strict)
        self._inline = DocumentEncoder(None, strict=strict)
        self._layouts: dict[tuple[str, ...], int] = {}
        self._builders = {name: PackBuilder(name) for name in ARRAY_FIELDS}
        self._prompts: dict[bytes, EncodedPrompt] = {}
        self._prompt_memo: dict[int, tuple[Any, bytes]] = {}

    def train(self, samples: Any, metrics: Any, state: Any = None) -> EncodedRollout:
        """Encode what a train rollout returned.

        Raises:
            UnsupportedValueError: something cannot be kept exactly (strict), or is no nested list of samples.
        """
        flat = flatten(samples)
        rollout = EncodedRollout("train", flat.shape, n_trajectories=sum(g.n_trajectories for g in flat.groups))
        for position, (sample, place) in enumerate(zip(flat.samples, flat.places, strict=True)):
            where = f"group {place.group}, sample {place.sample}"
            if place.segment is not None:
                where += f", segment {place.segment}"
            rollout.samples.append(self._sample(position, sample, where, place=place))
        rollout.groups = [(group, _shared_group_index(flat, group)) for group in flat.groups]
        return self._finish(rollout, metrics, state)

    def group(self, group: Any) -> EncodedRollout:
        """Encode one finished group of a train rollout that is under way, for the journal."""
        rollout = self.train([group], None)
        rollout.kind = "journal"
        return rollout

    def evaluation(self, data: Any, metrics: Any, state: Any = None) -> EncodedRollout:
        """Encode what an eval returned: dataset name -> dict with "samples" and anything else.

        Raises:
            UnsupportedValueError: as for ``train``.
        """
        names = self._inline.document(_hollow(data, "data", list(data)), "dataset names")
        rollout = EncodedRollout("eval", names)
        for dataset_position, (key, content) in enumerate(data.items()):
            self._dataset(rollout, dataset_position, key, content)
        return self._finish(rollout, metrics, state)

    def _finish(self, rollout: EncodedRollout, metrics: Any, state: Any) -> EncodedRollout:
        rollout.layouts = list(self._layouts)
        rollout.metrics = self._inline.document(metrics, "metrics")  # listed often: complete without blobs
        rollout.metric_values = _numbers(metrics)
        if state is not None:
            rollout.state = self._documents.document(state, "state")
        rollout.prompts = self._prompts
        rollout.packs = [pack for builder in self._builders.values() for pack in builder.packs]
        rollout.blobs = self._memo.arrays
        rollout.placeholders = self._documents.placeholders + self._inline.placeholders
        check_sizes(rollout)
        return rollout

    def _dataset(self, rollout: EncodedRollout, dataset_position: int, key: Any, content: Any) -> None:
        first = len(rollout.samples)
        where = f"dataset {key!r}"
        shape, rest = None, content
        flat = FlatSamples()
        if isinstance(content, dict) and isinstance(content.get("samples"), (list, tuple)):
            flat = flatten(content["samples"], f"{where}, samples")
            shape, rest = flat.shape, _hollow(content, where, ["samples"])
        lists = content if isinstance(content, dict) else {}
        given_rewards = _aligned(lists.get("rewards"), flat.samples)
        given_truncated = _aligned(lists.get("truncated"), flat.samples)
        for i, sample in enumerate(flat.samples):
            encoded = self._sample(
                first + i,
                sample,
                f"{where}, sample {i}",
                dataset=dataset_position,
                eval_reward=given_rewards[i],
                eval_truncated=given_truncated[i],
            )
            rollout.samples.append(encoded)
        rollout.n_trajectories += sum(g.n_trajectories for g in flat.groups)
        document = self._documents.document(rest, where)
        name = indexable(key) if isinstance(key, str) else columns.version_label(key)
        rollout.datasets.append(EncodedDataset(name, first, len(flat.samples), shape, document))

    # -- one sample --------------------------------------------------------------------------------

    def _sample(
        self,
        position: int,
        sample: Any,
        where: str,
        *,
        place: Place | None = None,
        dataset: int | None = None,
        eval_reward: Any = None,
        eval_truncated: Any = None,
    ) -> EncodedSample:
        attributes = vars(sample)
        extra: dict[str, Any] = {}
        for name, value in attributes.items():
            if FIELDS.get(name, Home.EXTRA) is Home.EXTRA and not (name in FIELDS and is_omitted(name, value)):
                extra[name] = value
        get = attributes.get
        lengths = self._arrays(position, attributes, extra)
        response_length = columns.integer("response_length", attributes, extra)
        reward = get("reward")
        number, reward_type = rewards.reward_columns(reward)
        if not rewards.is_exact_in_columns(reward):
            extra["reward"] = reward
        mask_sum = lengths.get("mask_sum")
        given = rewards.numeric_value(eval_reward)
        row = (
            position,
            place.group if place else None,
            place.sample if place else None,
            place.segment if place else None,
            dataset,
            self._layout(tuple(attributes)),
            columns.integer("group_index", attributes, extra),
            columns.integer("index", attributes, extra),
            columns.integer("rollout_id", attributes, extra),
            columns.status(attributes, extra, type(sample)),
            number,
            reward_type,
            None if given is None or math.isnan(given) else given,
            bool(eval_truncated) if isinstance(eval_truncated, (bool, np.bool_)) else None,
            columns.flag("remove_sample", attributes, extra),
            lengths.get("tokens", 0),
            response_length,
            response_length if mask_sum is None else mask_sum,
            columns.seconds("non_generation_time", attributes, extra),
            *columns.counters("spec_info", attributes, extra, type(sample)),
            *columns.counters("prefix_cache_info", attributes, extra, type(sample)),
        )
        versions = columns.versions(attributes, extra)
        text = self._text(attributes, extra)
        metadata = get("metadata")
        document = None
        if type(metadata) is dict:
            document = self._documents.document(metadata, f"{where}, metadata") if metadata else None
        elif "metadata" in attributes:
            extra["metadata"] = metadata
        prompt = self._prompt(get("prompt"), f"{where}, prompt") if "prompt" in attributes else None
        return EncodedSample(
            columns=row,
            prompt=prompt,
            versions=versions,
            rewards=_numbers(reward),
            text=text,
            metadata=document,
            extra=self._documents.attributes(extra, where) if extra else None,
        )

    def _layout(self, names: tuple[str, ...]) -> int:
        if names not in self._layouts:
            if not all(type(name) is str for name in names):
                raise UnsupportedValueError("sample", "it has an attribute whose name is no text")
            if len(self._layouts) >= MAX_LAYOUTS:
                raise UnsupportedValueError("sample", f"more than {MAX_LAYOUTS} different sets of attributes")
            self._layouts[names] = len(self._layouts)
        return self._layouts[names]

    def _arrays(self, position: int, attributes: dict[str, Any], extra: dict[str, Any]) -> dict[str, int]:
        """Put the token arrays into their packs; return the number of tokens and the sum of the mask."""
        lengths: dict[str, int] = {}
        for name in ARRAY_FIELDS:
            value = attributes.get(name)
            if value is None:
                continue
            piece = to_piece(value, copy=self._copy)
            if name == "tokens":
                lengths["tokens"] = columns.length(value)
            if name == "loss_mask":
                total = columns.mask_sum(piece)
                if total is not None:
                    lengths["mask_sum"] = total
            if piece is None:
                extra[name] = value
            else:
                self._builders[name].add(position, piece)
        return lengths

    def _text(self, attributes: dict[str, Any], extra: dict[str, Any]) -> tuple[str | None, str] | None:
        columns: list[str | None] = []
        for name, absent in (("label", None), ("response", "")):
            value = attributes.get(name, absent)
            if type(value) is str:
                shown: str | None = searchable(value[:MAX_TEXT])
                if len(value) > MAX_TEXT or shown != value:
                    extra[name] = value
            else:
                shown = absent
                if value is not absent:
                    extra[name] = value
            columns.append(shown)
        label, response = columns
        return None if label is None and not response else (label, response or "")

    def _prompt(self, prompt: Any, where: str) -> bytes:
        """Return the prompt's digest; a prompt object that several samples share is encoded once."""
        known = self._prompt_memo.get(id(prompt))
        if known is not None and known[0] is prompt:
            return known[1]
        encoded = _encode_prompt(prompt, where, self._documents)
        self._prompts.setdefault(encoded.digest, encoded)
        self._prompt_memo[id(prompt)] = (prompt, encoded.digest)
        return encoded.digest


def prompt_digest(prompt: Any) -> bytes:
    """Return the digest under which a prompt is stored.

    Raises:
        UnsupportedValueError: the prompt cannot be stored exactly, so no sample has it.
    """
    return _encode_prompt(prompt, "prompt", DocumentEncoder(BlobMemo(copy=False))).digest


def _encode_prompt(prompt: Any, where: str, documents: DocumentEncoder) -> EncodedPrompt:
    text = prompt if type(prompt) is str and len(prompt) <= MAX_TEXT and searchable(prompt) == prompt else None
    document = None if text is not None else documents.document(prompt, where)
    return EncodedPrompt(stored_prompt_digest(text, document), text, document)


def stored_prompt_digest(text: str | None, document: str | None) -> bytes:
    """Return the digest of a prompt's row."""
    content = b"text\0" + text.encode() if text is not None else b"document\0" + str(document).encode()
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()


def as_train(output: Any) -> tuple[Any, Any]:
    """Return (nested samples, metrics) of a dataclass or of the bare list that older functions return."""
    return (output.samples, getattr(output, "metrics", None)) if hasattr(output, "samples") else (output, None)


def as_eval(output: Any) -> tuple[Any, Any]:
    """Return (data, metrics) of a dataclass or of the bare dict that older functions return."""
    return (output.data, getattr(output, "metrics", None)) if hasattr(output, "data") else (output, None)


def _numbers(value: Any) -> dict[tuple[int, str], float | None]:
    """Return the numeric entries of a dict by (depth, key); of entries that share a key the first one counts."""
    entries: dict[tuple[int, str], float | None] = {}
    inner = rewards.dict_of(value)
    if inner is not None:
        for depth, key, number in rewards.numeric_entries(inner):
            entries.setdefault((depth, key), number)
    return entries


def _shared_group_index(flat: FlatSamples, group: Any) -> int | None:
    members = flat.samples[group.first_position : group.first_position + group.n_samples]
    indexes = {columns.integer("group_index", vars(sample), {}) for sample in members}
    return indexes.pop() if len(indexes) == 1 else None


def _hollow(data: dict[Any, Any], where: str, keys: list[Any]) -> dict[Any, Any]:
    """Return a copy of a dict, of the same kind, with None at these keys: what is stored of it elsewhere."""
    if type(data) not in (dict, OrderedDict, defaultdict):
        raise UnsupportedValueError(where, f"{type(data).__name__} is not a plain dict")
    hollow = data.copy()
    hollow.update(dict.fromkeys(keys))
    return hollow


def _aligned(values: Any, samples: list[Any]) -> list[Any]:
    """The dataset's own list, or array, when it has one entry for each sample, else Nones."""
    is_row = isinstance(values, (list, tuple)) or getattr(values, "ndim", None) == 1
    return list(values) if is_row and len(values) == len(samples) else [None] * len(samples)
