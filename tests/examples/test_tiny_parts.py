"""The parts of the example: the data source, the reward, the engine against the trainer."""

from __future__ import annotations

import asyncio
import copy
from pathlib import Path

import pytest
import torch

from slime_store import Sample
from slime_store.testing import assert_same, same
from tiny.args import Args
from tiny.checkpoints import complete_checkpoint, digest, last_checkpoint, load_checkpoint, save_checkpoint
from tiny.data_source import DataSource
from tiny.engine import Engine
from tiny.policy import Policy
from tiny.rollout import generate_and_rm_group, generate_rollout
from tiny.task import make_eval_datasets, make_problem, make_train_dataset, reward_answer
from tiny.trainer import Trainer


@pytest.fixture
def args() -> Args:
    """Small settings, and an engine with the weights of a fresh policy."""
    torch.manual_seed(0)
    args = Args(rollout_batch_size=4, n_samples_per_prompt=4, n_eval_prompts=8, dataset_size=10, max_difficulty=5)
    args.engine = Engine(args, Policy(args))
    return args


def test_the_yaml_file_adds_settings_as_in_slime(args: Args, tmp_path: Path) -> None:
    args.custom_config_path = str(tmp_path / "store.yaml")
    Path(args.custom_config_path).write_text("slime_store_url: /data/a b: c.db\nslime_store_mode: resume\n")
    args.read_custom_config()
    assert (args.slime_store_url, args.slime_store_mode) == ("/data/a b: c.db", "resume")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("response", "status", "reward"),
    [
        ("2714", Sample.Status.COMPLETED, 1.0),
        ("2714", Sample.Status.TRUNCATED, 0.8),  # never stopped
        ("271", Sample.Status.COMPLETED, 0.6),
        ("27149", Sample.Status.COMPLETED, 4 / 6),  # stopped too late
        ("4172", Sample.Status.COMPLETED, 0.2),  # repeated: only the stop is in place
        ("", Sample.Status.COMPLETED, 0.0),
    ],
)
def test_reward_is_the_share_of_places_that_are_right(response: str, status: Sample.Status, reward: float) -> None:
    sample = make_problem("4172")
    sample.response, sample.status = response, status
    reward_answer(sample)
    assert sample.reward == pytest.approx(reward)
    assert sample.metadata["correct"] is (reward == 1.0)


def test_no_eval_prompt_is_trained_on(args: Args) -> None:
    evals = {sample.prompt for samples in make_eval_datasets(args).values() for sample in samples}
    assert len(evals) == 2 * args.n_eval_prompts
    assert not evals & {sample.prompt for sample in make_train_dataset(args)}


def test_each_epoch_hands_out_every_prompt_once(args: Args) -> None:
    source = DataSource(args)
    groups = source.get_samples(4) + source.get_samples(4) + source.get_samples(12)  # over both epochs' ends
    prompts = [group[0].prompt for group in groups]
    assert sorted(prompts[:10]) == sorted(prompts[10:]) == sorted(str(s.prompt) for s in make_train_dataset(args))
    assert prompts[:10] != prompts[10:]
    assert [group[0].group_index for group in groups] == list(range(20))
    assert [sample.index for group in groups for sample in group] == list(range(80))


def test_data_source_goes_on_from_its_state_with_the_groups_given_back(args: Args) -> None:
    source = DataSource(args)
    source.add_samples(source.get_samples(7)[5:])
    state = source.state_dict()
    resumed = DataSource(args)
    resumed.load_state_dict(copy.deepcopy(state))
    assert_same(resumed.state_dict(), state)
    assert_same(resumed.get_samples(9), source.get_samples(9))


def test_a_group_draws_the_same_answers_in_any_company(args: Args) -> None:
    alone = DataSource(args).get_samples(4)[2]
    asyncio.run(generate_and_rm_group(args, alone, {}))
    assert_same(alone, generate_rollout(args, 0, DataSource(args)).samples[2])  # log-probs too, to the bit


def test_finished_groups_pass_through_a_rollout_untouched(args: Args) -> None:
    source = DataSource(args)
    finished = source.get_samples(2)
    for group in finished:
        asyncio.run(generate_and_rm_group(args, group, {}))
    source.add_samples(copy.deepcopy(finished))
    assert args.engine is not None
    args.engine.update_weights(Policy(args))  # whatever is generated from here on is of other weights
    output = generate_rollout(args, 0, source)
    assert_same(output.samples[:2], finished)
    assert {sample.weight_versions[0] for group in output.samples[2:] for sample in group} == {"1"}


def test_recorded_log_probs_are_those_of_the_trained_policy(args: Args) -> None:
    trainer = Trainer(args)
    args.engine = Engine(args, trainer.policy)
    batch = trainer._to_batch(generate_rollout(args, 0, DataSource(args)).samples)
    with torch.no_grad():
        log_probs, _ = trainer._evaluate(batch)  # all at once, where the engine goes token by token with a cache
    torch.testing.assert_close(log_probs * batch.mask, batch.log_probs, atol=1e-5, rtol=0)


def test_masked_tokens_do_not_train(args: Args) -> None:
    groups = generate_rollout(args, 0, DataSource(args)).samples
    for group in groups:
        for sample in group:
            sample.loss_mask = [0] * (sample.response_length - 1) + [1]  # the last token only
    altered = copy.deepcopy(groups)
    for group in altered:
        for sample in group:
            sample.rollout_log_probs = [-9.0] * (sample.response_length - 1) + (sample.rollout_log_probs or [])[-1:]

    def weights_after(*rollouts: list[list[Sample]]) -> dict[str, torch.Tensor]:
        torch.manual_seed(1)
        trainer = Trainer(args)
        for rollout in rollouts:
            trainer.train(rollout)
        return trainer.policy.state_dict()

    assert same(weights_after(altered), weights_after(groups))
    assert not same(weights_after(groups), weights_after())


def test_one_bit_of_one_weight_changes_the_digest(args: Args) -> None:
    state = Trainer(args).state()
    before = digest(state)
    assert digest(copy.deepcopy(state)) == before
    state["policy"]["norm.bias"].view(torch.int32)[5] ^= 1
    assert digest(state) != before


def test_a_checkpoint_counts_when_it_is_complete(args: Args, tmp_path: Path) -> None:
    args.save = str(tmp_path)
    trainer = Trainer(args)
    assert last_checkpoint(args) == -1
    save_checkpoint(args, 3, trainer.state())
    assert last_checkpoint(args) == -1
    complete_checkpoint(args, 3)
    assert last_checkpoint(args) == 3
    assert digest(load_checkpoint(args, 3)) == digest(trainer.state())
