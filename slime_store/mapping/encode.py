"""Rollouts to rows, documents and packs."""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict, defaultdict
from typing import Any

import numpy as np

from slime_store.codecs.documents import DocumentEncoder
from slime_store.errors import UnsupportedValueError
from slime_store.mapping import rewards
from slime_store.mapping.blob_memo import DIGEST_BYTES, BlobMemo
from slime_store.mapping.encoded import EncodedDataset, EncodedPrompt, EncodedRollout, EncodedSample
from slime_store.mapping.fields import ARRAY_FIELDS, COUNTERS, FIELDS, MAX_TEXT, Home, is_omitted
from slime_store.mapping.nesting import FlatSamples, Place, flatten
from slime_store.mapping.packs import PackBuilder, Piece, to_piece
from slime_store.mapping.text import searchable
from slime_store.types.duck import is_sample

_INT64 = range(-(2**63), 2**63)
_SUMMABLE = frozenset({"empty", "int", "float", "bool", "float16", "float32", "float64"}) | {
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}


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
        if state is not None:
            rollout.state = self._documents.document(state, "state")
        rollout.prompts = self._prompts
        rollout.packs = [pack for builder in self._builders.values() for pack in builder.packs]
        rollout.blobs = self._memo.arrays
        rollout.placeholders = self._documents.placeholders + self._inline.placeholders
        return rollout

    def _dataset(self, rollout: EncodedRollout, dataset_position: int, key: Any, content: Any) -> None:
        first = len(rollout.samples)
        where = f"dataset {key!r}"
        shape, rest = None, content
        flat = FlatSamples()
        if isinstance(content, dict) and isinstance(content.get("samples"), (list, tuple)):
            flat = flatten(content["samples"], f"{where}, samples")
            shape, rest = flat.shape, _hollow(content, where, ["samples"])
        columns = content if isinstance(content, dict) else {}
        given_rewards = _aligned(columns.get("rewards"), flat.samples)
        given_truncated = _aligned(columns.get("truncated"), flat.samples)
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
        name = searchable(key if isinstance(key, str) else repr(key))
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
        response_length = _integer("response_length", attributes, extra)
        reward = get("reward")
        number, reward_type = rewards.reward_columns(reward)
        if not rewards.is_exact_in_columns(reward):
            extra["reward"] = reward
        entries: dict[tuple[int, str], float | None] = {}
        if isinstance(reward, dict):
            for depth, key, value in rewards.numeric_entries(reward):
                entries.setdefault((depth, key), value)
        mask_sum = lengths.get("mask_sum")
        given = rewards.numeric_value(eval_reward)
        columns = (
            position,
            place.group if place else None,
            place.sample if place else None,
            place.segment if place else None,
            dataset,
            self._layout(tuple(attributes)),
            _integer("group_index", attributes, extra),
            _integer("index", attributes, extra),
            _integer("rollout_id", attributes, extra),
            _status(attributes, extra),
            number,
            reward_type,
            None if given is None or math.isnan(given) else given,
            bool(eval_truncated) if isinstance(eval_truncated, (bool, np.bool_)) else None,
            _flag("remove_sample", attributes, extra),
            lengths.get("tokens", 0),
            response_length,
            response_length if mask_sum is None else mask_sum,
            _seconds("non_generation_time", attributes, extra),
            *_counters("spec_info", attributes, extra),
            *_counters("prefix_cache_info", attributes, extra),
        )
        versions = _versions(attributes, extra)
        text = self._text(attributes, extra)
        metadata = get("metadata")
        document = None
        if type(metadata) is dict:
            document = self._documents.document(metadata, f"{where}, metadata") if metadata else None
        elif "metadata" in attributes:
            extra["metadata"] = metadata
        prompt = self._prompt(get("prompt"), f"{where}, prompt") if "prompt" in attributes else None
        return EncodedSample(
            columns=columns,
            prompt=prompt,
            versions=versions,
            rewards=entries,
            text=text,
            metadata=document,
            extra=self._documents.attributes(extra, where) if extra else None,
        )

    def _layout(self, names: tuple[str, ...]) -> int:
        return self._layouts.setdefault(names, len(self._layouts))

    def _arrays(self, position: int, attributes: dict[str, Any], extra: dict[str, Any]) -> dict[str, int]:
        """Put the token arrays into their packs; return the number of tokens and the sum of the mask."""
        lengths: dict[str, int] = {}
        for name in ARRAY_FIELDS:
            value = attributes.get(name)
            if value is None:
                continue
            piece = to_piece(value, copy=self._copy)
            if name == "tokens":
                lengths["tokens"] = _length(value)
            if name == "loss_mask":
                total = _mask_sum(piece)
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
    content = b"text\0" + text.encode() if text is not None else b"document\0" + str(document).encode()
    return EncodedPrompt(hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest(), text, document)


