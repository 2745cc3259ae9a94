"""Rows, documents and packs back to samples and rollouts."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slime_store.codecs.documents import BlobSource, DocumentDecoder, part_of
from slime_store.errors import BlobCorruptError
from slime_store.mapping import rewards
from slime_store.mapping.fields import COUNTERS, FIELDS, INFO_CLASSES, INTEGER_COLUMNS, MAX_TURNS, Home, omitted_value
from slime_store.mapping.nesting import nest
from slime_store.mapping.opening import StoredPack, opened_packs
from slime_store.types import Sample

_TOGETHER_BYTES = 4 << 20
"""Stored bytes of packs that are decompressed together; of larger ones, only one is in memory beside its values."""


def documents_of(stored: StoredSamples, fields: Collection[str] | None) -> Iterator[str]:
    """Yield the documents that making the samples decodes, cut to the attributes wanted: for finding their blobs."""
    yield from (document for _, document in stored.prompts.values() if document is not None)
    for metadata, extra in stored.documents.values():
        if metadata is not None:
            yield metadata
        if extra is not None and '"blob"' in extra:
            yield extra if fields is None else part_of(extra, fields)


@dataclass
class StoredSamples:
    """Some samples of one rollout, as rows: what the repository read, by position."""

    layouts: Sequence[Sequence[str]]
    columns: Sequence[Mapping[Any, Any]]
    """One mapping for each sample, in order: position, layout and the columns of ``samples`` that were asked for."""
    prompts: dict[int, tuple[str | None, str | None]] = field(default_factory=dict)
    """prompt_pk -> (text, document)"""
    texts: dict[int, tuple[str | None, str]] = field(default_factory=dict)
    documents: dict[int, tuple[str | None, str | None]] = field(default_factory=dict)
    versions: dict[int, list[tuple[str, int]]] = field(default_factory=dict)
    packs: list[StoredPack] = field(default_factory=list)


class SampleDecoder:
    """Makes samples of one class from rows.

    Args:
        blobs: where the documents' large payloads are.
        sample_type: the class to make; attributes that it does not declare are set on it all the same.
        fields: make only these attributes, leaving the class's defaults elsewhere; None: all.
    """

    def __init__(
        self, blobs: BlobSource, sample_type: type[Any] = Sample, fields: Collection[str] | None = None
    ) -> None:
        self._documents = DocumentDecoder(blobs, sample_type)
        self._type = sample_type
        self._fields = None if fields is None else frozenset(fields)
        self._statuses = {status.value: status for status in sample_type.Status}

    def samples(self, stored: StoredSamples) -> list[Any]:
        """Return the samples in the order of their rows.

        Raises:
            BlobCorruptError: an array, a document or a layout is damaged.
        """
        arrays = self._arrays(stored)
        return [self._sample(row, stored, arrays.get(row["position"], {})) for row in stored.columns]

    def document(self, text: str) -> Any:
        """Return the value of a document."""
        return self._documents.document(text)

    def _arrays(self, stored: StoredSamples) -> dict[int, dict[str, Any]]:
        positions = frozenset(row["position"] for row in stored.columns)
        arrays: dict[int, dict[str, Any]] = {position: {} for position in positions}
        for stored_pack, pack in opened_packs(stored.packs, _TOGETHER_BYTES):
            for position, value in pack.values(stored_pack.first_position, positions):
                arrays[position][stored_pack.field] = value
        return arrays

    def _sample(self, row: Mapping[Any, Any], stored: StoredSamples, arrays: dict[str, Any]) -> Any:
        position = row["position"]
        metadata, extra_text = stored.documents.get(position, (None, None))
        extra = {} if extra_text is None else self._documents.document(extra_text, self._fields)
        label, response = stored.texts.get(position, (None, ""))
        sample = self._type()
        attributes = sample.__dict__
        names = stored.layouts[row["layout"]]
        for name in names:
            if self._fields is not None and name not in self._fields:
                continue
            if name in extra:
                attributes[name] = extra[name]
                continue
            home = FIELDS.get(name, Home.EXTRA)
            if home is Home.ARRAY:
                attributes[name] = arrays.get(name)
            elif home is Home.EXTRA:
                attributes[name] = omitted_value(name)
            elif home is Home.INTEGER:
                attributes[name] = row[INTEGER_COLUMNS[name]]
            elif home is Home.METADATA:
                attributes[name] = {} if metadata is None else self._documents.document(metadata)
            elif home is Home.TEXT:
                attributes[name] = label if name == "label" else response
            elif home is Home.PROMPT:
                attributes[name] = self._prompt(stored, row["prompt_pk"])
            elif home is Home.VERSIONS:
                attributes[name] = _turns(stored.versions.get(position, ()))
            elif home is Home.REWARD:
                attributes[name] = rewards.from_columns(row["reward"], row["reward_type"])
            elif home is Home.STATUS:
                attributes[name] = self._statuses.get(row["status"], row["status"])  # a word that only others know
            elif home is Home.COUNTERS:
                self._counters(sample, name, row)
            else:  # SECONDS, FLAG: the column has the attribute's name
                attributes[name] = row[name]
        return sample

    def _prompt(self, stored: StoredSamples, prompt_pk: int | None) -> Any:
        text, document = stored.prompts[prompt_pk] if prompt_pk is not None else (None, "null")
        return text if document is None else self._documents.document(document)

    def _counters(self, sample: Any, name: str, row: Mapping[Any, Any]) -> None:
        info = getattr(sample, name, None)
        if info is None:  # a framework version without these counters
            info = getattr(Sample, INFO_CLASSES[name])()
            setattr(sample, name, info)
        for counter in COUNTERS[name]:
            setattr(info, counter, row[counter])


def _turns(runs: Collection[tuple[str, int]]) -> list[str]:
    """Return the label of each turn; a number of turns is written out only up to what recording leaves to numbers."""
    if any(n < 1 for _, n in runs) or sum(n for _, n in runs) > MAX_TURNS:
        raise BlobCorruptError(f"a sample has {', '.join(str(n) for _, n in runs)} turns by weight version")
    return [label for label, n in runs for _ in range(n)]


def layouts_of(text: str) -> list[list[str]]:
    """Read ``rollouts.layouts``."""
    layouts: list[list[str]] = json.loads(text)
    if not all(isinstance(name, str) for names in layouts for name in names):
        raise BlobCorruptError(f"the attribute names {text[:80]!r} are no text")
    return layouts


def eval_data(data: dict[Any, Any], datasets: Sequence[tuple[str | None, Any, Sequence[Any]]]) -> dict[Any, Any]:
    """Rebuild the dict of an eval.

    Args:
        data: the dict with the exact dataset names and nothing in them; it is filled.
        datasets: (shape or None, decoded content, samples) of each, in order.

    Raises:
        BlobCorruptError: the samples of a dataset have no shape.
    """
    for key, (shape, content, samples) in zip(list(data), datasets, strict=True):
        if shape is not None:
            content["samples"] = nest(shape, list(samples))
        elif samples:
            raise BlobCorruptError("a dataset has samples, and nothing that says how they nest")
        data[key] = content
    return data
