"""What the views say is what the Python interface says, on both databases and without a word about attempts."""

from __future__ import annotations

import math
from typing import Any

import pytest

from slime_store import RolloutFnEvalOutput, RolloutFnTrainOutput, Run, Sample
from slime_store.models.views import VIEWS
from slime_store.testing import make_eval_output, make_sample, make_train_output
from slime_store.testing.contract.opening import RUN, opened, run_of
from slime_store.types.outputs import iter_leaf_samples
from tests.services.tables import row, rows, value

Status = Sample.Status


def record(url: str) -> None:
    """Two sessions: a rollout recorded twice, one with a split execution, an eval recorded twice."""
    with run_of(url) as run:
        run.record_train(0, make_train_output(2, 2, seed=1))
        samples = make_train_output(3, 2, seed=2, status="truncated").samples
        samples[0][0].reward, samples[0][1].reward, samples[1][0].reward = math.nan, None, {"score": 1.0}
        samples[1][1].remove_sample, samples[2][0].weight_versions = True, ["1", "1", "2", "1"]
        run.record_train(0, RolloutFnTrainOutput(samples, {"loss": 0.5}))
        run.record_eval(0, make_eval_output({"a": 2}), weight_version="1")
    with run_of(url) as run:
        split = [make_sample(i, group_index=9, rollout_id=77, seed=3) for i in range(2)]
        run.record_train(1, [[[make_sample(0, prompt="text\0"), make_sample(1, label=None)], split]])
        answers = [
            make_sample(i, status=status, seed=4) for i, status in enumerate(["completed", "truncated", "completed"])
        ]
        answers[2].reward = None
        a = {"rewards": [0.5, math.nan, None], "truncated": [False, True, True], "samples": answers}
        unsaid = make_sample(6, weight_versions=[], reward=0.25)
        b = {"samples": [make_sample(5, status="truncated", weight_versions=["4"], reward=1.0), unsaid]}
        run.record_eval(0, RolloutFnEvalOutput({"a": a, "b": b}), weight_version="3")
        run.record_eval(1, {"b": b, "empty": {"samples": []}})


def newest(run: Run) -> list[tuple[Any, list[Sample]]]:
    """Return every rollout as views show them, with its samples in order."""
    found: list[tuple[Any, list[Sample]]] = []
    for info in run.rollouts():
        if info.kind == "train":
            samples = run.load_train(info.rollout_id, sample_type=Sample).samples
        else:
            datasets = run.load_eval(info.rollout_id, sample_type=Sample).data.values()
            samples = [dataset["samples"] for dataset in datasets]
        found.append((info, list(iter_leaf_samples(samples))))
    return found


def number(reward: Any) -> float | None:
    return float(reward) if isinstance(reward, (int, float)) and not math.isnan(reward) else None


def test_v_samples_is_what_loading_gives(store_url: str) -> None:
    record(store_url)
    expected = []
    with run_of(store_url, read_only=True) as run:
        for info, samples in newest(run):
            for position, s in enumerate(samples):
                told = "3" if (info.kind, info.rollout_id) == ("eval", 0) else None
                versions = s.weight_versions or [told]
                scalars = (position, s.group_index, s.index, s.rollout_id, s.status.value, number(s.reward))
                lengths = (len(s.tokens), s.response_length, s.effective_response_length)
                flags = (int(s.status is Status.TRUNCATED), int(s.remove_sample))
                which = (RUN, info.kind, info.rollout_id, info.attempt, info.session)
                expected.append((*which, *scalars, versions[-1], versions[0], *lengths, *flags))
    query = (
        'SELECT run, kind, rollout_id, attempt, session, position, group_index, "index", execution_id, status, reward,'
        " weight_version, first_weight_version, n_tokens, response_length, effective_response_length, truncated,"
        " removed FROM v_samples ORDER BY kind DESC, rollout_id, position"
    )
    assert rows(store_url, query) == expected
    places = "SELECT group_position, sample_position, segment_position FROM v_samples"
    split = rows(store_url, f"{places} WHERE rollout_id = 1 AND kind = 'train' ORDER BY position")
    assert split == [(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1)]
    types = "SELECT reward_type FROM v_samples WHERE kind = 'train' AND rollout_id = 0 ORDER BY position"
    assert [word for (word,) in rows(store_url, types)] == ["nan", "none", "dict", "float", "float", "float"]


