"""Exact documents: every supported value comes back as it was; what cannot is refused by its path."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import json
import math
import zoneinfo
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from PIL import Image

from slime_store.codecs.documents import DocumentDecoder, DocumentEncoder, register_type
from slime_store.codecs.documents.plain import plain_json
from slime_store.errors import BlobCorruptError, UnsupportedValueError
from slime_store.testing import assert_same, strategies
from slime_store.types import Placeholder, Record, Sample


class Blobs(dict[str, bytes]):
    """Blobs in memory."""

    def put(self, array: np.ndarray[Any, Any]) -> str:
        name = f"{len(self):064x}"
        self[name] = np.ascontiguousarray(array).tobytes()
        return name

    def get(self, name: str) -> bytes:  # type: ignore[override]
        return self[name]


class Colour(enum.Enum):
    RED = 1


class Mode(enum.Flag):
    A = 1
    B = 2


class Point(NamedTuple):
    x: int
    y: float


@dataclasses.dataclass(frozen=True)
class Setting:
    name: str
    values: list[int]


@dataclasses.dataclass(slots=True)
class Slotted:
    a: int
    b: Any = None


def through(value: Any, *, strict: bool = True) -> Any:
    blobs = Blobs()
    return DocumentDecoder(blobs).document(DocumentEncoder(blobs, strict=strict).document(value))


@given(strategies.documents())
def test_any_supported_value_comes_back_as_it_was(value: Any) -> None:
    assert_same(through(value), value)


@given(strategies.documents())
def test_a_document_is_json_that_every_database_takes(value: Any) -> None:
    text = DocumentEncoder(Blobs()).document(value)
    json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert "\\u0000" not in text.replace("\\\\", "")
    text.encode("utf-8")


@pytest.mark.parametrize(
    "value",
    [
        {"a": 1, "b": [1.5, None, True, "text"], "c": {"d": []}},
        {"price": "$18", "tag": "$tuple"},
        {"unicode": "准确 \u2028 \U0001f600", "escape": '\\u0000 "$x":'},
        [0.1, 1e16, -0.0, 5e-324, 1e308],
    ],
)
def test_plain_values_are_plain_json(value: Any) -> None:
    text = DocumentEncoder(Blobs()).document(value)
    assert_same(json.loads(text), value)


@pytest.mark.parametrize(
    "value",
    [
        Colour.RED,
        Mode.A | Mode.B,
        Point(1, math.nan),
        Setting("s", [1, 2]),
        Slotted(1, {"x": (1,)}),
        Sample.Status.ABORTED,
        Sample(prompt="p", tokens=list(range(1000)), reward=0.5, metadata={"nested": (1, 2)}),
        dt.datetime(2026, 11, 1, 1, 30, tzinfo=zoneinfo.ZoneInfo("America/New_York"), fold=1),
        dt.datetime(2026, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=30))),
        decimal.Decimal("-0E+5"),
        collections.OrderedDict([("b", 1), ("a", 2)]),
        collections.Counter("aab"),
        collections.defaultdict(list, {"k": [1]}),
        collections.deque([1, 2], maxlen=3),
        ValueError("no", 3),
        {"$tag": 1, "\0": 2, "\ud83d": 3, (1, 2): 4, None: 5, 1.5: 6},
        [*range(300), 2**40],
        [0.1] * 5000,
        [True] * 300,
        "x" * 100_000,
        b"\x00" * 100_000,
    ],
    ids=lambda value: type(value).__name__,
)
def test_rich_values_come_back_as_they_were(value: Any) -> None:
    assert_same(through(value), value)


def test_exif_text_beyond_ascii_comes_back_or_leaves_a_placeholder() -> None:
    image = Image.new("L", (1, 1))
    image.getexif()[270] = "caf\u00e9"
    assert through(image).getexif()[270] == "caf\u00e9"
    nested: Any = image
    for _ in range(99):
        nested = [nested]
    back = through(nested, strict=False)
    for _ in range(99):
        (back,) = back
    assert type(back) is Placeholder


@pytest.mark.parametrize("tags", [1, [[1]], [["x", 1, 2]], [[None, "x", 2]]], ids=["number", "short", "ifd", "tag"])
def test_damaged_exif_tags_are_a_typed_error(tags: Any) -> None:
    image = Image.new("L", (1, 1))
    image.getexif()[270] = "caf\u00e9"
    tree = json.loads(DocumentEncoder(None).document(image))
    tree["$image"]["frames"][0]["exif_tags"] = tags
    with pytest.raises(BlobCorruptError):
        DocumentDecoder(Blobs()).document(json.dumps(tree))


def test_long_number_lists_leave_the_document() -> None:
    blobs = Blobs()
    text = DocumentEncoder(blobs).document({"log_probs": [0.5] * 10_000})
    assert len(text) < 300 and len(blobs) == 1


def test_without_a_sink_the_document_is_complete_in_itself() -> None:
    text = DocumentEncoder(None).document({"log_probs": [0.5] * 10_000})
    assert '"blob"' not in text
    assert_same(DocumentDecoder(Blobs()).document(text), {"log_probs": [0.5] * 10_000})


def test_a_class_that_is_not_loaded_comes_back_as_a_neutral_record_and_goes_in_again_as_itself() -> None:
    text = DocumentEncoder(Blobs()).document([Setting("s", [1]), Colour.RED, Point(1, 2.0)])
    away = text.replace(f"{__name__}:", "a_module_that_nobody_imported:")
    records = DocumentDecoder(Blobs()).document(away)
    assert [type(record) for record in records] == [Record] * 3
    assert records[0].values == [1] and records[1].value == 1 and records[2].y == 2.0
    assert DocumentEncoder(Blobs()).document(records) == away


def test_a_registered_class_comes_back_without_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    register_type(Setting)
    text = DocumentEncoder(Blobs()).document(Setting("s", [1]))
    monkeypatch.delitem(sys.modules, __name__, raising=False)
    assert DocumentDecoder(Blobs()).document(text) == Setting("s", [1])


def test_reading_imports_no_module_that_a_document_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "trap_module.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    text = '{"$dataclass":{"type":"trap_module:X","fields":[["a",1]]}}'
    assert_same(DocumentDecoder(Blobs()).document(text), Record("trap_module:X", "dataclass", {"a": 1}))


@pytest.mark.parametrize("tag", ["enum", "dataclass", "namedtuple"])
def test_a_name_in_a_document_is_looked_up_without_code_of_the_module(
    tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys
    import types

    asked: list[str] = []

    class Lazy(types.ModuleType):
        def __getattribute__(self, name: str) -> Any:
            asked.append(name)
            return super().__getattribute__(name)

    plain = types.ModuleType("plain_trap")
    plain.__getattr__ = lambda name: asked.append(name)  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "plain_trap", plain)
    monkeypatch.setitem(sys.modules, "lazy_trap", Lazy("lazy_trap"))
    before = set(sys.modules)
    for name in ("plain_trap:chosen", "plain_trap:chosen.X", "lazy_trap:chosen", "torch:_dynamo.X", "numpy:f2py.X"):
        body = {"type": name, "fields": [["a", 1]], "name": "A", "value": 1}
        assert type(DocumentDecoder(Blobs()).document(json.dumps({f"${tag}": body}))) is Record
    with pytest.raises(BlobCorruptError):
        DocumentDecoder(Blobs()).document('{"$torch.dtype":"_dynamo"}')
    assert asked == [] and set(sys.modules) == before


class _Subslotted(Slotted):
    __slots__ = ("__hidden", "extra")


class _Unslotted(Slotted):
    pass


def test_the_slots_and_attributes_that_a_subclass_adds_to_a_dataclass_come_back() -> None:
    value = _Subslotted(1, 2)
    value.extra, value._Subslotted__hidden = (3,), 4  # type: ignore[attr-defined]
    back = through(value)
    assert type(back) is _Subslotted
    assert (back.a, back.b, back.extra, back._Subslotted__hidden) == (1, 2, (3,), 4)
    del value.extra
    assert not hasattr(through(value), "extra")
    other = _Unslotted(1, 2)
    vars(other)["c"] = 3
    assert (through(other).a, vars(through(other))) == (1, {"c": 3})


def test_a_userdict_with_attributes_of_its_own_is_refused_unless_it_is_of_transformers() -> None:
    for attributes in ({}, {"encodings": [1]}):
        value: Any = type("Batch", (collections.UserDict,), {})({"k": 1})
        vars(value).update(attributes)
        if not attributes:
            assert_same(through(value), {"k": 1})
            continue
        with pytest.raises(UnsupportedValueError, match="attributes of its own"):
            through(value)
        type(value).__module__ = "transformers.tokenization_utils_base"
        assert_same(through(value), {"k": 1})


def test_a_document_sets_no_property(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []
    monkeypatch.setattr(Slotted, "danger", property(None, lambda self, value: ran.append(value)), raising=False)
    body = {"type": f"{__name__}:Slotted", "fields": [["danger", 1]]}
    back = DocumentDecoder(Blobs()).document(json.dumps({"$dataclass": body}))
    assert type(back) is Record and back.danger == 1 and ran == []


def test_a_document_cannot_make_an_instance_of_a_class_that_is_no_record() -> None:
    for tag in ("dataclass", "namedtuple"):
        text = f'{{"${tag}":{{"type":"subprocess:Popen","fields":[["args","true"]]}}}}'
        assert type(DocumentDecoder(Blobs()).document(text)) is Record


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [1, {"fh": len}]}, "value['a'][1]['fh']"),
        ({"t": (1, object())}, "value['t'][1]"),
        ({"s": Slotted(1, lambda: 0)}, "value['s'].b"),
        ({type("Key", (), {})(): 1}, "value[key <"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_its_path(value: Any, path: str) -> None:
    with pytest.raises(UnsupportedValueError) as caught:
        DocumentEncoder(Blobs()).document(value)
    assert caught.value.path.startswith(path)


def test_lenient_keeps_the_rest_and_lists_what_it_could_not_keep() -> None:
    blobs = Blobs()
    encoder = DocumentEncoder(blobs, strict=False)
    value = DocumentDecoder(blobs).document(encoder.document({"fh": len, "kept": (1, 2)}, "group 3, metadata"))
    assert value["kept"] == (1, 2)
    assert type(value["fh"]) is Placeholder and value["fh"].text == repr(len)
    assert encoder.placeholders == ["group 3, metadata['fh']"]


def test_subclasses_of_builtin_types_are_not_taken_for_the_builtin_type() -> None:
    for kind in (int, float, str, list, dict, tuple, set, bytes):
        subclass = type("Sub", (kind,), {})
        with pytest.raises(UnsupportedValueError):
            through({"x": subclass()})


@dataclasses.dataclass
class Deque(collections.deque):  # type: ignore[type-arg]
    name: str = "x"


@dataclasses.dataclass
class Money(decimal.Decimal):
    name: str = "x"


@dataclasses.dataclass
class Day(dt.date):
    name: str = "x"


@pytest.mark.parametrize("make", [Deque, Money, lambda: Day.__new__(Day, 2020, 1, 1)], ids=["deque", "Decimal", "date"])
def test_a_dataclass_that_could_not_be_made_again_is_refused_when_it_is_written(make: Any) -> None:
    with pytest.raises(UnsupportedValueError, match="a dataclass and a builtin type at once"):
        through({"x": make()})


@pytest.mark.parametrize("name", ["V2000000000", "S1999999999", "M8[2147483647s]"])
def test_the_longest_dtypes_come_back(name: str) -> None:
    value = {"dtype": np.dtype(name), "array": np.empty(0, name)}
    assert_same(through(value), value)


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append({"again": loop})
    with pytest.raises(UnsupportedValueError, match="contains itself"):
        through(loop)


@pytest.mark.parametrize("kind", [list, tuple])
def test_nesting_works_to_a_stated_depth_and_is_refused_beyond_it(kind: Any) -> None:
    def nested(depth: int) -> Any:
        value: Any = kind()
        for _ in range(depth - 1):
            value = kind([value])
        return value

    assert_same(through(nested(99)), nested(99))
    for depth in (101, 150, 2000):
        with pytest.raises(UnsupportedValueError, match="deeper than 100 levels"):
            through(nested(depth))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "nul",
        '{"$unknown":1}',
        '{"$int":"zz"}',
        '{"$tuple":5}',
        '{"$ndarray":{"dtype":"int64","shape":[3],"data":"AA=="}}',
        '{"$ndarray":{"dtype":"O","shape":[1],"data":"AAAAAAAAAAA="}}',
        '{"$ndarray":{"dtype":"int64","shape":[-1],"data":""}}',
        '{"$ndarray":{"dtype":"int64","shape":[99999999999999],"data":""}}',
        '{"$tensor":{"dtype":"os","shape":[],"data":""}}',
        '{"$str":{"data":"*"}}',
        '{"$datetime":["x",null,0]}',
        '{"$exception":["eval",{"$tuple":["1"]}]}',
        '{"$sample":[[1]]}',
        '{"$status":3}',
        '{"$image":{"format":null,"frame":0,"frames":[]}}',
        "[" * 100_000,
    ],
)
def test_damaged_documents_are_a_typed_error(text: str) -> None:
    with pytest.raises(BlobCorruptError):
        DocumentDecoder(Blobs()).document(text)


@given(strategies.documents())
def test_the_fast_path_says_what_the_slow_path_says(value: Any) -> None:
    fast = plain_json(value)
    if fast is not None:
        assert_same(json.loads(fast), value)


def test_only_the_keys_asked_for_are_decoded() -> None:
    blobs = Blobs()
    text = DocumentEncoder(blobs).document({"a": (1, 2), "b": np.zeros(10_000)})
    blobs.clear()  # reading b would fail
    assert DocumentDecoder(blobs).document(text, only={"a"}) == {"a": (1, 2)}
