"""How many statements recording and loading cost: a fixed number, whatever the number of samples."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, event

from slime_store import Sample, SampleFilter
from slime_store.store import Run
from slime_store.testing import make_eval_output, make_sample, make_train_output
from slime_store.testing.contract.opening import opened, run_of


@contextmanager
def statements() -> Iterator[list[str]]:
    """Collect every statement that any engine sends, COPY included."""
    sent: list[str] = []
    copy = psycopg.Cursor.copy

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        # BEGIN is the driver's business on PostgreSQL, and ours on SQLite; there a transaction begins with the other
        if not statement.startswith(("BEGIN", "SELECT to_regclass")):
            sent.append(statement)

    def note_copy(self: Any, statement: Any, *args: Any, **options: Any) -> Any:
        sent.append(str(statement))
        return copy(self, statement, *args, **options)

    event.listen(Engine, "before_cursor_execute", note)
    psycopg.Cursor.copy = note_copy  # type: ignore[method-assign]
    try:
        yield sent
    finally:
        psycopg.Cursor.copy = copy  # type: ignore[method-assign]
        event.remove(Engine, "before_cursor_execute", note)


def tables_of(sent: list[str]) -> set[str]:
    """Return the tables that statements name after FROM, JOIN or INTO."""
    return {name for statement in sent for name in re.findall(r"(?:FROM|JOIN|INTO|COPY)\s+\"?([a-z_]+)", statement)}


def rollout(n_groups: int, **fields: Any) -> list[list[Sample]]:
    """A rollout whose samples have something for every table; four prompts, so that prompts are one chunk."""
    groups = make_train_output(n_groups, 8, n_prompt_tokens=4, n_tokens=8, n_turns=2, **fields).samples
    for i, group in enumerate(groups):
        for sample in group:
            sample.prompt = f"prompt {i % 4}"
            sample.reward = {"score": 1.0, "nested": {"x": 2}}
            sample.undeclared = {"of": (1, 2)}  # type: ignore[attr-defined]
            sample.weight_versions = ["1", "2"]
    return groups


@pytest.fixture
def run(store_url: str) -> Iterator[Run]:
    """A run whose session is open, so that starting it is not counted."""
    with run_of(store_url) as run:
        run.record_train(0, rollout(4))
        yield run


def test_recording_costs_the_same_number_of_statements_for_64_and_for_1024_samples(run: Run) -> None:
    numbers = []
    for rollout_id, n_groups in ((1, 8), (2, 128)):
        with statements() as sent:
            run.record_train(rollout_id, rollout(n_groups))
        numbers.append(len(sent))
    assert numbers[0] == numbers[1]
    assert numbers[1] <= 25


def test_new_prompts_cost_a_few_statements_for_each_fifty(run: Run) -> None:
    numbers = []
    for rollout_id, n_groups in ((1, 8), (2, 128)):
        output = make_train_output(n_groups, 8, seed=rollout_id, n_prompt_tokens=4, n_tokens=4)
        with statements() as sent:
            run.record_train(rollout_id, output)
        numbers.append(len(sent))
    assert numbers[1] - numbers[0] <= 2 * 2  # two more chunks of at most fifty prompts


def test_recording_an_eval_costs_the_same_number_of_statements_whatever_its_size(run: Run) -> None:
    numbers = []
    for rollout_id, n_prompts in ((1, 150), (2, 300)):  # lists of rewards that are long enough to be blobs
        output = make_eval_output({"a": n_prompts, "b": n_prompts}, n_prompt_tokens=4, n_tokens=4)
        for dataset in output.data.values():
            for sample in dataset["samples"]:
                sample.prompt = "prompt 0"
        with statements() as sent:
            run.record_eval(rollout_id, output)
        numbers.append(len(sent))
    assert numbers[0] == numbers[1]


def test_replacing_costs_a_fixed_number_too(run: Run) -> None:
    numbers = []
    for n_groups in (8, 128):
        run.record_train(1, rollout(n_groups), on_conflict="replace")
        with statements() as sent:
            run.record_train(1, rollout(n_groups), on_conflict="replace")
        numbers.append(len(sent))
    assert numbers[0] == numbers[1] <= 40


def test_loading_costs_the_same_number_of_queries_for_64_and_for_1024_samples(run: Run) -> None:
    numbers = []
    for rollout_id, n_groups in ((1, 8), (2, 128)):
        run.record_train(rollout_id, rollout(n_groups))
        with statements() as sent:
            run.load_train(rollout_id)
        numbers.append(len(sent))
    assert numbers[0] == numbers[1] <= 10


def test_loading_costs_the_same_in_a_store_of_many_rollouts(run: Run) -> None:
    numbers = []
    for rollout_id in range(1, 20):
        run.record_train(rollout_id, rollout(1))
        with statements() as sent:
            run.load_train(1)
        numbers.append(len(sent))
    assert len(set(numbers)) == 1


def test_deleting_costs_a_fixed_number_of_statements(run: Run) -> None:
    numbers = []
    for rollout_id, n_groups in ((1, 8), (2, 128)):
        run.record_train(rollout_id, rollout(n_groups))
        with statements() as sent:
            run.delete_rollout(rollout_id)
        numbers.append(len(sent))
    assert numbers[0] == numbers[1] <= 15


@pytest.mark.parametrize(
    ("fields", "where", "unread"),
    [
        (["reward"], SampleFilter(), ("arrays", "texts", "prompts", "weight")),
        (["reward"], SampleFilter(status="completed", reward_min=0), ("arrays", "texts", "prompts", "weight")),
        (["index", "status", "response_length"], SampleFilter(), ("arrays", "texts", "prompts", "weight")),
        (["metadata"], SampleFilter(metadata={"source": "made-up"}), ("arrays", "texts", "prompts", "weight")),
        (["response"], SampleFilter(), ("arrays", "prompts", "weight")),
        (["weight_versions"], SampleFilter(), ("arrays", "texts", "prompts")),
        (["prompt"], SampleFilter(), ("arrays", "texts", "weight")),
        (["tokens"], SampleFilter(), ("texts", "prompts", "weight")),
    ],
    ids=lambda value: repr(value) if isinstance(value, list) else "",
)
def test_only_the_tables_of_the_fields_asked_for_are_read(
    store_url: str, fields: list[str], where: SampleFilter, unread: tuple[str, ...]
) -> None:
    import torch

    sample = make_sample(0, multimodal_train_inputs={"pixel_values": torch.ones(40, 50)})
    sample.metadata["large"] = "not asked for"
    with run_of(store_url) as run:
        run.record_train(0, [[sample]])
    with opened(store_url, read_only=True) as store:
        run = store.run("contract", create=False)
        with statements() as sent:
            (loaded,) = run.iter_samples(where, fields=fields, sample_type=Sample)
    for name in fields:
        assert getattr(loaded, name) == getattr(sample, name)
    read = tables_of(sent)
    assert not [table for table in read if "blob" in table]
    assert not [table for table in read if any(part in table for part in unread)], read


def test_a_page_of_samples_costs_the_same_number_of_queries_whatever_its_size(run: Run) -> None:
    run.record_train(0, rollout(128))
    numbers = []
    for batch_size in (2000, 1100):
        with statements() as sent:
            assert sum(1 for _ in run.iter_samples(fields=["reward"], batch_size=batch_size)) == 1024
        numbers.append(len(sent))
    with statements() as sent:
        assert sum(1 for _ in run.iter_samples(fields=["reward"], batch_size=64)) == 1024
    per_page = numbers[0] - 1
    assert numbers[0] == numbers[1]
    assert len(sent) <= 1 + 17 * per_page


def test_listing_and_counting_read_no_sample(store_url: str) -> None:
    with run_of(store_url) as run:
        for rollout_id in range(5):
            run.record_train(rollout_id, rollout(2))
    with opened(store_url, read_only=True) as store:
        run = store.run("contract", create=False)
        for question in (store.runs, run.rollouts, run.weight_versions):
            with statements() as sent:
                question()
            assert len(sent) == 1
            assert not [table for table in tables_of(sent) if table.startswith(("sample", "blob", "prompt"))]
        with statements() as sent:
            store.stats()
        assert not [table for table in tables_of(sent) if table.startswith(("sample", "blob_parts"))]
