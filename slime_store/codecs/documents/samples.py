"""Samples inside documents: the data source's buffer, a sample kept in another's metadata."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from slime_store.codecs.documents import bodies
from slime_store.types import Sample
from slime_store.types.duck import is_sample, nested_in_sample

if TYPE_CHECKING:
    from slime_store.codecs.documents.decoder import DocumentDecoder
    from slime_store.codecs.documents.encoder import DocumentEncoder

_NESTED = {"SpecInfo": "$spec_info", "PrefixCacheInfo": "$prefix_cache_info"}


def find_encoder(value: Any) -> Callable[[Any, DocumentEncoder], Any] | None:
    """Return the handler for a sample, or for the status or counters of one, or None."""
    if is_sample(value):
        return _encode_sample
    name = nested_in_sample(value)
    if name == "Status":
        return lambda v, encoder: {"$status": v.value}
    if name is not None:
        return lambda v, encoder: {_NESTED[name]: encoder.mapping(vars(v))}
    return None


def _encode_sample(value: Any, encoder: DocumentEncoder) -> Any:
    status = type(value).Status  # its words are the sample's own, also those that no framework has
    items = [
        [encoder.text(k), {"$status": encoder.text(v.value)} if _is_word(v, status) else encoder.encode(v, f".{k}")]
        for k, v in vars(value).items()
    ]
    return {"$sample": items}


def _is_word(value: Any, status: type[Any]) -> bool:
    return type(value) is status and type(value.value) is str


def _decode_sample(body: list[Any], decoder: DocumentDecoder) -> Any:
    sample = decoder.sample_type()
    sample.__dict__.update(bodies.attributes(body))
    return sample


def _decode_status(body: str, decoder: DocumentDecoder) -> Any:
    """Return the class's own status, or the word where the class does not know it, as for the samples of a rollout."""
    if not isinstance(body, str):
        raise ValueError(f"{body!r} is not a status")
    known = {status.value: status for status in decoder.sample_type.Status}
    return known.get(body, body)


def _decode_nested(name: str) -> Callable[[Any, DocumentDecoder], Any]:
    def decode(body: dict[str, Any], decoder: DocumentDecoder) -> Any:
        own = getattr(decoder.sample_type, name, None)  # None: a framework version without these counters
        info = getattr(Sample, name)() if own is None else own()
        vars(info).update(bodies.mapping(body))
        return info

    return decode


DECODERS: dict[str, Callable[[Any, DocumentDecoder], Any]] = {
    "$sample": _decode_sample,
    "$status": _decode_status,
    **{tag: _decode_nested(name) for name, tag in _NESTED.items()},
}
