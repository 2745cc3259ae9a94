"""Section B of the cases, second part: attributes that no class declares, and the fields of other versions."""

from __future__ import annotations

import copy
import enum
from dataclasses import dataclass, field
from typing import Any

import torch

from slime_store import Sample
from slime_store.testing import assert_same, make_sample
from slime_store.testing.contract.opening import loaded_train, opened, run_of
from tests.cases.trips import attribute, found, round_trip
from tests.services.tables import value


@dataclass(frozen=True)
class Adapter:
    name: str


class Verdict(enum.Enum):
    RIGHT = "right"


# -- B6: undeclared attributes -------------------------------------------------------------------------


def test_b6_undeclared_attributes_survive(store_url: str) -> None:
    sample = make_sample(0)
    sample.tool_call_count = 3  # type: ignore[attr-defined]
    sample.trace = {"steps": [(1, "a"), None], "tensor": torch.ones(400)}  # type: ignore[attr-defined]
    sample.response_content = "half \ud83d"  # type: ignore[attr-defined]
    (loaded,) = round_trip(store_url, sample)
    assert_same(loaded, sample)
    assert loaded.tool_call_count == 3  # type: ignore[attr-defined]
    assert set(vars(loaded)) == set(vars(sample))


def test_b6_each_sample_has_its_own_attributes_however_many_sets_there_are(store_url: str) -> None:
    samples = [Sample(index=i) for i in range(600)]
    for sample in samples:
        setattr(sample, f"attribute_{sample.index}", sample.index)
        setattr(sample, "x" + "1234567890" * 3, [sample.index])
    samples.append(Sample())
    for i in range(600):
        setattr(samples[-1], f"many_{i}", i)
    assert_same(round_trip(store_url, *samples), samples)


def test_b6_an_attribute_that_is_asked_for_is_read(store_url: str) -> None:
    sample = make_sample(0)
    sample.tool_call_count = 3  # type: ignore[attr-defined]
    round_trip(store_url, sample)
    with opened(store_url, read_only=True) as store:
        run = store.run("contract", create=False)
        (loaded,) = run.iter_samples(fields=["tool_call_count"], sample_type=Sample)
    expected = Sample()
    expected.tool_call_count = 3  # type: ignore[attr-defined]
    assert_same(loaded, expected)


# -- B7: fields of other versions and forks --------------------------------------------------------------


@dataclass
class OlderSample:
    """A sample class of another time: fewer fields, and one that nobody else has."""

    class Status(enum.Enum):
        PENDING = "pending"
        COMPLETED = "completed"
        QUARANTINED = "quarantined"

    @dataclass
    class SpecInfo:
        spec_accept_token_num: int = 0

    prompt: str = ""
    tokens: list[int] = field(default_factory=list)
    response: str = ""
    reward: float | None = None
    status: Status = Status.PENDING
    adapter: Adapter | None = None
    routing_key: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return vars(self)

    @staticmethod
    def from_dict(data: dict[str, Any]) -> OlderSample:
        return OlderSample(**data)


def test_b7_a_class_with_other_fields_comes_back_as_itself(store_url: str) -> None:
    old = OlderSample("p", [1, 2], "r", 0.5, OlderSample.Status.COMPLETED, Adapter("lora"), "key")
    with run_of(store_url) as run:
        run.record_train(0, [[old]])
    assert_same(loaded_train(store_url, 0, sample_type=OlderSample).samples, [[old]])


def test_b7_a_class_with_other_fields_comes_back_as_ours(store_url: str) -> None:
    old = OlderSample("p", [1, 2], "r", 0.5, OlderSample.Status.COMPLETED, Adapter("lora"), "key")
    with run_of(store_url) as run:
        run.record_train(0, [[old]])
    expected = Sample(prompt="p", tokens=[1, 2], response="r", reward=0.5, status=Sample.Status.COMPLETED)
    expected.adapter, expected.routing_key = Adapter("lora"), "key"  # type: ignore[attr-defined]
    assert_same(loaded_train(store_url, 0, sample_type=Sample).samples, [[expected]])


def test_b7_ours_comes_back_as_a_class_with_other_fields(store_url: str) -> None:
    sample = make_sample(0, status="completed")
    with run_of(store_url) as run:
        run.record_train(0, [[sample]])
    loaded = loaded_train(store_url, 0, sample_type=OlderSample).samples[0][0]
    assert type(loaded) is OlderSample
    assert loaded.status is OlderSample.Status.COMPLETED
    assert_same({name: vars(loaded)[name] for name in ("prompt", "tokens", "loss_mask")},
                {name: vars(sample)[name] for name in ("prompt", "tokens", "loss_mask")})  # fmt: skip


def test_b7_a_status_that_the_class_does_not_know_comes_back_as_its_word(store_url: str) -> None:
    old = OlderSample(status=OlderSample.Status.QUARANTINED)
    inside = Sample(metadata={"previous": copy.copy(old)})
    with run_of(store_url) as run:
        run.record_train(0, [[old, OlderSample(response="next"), inside]])
    assert loaded_train(store_url, 0, sample_type=OlderSample).samples[0][0].status is OlderSample.Status.QUARANTINED
    first, second, third = loaded_train(store_url, 0, sample_type=Sample).samples[0]
    assert (first.status, second.response) == ("quarantined", "next")  # one odd sample does not stop the others
    assert third.metadata["previous"].status == "quarantined"
    assert value(store_url, "SELECT count(*) FROM samples WHERE status = 'quarantined'") == 1
    with run_of(store_url) as run:
        run.record_train(1, loaded_train(store_url, 0, sample_type=Sample))
    assert loaded_train(store_url, 1, sample_type=Sample).samples[0][0].status == "quarantined"


class Status(enum.Enum):
    COMPLETED = "completed"


def test_b7_odd_statuses_come_back_as_they_are(store_url: str) -> None:
    statuses = ["completed", "quarantined", Status.COMPLETED, Verdict.RIGHT, None, 3, Sample.Status.FAILED]
    assert_same(attribute(store_url, "status", statuses), statuses)
    assert len(found(store_url, status="completed")) == 2


def test_b7_a_sample_without_some_attributes_has_defaults(store_url: str) -> None:
    sample = make_sample(0)
    for name in ("spec_info", "prefix_cache_info", "status", "label", "tokens", "prompt", "metadata", "reward"):
        delattr(sample, name)
    (loaded,) = round_trip(store_url, sample)
    default = Sample()
    for name, expected in vars(sample).items():
        assert_same(getattr(loaded, name), expected)
    for name in vars(default).keys() - vars(sample).keys():
        assert_same(getattr(loaded, name), getattr(default, name))
