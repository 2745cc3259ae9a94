"""Views of evals."""

from __future__ import annotations

from slime_store.models.views.base import (
    ATTEMPT,
    POSITION,
    PROMPT_ID,
    ROLLOUT_ID,
    ROLLOUT_PK,
    RUN,
    SESSION,
    WEIGHT_VERSION,
    View,
    double,
    integer,
    text,
)

_WHICH = (RUN, ROLLOUT_ID, ATTEMPT, SESSION, text("dataset", "name of the dataset"))

EVAL_VIEWS = (
    View(
        "v_eval",
        "One row for each eval sample, with what its dataset says of it.",
        (
            *_WHICH,
            integer("dataset_position", "order in the dataset, from 0"),
            integer("group_index", "`Sample.group_index`"),
            integer("index", "`Sample.index`; a reserved word: write it in double quotes"),
            text("status", 'the plain word, e.g. "completed"'),
            double(
                "reward", "the number in the dataset's own `rewards` list; if that gives no sample one, `Sample.reward`"
            ),
            integer("truncated", "1 or 0, by the dataset's own `truncated` list; without one, by the status"),
            double("sample_reward", "`Sample.reward`, when it is a number"),
            text("sample_reward_type", "as `v_samples.reward_type`"),
            WEIGHT_VERSION,
            text("eval_weight_version", "the version that the eval was told it measures"),
            integer("n_tokens", "tokens, prompt included"),
            integer("response_length", "`Sample.response_length`, tokens"),
            integer("effective_response_length", "sum of the loss mask, or response_length without one"),
            PROMPT_ID,
            POSITION,
            ROLLOUT_PK,
        ),
    ),
    View(
        "v_eval_summary",
        "One row for each dataset of each eval. Intervals and pass@k: `slime_store.dataframes.eval_summary_df`.",
        (
            *_WHICH,
            text("weight_version", "last version of its first sample, else the one that the eval was told"),
            integer("n_samples", "samples"),
            integer("n_rewards", "rewards that are numbers, as in `v_eval`"),
            integer("n_prompts", "distinct prompts; samples without one count each"),
            double("reward_mean", "mean of the prompts' means; NULL: no number, or one is infinite or beyond 1e100"),
            double("truncated_share", "of all samples"),
            double("response_length_mean", "tokens"),
            ROLLOUT_PK,
        ),
    ),
)
