"""The columns of exported samples: one table says what each holds, of which type, from which attribute."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

Type = Literal[
    "bool", "int64", "float64", "text", "json", "list<text>", "list<int32>", "list<float64>", "list<list<list<int32>>>"
]
When = Literal["always", "not in csv", "when named"]


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        name: its name.
        type: what it holds; "json" is any value, as text where the format has no such thing.
        meaning: for people.
        attribute: attribute of the sample that it is read from; "" for a part of the place, None for ``extra``.
        when: whether it is written without being named in ``fields``: "when named" are large.
    """

    name: str
    type: Type
    meaning: str
    attribute: str | None = ""
    when: When = "always"


PLACE = (
    Column("run", "text", "name of the run"),
    Column("kind", "text", "`train` or `eval`"),
    Column("rollout_id", "int64", "the step: the number slime handed to the rollout function"),
    Column("attempt", "int64", "n-th recording of that rollout"),
    Column("session", "int64", "which process of the run wrote it"),
    Column("dataset", "text", "of an eval"),
    Column("position", "int64", "place in the rollout, from 0"),
)

SAMPLE = (
    Column("group_index", "int64", "group, by slime's number", "group_index"),
    Column("index", "int64", "number of the sample", "index"),
    Column("execution_id", "int64", "`Sample.rollout_id`: shared by the segments of one execution", "rollout_id"),
    Column("status", "text", "such as `completed`", "status"),
    Column("reward", "float64", "the reward, where it is a number; NaN is kept apart from null", "reward"),
    Column("reward_json", "json", "the reward, where it is no number", "reward"),
    Column("weight_versions", "list<text>", "labels, one for each generation call", "weight_versions"),
    Column("response_length", "int64", "tokens of the response", "response_length"),
    Column("remove_sample", "bool", "kept out of training", "remove_sample"),
    Column("label", "text", "the ground truth; JSON where it is no text", "label"),
    Column("prompt", "text", "the prompt; JSON where it is chat messages", "prompt"),
    Column("response", "text", "the generated text", "response"),
    Column("metadata", "json", "`Sample.metadata`", "metadata"),
    Column("tokens", "list<int32>", "prompt and response", "tokens", "not in csv"),
    Column("loss_mask", "list<int32>", "of the response", "loss_mask", "not in csv"),
    Column("rollout_log_probs", "list<float64>", "of the response", "rollout_log_probs", "not in csv"),
    Column("teacher_log_probs", "list<float64>", "of the response", "teacher_log_probs", "not in csv"),
    Column("opd_reverse_kl", "list<float64>", "of the response; miles", "opd_reverse_kl", "not in csv"),
    Column(
        "rollout_top_p_token_ids",
        "list<int32>",
        "kept token ids of top-p sampling, all response tokens joined",
        "rollout_top_p_token_ids",
        "not in csv",
    ),
    Column(
        "rollout_top_p_token_offsets",
        "list<int32>",
        "where each token's begin",
        "rollout_top_p_token_offsets",
        "not in csv",
    ),
    Column("train_metadata", "json", "`Sample.train_metadata`", "train_metadata", "not in csv"),
    Column(
        "apply_chat_template_kwargs",
        "json",
        "keyword arguments of the chat template",
        "apply_chat_template_kwargs",
        "not in csv",
    ),
    Column("generate_function_path", "text", "generate function of its own", "generate_function_path", "not in csv"),
    Column("custom_rm_path", "text", "reward function of its own", "custom_rm_path", "not in csv"),
    Column("session_id", "text", "the engine's routing key", "session_id", "not in csv"),
    Column(
        "multimodal_train_input_id",
        "text",
        "names processor output that is kept elsewhere",
        "multimodal_train_input_id",
        "not in csv",
    ),
    Column("non_generation_time", "float64", "seconds", "non_generation_time"),
    Column("spec_info", "json", "counters of speculative decoding", "spec_info", "not in csv"),
    Column("prefix_cache_info", "json", "counters of the prefix cache", "prefix_cache_info", "not in csv"),
    Column("extra", "json", "undeclared attributes, and values that their column cannot hold, by name", None, "always"),
    Column(
        "multimodal_inputs",
        "json",
        "images with mode and size, without their pixels",
        "multimodal_inputs",
        "when named",
    ),
    Column("multimodal_train_inputs", "json", "tensors as lists", "multimodal_train_inputs", "when named"),
    Column(
        "rollout_routed_experts",
        "list<list<list<int32>>>",
        "token, layer, expert",
        "rollout_routed_experts",
        "when named",
    ),
    Column("rollout_indexer_topk", "json", "of miles", "rollout_indexer_topk", "when named"),
)

_ALL = {column.name: column for column in (*PLACE, *SAMPLE)}
DECLARED = frozenset(column.attribute for column in SAMPLE if column.attribute) | {"rollout_id"}
LIGHT = frozenset(column.attribute for column in SAMPLE if column.attribute and column.when == "always")


def choose(fields: Collection[str] | None, format: str) -> list[Column]:
    """Return the columns of an export: those of the place first.

    Args:
        fields: names of columns, in the order wanted, beside those of the place. Also ``extra.NAME`` for an attribute
            that no class declares, ``metadata.KEY``, and ``reward.KEY`` for a number of a dict reward. None: all but
            the large ones, and in CSV no arrays.
        format: "parquet", "jsonl" or "csv".

    Raises:
        ValueError: there is no such column.
    """
    if isinstance(fields, str):
        raise ValueError(f"fields is a collection of names, e.g. [{fields!r}]")
    if fields is None:
        usual = ("always",) if format == "csv" else ("always", "not in csv")
        return [*PLACE, *(column for column in SAMPLE if column.when in usual)]
    chosen = {column.name: column for column in PLACE}
    for name in fields:
        chosen.setdefault(name, _named(name))
    return list(chosen.values())


def attributes_of(columns: Collection[Column]) -> frozenset[str] | None:
    """Return the attributes of samples to read for these columns; None: all but ``SKIPPED``."""
    if any(column.attribute is None for column in columns):
        return None
    return frozenset(column.attribute for column in columns if column.attribute)


def _named(name: str) -> Column:
    if name in _ALL:
        return _ALL[name]
    kind, _, key = name.partition(".")
    if key and kind == "extra":
        return Column(name, "json", "", key)
    if key and kind == "metadata":
        return Column(name, "json", "", "metadata")
    if key and kind == "reward":
        return Column(name, "float64", "", "reward")
    near = difflib.get_close_matches(name, _ALL, n=3)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    raise ValueError(f"there is no column {name!r} of samples{hint} An undeclared attribute is extra.NAME")


def is_array(column: Column) -> bool:
    """Return whether a column holds one entry for each token."""
    return column.type in ("list<int32>", "list<float64>", "list<list<list<int32>>>")


SKIPPED = frozenset(
    column.attribute for column in SAMPLE if column.attribute and (column.when == "when named" or is_array(column))
)
"""Attributes that are not read for the column ``extra``: large ones and arrays, unless they have columns themselves."""
