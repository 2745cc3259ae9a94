"""Rules for slime's and miles's data: samples that were dumped as objects, and the small classes in their fields.

Samples, their status and their counters become ``slime_store.types``' own, whichever framework made them. Other
dataclasses become instances of their class where slime or miles is importable, and a neutral ``Record`` elsewhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from slime_store.codecs.documents.classes import find_type
from slime_store.interchange.restricted.rules import Rule, names, refuse, require
from slime_store.types import Placeholder, Record, Sample

_SAMPLE_MODULES = ("slime.utils.types", "miles.utils.types", "slime_store.types.sample")
_DATACLASSES = (
    "miles.utils.types.AdapterRef",
    "miles.utils.types.RewardSpec",
    "slime.utils.types.MultimodalType",
    "miles.utils.types.MultimodalType",
)
_MAPPINGS = (  # transformers' dicts, which come back as plain ones, as everywhere in the store
    "transformers.feature_extraction_utils.BatchFeature",
    "transformers.image_processing_base.BatchFeature",
    "transformers.tokenization_utils_base.BatchEncoding",
)


def _attributes(value: Any, state: Any) -> Any:
    value.__dict__.clear()
    value.__dict__.update(names(state, "an object's attributes"))
    return value


def _status(word: Any) -> Any:
    """The member, or the word where no member has it."""
    known = {status.value: status for status in Sample.Status}
    return known.get(require(word, str, "a status"), word)


def _dataclass(name: str) -> Callable[[Any, Any], Any]:
    def make(_value: Any, state: Any) -> Any:
        fields = names(state, "an object's attributes")
        module, _, qualname = name.rpartition(".")
        cls = find_type(f"{module}:{qualname}")
        if cls is None or not dataclasses.is_dataclass(cls):
            return Record(f"{module}:{qualname}", "dataclass", fields)
        value = object.__new__(cls)
        for key, item in fields.items():
            object.__setattr__(value, key, item)  # some are frozen
        return value

    return make


def _record(_value: Any, state: Any) -> Record:
    given = names(state, "a record")
    kinds = ("enum", "dataclass", "namedtuple")
    if given.keys() != {"type_name", "kind", "fields"} or given["kind"] not in kinds:
        refuse("a record of another form")
    return Record(require(given["type_name"], str, "a name"), given["kind"], require(given["fields"], dict, "fields"))


def _placeholder(_value: Any, state: Any) -> Placeholder:
    given = names(state, "a placeholder")
    return Placeholder(*[require(given[name], str, "a placeholder") for name in ("type_name", "text")])


def _data(_value: Any, state: Any) -> Any:
    return require(names(state, "a batch")["data"], dict, "a batch")


RULES: dict[str, Rule] = {
    **{name: Rule(lambda: None, state=_dataclass(name), needs_state=True) for name in _DATACLASSES},
    **{name: Rule(lambda *_args: None, state=_data, needs_state=True) for name in _MAPPINGS},
    "slime_store.types.neutral.Record": Rule(lambda: None, state=_record, needs_state=True),
    "slime_store.types.neutral.Placeholder": Rule(lambda: None, state=_placeholder, needs_state=True),
}
for _module in _SAMPLE_MODULES:
    RULES[f"{_module}.Sample"] = Rule(Sample, state=_attributes, needs_state=True)
    RULES[f"{_module}.Sample.Status"] = Rule(_status)
    RULES[f"{_module}.Sample.SpecInfo"] = Rule(Sample.SpecInfo, state=_attributes)
    RULES[f"{_module}.Sample.PrefixCacheInfo"] = Rule(Sample.PrefixCacheInfo, state=_attributes)
    for _member in Sample.Status:  # some Pythons write members by name
        RULES[f"{_module}.Sample.Status.{_member.name}"] = Rule(constant=_member)
