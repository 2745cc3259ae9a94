"""Keys of dicts and members of sets whose class is not loaded: none is lost, and they go in again as they were."""

from __future__ import annotations

import collections
import dataclasses
import enum
import json
import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest

from slime_store.codecs.documents import DocumentDecoder, DocumentEncoder
from slime_store.errors import BlobCorruptError, UnsupportedValueError
from slime_store.types import Placeholder, Record


@dataclasses.dataclass(eq=False)
class Node:
    name: str = "n"


@dataclasses.dataclass(eq=False)
class Grown:
    name: str = "n"


@dataclasses.dataclass(frozen=True)
class Key:
    of: Any


@dataclasses.dataclass(frozen=True)
class Labelled:
    label: str
    more: Any = dataclasses.field(hash=False)


class Pair(NamedTuple):
    a: Any
    b: Any


class Named(NamedTuple):
    a: Any


class Word(enum.Enum):
    A = 1


class HashedDict(collections.UserDict[str, int]):
    def __hash__(self) -> int:  # type: ignore[override]
        return 1


class NoBlobs:
    def get(self, name: str) -> bytes:
        raise KeyError(name)


def written(value: Any) -> str:
    return DocumentEncoder(None).document(value).replace(f"{__name__}:Node", "a_module_that_nobody_imported:Node")


def read(text: str) -> Any:
    return DocumentDecoder(NoBlobs()).document(text)


@pytest.mark.parametrize(
    "wrap",
    [lambda node: node, lambda node: (1, node), lambda node: frozenset([node]), lambda node: ((), Key((node,)))],
    ids=["plain", "tuple", "frozenset", "dataclass"],
)
def test_records_that_look_alike_stay_apart_as_keys_and_members(wrap: Any) -> None:
    members = {wrap(Node()), wrap(Node("m")), wrap(Node())}
    text = written({"keys": {wrap(Node()): i for i in range(3)}, "members": members})
    back = read(text)
    assert list(back["keys"].values()) == [0, 1, 2] and len(back["members"]) == 3
    assert [back["keys"][key] for key in back["keys"]] == [0, 1, 2]
    assert json.loads(DocumentEncoder(None).document(back))["keys"] == json.loads(text)["keys"]
    assert pickle.loads(pickle.dumps(back)) == back == read(text)


def test_records_elsewhere_are_equal_by_content() -> None:
    first, second = read(written([Node(), Node()]))
    assert first == second == Record("a_module_that_nobody_imported:Node", "dataclass", {"name": "n"})


def test_keys_of_a_class_that_compares_by_now_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    text = written({Grown(): 1, Grown(): 2})
    monkeypatch.setattr(Grown, "__eq__", lambda one, other: type(one) is type(other) and one.name == other.name)
    monkeypatch.setattr(Grown, "__hash__", lambda grown: hash(grown.name))
    grown, record = back = read(text)
    assert list(back.values()) == [1, 2] and type(grown) is Grown and record.name == "n"
    monkeypatch.setattr(Grown, "__hash__", None)
    assert [type(key) for key in read(text)] == [Record, Record]
    assert DocumentEncoder(None).document(read(text)) == text


def _no_hash(value: Any) -> int:
    raise AttributeError("a field that was added since")


@pytest.mark.parametrize("hashed", [None, _no_hash], ids=["none", "raises"])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda node: node,
        lambda node: (node, "x"),
        lambda node: ((1, node),),
        lambda node: Pair(node, 1),
        lambda node: (frozenset([node]), 1),
        lambda node: Key((node,)),
    ],
    ids=["plain", "tuple", "deep", "named", "frozenset", "dataclass"],
)
def test_keys_whose_class_has_no_hash_any_more_are_records_wherever_they_are(
    monkeypatch: pytest.MonkeyPatch, wrap: Any, hashed: Any
) -> None:
    text = DocumentEncoder(None).document({"keys": {wrap(Grown()): 1, wrap(Grown("m")): 2}, "members": {wrap(Grown())}})
    monkeypatch.setattr(Grown, "__hash__", hashed)
    back = read(text)
    assert list(back["keys"].values()) == [1, 2] and "'n'" in repr(next(iter(back["keys"]))) + repr(back["members"])
    assert all("Record" in repr(key) for key in (*back["keys"], *back["members"]))
    assert DocumentEncoder(None).document(back) == text


