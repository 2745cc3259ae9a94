"""The ways in which the fake framework can train, and what must hold in each whatever was interrupted."""

from __future__ import annotations

import random
from typing import Any

from tests.plugins.fake_framework.engine import response_of
from tests.plugins.fake_framework.ledger import Ledger
from tests.plugins.fake_framework.plugin import HERE
from tests.plugins.fake_framework.train import DEFAULTS

WITHOUT_STORE = {
    "function": f"{HERE}.loop.generate_rollout",
    "source": f"{HERE}.data_source.BufferedSource",
}
FULLY_ASYNC = f"{HERE}.fully_async.generate_rollout"

SAME_HISTORY: dict[str, dict[str, Any]] = {
    "plain": {},
    "plain, async": {"loop": "async"},
    "group rewards": {"group_rm": True},
    "fan-out, async": {"fan_out": True, "loop": "async"},
    "filter": {"dynamic_filter": True, "over_sampling_batch_size": 1},
    "filter, async": {"dynamic_filter": True, "over_sampling_batch_size": 1, "loop": "async"},
    "exact end of an epoch": {"n_prompts": 8},
    "exact end of an epoch, async": {"n_prompts": 8, "loop": "async", "save_interval": 2},
    "no buffer": {"slime_store_data_source_path": f"{HERE}.data_source.PlainSource"},
    "own state, async": {"slime_store_data_source_path": f"{HERE}.data_source.OwnStateSource", "loop": "async"},
    "no group index": {"slime_store_data_source_path": f"{HERE}.data_source.NamelessSource"},
    "no journal": {"slime_store_journal": False},
}
"""Modes in which what is trained does not depend on timing: it must equal an uninterrupted run's."""

_TIMED = {"token_seconds": 0.001}
NOTHING_LOST: dict[str, dict[str, Any]] = {
    "over-sampling": {"over_sampling_batch_size": 6},
    "over-sampling and filter, async": {"over_sampling_batch_size": 6, "dynamic_filter": True, "loop": "async"},
    "partial rollout": {"partial_rollout": True, "over_sampling_batch_size": 7},
    "partial rollout and filter, async": {
        "partial_rollout": True, "over_sampling_batch_size": 6, "dynamic_filter": True, "loop": "async",
    },
    "fully async": {"slime_store_rollout_function_path": FULLY_ASYNC},
    "fully async, filter, async loop": {
        "slime_store_rollout_function_path": FULLY_ASYNC, "dynamic_filter": True, "loop": "async",
    },
    "fully async, interrupted engines": {"slime_store_rollout_function_path": FULLY_ASYNC, "interrupt": True},
    "fully async, evals between": {
        "slime_store_rollout_function_path": FULLY_ASYNC, "eval_interval": 1, "fan_out": True,
    },
}  # fmt: skip
"""Modes in which timing decides what is trained when: no prompt may be lost or repeated."""
NOTHING_LOST = {name: {**_TIMED, **options} for name, options in NOTHING_LOST.items()}


def prompts_of(options: dict[str, Any], n: int) -> list[tuple[str, list[int]]]:
    """Return the prompt and the sample indexes of the first n group indexes."""
    given = {**DEFAULTS, **options}
    n_prompts, size = given["n_prompts"], given["n_samples_per_prompt"]
    expected = []
    for number in range(n):
        epoch, offset = divmod(number, n_prompts)
        order = random.Random(given["rollout_seed"] + epoch).sample(range(n_prompts), n_prompts)
        expected.append((f"prompt {order[offset]}", [number * size + i for i in range(size)]))
    return expected


def assert_nothing_is_lost(ledger: Ledger, options: dict[str, Any], prompts: dict[int, Any] | None = None) -> None:
    """No prompt is trained twice, none vanished, and every trained sample is what the engine says to it.

    Args:
        ledger: what happened.
        options: of the training run.
        prompts: the prompts and sample indexes of an uninterrupted run; default: those of the fake framework.
    """
    end = ledger.ends[-1]
    trained = ledger.trained_indexes
    assert len(trained) == len(set(trained)), f"trained twice: {sorted(i for i in trained if trained.count(i) > 1)}"
    remaining = set(end["remaining"])
    dropped = ledger.dropped_indexes - remaining
    assert not set(trained) & (dropped | remaining | ledger.filtered)
    lost = set(range(end["handed_out"])) - set(trained) - dropped - remaining - ledger.filtered
    assert not lost, f"lost: {sorted(lost)}"
    expected = dict(enumerate(prompts_of(options, end["handed_out"]))) if prompts is None else prompts
    for groups in ledger.history:
        assert len(groups) == DEFAULTS["rollout_batch_size"]
        for index, prompt, samples in groups:
            assert (prompt, sorted({sample[0] for sample in samples})) == expected.get(
                index, (prompt, sorted({sample[0] for sample in samples}))
            )
            for sample_index, tokens, reward, mask_length, status in samples:
                assert tokens[3:] == response_of(prompt, sample_index)
                assert mask_length == len(tokens) - 3
                assert reward is not None
                assert status in ("completed", "truncated")


def trained_prompts(ledger: Ledger) -> dict[int, Any]:
    """Return the prompt and sample indexes of every trained group, by group index."""
    return {
        index: (prompt, sorted({sample[0] for sample in samples}))
        for groups in ledger.history
        for index, prompt, samples in groups
    }
