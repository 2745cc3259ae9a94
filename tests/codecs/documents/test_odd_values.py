"""Whatever is written can be read: odd values, at any depth, are kept exactly, refused, or leave a placeholder."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import enum
import types
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from PIL.TiffImagePlugin import IFDRational

from slime_store.codecs.documents import DocumentDecoder, DocumentEncoder, encoder, plain
from slime_store.errors import UnsupportedValueError
from slime_store.testing import assert_same, same
from slime_store.types import Placeholder, Record, Sample


class Blobs(dict[str, bytes]):
    """Blobs in memory."""

    def put(self, array: np.ndarray[Any, Any]) -> str:
        name = f"{len(self):064x}"
        self[name] = np.ascontiguousarray(array).tobytes()
        return name


class Pair(NamedTuple):
    a: Any
    b: Any


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass(eq=False)
class Node:
    name: Any = None


@dataclasses.dataclass(frozen=True)
class Key:
    name: Any = None


@dataclasses.dataclass(slots=True)
class Slotted:
    a: Any = None


class HashableDict(collections.UserDict[str, int]):
    __hash__ = object.__hash__  # type: ignore[assignment]


class HashableSample(Sample):
    __hash__ = object.__hash__  # type: ignore[assignment]


class Silent:
    def __repr__(self) -> str:
        return "same"


class Zone(dt.tzinfo):
    """A zone as those of pytz and dateutil: known to nobody by a name."""

    def utcoffset(self, when: dt.datetime | None) -> dt.timedelta:
        return dt.timedelta(hours=9)

    def dst(self, when: dt.datetime | None) -> None:
        return None


@dataclasses.dataclass(frozen=True, repr=False)
class Loud:
    name: Any = open

    def __repr__(self) -> str:
        return "\ud83d" * 500


LARGE = bytes(5000)


class Broken(collections.UserDict[str, int]):
    def __init__(self) -> None:
        pass


def with_attributes(value: Any, attributes: dict[Any, Any]) -> Any:
    vars(value).update(attributes)
    return value


def an_exception_in_itself() -> Any:
    error = ValueError()
    arguments = (error,)
    error.args = arguments
    return error


def exceptions_in_a_ring() -> Any:
    first, second = ValueError(), KeyError()
    first.args, second.args = ([second],), ({"first": first},)
    return first


def a_node_in_itself() -> Any:
    node = Node()
    node.name = {"node": [node]}
    return node


def an_image(**info: Any) -> Any:
    image = Image.new("P", (2, 2))
    image.putpalette([1, 2, 3] * 256)
    image.info.update(info)
    return image


def some_exif() -> bytes:
    exif = Image.Exif()
    exif[270] = "x"
    return exif.tobytes()


def a_frozen_record() -> Any:
    array = np.zeros((), [("a", "i4")])
    array.flags.writeable = False
    return array[()]


class Marked(np.void):
    pass


def a_deep_dtype() -> Any:
    dtype = np.dtype("i4")
    for _ in range(400):
        dtype = np.dtype([("a", dtype)])
    return dtype


def changed_keys() -> Any:
    keys = [Key("a"), Key("b")]
    values = dict.fromkeys(keys)
    object.__setattr__(keys[1], "name", "a")
    return values


ODD: dict[str, Callable[[], Any]] = {
    "exception": lambda: ValueError("x", (1,)),
    "exception_in_itself": an_exception_in_itself,
    "exceptions_in_a_ring": exceptions_in_a_ring,
    "exception_of_an_object": lambda: ValueError(Silent(), [1]),
    "node_in_itself": a_node_in_itself,
    "image": lambda: an_image(a=(1, 2), dpi=(IFDRational(1, 2), 3)),
    "image_with_marks": lambda: an_image(a={"$plain": 1}, b=[{"$rational": Silent()}], c=Silent()),
    "image_of_no_number": lambda: an_image(dpi=IFDRational(Fraction(1, 3))),
    "image_with_exif": lambda: an_image(exif=some_exif(), **{"1": {2: {"$itxt": [np.int8(1)]}}}),
    "sparse": lambda: torch.eye(3).to_sparse(),
    "sparse_of_an_odd_dtype": lambda: torch.sparse_coo_tensor(
        [[0]], torch.zeros(1, dtype=torch.uint8).view(torch.bits8), (2,), check_invariants=False
    ),
    "fraction": lambda: Fraction(np.int64(1), np.int64(3)),  # type: ignore[arg-type]
    "slice": lambda: slice(np.int64(1), (2,), Silent()),
    "ordered": lambda: collections.OrderedDict({(1, Silent()): 1}),
    "counter": lambda: collections.Counter({(1,): 2}),
    "namespace": lambda: with_attributes(types.SimpleNamespace(), {1: 2, "a": (1,)}),
    "namespace_of_a_tag": lambda: types.SimpleNamespace(**{"$a": 1}),
    "node_with_a_number": lambda: with_attributes(Node(), {1: 2}),
    "sample_with_a_number": lambda: with_attributes(Sample(), {1: 2}),
    "sample_without_a_status": lambda: with_attributes(Sample(), {"status": ()}),
    "short_pair": lambda: tuple.__new__(Pair, (1,)),
    "pair": lambda: Pair((1,), {2}),
    "enum": lambda: Colour.RED,
    "broken": Broken,
    "v0": lambda: np.zeros(2**20 + 1, "V0"),
    "s0_in_a_structure": lambda: np.zeros((2**11, 2**11), [("a", "S0"), ("b", "i1", (0,))]),
    "v0_scalar": lambda: np.zeros((), [("a", [("b", "V0")], (2**21,))])[()],
    "object_array": lambda: np.array([(1,), Silent(), None], object),
    "objects_with_metadata": lambda: np.array(["a"], np.dtype("O", metadata={"vlen": str})),
    "structure_of_its_own_class": lambda: np.zeros(2, np.dtype((Marked, [("a", "i4")]))),
    "scalar_of_its_own_class": lambda: np.zeros((), np.dtype((Marked, [("a", "i4")])))[()],
    "structure_in_a_number": lambda: np.zeros(2, np.dtype((np.int32, {"a": ("i2", 0), "b": ("i2", 2)}))),
    "structures_in_a_structure": lambda: np.zeros(2, [("x", np.dtype((Marked, [("a", "i4")])), 2)]),
    "records_in_a_structure": lambda: np.zeros(2, [("x", np.dtype((np.record, [("a", "i4")])), 2)]),
    "no_objects": lambda: np.empty((0, 2**40), object),
    "titles": lambda: np.zeros(2, np.dtype({"names": ["a"], "formats": ["i4"], "titles": [(1, 2)]})),
    "odd_titles": lambda: np.dtype({"names": ["a"], "formats": ["i4"], "titles": [Silent()]}),
    "deep_dtype": a_deep_dtype,
    "frozen_record": lambda: {a_frozen_record(): a_frozen_record()},
    "hashable_dict": lambda: {(HashableDict(a=1),): 1},
    "hashable_sample": lambda: {HashableSample(), 1},
    "silent_keys": lambda: dict(zip([Silent(), Silent(), (Silent(),), (Silent(),)], (1, 2, 3, 4), strict=True)),
    "silent_members": lambda: {Silent(), Silent(), Key(Silent())},
    "changed_keys": changed_keys,
    "placeholders": lambda: {Placeholder("a:B", "t"): 1, Placeholder("a:B", "t (key 2)"): 2},
    "large_key": lambda: {(LARGE, Silent()): 1},
    "large_member": lambda: {(LARGE, Silent())},
    "image_with_large_info": lambda: an_image(a=[LARGE, Silent()]),
    "large_names": lambda: np.zeros(1, [("\ud83d" * 500, "i4"), ("b", np.dtype("i4", metadata={"a": 1}))]),
    "large_reprs": lambda: {Loud(): 1, Loud(len): 2, "x": Loud()},
    "large_odd_record": lambda: Record("\0" * 2000, "odd", {}),
    "odd_placeholder": lambda: Placeholder(1, ()),  # type: ignore[arg-type]
    "record_of_no_enum": lambda: Record(f"{__name__}:Colour", "enum", {"name": [], "value": (1,)}),
    "record_of_a_lost_slot": lambda: Record(f"{__name__}:Slotted", "dataclass", {"zz": 1}),
    "record_of_other_fields": lambda: Record(f"{__name__}:Pair", "namedtuple", {"a": 1}),
    "datetime_of_an_odd_zone": lambda: dt.datetime(2024, 1, 1, tzinfo=Zone()),
    "time_of_an_odd_zone": lambda: dt.time(1, tzinfo=Zone()),
    "odd_record": lambda: Record(1, "dataclass", {2: 3}),  # type: ignore[arg-type, dict-item]
    "record_without_fields": lambda: Record("a:B", "dataclass", None),  # type: ignore[arg-type]
}

_WRAPPERS: list[Callable[[Any], Any]] = [
    lambda value: [value],
    lambda value: (value, 1),
    lambda value: {"a": value},
    lambda value: {1: value},
    ValueError,
    Node,
    Key,
    lambda value: Pair(value, value),
    lambda value: collections.deque([value]),
    lambda value: an_image(a=value, b=[{"$plain": value}]),
    lambda value: types.SimpleNamespace(a=value),
    lambda value: Sample(metadata={"x": value}),
]


def nested(value: Any, depth: int, wrap: Callable[[Any], Any] = lambda value: [value]) -> Any:
    for _ in range(depth):
        value = wrap(value)
    return value


def check(make: Callable[[], Any]) -> None:
    """What is refused strictly is read as something, and what is not comes back as it was; no payload is idle."""
    blobs = Blobs()
    decoder = DocumentDecoder(blobs)  # type: ignore[arg-type]
    lenient = DocumentEncoder(blobs, strict=False)
    text = lenient.document(make())
    assert all(name in text for name in blobs)
    back, count = decoder.document(text), len(blobs)
    try:
        document = DocumentEncoder(blobs).document(value := make())
    except UnsupportedValueError:
        assert lenient.placeholders and len(blobs) == count
    else:
        assert_same(decoder.document(document), value)
        assert not lenient.placeholders
        assert_same(back, value)


@pytest.mark.parametrize("name", ODD)
def test_an_odd_value_is_readable_or_refused(name: str) -> None:
    for depth in (0, *range(94, 101)):
        check(lambda depth=depth: nested(ODD[name](), depth))  # type: ignore[misc]


@given(
    st.sampled_from(sorted(ODD)),
    st.lists(st.sampled_from(_WRAPPERS), max_size=4),
    st.sampled_from([0, *range(85, 100)]),
    st.lists(st.sampled_from(_WRAPPERS), max_size=4),
)
def test_odd_values_in_one_another_are_readable_or_refused(
    name: str, inner: list[Callable[[Any], Any]], depth: int, outer: list[Callable[[Any], Any]]
) -> None:
    def make() -> Any:
        value = ODD[name]()
        for wrap in inner:
            value = wrap(value)
        value = nested(value, depth)
        for wrap in outer:
            value = wrap(value)
        return value

    check(make)


def test_what_looks_alike_in_keys_and_sets_stays_apart() -> None:
    encoder = DocumentEncoder(None, strict=False)
    value = {"keys": ODD["silent_keys"](), "members": ODD["silent_members"]()}
    back = DocumentDecoder(Blobs()).document(encoder.document(value))  # type: ignore[arg-type]
    assert list(back["keys"].values()) == [1, 2, 3, 4] and len(back["members"]) == 3
    assert len(encoder.placeholders) == 7


def test_placeholders_of_texts_that_no_json_says_get_their_number_in_the_text() -> None:
    text = DocumentEncoder(None, strict=False).document({Loud(open): 1, Loud(len): 2})
    first, second = DocumentDecoder(Blobs()).document(text)  # type: ignore[arg-type]
    assert (first.text, second.text) == ("\ud83d" * 500, "\ud83d" * 500 + " (key 2)")


def test_a_path_shows_the_beginning_of_a_long_key() -> None:
    encoder = DocumentEncoder(None, strict=False)
    encoder.document({(LARGE, open): open})
    assert all(len(path) < 120 for path in encoder.placeholders) and len(encoder.placeholders) == 2


def test_a_moment_whose_zone_is_not_kept_is_a_placeholder_as_a_whole() -> None:
    values = {"datetime": dt.datetime(2024, 1, 1, tzinfo=Zone()), "time": dt.time(1, tzinfo=Zone())}
    encoder = DocumentEncoder(None, strict=False)
    back = DocumentDecoder(Blobs()).document(encoder.document(values))  # type: ignore[arg-type]
    assert [(type(each), each.type_name) for each in back.values()] == [
        (Placeholder, "datetime:datetime"),
        (Placeholder, "datetime:time"),
    ]
    assert encoder.placeholders == ["value['datetime']", "value['time']"]


@pytest.mark.parametrize("tag", ["datetime", "time"])
def test_a_moment_that_was_once_written_without_its_zone_is_read_as_a_placeholder(tag: str) -> None:
    body = f'{{"${tag}":["01:00:00",{{"$placeholder":{{"type":"a:Zone","text":"<zone>"}}}},0]}}'
    back = DocumentDecoder(Blobs()).document(body)  # type: ignore[arg-type]
    assert back == Placeholder(f"datetime:{tag}", "01:00:00 in <zone>")


def below(frames: int, call: Callable[[], Any]) -> Any:
    return call() if frames <= 0 else below(frames - 1, call)


@pytest.mark.parametrize("frames", [0, 400, 800], ids=lambda frames: f"{frames}_frames")
@pytest.mark.parametrize(
    "wrap",
    [
        lambda value: [value],
        lambda value: {"a": value},
        lambda value: {(1,): value},
        lambda value: frozenset([value]),
        Node,
    ],
    ids=["list", "dict", "pairs", "frozenset", "dataclass"],
)
def test_what_nests_deeper_than_the_stack_allows_leaves_a_placeholder(wrap: Any, frames: int) -> None:
    for depth in (10, 99, 300):
        encoder, value = DocumentEncoder(None, strict=False), [1, {"a": nested((), depth, wrap)}]
        text = below(frames, lambda: encoder.document(value))  # noqa: B023 - called here
        back = DocumentDecoder(Blobs()).document(text)  # type: ignore[arg-type]
        assert back[0] == 1 and (encoder.placeholders or same(back, value))


def test_what_nests_deeper_than_the_stack_allows_is_refused_in_strict_mode() -> None:
    with pytest.raises(UnsupportedValueError, match="nests deeper"):
        below(800, lambda: DocumentEncoder(None).document(nested((), 99)))


@pytest.mark.parametrize("wrap", [list, tuple], ids=["plain", "tagged"])
def test_parts_that_share_parts_are_not_written_out_without_end(
    wrap: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """2**60 leaves."""
    monkeypatch.setattr(plain, "MAX_CONTAINERS", 2**12)
    monkeypatch.setattr(encoder, "MAX_CONTAINERS", 2**12)
    value: Any = wrap([1, 2])
    for _ in range(60):
        value = wrap([value, value])
    with pytest.raises(UnsupportedValueError, match="share parts"):
        DocumentEncoder(None).document(value, "metadata")
    lenient = DocumentEncoder(None, strict=False)
    text = lenient.document({"odd": value, "sound": [1.5]}, "metadata")
    assert DocumentDecoder({}).document(text)["sound"] == [1.5] and lenient.placeholders
    small: Any = wrap([1, 2])
    for _ in range(10):
        small = wrap([small, small])
    assert DocumentDecoder({}).document(DocumentEncoder(None).document(small, "metadata")) == small
