"""Section A of the cases: text and numbers that one database refuses or changes silently."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import pytest

from slime_store import RolloutFnEvalOutput, RolloutFnTrainOutput, Sample
from slime_store.errors import UnsupportedValueError
from slime_store.testing import assert_same, make_train_output
from slime_store.testing.contract.opening import loaded_eval, loaded_train, opened, run_of
from slime_store.types import Placeholder
from tests.cases.children import in_a_new_process
from tests.cases.trips import attribute, found, round_trip
from tests.services.tables import row, rows, value

NAN, INF = math.nan, math.inf
ODD_TEXTS = [
    "ok\x00tail",
    "\x00",
    "half \ud83d emoji",
    "\udcc3",
    "\ude00\ud83d",  # a pair in the wrong order
    "\ufeffmark",
    "a\u2028b\r\n\tc",
    "e\u0301 is not é",
    "\U0010ffff",
    "ok\u2400tail",  # what stands for NUL in the search column
    "\ufffd",
    '{"$str": 1}',
    " 007 ",
]


def everywhere(text: str) -> Sample:
    """A sample with this text in every place that takes one."""
    return Sample(
        prompt=[{"role": "user", "content": text}, {"role": text, "content": [{"type": "text", "text": text}]}],
        response=text,
        label=text,
        reward={text: 1.0, "why": text},
        weight_versions=[text, "7", text],
        metadata={"value": text, text: "key", "deep": [{text: (text,)}]},
        train_metadata={text: text},
        session_id=text,
        multimodal_train_input_id=text,
    )


# -- A1, A3: NaN -------------------------------------------------------------------------------------


def test_a1_a_nan_reward_stays_nan_and_none_stays_none(store_url: str) -> None:
    rewards = [1.0, NAN, 3.0, None, -NAN, np.float32("nan"), 0.0]
    assert_same(attribute(store_url, "reward", rewards), rewards)


def test_a1_a_nan_reward_is_left_out_of_the_mean_and_counted_apart(store_url: str) -> None:
    round_trip(store_url, *[Sample(index=i, reward=r, weight_versions=["7"]) for i, r in enumerate([1.0, NAN, 3.0])])
    joined = (
        "FROM samples s JOIN weight_versions v ON v.id = s.last_weight_version_pk WHERE v.label = '7'"
        " AND s.rollout_pk = (SELECT id FROM rollouts)"
    )
    assert row(store_url, f"SELECT avg(reward), count(reward), min(reward), max(reward), count(*) {joined}") == (
        *(2.0, 2, 1.0, 3.0),
        3,
    )
    assert value(store_url, f"SELECT count(*) {joined} AND s.reward_type = 'nan'") == 1
    assert value(store_url, "SELECT count(*) FROM samples WHERE reward > 2") == 1


@pytest.mark.parametrize(
    ("comparison", "expected"),
    [("<", []), ("<=", [0]), ("=", [0]), (">=", [0]), (">", []), ("<>", []), ("< 9 AND reward >", [])],
)
def test_a1_nan_and_none_meet_no_comparison(store_url: str, comparison: str, expected: list[int]) -> None:
    round_trip(store_url, *[Sample(index=i, reward=r) for i, r in enumerate([1.0, NAN, None])])
    query = f"SELECT sample_index FROM samples WHERE reward {comparison} 1.0 ORDER BY position"
    assert [index for (index,) in rows(store_url, query)] == expected


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({"reward_min": 1.0}, [0, 3]),
        ({"reward_max": 1.0}, [0, 4]),
        ({"reward_min": 1.0, "reward_max": 1.0}, [0]),
        ({"reward_min": -INF}, [0, 3, 4]),
        ({"reward_max": INF}, [0, 3, 4]),
    ],
)
def test_a1_nan_and_none_meet_no_bound_of_a_filter(store_url: str, bounds: Any, expected: list[int]) -> None:
    rewards = [1.0, NAN, None, INF, -INF]
    samples = [Sample(index=i, reward=reward) for i, reward in enumerate(rewards)]
    keyed = [Sample(index=10 + i, reward={"k": reward}) for i, reward in enumerate(rewards)]
    round_trip(store_url, *samples, *keyed)
    assert found(store_url, **bounds) == expected
    assert found(store_url, reward_key="k", **bounds) == [10 + index for index in expected]


def test_a1_a_nan_entry_of_a_dict_reward_is_counted_apart_too(store_url: str) -> None:
    round_trip(store_url, *[Sample(reward={"acc": acc}) for acc in (1.0, NAN, 3)])
    query = "SELECT avg(value), count(value), count(*) FROM sample_rewards WHERE key = 'acc'"
    assert row(store_url, query) == (2.0, 2, 3)


def test_a3_nan_and_infinity_inside_documents_come_back(store_url: str) -> None:
    poisoned = Sample(
        reward={"score": NAN, "list": [NAN, {"x": -INF}]},
        metadata={"a": [NAN, 1.0], "b": {"c": -INF}, "d": (INF, -0.0)},
        train_metadata={"kl": -INF},
    )
    output = RolloutFnTrainOutput([[poisoned]], {"kl": NAN, "deep": {"x": [INF, NAN]}})
    evaluation = RolloutFnEvalOutput({"d": {"rewards": [NAN], "samples": [poisoned], "se": NAN}}, {"acc": -INF})
    with run_of(store_url) as run:
        run.record_train(0, output, state={"x": NAN})
        run.record_eval(0, evaluation)
    assert_same(loaded_train(store_url, 0), output)
    assert_same(loaded_eval(store_url, 0), evaluation)


def test_a3_a_poisoned_row_does_not_disturb_a_question_about_the_others(store_url: str) -> None:
    poisoned = Sample(index=0, reward={"score": NAN}, metadata={"kl": NAN, "task": [-INF, "\x00"]})
    clean = Sample(index=1, reward={"score": 1.0}, metadata={"kl": 0.5, "task": "math"})
    assert_same(round_trip(store_url, poisoned, clean), [poisoned, clean])
    assert found(store_url, reward_key="score", reward_min=5e-324) == [1]
    assert found(store_url, metadata={"task": "math"}) == [1]
    assert found(store_url, metadata={"kl": 0.5}) == [1]


def test_a3_every_document_is_json_that_the_databases_own_functions_read(store_url: str) -> None:
    round_trip(store_url, Sample(metadata={"a": [NAN], "\x00": "\ud83d", "n": 2**70}), Sample(metadata={"k": 4}))
    function = "CAST(metadata AS jsonb) ->> 'k'" if store_url.startswith("postgresql") else "metadata ->> '$.k'"
    values = rows(store_url, f"SELECT {function} FROM sample_documents ORDER BY position")
    assert [None if answer is None else int(answer) for (answer,) in values] == [None, 4]


# -- A4, A6: NUL and lone surrogates ------------------------------------------------------------------


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_a4_a6_odd_text_comes_back_from_every_place(store_url: str, text: str) -> None:
    samples = [everywhere(text), Sample(prompt=text)]
    setattr(samples[1], f"attribute {text}", text)
    output = RolloutFnTrainOutput([samples], {text: text})
    evaluation = RolloutFnEvalOutput({text: {"samples": samples, text: text}, "plain": {}}, {text: text})
    with run_of(store_url) as run:
        run.record_train(0, output, state={text: text})
        run.record_eval(0, evaluation)
    assert_same(loaded_train(store_url, 0), output)
    assert_same(loaded_eval(store_url, 0), evaluation)


def test_a4_a6_long_odd_text_comes_back(store_url: str) -> None:
    texts = [odd * 30_000 for odd in ("ok\x00tail ", "half \ud83d ", "plain ")]
    samples = [Sample(prompt=text, response=text, label=text, metadata={"trace": text}) for text in texts]
    assert_same(round_trip(store_url, *samples), samples)


def test_a4_a6_text_search_sees_what_stands_behind_the_odd_character(store_url: str) -> None:
    round_trip(
        store_url,
        Sample(index=0, response="ok\x00tail"),
        Sample(index=1, response="half \ud83d emoji"),
        Sample(index=2, response="neither"),
    )
    assert found(store_url, text="tail") == [0]
    assert found(store_url, text="ok\x00t") == [0]
    assert found(store_url, text="emoji") == [1]
    assert found(store_url, text="\ud83d e") == [1]
    query = "SELECT length(response) FROM sample_texts ORDER BY position"
    assert [length for (length,) in rows(store_url, query)] == [7, 12, 7]


def test_a4_a6_filters_take_odd_text(store_url: str) -> None:
    for index, text in enumerate(("a\x00b", "\ud83d", "'; drop table samples;--")):
        sample = everywhere(text)
        sample.index = index
        with run_of(store_url) as run:
            run.record_train(index, [[sample]])
            run.record_eval(index, {text: {"samples": [sample]}})
        for condition in (
            {"weight_version": text},
            {"reward_key": text, "reward_min": 1},
            {"metadata": {text: "key"}},
            {"metadata": {"value": text}},
            {"prompt": sample.prompt},
        ):
            assert found(store_url, kind="train", **condition) == [index], condition
        assert found(store_url, dataset=text) == [index]


def test_a6_a_new_process_reads_the_same_text(store_url: str) -> None:
    round_trip(store_url, *[Sample(response=text) for text in ODD_TEXTS])
    assert in_a_new_process(_responses, store_url) == ODD_TEXTS


def _responses(url: str) -> list[str]:
    return [sample.response for sample in loaded_train(url, 0, sample_type=Sample).samples[0]]


# -- A7: one bad sample -------------------------------------------------------------------------------


def _rollout_with_a_lock() -> list[list[Sample]]:
    groups = make_train_output(64, 8, n_prompt_tokens=4, n_tokens=4).samples
    groups[17][1].metadata["fh"] = threading.Lock()
    return groups


@pytest.mark.parametrize("background", [False, True])
def test_a7_strict_refuses_the_rollout_and_names_the_value(store_url: str, background: bool) -> None:
    with run_of(store_url) as run:
        with pytest.raises(UnsupportedValueError, match=r"group 17, sample 1, metadata\['fh'\]"):
            run.record_train(0, _rollout_with_a_lock(), background=background)
        assert run.rollouts(attempts=True) == []
    assert value(store_url, "SELECT count(*) FROM samples") == 0
    assert value(store_url, "SELECT count(*) FROM prompts") == 0


def test_a7_lenient_stores_the_rest_and_marks_the_value(store_url: str) -> None:
    groups = _rollout_with_a_lock()
    with run_of(store_url) as run:
        info = run.record_train(0, groups, strict=False)
    assert (info.n_samples, info.placeholders) == (512, ("group 17, sample 1, metadata['fh']",))
    loaded = loaded_train(store_url, 0).samples
    assert isinstance(loaded[17][1].metadata.pop("fh"), Placeholder)
    del groups[17][1].metadata["fh"]
    assert_same(loaded, groups)


def test_a7_every_placeholder_is_reported_however_many_there_are(store_url: str) -> None:
    samples = [Sample(index=i, metadata={"fh": threading.Lock()}) for i in range(600)]
    with run_of(store_url) as run:
        assert len(run.record_train(0, [samples], strict=False).placeholders) == 600
    with opened(store_url, read_only=True) as store:
        (info,) = store.run("contract", create=False).rollouts()
    assert info.placeholders == tuple(f"group 0, sample {i}, metadata['fh']" for i in range(600))


@pytest.mark.parametrize(
    ("where", "output"),
    [
        ("group 0, sample 0, segment 1, reward['x']", [[[Sample(), Sample(reward={"x": object()})]]]),
        ("group 0, sample 0, prompt[0]['content']", [[Sample(prompt=[{"content": object()}])]]),
        ("group 1, sample 0, label", [[], [Sample(label=object())]]),  # type: ignore[arg-type]
        ("group 0, sample 0, metadata['a'][1].value", [[Sample(metadata={"a": [0, Placeholder]})]]),
        ("metrics['kl']", RolloutFnTrainOutput([[Sample()]], {"kl": object()})),
    ],
)
def test_a7_the_path_leads_to_the_value_wherever_it_is(store_url: str, where: str, output: Any) -> None:
    where = where.removesuffix(".value")
    with run_of(store_url) as run:
        with pytest.raises(UnsupportedValueError) as error:
            run.record_train(0, output)
        assert error.value.path == where
        assert run.record_train(0, output, strict=False).placeholders == (where,)


def test_a7_the_path_in_an_eval_names_the_dataset(store_url: str) -> None:
    with run_of(store_url) as run:
        with pytest.raises(UnsupportedValueError, match=r"dataset 'math', sample 1, metadata\['fh'\]"):
            run.record_eval(0, {"math": {"samples": [Sample(), Sample(metadata={"fh": object()})]}})
        with pytest.raises(UnsupportedValueError, match=r"dataset 'math'\['judge'\]"):
            run.record_eval(0, {"math": {"samples": [Sample()], "judge": object()}})
        assert run.rollouts() == []
