"""The contract catches stores that break a promise: each test below breaks one and expects to be told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from slime_store.store import Run
from slime_store.testing.contract import StoreContract
from slime_store.types import RolloutFnTrainOutput

BROKEN_LOADS: dict[str, tuple[Callable[[list[Any]], Any], Callable[[str], None]]] = {
    "loses the nesting": (
        lambda groups: [sample for group in groups for sample in group],
        lambda url: StoreContract().test_a_train_rollout_comes_back_with_its_nesting_and_order(
            url, "groups of different sizes"
        ),
    ),
    "gives tuples": (
        lambda groups: [tuple(group) for group in groups],
        lambda url: StoreContract().test_a_bare_list_comes_back_as_an_output_without_metrics(url),
    ),
    "gives groups in another order": (
        lambda groups: groups[::-1],
        lambda url: StoreContract().test_a_rollout_recorded_again_is_a_new_attempt_and_the_newest_is_loaded(url),
    ),
    "forgets undeclared attributes": (
        lambda groups: [[_without(sample, "tool_call_count") for sample in group] for group in groups],
        lambda url: StoreContract().test_every_field_and_undeclared_attribute_comes_back(url),
    ),
    "makes floats of rewards": (
        lambda groups: [[_with(sample, reward=float(sample.reward)) for sample in group] for group in groups],
        lambda url: StoreContract().test_a_reward_keeps_its_type(url, False),
    ),
    "makes None of an empty list": (
        lambda groups: [[_with(sample, loss_mask=sample.loss_mask or None) for sample in group] for group in groups],
        lambda url: StoreContract().test_a_bare_sample_and_none_in_place_of_containers_come_back(url),
    ),
}


def _without(sample: Any, name: str) -> Any:
    vars(sample).pop(name, None)
    return sample


def _with(sample: Any, **attributes: Any) -> Any:
    vars(sample).update(attributes)
    return sample


@pytest.mark.parametrize("what", BROKEN_LOADS)
def test_a_store_is_told_apart_that(what: str, sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil, contract_test = BROKEN_LOADS[what]
    load = Run.load_train

    def spoiled(self: Run, *args: Any, **options: Any) -> Any:
        output = load(self, *args, **options)
        return RolloutFnTrainOutput(spoil(output.samples), output.metrics)

    contract_test(sqlite_url)
    monkeypatch.setattr(Run, "load_train", spoiled)
    with pytest.raises(AssertionError, match="value"):
        contract_test(sqlite_url.replace("store.db", "spoiled.db"))