def test_v_rollouts_shows_the_newest_attempts_and_v_rollout_attempts_all(store_url: str) -> None:
    record(store_url)
    columns = "run, kind, rollout_id, attempt, session, n_groups, n_samples, n_trajectories, n_tokens, n_bytes"
    order = "ORDER BY kind DESC, rollout_id, attempt"
    with run_of(store_url, read_only=True) as run:
        for view, which in (("v_rollouts", {}), ("v_rollout_attempts", {"attempts": True})):
            infos = run.rollouts(**which)
            expected = [tuple(getattr(info, name) for name in columns.split(", ")) for info in infos]
            assert rows(store_url, f"SELECT {columns} FROM {view} {order}") == expected
    flags = rows(store_url, f"SELECT kind, rollout_id, attempt, newest FROM v_rollout_attempts {order}")
    assert [f for f in flags if not f[3]] == [("train", 0, 1, 0), ("eval", 0, 1, 0)]
    told = "SELECT weight_version FROM v_rollouts WHERE kind = 'eval' ORDER BY rollout_id"
    assert rows(store_url, told) == [("3",), (None,)]


def test_v_sample_texts_joins_prompt_response_and_label(store_url: str) -> None:
    record(store_url)
    expected = []
    with run_of(store_url, read_only=True) as run:
        for _, samples in newest(run):
            expected += [(sample.response, sample.label) for sample in samples]
    order = "ORDER BY kind DESC, rollout_id, position"
    assert rows(store_url, f"SELECT response, label FROM v_sample_texts {order}") == expected
    prompt = "SELECT prompt FROM v_sample_texts WHERE kind = 'train' AND position = 0 ORDER BY rollout_id"
    (chat,), (odd,) = rows(store_url, prompt)
    assert odd == '{"$str":{"data":"dGV4dAA="}}'
    assert chat.startswith('[{"role":"user","content":"')


def test_v_eval_has_what_the_datasets_say_of_their_samples(store_url: str) -> None:
    record(store_url)
    query = (
        "SELECT rollout_id, attempt, dataset, dataset_position, status, reward, truncated, weight_version,"
        " eval_weight_version FROM v_eval ORDER BY rollout_id, position"
    )
    assert rows(store_url, query) == [
        (0, 2, "a", 0, "completed", 0.5, 0, "1", "3"),
        (0, 2, "a", 1, "truncated", None, 1, "1", "3"),
        (0, 2, "a", 2, "completed", None, 1, "1", "3"),
        (0, 2, "b", 0, "truncated", 1.0, 1, "4", "3"),  # no list: the samples' own
        (0, 2, "b", 1, "completed", 0.25, 0, "3", "3"),
        (1, 1, "b", 0, "truncated", 1.0, 1, "4", None),
        (1, 1, "b", 1, "completed", 0.25, 0, None, None),
    ]
    own = "SELECT sample_reward, sample_reward_type FROM v_eval WHERE rollout_id = 0 AND dataset_position = 2"
    assert row(store_url, own) == (None, "none")


def test_v_eval_summary_has_a_row_for_each_dataset_of_each_eval(store_url: str) -> None:
    record(store_url)
    query = (
        "SELECT rollout_id, attempt, dataset, weight_version, n_samples, n_rewards, n_prompts, reward_mean,"
        " truncated_share FROM v_eval_summary ORDER BY rollout_id, dataset"
    )
    assert rows(store_url, query) == [
        (0, 2, "a", "1", 3, 1, 3, 0.5, pytest.approx(2 / 3)),
        (0, 2, "b", "4", 2, 2, 2, 0.625, 0.5),
        (1, 1, "b", "4", 2, 2, 2, 0.625, 0.5),
        (1, 1, "empty", None, 0, 0, 0, None, None),
    ]


