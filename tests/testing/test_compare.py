"""assert_same: passes for equal values, and fails for every difference that a store could make."""

from __future__ import annotations

import array
import copy
import enum
import math
import struct
import uuid
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from slime_store.testing import assert_same, make_eval_output, make_sample, make_train_output, same
from slime_store.types import Record, RolloutFnTrainOutput, Sample

NAN, OTHER_NAN = math.nan, struct.unpack("<d", b"\x01\0\0\0\0\0\xf8\x7f")[0]
Point = namedtuple("Point", "x y")
Other = namedtuple("Other", "x y")
OtherFraction = namedtuple("Fraction", "x")


class Color(enum.Enum):
    RED = 1
    GREEN = 2


class Level(enum.IntEnum):
    LOW = 1


class Text(str):
    pass


@dataclass
class Box:
    x: Any = 0
    items: list[Any] = field(default_factory=list)


@dataclass
class Crate:
    x: Any = 0
    items: list[Any] = field(default_factory=list)


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def _zone(hours: int) -> timezone:
    return timezone(timedelta(hours=hours))


def _error(*args: Any, **attributes: Any) -> ValueError:
    error = ValueError(*args)
    vars(error).update(attributes)
    return error


def _extended(sample: Sample, **attributes: Any) -> Sample:
    vars(sample).update(attributes)
    return sample


# every pair differs in a way that == overlooks, or that a careless store makes of it
DIFFERENT: list[tuple[Any, Any]] = [
    (1, 1.0), (1, True), (0, False), (1.0, True), (0, None), ("", None), ([], None), ({}, None), ([], ()), ([], {}),
    (1, 2), ("a", "b"), ("a", b"a"), ("é", "e\u0301"), ("a", "a\0"), ("a", Text("a")), (b"a", bytearray(b"a")),
    (bytearray(b"a"), bytearray(b"b")), (Text("a"), Text("b")), (2**70, 2**70 + 1), (2**70, float(2**70)),
    (0.0, -0.0), (NAN, -NAN), (NAN, OTHER_NAN), (NAN, None), (math.inf, -math.inf), (0.1, 0.1 + 2**-56),
    (0.1, struct.unpack("<f", struct.pack("<f", 0.1))[0]),
    (complex(0.0, -0.0), complex(0.0, 0.0)), (complex(NAN, 1), complex(NAN, 2)),
    ([1, 2], [2, 1]), ([1], [1, 2]), ([1, 2.0], [1, 2]), ([1, True], [1, 1]), ([0.0, NAN], [-0.0, NAN]),
    ([NAN], [None]), ([[1]], [[1.0]]), ((1, [2]), (1, (2,))), (["a"], ["b"]),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}), ({1: "x"}, {"1": "x"}), ({1: "x"}, {True: "x"}), ({1: "x"}, {1.0: "x"}),
    ({"a": 1}, {"a": 1.0}), ({"a": 1}, {}), ({}, {"a": 1}), ({(1, 2): 3}, {(1, 2.0): 3}), ({None: 1}, {"None": 1}),
    (OrderedDict(a=1), {"a": 1}), (OrderedDict([(1, 1), (2, 2)]), OrderedDict([(2, 2), (1, 1)])),
    (defaultdict(list), defaultdict(dict)), (defaultdict(list), {}), (Counter("a"), {"a": 1}),
    ({1}, {True}), ({1}, {1.0}), ({1}, frozenset([1])), ({1, 2}, {1, 3}), ({(1,)}, {(1.0,)}), ({1}, {1, 2}),
    (frozenset([frozenset([1])]), frozenset([frozenset([True])])), ({NAN}, {-NAN}), ({0.0}, {-0.0}),
    (deque([1], 3), deque([1], 4)), (deque([1], 3), deque([1])), (deque([1]), [1]), (deque([1]), deque([2])),
    (Point(1, 2), (1, 2)), (Point(1, 2), Other(1, 2)), (Point(1, 2), Point(1, 2.0)),
    (Color.RED, 1), (Color.RED, Color.GREEN), (Level.LOW, 1),
    (datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=timezone.utc)),
    (datetime(2026, 1, 1, 12, tzinfo=timezone.utc), datetime(2026, 1, 1, 14, tzinfo=_zone(2))),
    (datetime(2026, 1, 1, fold=0), datetime(2026, 1, 1, fold=1)), (datetime(2026, 1, 1), date(2026, 1, 1)),
    (datetime(2026, 1, 1, microsecond=1), datetime(2026, 1, 1)), (time(1, tzinfo=_zone(1)), time(1)),
    (timedelta(seconds=1), timedelta(seconds=2)), (date(2026, 1, 1), date(2026, 1, 2)),
    (Decimal("1.0"), Decimal("1.00")), (Decimal("0"), Decimal("-0")), (Decimal("nan"), Decimal("snan")),
    (Fraction(1, 2), 0.5), (Fraction(1, 2), Fraction(1, 3)), (uuid.UUID(int=1), uuid.UUID(int=2)),
    (range(0), range(1, 1)), (range(0, 3, 2), range(0, 4, 2)), (range(2), [0, 1]),
    (Path("a"), "a"), (Path("a"), PurePosixPath("a")), (Path("a"), Path("b")), (slice(1), slice(2)),
    (array.array("i", [1]), array.array("q", [1])), (array.array("d", [0.0]), array.array("d", [-0.0])),
    (ValueError("a"), TypeError("a")), (ValueError("a"), ValueError("b")), (_error(1), _error(True)),
    (_error("a", code=1), _error("a", code=2)), (_error("a", code=1), _error("a")), (int, float), (len, max),
    (Box(1), Box(1.0)), (Box(1), Crate(1)), (Box(1), {"x": 1, "items": []}), (Box(items=[1]), Box(items=[2])),
    (Slotted(1), Slotted(True)), (SimpleNamespace(a=1), SimpleNamespace(a=1, b=2)), (object(), object()),
    (Record("a:B", "enum", {"name": "X"}), Record("a:B", "enum", {"name": "Y"})),
    (Sample(), {}), (Sample(), Sample(index=0)), (Sample(reward=1), Sample(reward=1.0)), (Sample(reward=0), Sample()),
    (Sample(loss_mask=[]), Sample()), (Sample(), _extended(Sample(), tool_iters=None)),
    (_extended(Sample(), n=1), _extended(Sample(), n=True)), (Sample(status=Sample.Status.FAILED), Sample()),
    (Sample(status="pending"), Sample()), (Sample(spec_info=Sample.SpecInfo(1)), Sample()),  # type: ignore[arg-type]
    (Sample(prefix_cache_info={}), Sample()),  # type: ignore[arg-type]
    (RolloutFnTrainOutput([]), RolloutFnTrainOutput([], {})), (RolloutFnTrainOutput([]), []),
    (RolloutFnTrainOutput([[]]), RolloutFnTrainOutput([])),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), DIFFERENT, ids=lambda value: type(value).__name__)
