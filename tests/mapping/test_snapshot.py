"""A snapshot holds what the samples were, however they change afterwards."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from slime_store.mapping.snapshot import snapshot
from slime_store.testing import assert_same
from slime_store.types import Sample


def _samples() -> list[Any]:
    sample = Sample(index=1, tokens=[1, 2], loss_mask=[1], rollout_log_probs=[-0.5])
    sample.metadata = {"deep": {"list": [{"a": {1, 2}}], "pair": ([1], 2)}}
    sample.trace = {"events": [1]}
    return [sample, [Sample(index=2, prompt=[{"role": "user", "content": ["text"]}])]]


def test_later_changes_do_not_reach_it_at_any_depth() -> None:
    samples = _samples()
    taken = snapshot(samples)
    first, [second] = samples
    first.tokens.append(3)
    first.loss_mask[0] = 0
    first.metadata["deep"]["list"][0]["a"].add(3)
    first.metadata["deep"]["pair"][0].append(9)
    first.trace["events"].append(2)
    first.spec_info.spec_verify_ct = 7
    second.prompt[0]["content"].append("more")
    samples.append("more")
    assert_same(taken, _samples())


def test_what_a_token_field_holds_besides_numbers_is_copied_too() -> None:
    def sample() -> Sample:
        made = Sample(loss_mask=[[1, 0], [1]], rollout_log_probs=[None, [-0.5], [-1.0]])  # type: ignore[list-item]
        made.rollout_top_p_token_ids = [np.array([1, 2]), np.array([3])]  # type: ignore[assignment]
        made.metadata = {"array": array("i", [1, 2])}
        return made

    changed = sample()
    taken = snapshot([changed], arrays=True)
    changed.loss_mask[0][0] = 9  # type: ignore[index]
    changed.rollout_log_probs[1].append(9)  # type: ignore[index,union-attr]
    changed.rollout_top_p_token_ids[1][0] = 9  # type: ignore[index]
    changed.metadata["array"][0] = 9
    assert_same(taken, [sample()])


def test_tensors_are_shared_and_what_lies_in_two_places_stays_one() -> None:
    tensor, shared = torch.ones(3), {"x": [1]}
    one, other = Sample(metadata={"m": shared}), Sample(metadata={"m": shared})
    one.multimodal_train_inputs = {"pixels": tensor}
    first, second = snapshot([one, other])
    assert first.multimodal_train_inputs["pixels"] is tensor
    assert first.metadata["m"] is second.metadata["m"]
    assert first.metadata["m"] is not shared


def _frozen(array: Any) -> Any:
    view = array[:]
    view.flags.writeable = False
    return view


def test_structured_scalars_are_copied_as_they_are() -> None:
    rows = np.array([(1, 2.0, [3, 4]), (5, 6.0, [7, 8])], dtype=[("a", ">i4"), ("b", "f8"), ("c", "i2", (2,))])
    records = rows.view(np.recarray)
    frozen = rows.copy()
    sample = Sample(
        metadata={"void": rows[1], "record": [records[1]], "frozen": _frozen(frozen)[1], "raw": np.void(b"ab")}
    )
    expected = Sample(
        metadata={
            "void": rows.copy()[1],
            "record": [rows.copy().view(np.recarray)[1]],
            "frozen": _frozen(rows.copy())[1],
            "raw": np.void(b"ab"),
        }
    )
    taken = snapshot([sample], arrays=True)
    assert snapshot([sample])[0].metadata["void"] is sample.metadata["void"]
    rows[1] = (9, 9.0, [9, 9])
    frozen[1] = (9, 9.0, [9, 9])
    assert_same(taken, [expected])
    assert taken[0].metadata["frozen"].item()[:2] == (5, 6.0) and not taken[0].metadata["frozen"].flags.writeable


def test_exceptions_are_copied_where_they_can_be_stored() -> None:
    class Own(Exception):
        pass

    given = [ValueError([1], {"a": [2]}), KeyError("key"), MemoryError(), Own([1]), FileNotFoundError(2, [1])]
    given[0].args[0].append(given[0])
    try:
        raise TypeError([1])
    except TypeError as error:
        given.append(error)
    sample = Sample(metadata={"errors": given})
    errors = snapshot(sample).metadata["errors"]
    given[0].args[1]["a"].append(3)
    assert type(errors[0]) is ValueError and errors[0].args[1] == {"a": [2]}
    assert errors[0].args[0][1] is errors[0]
    assert type(errors[1]) is KeyError and errors[1].args == ("key",)
    assert all(copied is error for copied, error in zip(errors[3:], given[3:], strict=True))


def test_a_cycle_is_no_obstacle() -> None:
    sample = Sample()
    sample.metadata["me"] = sample.metadata
    taken = snapshot([sample])[0]
    assert taken.metadata["me"] is taken.metadata
    assert taken.metadata is not sample.metadata


@dataclass
class _Single:
    value: int = 1

    def __copy__(self) -> None:
        raise RuntimeError("there is only one")


def test_what_is_too_deep_or_refuses_to_be_copied_is_shared() -> None:
    deep: dict[str, Any] = {}
    for _ in range(5_000):
        deep = {"within": deep}
    single = _Single()
    taken = snapshot(Sample(metadata={"deep": deep, "single": single, "list": [1]}))
    assert taken.metadata["deep"] is not deep
    assert taken.metadata["deep"].keys() == {"within"}
    assert taken.metadata["single"] is single