def test_the_mean_of_an_eval_weighs_prompts_not_samples(store_url: str) -> None:
    rewards = {"p": [1.0, 1.0, 1.0], "q": [0.0], "r": [math.nan]}
    samples = [Sample(prompt=prompt, reward=reward) for prompt, given in rewards.items() for reward in given]
    with run_of(store_url) as run:
        run.record_eval(0, {"a": {"samples": samples, "rewards": [sample.reward for sample in samples]}})
    query = "SELECT n_samples, n_rewards, n_prompts, reward_mean, weight_version FROM v_eval_summary"
    assert rows(store_url, query) == [(5, 4, 3, 0.5, None)]


def test_a_sample_without_a_prompt_has_no_prompt_id(store_url: str) -> None:
    sample = Sample(reward=1.0)
    del sample.prompt
    with run_of(store_url) as run:
        run.record_train(0, [[sample, Sample(prompt="p")]])
        run.record_eval(0, {"a": {"samples": [sample]}})
    for view in ("v_samples", "v_sample_texts"):
        ids = [
            prompt_id for (prompt_id,) in rows(store_url, f"SELECT prompt_id FROM {view} ORDER BY kind DESC, position")
        ]
        assert [ids[0], ids[2]] == [None, None] and len(ids[1]) == 16
    assert rows(store_url, "SELECT n_prompts, reward_mean FROM v_eval_summary") == [(1, 1.0)]


def test_an_eval_with_rewards_that_no_double_can_sum_does_not_break_the_others(store_url: str) -> None:
    samples = [Sample(reward=1.0), Sample(reward=2.0)]
    odd = {"huge": [1e200, 1e200], "inf": [math.inf, 1.0], "tiny": [1e-300, 5e-324], "plain": [1.0, 2.0]}
    with run_of(store_url) as run:
        run.record_eval(0, {name: {"rewards": rewards, "samples": samples} for name, rewards in odd.items()})
    found = dict(rows(store_url, "SELECT dataset, reward_mean FROM v_eval_summary"))
    assert found == {"huge": None, "inf": None, "tiny": 0.0, "plain": 1.5}


def test_d3_v_sample_rewards_keeps_odd_keys_apart(store_url: str) -> None:
    reward = {"math.acc": 1, "a b": 2, 'q"uote': 3, "准确": 4, "nest": {"x": 5}, "": 6, "nan": math.nan, "text": "x"}
    with run_of(store_url) as run:
        run.record_train(0, [[Sample(reward={"acc": 0})]])
        run.record_train(0, [[Sample(reward=1.0), Sample(reward=reward)]])
    found = {
        (position, key, depth): v
        for position, key, depth, v in rows(store_url, "SELECT position, key, depth, value FROM v_sample_rewards")
    }
    flat = {(1, key, 1): v for key, v in reward.items() if isinstance(v, int)}
    assert found == {**flat, (1, '["nest","x"]', 2): 5.0, (1, "nan", 1): None}


def test_e1_v_sample_weight_versions_compares_whole_labels(store_url: str) -> None:
    lists = [["3"], ["13"], ["3", "3", "4"], ["30", "4"], []]
    with run_of(store_url) as run:
        run.record_train(0, [[Sample(reward=float(i), weight_versions=each) for i, each in enumerate(lists, 1)]])
    query = "SELECT position, run_position, weight_version, n_turns FROM v_sample_weight_versions"
    assert rows(store_url, f"{query} ORDER BY position, run_position") == [
        (0, 0, "3", 1),
        (1, 0, "13", 1),
        (2, 0, "3", 2),
        (2, 1, "4", 1),
        (3, 0, "30", 1),
        (3, 1, "4", 1),
    ]
    found = "SELECT DISTINCT position FROM v_sample_weight_versions WHERE weight_version = '3' ORDER BY position"
    assert rows(store_url, found) == [(0,), (2,)]
    labels = "SELECT weight_version, first_weight_version FROM v_samples ORDER BY position"
    assert rows(store_url, labels) == [("3", "3"), ("13", "13"), ("4", "3"), ("4", "30"), (None, None)]