def test_different_values_are_told_apart_in_both_directions_and_at_any_depth(one: Any, other: Any) -> None:
    for actual, expected in ((one, other), (other, one)):
        assert not same(actual, expected)
        with pytest.raises(AssertionError, match=r"^value\b.*: "):
            assert_same(actual, expected)
        assert not same({"k": [(actual,)]}, {"k": [(expected,)]})
        assert not same(Sample(metadata={"a": actual}), Sample(metadata={"a": expected}))


EQUAL: list[Any] = [
    *(value for pair in DIFFERENT for value in pair if type(value) is not object),
    [NAN, {"a": NAN}, (NAN,), {NAN}, {NAN: 1}, {(NAN, 1)}],
    [datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Vienna")), time(1, fold=1), Decimal("snan"), "\ud83d", 10**5000],
    make_sample(),
    make_train_output(),
    make_eval_output(),
]


@pytest.mark.parametrize("value", EQUAL, ids=lambda value: type(value).__name__)
def test_a_value_is_the_same_as_its_copy(value: Any) -> None:
    assert_same(copy.deepcopy(value), value)


def test_an_offset_counts_but_not_the_class_that_gives_it() -> None:
    assert_same(datetime(2026, 1, 1, tzinfo=_zone(0)), datetime(2026, 1, 1, tzinfo=ZoneInfo("UTC")))


def test_attributes_may_have_been_set_in_any_order() -> None:
    assert_same(_extended(Sample(), a=1, b=2), _extended(Sample(), b=2, a=1))


def test_the_elements_of_a_set_may_have_been_added_in_any_order() -> None:
    assert_same({8, 0, "a", None}, {None, "a", 0, 8})


@pytest.mark.parametrize(
    ("actual", "expected", "message"),
    [
        (1, 1.0, "value: int 1 != float 1.0"),
        (None, [], "value: NoneType != list []"),
        ([[1, 2], [3]], [[1, 2], [3, 4]], "value[1]: list of 1 != list of 2"),
        ({"a": {"b": (1, "x")}}, {"a": {"b": (1, "y")}}, "value['a']['b'][1]: str 'x' != str 'y'"),
        ({"a": 1}, {"a": 1, "b": 2}, "value: key 'b' is missing"),
        ({"a": 1, 2: 3}, {"a": 1}, "value: unexpected key 2"),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "value: order of keys: 'a' where 'b' was expected"),
        ({"a": 1}, {"b": 1}, "value: key 'b' is missing"),
        ({1}, {True}, "value: unexpected element 1; not found: True"),
        (Point(1, 2), Point(1, 3), "value.y: int 2 != int 3"),
        (deque([1], 2), deque([1], 3), "value.maxlen: int 2 != int 3"),
        (_extended(Sample(), n=1), Sample(), "value: unexpected attribute 'n'"),
        (Sample(), _extended(Sample(), n=1), "value: attribute 'n' is missing"),
        (Sample(spec_info=Sample.SpecInfo(1)), Sample(), "value.spec_info.spec_accept_token_num: int 1 != int 0"),
        ("a" * 90 + "x" + "b" * 90, "a" * 90 + "y" + "b" * 90,
         f"value: str of 181 != 181, at 90: {'a' * 24 + 'x' + 'b' * 23!r} != {'a' * 24 + 'y' + 'b' * 23!r}"),
        (Point(1, 2), Other(1, 2), "value: Point Point(x=1, y=2) != Other Other(x=1, y=2)"),
        (Fraction(1), OtherFraction(2),
         f"value: fractions.Fraction Fraction(1, 1) != {__name__}.Fraction Fraction(x=2)"),
        ([NAN], [-NAN], "value[0]: float nan != float nan, which differ in their bits or parts"),
    ],
)  # fmt: skip
def test_the_message_names_the_place_and_both_values(actual: Any, expected: Any, message: str) -> None:
    with pytest.raises(AssertionError) as caught:
        assert_same(actual, expected)
    assert str(caught.value) == message


