"""What frames read: no frame of scalars reads an array, a text or a document, and a page costs a few statements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from slime_store import Run, SampleFilter, dataframes
from slime_store.testing import make_eval_output, make_train_output
from slime_store.testing.contract.opening import opened, run_of
from tests.services.sent import columns_of, statements, tables_of

SCALARS: dict[str, Callable[[Any], Any]] = {
    "samples": dataframes.samples_df,
    "samples, with entries of rewards": lambda run: dataframes.samples_df(run, columns=["reward.a", "reward"]),
    "samples, filtered": lambda run: dataframes.samples_df(
        run, SampleFilter(status="completed", reward_min=0, weight_version="1", removed=False, response_length_min=1)
    ),
    "samples of a prompt": lambda run: dataframes.samples_df(run, SampleFilter(prompt_id="0" * 16)),
    "samples, with the prompt's id": lambda run: dataframes.samples_df(run, columns=["prompt_id"]),
    "groups": dataframes.groups_df,
    "groups, with all columns": lambda run: dataframes.groups_df(run, columns=["prompt_id", "weight_version", "run"]),
    "rollouts": dataframes.rollouts_df,
    "weight versions": dataframes.weight_versions_df,
    "weight versions, each": lambda run: dataframes.weight_versions_df(run, attribute="each", by="label"),
    "weight versions, by key": lambda run: dataframes.weight_versions_df(run, SampleFilter(reward_key="a")),
    "eval": dataframes.eval_df,
    "eval summary": dataframes.eval_summary_df,
    "eval compare": lambda run: dataframes.eval_compare_df(run, 0, 1),
    "eval compare, in sum": lambda run: dataframes.eval_compare_summary_df(run, 0, 1),
    "metrics": dataframes.metrics_df,
    "prompts": dataframes.prompts_df,
}
HEAVY = {"sample_arrays", "sample_texts", "sample_documents", "blobs", "blob_parts", "rollout_states"}
LONG = {"prompts.text", "prompts.document", "eval_datasets.content", "runs.config", "rollouts.layouts"}


@pytest.fixture
def run(store_url: str) -> Iterator[Run]:
    """A run of eight rollouts and two evals, opened for reading."""
    with run_of(store_url) as run:
        for rollout_id in range(8):
            run.record_train(rollout_id, make_train_output(4, 4, seed=rollout_id, n_tokens=4))
        for rollout_id in range(2):
            run.record_eval(rollout_id, make_eval_output(seed=rollout_id, n_tokens=4))
    with opened(store_url, read_only=True) as store:
        yield store.run("contract", create=False)


@pytest.mark.parametrize("name", SCALARS)
def test_a_frame_of_scalars_reads_no_array_no_text_and_no_document(run: Run, name: str) -> None:
    with statements() as sent:
        SCALARS[name](run)
    assert sent
    assert not tables_of(sent) & HEAVY
    if name.startswith("metrics"):
        return
    # digests of prompts lie before the text in the row, so that finding one reads no long text
    assert not columns_of(sent) & (LONG | {"rollouts.metrics"})


@pytest.mark.parametrize("name", SCALARS)
def test_a_frame_costs_the_same_number_of_statements_whatever_the_number_of_samples(
    store_url: str, run: Run, name: str
) -> None:
    numbers = []
    for n_groups in (1, 16):
        with run_of(store_url, "grown") as writer:
            writer.record_train(n_groups, make_train_output(n_groups, 8, n_tokens=2, seed=3))
            for rollout_id in range(2):
                writer.record_eval(rollout_id, make_eval_output({"a": n_groups * 2}, n_tokens=2, seed=rollout_id))
        with opened(store_url, read_only=True) as store, statements() as sent:
            reader = store.run("grown", create=False)
            del sent[:]
            SCALARS[name](reader)
        numbers.append(len(sent))
    assert numbers[0] == numbers[1] <= 14


@pytest.mark.parametrize(
    ("where", "most"),
    [
        (SampleFilter(), 3),
        (SampleFilter(rollout_ids="2:7", kind="train"), 3),
        (SampleFilter(status="completed"), 4),
        (SampleFilter(reward_min=0, weight_version="1"), 4),
        (SampleFilter(metadata={"source": "made-up"}), 3),
        (SampleFilter(text="user"), 5),
    ],
    ids=repr,
)
def test_a_page_costs_a_few_statements_and_is_a_part_of_the_whole(run: Run, where: SampleFilter, most: int) -> None:
    columns = ["kind", "rollout_id", "position", "index", "weight_version"]
    whole = dataframes.samples_df(run, where, columns=columns)
    assert len(whole) > 20
    for limit, offset in ((5, 0), (7, 13), (0, 3), (5, len(whole) - 2), (5, len(whole)), (None, 9), (1000, 1)):
        with statements() as sent:
            page = dataframes.samples_df(run, where, columns=columns, limit=limit, offset=offset)
        assert len(sent) <= most
        expected = whole.iloc[offset : None if limit is None else offset + limit].reset_index(drop=True)
        assert page.equals(expected)


def test_a_page_of_a_text_reads_only_the_texts_asked_for(run: Run) -> None:
    with statements() as sent:
        dataframes.samples_df(run, columns=["response"], limit=3)
    assert "sample_texts" in tables_of(sent)
    assert not tables_of(sent) & (HEAVY - {"sample_texts"}) and "prompts" not in tables_of(sent)


def test_a_page_near_the_end_looks_at_few_rollouts(run: Run) -> None:
    steps: list[int] = []
    for offset in (0, 7 * 16):
        with statements() as sent:
            dataframes.samples_df(run, SampleFilter(kind="train"), limit=3, offset=offset)
        steps.append(len(sent))
    assert steps[0] == steps[1]


def test_a_frame_is_read_in_one_transaction(run: Run) -> None:
    from sqlalchemy import Engine, event

    begun: list[None] = []

    def note(_connection: Any) -> None:
        begun.append(None)

    event.listen(Engine, "begin", note)
    try:
        for question in SCALARS.values():
            del begun[:]
            question(run)
            assert len(begun) <= 3  # comparing two evals takes three
    finally:
        event.remove(Engine, "begin", note)
