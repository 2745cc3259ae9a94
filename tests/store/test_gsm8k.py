"""Real text and real rewards: four models' solutions of the GSM8K test problems, one eval for each model."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slime_store import RolloutFnEvalOutput, Sample, SampleFilter
from slime_store.dataframes import (
    eval_compare_df,
    eval_compare_summary_df,
    eval_summary_df,
    prompts_df,
    weight_versions_df,
)
from slime_store.testing import assert_same
from slime_store.testing.contract.opening import loaded_eval, opened, run_of
from tests.services.outside import DATA_VARIABLE, gsm8k_path
from tests.services.tables import row, rows

MODELS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")


@pytest.fixture(scope="module")
def problems() -> list[dict[str, Any]]:
    """The problems with the models' solutions, in the order of the file."""
    path = gsm8k_path()
    if not path.exists():
        pytest.skip(f"there is no {path}; {DATA_VARIABLE} names its folder")
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def evaluation(problems: list[dict[str, Any]], model: str) -> RolloutFnEvalOutput:
    """One eval as slime gives it: no groups, the index counts the problems."""
    samples = [
        Sample(
            index=i,
            prompt=[{"role": "user", "content": problem["question"]}],
            response=problem[model]["solution"],
            label=problem["ground_truth"],
            reward=float(problem[model]["is_correct"]),
            weight_versions=[model],
            status=Sample.Status.COMPLETED,
        )
        for i, problem in enumerate(problems)
    ]
    rewards = [sample.reward for sample in samples]
    data = {"gsm8k": {"rewards": rewards, "truncated": [False] * len(samples), "samples": samples}}
    return RolloutFnEvalOutput(data, {"gsm8k": sum(rewards) / len(rewards)})


@pytest.mark.slow_on_postgresql
def test_four_evals_come_back_and_their_means_are_the_shares_of_right_answers(
    store_url: str, problems: list[dict[str, Any]]
) -> None:
    outputs = {model: evaluation(problems, model) for model in MODELS}
    with run_of(store_url) as run:
        for rollout_id, (model, output) in enumerate(outputs.items()):
            run.record_eval(rollout_id, output, weight_version=model)
    for rollout_id, output in enumerate(outputs.values()):
        assert_same(loaded_eval(store_url, rollout_id, sample_type=Sample), output)
    by_version = (
        "SELECT v.label, count(*), avg(s.reward), avg(s.eval_reward) FROM samples s"
        " JOIN sample_weight_versions l ON l.rollout_pk = s.rollout_pk AND l.position = s.position"
        " JOIN weight_versions v ON v.id = l.weight_version_pk GROUP BY v.label, v.ordinal ORDER BY v.ordinal"
    )
    expected = []
    for model in MODELS:
        share = sum(problem[model]["is_correct"] for problem in problems) / len(problems)
        expected.append((model, len(problems), pytest.approx(share, rel=1e-12), pytest.approx(share, rel=1e-12)))
    assert rows(store_url, by_version) == expected
    told = "SELECT v.label FROM rollouts r JOIN weight_versions v ON v.id = r.weight_version_pk ORDER BY r.rollout_id"
    assert [label for (label,) in rows(store_url, told)] == list(MODELS)


def test_a_prompt_is_stored_once_and_its_history_can_be_asked_for(
    store_url: str, problems: list[dict[str, Any]]
) -> None:
    some = problems[:300]
    with run_of(store_url) as run:
        for rollout_id, model in enumerate(MODELS):
            run.record_eval(rollout_id, evaluation(some, model))
    distinct = len({problem["question"] for problem in some})
    assert row(store_url, "SELECT count(*) FROM prompts") == (distinct,)
    with opened(store_url, read_only=True) as store:
        run = store.run("contract", create=False)
        prompt = [{"role": "user", "content": some[7]["question"]}]
        history = list(run.iter_samples(SampleFilter(prompt=prompt), sample_type=Sample))
        assert [sample.weight_versions for sample in history] == [[model] for model in MODELS]
        assert [sample.reward for sample in history] == [float(some[7][model]["is_correct"]) for model in MODELS]
        right = list(run.iter_samples(SampleFilter(weight_version=MODELS[3], reward_min=1.0), fields=["index"]))
        assert [each.index for each in right] == [i for i, each in enumerate(some) if each[MODELS[3]]["is_correct"]]
        needle = "<<16-3"
        found = list(run.iter_samples(SampleFilter(text=needle, rollout_ids=1), fields=["index"]))
        assert [each.index for each in found] == [i for i, p in enumerate(some) if needle in p[MODELS[1]]["solution"]]


@pytest.mark.slow_on_postgresql
def test_questions_give_the_known_accuracies_and_flips(store_url: str, problems: list[dict[str, Any]]) -> None:
    with run_of(store_url) as run:
        for rollout_id, model in enumerate(MODELS):
            run.record_eval(rollout_id, evaluation(problems, model), weight_version=model)
    share = {model: sum(problem[model]["is_correct"] for problem in problems) / len(problems) for model in MODELS}
    with opened(store_url, read_only=True) as store:
        run = store.run("contract", create=False)
        versions = weight_versions_df(run)
        assert list(versions["weight_version"]) == list(MODELS)
        assert list(versions["reward_mean"]) == [pytest.approx(share[model], rel=1e-12) for model in MODELS]
        assert set(versions["n_rewards"]) == {len(problems)}
        summary = eval_summary_df(run)
        assert list(summary["weight_version"]) == list(MODELS)
        for mean, low, high, pass_at_1, model in zip(
            *(summary[name] for name in ("reward_mean", "ci_low", "ci_high", "pass_at_1")), MODELS, strict=True
        ):
            assert mean == pass_at_1 == pytest.approx(share[model], rel=1e-12)
            half = 1.9618 * (share[model] * (1 - share[model]) / (len(problems) - 1)) ** 0.5  # t for 1,318
            assert (low, high) == (pytest.approx(mean - half, abs=1e-5), pytest.approx(mean + half, abs=1e-5))

        before, after = "6b_finetuning", "175b_verification"
        flips: dict[str, set[str]] = {"gained": set(), "lost": set(), "same": set()}
        for problem in problems:
            old, new = problem[before]["is_correct"], problem[after]["is_correct"]
            flips["same" if old == new else "gained" if new else "lost"].add(problem["question"])
        frame = eval_compare_df(run, MODELS.index(before), MODELS.index(after), columns=["flip", "prompt", "delta"])
        found: dict[str, set[str]] = {"gained": set(), "lost": set(), "same": set()}
        for flip, prompt in zip(frame["flip"], frame["prompt"], strict=True):
            found[flip].add(json.loads(prompt)[0]["content"])
        assert found == flips

        (total,) = eval_compare_summary_df(run, 0, 3, dataset="gsm8k").to_dict("records")
        assert [total[f"n_{flip}"] for flip in flips] == [len(questions) for questions in flips.values()]
        assert total["delta_mean"] == pytest.approx(share[after] - share[before], rel=1e-12)
        assert total["ci_low"] < total["delta_mean"] < total["ci_high"]
        assert (total["n_before_only"], total["n_after_only"], total["n_prompts"]) == (0, 0, len(problems))

        prompt_id = eval_compare_df(run, 0, 3)["prompt_id"][7]
        history = prompts_df(run, SampleFilter(prompt_id=prompt_id))
        assert list(history["reward_mean"]) == [float(problems[7][model]["is_correct"]) for model in MODELS]
