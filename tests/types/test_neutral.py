"""Placeholder and Record, which stand for values whose class is not there."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from slime_store.types import Placeholder, Record

RECORD = Record("app.colors:Color", "enum", {"name": "RED", "value": [1, {"a": 2}]})


def test_the_fields_of_a_record_read_as_attributes() -> None:
    assert (RECORD.name, RECORD.value) == ("RED", [1, {"a": 2}])
    with pytest.raises(
        AttributeError, match=r"record of 'app.colors:Color' has no field 'x'; it has \['name', 'value'\]"
    ):
        _ = RECORD.x


def test_the_attributes_of_a_record_win_over_fields_of_the_same_name() -> None:
    record = Record("a:B", "dataclass", {"kind": "mine", "fields": 3})
    assert (record.kind, record.fields["kind"], record.fields["fields"]) == ("dataclass", "mine", 3)


def test_records_can_be_copied_and_pickled() -> None:
    for again in (copy.copy(RECORD), copy.deepcopy(RECORD), pickle.loads(pickle.dumps(RECORD))):
        assert again == RECORD
        assert again.value == [1, {"a": 2}]
    assert copy.deepcopy(RECORD).value is not RECORD.value


def test_equal_records_are_one_key_also_when_a_field_cannot_be_hashed() -> None:
    assert len({RECORD: 1, copy.deepcopy(RECORD): 2}) == 1
    red, blue = (Record("a:C", "enum", {"name": name, "value": 1}) for name in ("RED", "BLUE"))
    assert len({red, blue, Record("a:C", "enum", {"value": 1, "name": "RED"})}) == 2


def test_records_and_placeholders_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        RECORD.kind = "dataclass"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        Placeholder("a:B", "<B>").text = ""  # type: ignore[misc]


def test_a_placeholder_is_equal_to_one_of_the_same_class_and_text() -> None:
    assert Placeholder("_thread:lock", "<lock>") == Placeholder("_thread:lock", "<lock>")
    assert len({Placeholder("a:B", "<B>"), Placeholder("a:B", "<B>")}) == 1
