"""Which columns the digests cover, in which order, and which ones they leave out and why.

This is version 1 of the digests, and frozen: a column more is another version (``codecs/canonical.py``). A test
compares the lists with the tables.

Rows of ``sample_arrays`` have version 2: the columns of version 1, and the checksum that the pack's bytes end with, so
that no two packs which fit each other's rows change places unseen. Those recorded before have version 1.
"""

from __future__ import annotations

ROW_DIGEST = "row_digest"
"""Column of the small tables with the digest of the row's other columns."""

SAMPLE_PARTS = {
    "sample_texts": ("label", "response"),
    "sample_documents": ("metadata", "extra"),
    "sample_rewards": ("depth", "key", "value"),
    "sample_weight_versions": ("run_position", "weight_version_pk", "n_turns"),
}
"""What the digest of a sample covers beside its row, by its position in each of these tables."""

OF_ROLLOUT: dict[str, tuple[str, ...]] = {
    "rollouts": (
        "run_pk",
        "session_pk",
        "kind",
        "rollout_id",
        "attempt",
        "status",
        "weight_version_pk",
        "nesting",
        "layouts",
        "metrics",
        "placeholders",
        "n_groups",
        "n_samples",
        "n_trajectories",
        "n_tokens",
        "started_at",
        "finished_at",
    ),
    "rollout_states": ("state",),
    "rollout_metrics": ("depth", "key", "value"),
    "rollout_weight_versions": (
        "attribution",
        "position",
        "weight_version_pk",
        "n_samples",
        "n_rewards",
        "n_none",
        "n_nan",
        "reward_sum",
        "reward_m2",
        "reward_min",
        "reward_max",
        "n_truncated",
        "n_response_lengths",
        "response_length_sum",
    ),
    "imports": ("run_pk", "digest", "file_name", "imported_at", "nesting", "extras"),
    "sample_groups": ("position", "first_position", "n_samples", "n_trajectories", "group_index"),
    "eval_datasets": ("position", "name", "first_position", "n_samples", "nesting", "content"),
    "sample_arrays": ("field", "first_position", "last_position", "codec", "dtype", "layout", "n_bytes"),
    "samples": (
        "position",
        "group_position",
        "sample_position",
        "segment_position",
        "dataset_position",
        "layout",
        "group_index",
        "sample_index",
        "execution_id",
        "status",
        "reward",
        "reward_type",
        "eval_reward",
        "eval_truncated",
        "remove_sample",
        "n_tokens",
        "response_length",
        "effective_response_length",
        "non_generation_time",
        "spec_accept_token_num",
        "spec_draft_token_num",
        "spec_verify_ct",
        "completion_token_num",
        "cached_tokens",
        "total_prompt_tokens",
        "prompt_pk",  # by the prompt's own digest: its key is another one in a copy
        "first_weight_version_pk",
        "last_weight_version_pk",
    ),
}
"""Columns of a rollout's rows by table, in the order in which they are encoded; see ``rollout_digests``."""

ARRAYS_VERSION = 2
"""Version of the digests of array packs that are recorded now."""

IN_ITSELF: dict[str, tuple[str, ...]] = {
    "runs": ("name", "config", "created_at"),
    "sessions": (
        "run_pk",
        "ordinal",
        "host",
        "pid",
        "started_at",
        "client",
        "config",
        "checkpoint_rollout_id",
        "lineage",
    ),
    "weight_versions": ("run_pk", "session_pk", "label", "ordinal", "first_seen_at", "params", "notes"),
    "checkpoints": ("session_pk", "rollout_id", "saved_at"),
    "adoptions": ("session_pk", "rollout_pk", "adopted_at"),
    "pins": ("run_pk", "kind", "rollout_id", "note", "pinned_at"),
}
"""Columns of the small tables, in the order in which they are encoded. Each row has its digest in ``ROW_DIGEST``."""

_KEY = "rows refer to it: one that has become another is missed there"
_PARENT = "says whose row it is: one more or less changes the digests of both rollouts"
_CONTENT = "the digest of the content is compared with the content"

LEFT_OUT: dict[str, dict[str, str]] = {
    "rollouts": {
        "id": _KEY,
        "n_bytes": "pruning changes it; it is compared with the bytes that are there",
        "pruned_at": "pruning sets it; that it is set is compared with the arrays that are there",
        "pruned_by": "pruning sets it, for people",
    },
    "rollout_states": {"rollout_pk": _PARENT},
    "rollout_metrics": {"rollout_pk": _PARENT},
    "rollout_weight_versions": {"rollout_pk": _PARENT},
    "imports": {"rollout_pk": _PARENT},
    "sample_groups": {"rollout_pk": _PARENT},
    "eval_datasets": {"rollout_pk": _PARENT},
    "sample_arrays": {
        "rollout_pk": _PARENT,
        "data": "the codecs' own checksum, which the digest covers since version 2",
        "blob_pk": "another key in a copy; the digest covers the checksum of the bytes it leads to, since version 2",
    },
    "samples": {"rollout_pk": _PARENT},
    "sample_texts": {"rollout_pk": _PARENT, "position": "says whose part it is: both samples' digests differ"},
    "sample_documents": {"rollout_pk": _PARENT, "position": "says whose part it is: both samples' digests differ"},
    "sample_rewards": {"rollout_pk": _PARENT, "position": "says whose part it is: both samples' digests differ"},
    "sample_weight_versions": {
        "rollout_pk": _PARENT,
        "position": "says whose part it is: both samples' digests differ",
    },
    "runs": {"id": _KEY, ROW_DIGEST: "is the digest"},
    "sessions": {"id": _KEY, ROW_DIGEST: "is the digest"},
    "weight_versions": {"id": _KEY, ROW_DIGEST: "is the digest"},
    "checkpoints": {ROW_DIGEST: "is the digest"},
    "adoptions": {ROW_DIGEST: "is the digest"},
    "pins": {ROW_DIGEST: "is the digest"},
    "prompts": {"id": _KEY, "digest": _CONTENT, "text": _CONTENT, "document": _CONTENT, "prompt_id": _CONTENT},
    "blobs": {
        "id": _KEY,
        "digest": _CONTENT,
        "codec": _CONTENT,
        "dtype": _CONTENT,
        "n_raw_bytes": "is only said to people",
        "n_bytes": "compared with the bytes that are there",
        "file_name": "the file must be there, and have the content",
    },
    "blob_parts": {"blob_pk": _CONTENT, "part": _CONTENT, "data": _CONTENT},
    "blob_references": {
        "rollout_pk": "compared with the blobs that the rollout needs",
        "blob_pk": "compared with the blobs that the rollout needs",
    },
    "rollout_digests": {
        "rollout_pk": _PARENT,
        "subject": "is what a digest is looked for by",
        "digests": "are the digests",
    },
}
"""Columns that no digest covers, by table, each with the reason."""
