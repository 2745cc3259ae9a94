"""Views of weight versions."""

from __future__ import annotations

from slime_store.models.views.base import KIND, RUN, View, double, integer, text, timestamp

VERSION_VIEWS = (
    View(
        "v_rewards_by_weight_version",
        "Rewards by the version that generated a sample last. Reads the aggregates of the rollouts, not the samples.",
        (
            RUN,
            integer("session", "which process of the run reported the version; labels begin anew in each"),
            KIND,
            text("weight_version", "the label, as in `v_samples`; NULL: not known"),
            integer("ordinal", "order of first use in the run"),
            integer("n_samples", "all of them, whatever their reward"),
            integer("n_rewards", "rewards that are numbers"),
            integer("n_none", "rewards that are None"),
            integer("n_nan", "rewards that are NaN: in no mean, counted here"),
            double("reward_mean", "infinite with infinite rewards of one sign; NULL: with both, or beyond 1e100"),
            double("reward_std", "of the sample (divisor n - 1); NULL: fewer than two numbers, or beyond 1e100"),
            double("reward_min", "lowest number"),
            double("reward_max", "highest number"),
            double("truncated_share", 'samples with the status "truncated", of all'),
            double("response_length_mean", "tokens"),
            integer("first_rollout_id", "lowest rollout it is in"),
            integer("last_rollout_id", "highest rollout it is in"),
        ),
    ),
    View(
        "v_weight_versions",
        "The versions that a run's engines reported, or that were recorded.",
        (
            RUN,
            integer("session", "which process of the run reported it"),
            text("weight_version", "the label: compare for equality only, never sort as text"),
            integer("ordinal", "order of first use in the run"),
            timestamp("first_seen_at", "when it was first recorded"),
            text("notes", "document: what `record_weight_version` was given as metadata"),
            integer("weight_version_pk", "key of `weight_versions`"),
        ),
    ),
)
