"""Dicts of slime's and miles's own Sample are taken, and ours by theirs, without a difference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any

import pytest

from slime_store import types
from slime_store.testing import assert_same
from slime_store.types import Sample
from tests.services.outside import FRAMEWORKS
from tests.types.frameworks import fill_every_field, import_types


@pytest.fixture(scope="module", params=FRAMEWORKS)
def theirs(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The types module of slime, then of miles."""
    yield from import_types(request.param)


@pytest.fixture
def slimes() -> Iterator[Any]:
    yield from import_types("slime")


def _default(field: Any) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def test_our_fields_and_defaults_are_those_of_slimes_current_sample(slimes: Any) -> None:
    assert [field.name for field in fields(Sample)] == [field.name for field in fields(slimes.Sample)]
    for our, slimes_field in zip(fields(Sample), fields(slimes.Sample), strict=True):
        assert_same(_default(our), _default(slimes_field), path=our.name)


def test_the_statuses_are_the_frameworks(theirs: Any) -> None:
    assert [(each.name, each.value) for each in Sample.Status] == [
        (each.name, each.value) for each in theirs.Sample.Status
    ]


def test_their_dump_loads_into_our_sample_and_back_without_a_difference(theirs: Any) -> None:
    original = fill_every_field(theirs.Sample)
    dumped = original.to_dict()
    ours = Sample.from_dict(dumped)
    assert_same(ours, original)
    again = ours.to_dict()
    assert_same({name: again.pop(name) for name in dumped}, dumped)
    # what is left are slime's fields that a fork does not have, at their defaults
    assert_same(again, {field.name: _default(field) for field in fields(Sample) if field.name not in dumped})
    back = theirs.Sample.from_dict(ours.to_dict())
    assert_same({name: vars(back)[name] for name in vars(original)}, vars(original))


def test_our_dump_loads_into_their_sample_and_back_without_a_difference(theirs: Any) -> None:
    original = fill_every_field(Sample)
    loaded = theirs.Sample.from_dict(original.to_dict())
    assert type(loaded) is theirs.Sample
    assert loaded.status is theirs.Sample.Status.ABORTED
    assert_same(loaded, original)
    assert_same({name: loaded.to_dict()[name] for name in original.to_dict()}, original.to_dict())
    assert_same(Sample.from_dict({name: loaded.to_dict()[name] for name in vars(original)}), original)


def test_counters_rates_and_lengths_agree_with_the_frameworks(theirs: Any) -> None:
    call = {"spec_accept_token_num": 3, "spec_draft_token_num": 4, "spec_verify_ct": 2, "completion_tokens": 5}
    call |= {"cached_tokens": 7, "prompt_tokens": 9}
    for calls in ([], [call], [call, {}, call]):
        seen = []
        for cls in (Sample, theirs.Sample):
            sample = cls(response_length=4, loss_mask=[1, 0, 1, 1])
            for each in calls:
                sample.spec_info.add(each)
                sample.prefix_cache_info.add(each)
            rates = (sample.spec_info.spec_accept_rate, sample.spec_info.spec_accept_length)
            seen.append((*rates, sample.prefix_cache_info.prefix_cache_hit_rate, sample.effective_response_length))
        assert_same(seen[0], seen[1])


def test_parameters_and_media_kinds_have_the_frameworks_fields(theirs: Any) -> None:
    for name in ("ParamInfo", "MultimodalType"):
        ours = [field.name for field in fields(getattr(types, name))]
        assert ours == [field.name for field in fields(getattr(theirs, name))]
    assert_same(types.MultimodalTypes.all(), theirs.MultimodalTypes.all())