def test_the_first_difference_in_a_rollout_is_named_by_its_path() -> None:
    expected = make_train_output(5, 2)
    actual = copy.deepcopy(expected)
    for sample in (actual.samples[3][1], actual.samples[4][0]):
        sample.metadata["a"] = [0, 0, 1]
    for sample in (expected.samples[3][1], expected.samples[4][0]):
        sample.metadata["a"] = [0, 0, 1.0]
    with pytest.raises(AssertionError, match=r"^out\.samples\[3\]\[1\]\.metadata\['a'\]\[2\]: int 1 != float 1\.0$"):
        assert_same(actual, expected, path="out")


def test_one_token_of_many_is_found() -> None:
    expected = list(range(100_000))
    actual = [*expected[:77_777], 0, *expected[77_778:]]
    with pytest.raises(AssertionError, match=r"^value\[77777\]: int 0 != int 77777$"):
        assert_same(actual, expected)


def _nest(core: Any, depth: int) -> Any:
    for level in range(depth):
        core = [core] if level % 2 else {"k": core}
    return core


@pytest.mark.parametrize("depth", [500, 20_000])
def test_depth_is_bounded_by_memory_only(depth: int) -> None:
    assert_same(_nest(NAN, depth), _nest(NAN, depth))
    with pytest.raises(AssertionError) as caught:
        assert_same(_nest(1, depth), _nest(True, depth))
    assert str(caught.value).endswith("['k']: int 1 != bool True")
    assert str(caught.value).count("[0]") == depth // 2


def test_cycles_are_followed_once() -> None:
    def cycle(core: Any) -> list[Any]:
        loop = [core]
        loop.append({"again": loop})
        return loop

    assert_same(cycle(1), cycle(1))
    assert not same(cycle(1), cycle(2))


def test_a_value_whose_repr_fails_or_is_huge_can_still_be_named() -> None:
    class Mute:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    with pytest.raises(AssertionError, match=r"^value\[0\]: Mute <Mute instance.*> != int 0x10*$"):
        assert_same([Mute()], [16**5000])
    with pytest.raises(AssertionError) as caught:
        assert_same({"k": "x" * 10**6}, {"k": 3})
    assert len(str(caught.value)) < 300
