"""Views of rollouts."""

from __future__ import annotations

from slime_store.models.views.base import (
    ROLLOUT_PK,
    RUN,
    SESSION,
    WHICH,
    View,
    double,
    integer,
    text,
    timestamp,
)

_ROLLOUT = (
    text("weight_version", "the version that an eval was told it measures"),
    integer("n_groups", "train: elements of the outer list"),
    integer("n_samples", "samples"),
    integer("n_trajectories", "samples, fan-out siblings counted once"),
    integer("n_tokens", "tokens, prompts included"),
    integer("n_bytes", "stored bytes of arrays, blobs, text and documents"),
    timestamp("started_at", "when recording began, or when the rollout began where that is known"),
    timestamp("finished_at", "when it was recorded"),
    text("metrics", "document of the metrics, exact; `v_metrics` has its numbers"),
    ROLLOUT_PK,
)

ROLLOUT_VIEWS = (
    View("v_rollouts", "Every rollout: of each one, the newest complete attempt.", (*WHICH, *_ROLLOUT)),
    View(
        "v_rollout_attempts",
        "Every complete attempt of every rollout; all other views leave out those that a later one replaced.",
        (*WHICH, integer("newest", "1: the attempt that the other views show"), *_ROLLOUT),
    ),
    View(
        "v_metrics",
        "The numbers among the metrics: Python's, NumPy's and those of tensors with one element.",
        (
            *WHICH,
            text("metric", "the key; at greater depth the JSON list of keys"),
            integer("depth", "1: a key of the metrics; more: a dict inside"),
            double("value", "NULL: NaN"),
            ROLLOUT_PK,
        ),
    ),
    View(
        "v_sessions",
        "The processes that wrote to a run; a restart is a new session.",
        (
            RUN,
            SESSION,
            text("host", "name of the machine"),
            integer("pid", "process id"),
            timestamp("started_at", "when it first wrote"),
            integer("checkpoint_rollout_id", "the checkpoint it started from; -1: from the start; NULL: not known"),
            integer("n_rollouts", "train rollouts it recorded, all attempts; NULL: none"),
            integer("first_rollout_id", "lowest of them"),
            integer("last_rollout_id", "highest of them"),
            integer("session_pk", "key of `sessions`"),
        ),
    ),
)