def as_train(output: Any) -> tuple[Any, Any]:
    """Return (nested samples, metrics) of a dataclass or of the bare list that older functions return."""
    return (output.samples, output.metrics) if hasattr(output, "samples") else (output, None)


def as_eval(output: Any) -> tuple[Any, Any]:
    """Return (data, metrics) of a dataclass or of the bare dict that older functions return."""
    return (output.data, output.metrics) if hasattr(output, "data") else (output, None)


def _shared_group_index(flat: FlatSamples, group: Any) -> int | None:
    members = flat.samples[group.first_position : group.first_position + group.n_samples]
    indexes = {getattr(s, "group_index", None) for s in members if is_sample(s)}
    only = indexes.pop() if len(indexes) == 1 else None
    return int(only) if isinstance(only, (int, np.integer)) and int(only) in _INT64 else None


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


def _integer(name: str, attributes: dict[str, Any], extra: dict[str, Any]) -> int | None:
    value = attributes.get(name)
    if value is None or (type(value) is int and value in _INT64):
        return value
    extra[name] = value
    if isinstance(value, (int, np.integer)) and int(value) in _INT64:
        return int(value)
    return None


def _seconds(name: str, attributes: dict[str, Any], extra: dict[str, Any]) -> float | None:
    value = attributes.get(name)
    if value is None:
        return None
    if type(value) is not float or not rewards.is_exact_in_columns(value):
        extra[name] = value
    number = rewards.numeric_value(value)
    return None if number is None or math.isnan(number) else number


def _flag(name: str, attributes: dict[str, Any], extra: dict[str, Any]) -> bool:
    value = attributes.get(name, False)
    if type(value) is not bool:
        extra[name] = value
    try:
        return bool(value)
    except (ValueError, RuntimeError):  # an array or tensor of several elements
        return False


def _status(attributes: dict[str, Any], extra: dict[str, Any]) -> str:
    """The plain word. A status that is not the sample class's own enum is kept exactly in ``extra``."""
    status = attributes.get("status")
    word = getattr(status, "value", status)
    if status is word or not isinstance(word, str) or not type(status).__qualname__.endswith("Sample.Status"):
        extra["status"] = status
    return searchable(str(word))


def _counters(name: str, attributes: dict[str, Any], extra: dict[str, Any]) -> list[int]:
    info = attributes.get(name)
    values = dict(getattr(info, "__dict__", {}))
    numbers = [values.pop(counter, None) for counter in COUNTERS[name]]
    exact = type(info).__qualname__.startswith("Sample.") and not values
    if name in attributes and not (exact and all(type(n) is int and n in _INT64 for n in numbers)):
        extra[name] = info
    return [int(n) if isinstance(n, (int, np.integer)) and int(n) in _INT64 else 0 for n in numbers]


def _versions(attributes: dict[str, Any], extra: dict[str, Any]) -> list[tuple[str, int]]:
    """Run-length encode the weight versions; what is not a plain list of clean strings is kept in ``extra``."""
    versions = attributes.get("weight_versions")
    if versions is None:
        if "weight_versions" in attributes:
            extra["weight_versions"] = None
        return []
    if not isinstance(versions, (list, tuple)):
        extra["weight_versions"] = versions
        return []
    runs: list[tuple[str, int]] = []
    exact = type(versions) is list
    for version in versions:
        label = searchable(version if isinstance(version, str) else repr(version))
        if isinstance(version, (int, np.integer)) and not isinstance(version, bool):
            label = str(int(version))
        exact = exact and type(version) is str and label == version
        if runs and runs[-1][0] == label:
            runs[-1] = (label, runs[-1][1] + 1)
        else:
            runs.append((label, 1))
    if not exact:
        extra["weight_versions"] = versions
    return runs


def _length(value: Any) -> int:
    try:
        return len(value)
    except TypeError:
        return 0


def _mask_sum(piece: Piece | None) -> int | None:
    """Sum a loss mask of any type whose array holds its numbers; None where the sum is not whole."""
    if piece is None or piece.type.removeprefix("numpy.") not in _SUMMABLE:
        return None
    total = float(piece.array.sum(dtype=np.float64))  # exact up to 2**53
    return int(total) if total.is_integer() and int(total) in _INT64 else None