def test_a1_comparisons_find_the_same_samples_on_both_databases(store_url: str) -> None:
    with run_of(store_url) as run:
        run.record_train(0, [[Sample(reward=r) for r in (1.0, math.nan, None, 3.0)]])
    for comparison, expected in [("> 2", 1), ("< 2", 1), (">= 1", 2), ("<= 3", 2), ("= 3", 1), ("<> 3", 1)]:
        assert value(store_url, f"SELECT count(*) FROM v_samples WHERE reward {comparison}") == expected
    assert value(store_url, "SELECT avg(reward) FROM v_samples") == 2.0


def test_v_prompts_counts_newest_attempts_and_leads_to_a_prompts_history(store_url: str) -> None:
    with run_of(store_url) as run:
        for rollout_id in (0, 0, 1):
            run.record_train(rollout_id, [[Sample(prompt="p"), Sample(prompt="p"), Sample(prompt=f"q{rollout_id}")]])
        run.record_train(2, [[Sample(prompt="gone")]])
        run.record_train(2, [[Sample(prompt=[{"role": "user", "content": "c"}], reward=1.0)]])
    found = {
        prompt: rest
        for prompt, *rest in rows(store_url, "SELECT prompt, is_document, n_samples, n_rollouts FROM v_prompts")
    }
    chat = '[{"role":"user","content":"c"}]'
    assert found == {"p": [0, 4, 2], "q0": [0, 1, 1], "q1": [0, 1, 1], chat: [1, 1, 1]}
    prompt_id = value(store_url, "SELECT prompt_id FROM v_prompts WHERE prompt = 'p'")
    digest = value(store_url, "SELECT digest FROM prompts WHERE text = 'p'")
    assert prompt_id == digest.hex()[:16]
    history = (
        f"SELECT rollout_id, position FROM v_samples WHERE prompt_id = '{prompt_id}' ORDER BY rollout_id, position"
    )
    assert rows(store_url, history) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_sessions_and_weight_versions_are_listed(store_url: str) -> None:
    record(store_url)
    sessions = "SELECT session, n_rollouts, first_rollout_id, last_rollout_id FROM v_sessions ORDER BY session"
    assert rows(store_url, sessions) == [(1, 2, 0, 0), (2, 1, 1, 1)]
    versions = "SELECT session, weight_version, ordinal FROM v_weight_versions ORDER BY ordinal"
    assert rows(store_url, versions) == [(1, "1", 1), (1, "2", 2), (2, "1", 3), (2, "4", 4), (2, "3", 5)]


def test_journalled_groups_are_in_no_view(store_url: str) -> None:
    with run_of(store_url) as run:
        journal = run.recovery.journal()
        journal.put(0, [Sample(prompt="p", reward={"a": 1.0}, weight_versions=["1"], response="r")])
        journal.close()
    assert value(store_url, "SELECT count(*) FROM samples") == 1
    shown = {view: value(store_url, f"SELECT count(*) FROM {view}") for view in VIEWS}
    assert {view for view, n in shown.items() if n} == {"v_sessions", "v_weight_versions"}


def test_views_are_there_for_a_reader(store_url: str) -> None:
    record(store_url)
    with opened(store_url, read_only=True) as store:
        assert store.stats().n_samples > value(store_url, "SELECT count(*) FROM v_samples") > 0