@pytest.mark.parametrize("key", [Named(1), Word.A], ids=["namedtuple", "enum"])
def test_named_tuples_and_members_that_have_no_hash_any_more_are_records(
    monkeypatch: pytest.MonkeyPatch, key: Any
) -> None:
    text = DocumentEncoder(None).document({(key, 1): 2})
    monkeypatch.setattr(type(key), "__hash__", None)
    back = read(text)
    assert type(next(iter(back))[0]) is Record
    assert DocumentEncoder(None).document(back) == text


@pytest.mark.parametrize(
    "wrap", [Key, lambda made: (Key(made),), lambda made: Pair(Key((made,)), 1), lambda made: frozenset([Key(made)])],
    ids=["plain", "tuple", "named", "frozenset"],
)  # fmt: skip
def test_a_key_whose_hash_takes_what_comes_back_as_a_dict_is_refused(wrap: Any) -> None:
    with pytest.raises(UnsupportedValueError):
        DocumentEncoder(None).document({wrap(HashedDict(a=1)): 1})
    back = read(DocumentEncoder(None, strict=False).document({wrap(HashedDict(a=1)): 1, wrap(HashedDict(b=1)): 2}))
    assert [type(key) for key in back] == [Placeholder] * 2


def test_a_key_that_is_hashed_without_what_comes_back_as_a_dict_comes_back() -> None:
    made = {Node(HashedDict(a=1)): 1, Labelled("x", HashedDict(b=1)): 2}  # type: ignore[arg-type]
    first, second = read(DocumentEncoder(None).document(made))
    assert (type(first), first.name) == (Node, {"a": 1}) and second in made


def test_records_of_arrays_are_keys_that_differ() -> None:
    back = read(written({Node(np.zeros(2)): 1, Node(np.ones(2)): 2}))  # type: ignore[arg-type]
    assert [(type(key), back[key]) for key in back] == [(Record, 1), (Record, 2)]


def test_records_of_one_class_are_not_all_compared() -> None:
    records = [Record("a:B", "dataclass", {"name": "n", "children": [{"at": {i}}]}) for i in range(200)]
    same = Record("a:B", "dataclass", {"name": "n", "children": [{"at": frozenset({1})}]})
    assert len(set(map(hash, records))) == 200 and same == records[1] and hash(same) == hash(records[1])


@pytest.mark.parametrize("fields", ["[]", '[["type_name","a"],["kind","enum"],["fields",5]]'], ids=["none", "odd"])
@pytest.mark.parametrize("name", ["Record", "Placeholder"])
def test_a_document_makes_no_neutral_value_by_its_class(name: str, fields: str) -> None:
    with pytest.raises(BlobCorruptError):
        read(f'{{"$dataclass":{{"type":"slime_store.types.neutral:{name}","fields":{fields}}}}}')
    with pytest.raises(BlobCorruptError):
        read('{"$placeholder":{"type":"a:B","text":[1]}}')


def test_placeholders_that_look_alike_stay_apart() -> None:
    body = '{"$tuple":[{"$placeholder":{"type":"a:B","text":"t"}}]}'
    assert len(read(f'{{"$set":[{body},{body}]}}')) == 2


@pytest.mark.parametrize("text", ['{"$dict":[[1,2],[1,3]]}', '{"$set":[1,1]}', '{"$dict":[[[],1]]}', '{"$set":[{}]}'])
def test_other_keys_that_are_equal_or_none_are_a_typed_error(text: str) -> None:
    with pytest.raises(BlobCorruptError):
        read(text)
