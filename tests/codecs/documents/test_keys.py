"""Keys of dicts and members of sets whose class is not loaded: none is lost, and they go in again as they were."""

from __future__ import annotations

import dataclasses
import json
import pickle
from typing import Any

import pytest

from slime_store.codecs.documents import DocumentDecoder, DocumentEncoder
from slime_store.errors import BlobCorruptError
from slime_store.types import Record


@dataclasses.dataclass(eq=False)
class Node:
    name: str = "n"


@dataclasses.dataclass(eq=False)
class Grown:
    name: str = "n"


@dataclasses.dataclass(frozen=True)
class Key:
    of: Any


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


def test_placeholders_that_look_alike_stay_apart() -> None:
    body = '{"$tuple":[{"$placeholder":{"type":"a:B","text":"t"}}]}'
    assert len(read(f'{{"$set":[{body},{body}]}}')) == 2


@pytest.mark.parametrize("text", ['{"$dict":[[1,2],[1,3]]}', '{"$set":[1,1]}', '{"$dict":[[[],1]]}', '{"$set":[{}]}'])
def test_other_keys_that_are_equal_or_none_are_a_typed_error(text: str) -> None:
    with pytest.raises(BlobCorruptError):
        read(text)
