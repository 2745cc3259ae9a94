"""assert_same between the Sample classes of slime, miles and this package."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from slime_store.testing import assert_same, same
from slime_store.types import Sample
from tests.services.outside import FRAMEWORKS
from tests.types.frameworks import fill_every_field, import_types


@pytest.fixture(scope="module", params=FRAMEWORKS)
def theirs(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The types module of slime, then of miles."""
    yield from import_types(request.param)


def test_samples_of_two_frameworks_are_the_same_if_their_attributes_are(theirs: Any) -> None:
    assert_same(theirs.Sample(index=1), Sample(index=1))
    assert_same([[Sample(index=1)]], [[theirs.Sample(index=1)]])
    assert not same(theirs.Sample(index=1), Sample(index=2))
    assert not same(theirs.Sample(index=1), Sample(index=True))
    assert not same(theirs.Sample(status=theirs.Sample.Status.FAILED), Sample())
    assert not same(theirs.Sample(spec_info=theirs.Sample.SpecInfo(1)), Sample())


def test_their_classes_count_as_others_when_asked(theirs: Any) -> None:
    assert not same(theirs.Sample(), Sample(), sample_types=False)
    assert same(theirs.Sample(), theirs.Sample(), sample_types=False)


def test_every_field_of_theirs_is_looked_at(theirs: Any) -> None:
    original = fill_every_field(theirs.Sample)
    assert_same(copy.deepcopy(original), original)
    for name in vars(original):
        changed = copy.deepcopy(original)
        setattr(changed, name, None)
        with pytest.raises(AssertionError, match=rf"^value\.{name}: "):
            assert_same(changed, original)


def test_only_a_default_may_be_missing_between_frameworks(theirs: Any) -> None:
    for name in set(Sample.__dataclass_fields__) ^ set(theirs.Sample.__dataclass_fields__):
        one, other = Sample(), theirs.Sample()
        setattr(one if name in Sample.__dataclass_fields__ else other, name, "not the default")
        assert not same(one, other)


def test_a_subclass_is_another_class(theirs: Any) -> None:
    class MySample(Sample):
        pass

    assert not same(MySample(), Sample())
    assert not same(MySample(), theirs.Sample())
    assert same(MySample(), MySample())
