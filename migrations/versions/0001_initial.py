"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Go to 0001."""
    op.create_table(
        "blobs",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("digest", sa.Text(), nullable=True),
        sa.Column("codec", sa.Text(), nullable=False),
        sa.Column("dtype", sa.Text(), nullable=False),
        sa.Column("n_raw_bytes", sa.BigInteger(), nullable=False),
        sa.Column("n_bytes", sa.BigInteger(), nullable=False),
        sa.Column("file_name", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_blobs")),
        sa.UniqueConstraint("digest", name=op.f("uq_blobs_digest")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_blobs_file_name"), "blobs", ["file_name"], unique=False)
    op.create_table(
        "prompts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("text", sa.Text(), nullable=True),
        sa.Column("document", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_prompts")),
        sa.UniqueConstraint("digest", name=op.f("uq_prompts_digest")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
        sa.UniqueConstraint("name", name=op.f("uq_runs_name")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "blob_parts",
        sa.Column("blob_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("part", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["blob_pk"], ["blobs.id"], name=op.f("fk_blob_parts_blob_pk"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("blob_pk", "part", name=op.f("pk_blob_parts")),
    )
    op.create_table(
        "sessions",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("run_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("ordinal", sa.BigInteger(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("client", sa.Text(), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_pk"], ["runs.id"], name=op.f("fk_sessions_run_pk"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sessions")),
        sa.UniqueConstraint("run_pk", "ordinal", name=op.f("uq_sessions_run_pk_ordinal")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "weight_versions",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("run_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("session_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.BigInteger(), nullable=False),
        sa.Column("first_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("params", sa.Text(), nullable=False),
        sa.Column("notes", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_pk"], ["runs.id"], name=op.f("fk_weight_versions_run_pk"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["session_pk"], ["sessions.id"], name=op.f("fk_weight_versions_session_pk"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_weight_versions")),
        sa.UniqueConstraint("run_pk", "ordinal", name=op.f("uq_weight_versions_run_pk_ordinal")),
        sa.UniqueConstraint("session_pk", "label", name=op.f("uq_weight_versions_session_pk_label")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "rollouts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("run_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("session_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("rollout_id", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("weight_version_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("nesting", sa.Text(), nullable=False),
        sa.Column("layouts", sa.Text(), nullable=False),
        sa.Column("metrics", sa.Text(), nullable=False),
        sa.Column("placeholders", sa.Text(), nullable=False),
        sa.Column("n_groups", sa.BigInteger(), nullable=False),
        sa.Column("n_samples", sa.BigInteger(), nullable=False),
        sa.Column("n_trajectories", sa.BigInteger(), nullable=False),
        sa.Column("n_tokens", sa.BigInteger(), nullable=False),
        sa.Column("n_bytes", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["run_pk"], ["runs.id"], name=op.f("fk_rollouts_run_pk"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["session_pk"], ["sessions.id"], name=op.f("fk_rollouts_session_pk"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["weight_version_pk"],
            ["weight_versions.id"],
            name=op.f("fk_rollouts_weight_version_pk"),
            ondelete="SET NULL",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rollouts")),
        sa.UniqueConstraint(
            "run_pk", "kind", "rollout_id", "attempt", name=op.f("uq_rollouts_run_pk_kind_rollout_id_attempt")
        ),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_rollouts_session_pk"), "rollouts", ["session_pk"], unique=False)
    op.create_index(op.f("ix_rollouts_weight_version_pk"), "rollouts", ["weight_version_pk"], unique=False)
    op.create_table(
        "blob_references",
        sa.Column(
            "rollout_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("blob_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.ForeignKeyConstraint(["blob_pk"], ["blobs.id"], name=op.f("fk_blob_references_blob_pk")),
        sa.ForeignKeyConstraint(
            ["rollout_pk"], ["rollouts.id"], name=op.f("fk_blob_references_rollout_pk"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("rollout_pk", "blob_pk", name=op.f("pk_blob_references")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_blob_references_blob_pk"), "blob_references", ["blob_pk"], unique=False)
    op.create_table(
        "eval_datasets",
        sa.Column(
            "rollout_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("first_position", sa.BigInteger(), nullable=False),
        sa.Column("n_samples", sa.BigInteger(), nullable=False),
        sa.Column("nesting", sa.Text(), nullable=True),
        sa.Column("content", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["rollout_pk"], ["rollouts.id"], name=op.f("fk_eval_datasets_rollout_pk"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("rollout_pk", "position", name=op.f("pk_eval_datasets")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_eval_datasets_name"), "eval_datasets", ["name"], unique=False)
    op.create_table(
        "rollout_states",
        sa.Column(
            "rollout_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("state", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["rollout_pk"], ["rollouts.id"], name=op.f("fk_rollout_states_rollout_pk"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("rollout_pk", name=op.f("pk_rollout_states")),
    )
    op.create_table(
        "sample_arrays",
        sa.Column(
            "rollout_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("field", sa.Text(), nullable=False),
        sa.Column("first_position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("last_position", sa.BigInteger(), nullable=False),
        sa.Column("codec", sa.Text(), nullable=False),
        sa.Column("dtype", sa.Text(), nullable=False),
        sa.Column("layout", sa.Text(), nullable=False),
        sa.Column("n_bytes", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=True),
        sa.Column("blob_pk", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["blob_pk"], ["blobs.id"], name=op.f("fk_sample_arrays_blob_pk")),
        sa.ForeignKeyConstraint(
            ["rollout_pk"], ["rollouts.id"], name=op.f("fk_sample_arrays_rollout_pk"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("rollout_pk", "field", "first_position", name=op.f("pk_sample_arrays")),
    )
    op.create_index(op.f("ix_sample_arrays_blob_pk"), "sample_arrays", ["blob_pk"], unique=False)
    op.create_table(
        "sample_groups",
        sa.Column(
            "rollout_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("first_position", sa.BigInteger(), nullable=False),
        sa.Column("n_samples", sa.BigInteger(), nullable=False),
        sa.Column("n_trajectories", sa.BigInteger(), nullable=False),
        sa.Column("group_index", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["rollout_pk"], ["rollouts.id"], name=op.f("fk_sample_groups_rollout_pk"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("rollout_pk", "position", name=op.f("pk_sample_groups")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "samples",
        sa.Column(
            "rollout_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("group_position", sa.BigInteger(), nullable=True),
        sa.Column("sample_position", sa.BigInteger(), nullable=True),
        sa.Column("segment_position", sa.BigInteger(), nullable=True),
        sa.Column("dataset_position", sa.BigInteger(), nullable=True),
        sa.Column("layout", sa.SmallInteger(), nullable=False),
        sa.Column("sample_index", sa.BigInteger(), nullable=True),
        sa.Column("group_index", sa.BigInteger(), nullable=True),
        sa.Column("execution_id", sa.BigInteger(), nullable=True),
        sa.Column("prompt_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("reward", sa.Double(), nullable=True),
        sa.Column("reward_type", sa.Text(), nullable=False),
        sa.Column("eval_reward", sa.Double(), nullable=True),
        sa.Column("eval_truncated", sa.Boolean(), nullable=True),
        sa.Column("remove_sample", sa.Boolean(), nullable=False),
        sa.Column("n_tokens", sa.BigInteger(), nullable=False),
        sa.Column("response_length", sa.BigInteger(), nullable=True),
        sa.Column("effective_response_length", sa.BigInteger(), nullable=True),
        sa.Column("non_generation_time", sa.Double(), nullable=True),
        sa.Column("spec_accept_token_num", sa.BigInteger(), nullable=False),
        sa.Column("spec_draft_token_num", sa.BigInteger(), nullable=False),
        sa.Column("spec_verify_ct", sa.BigInteger(), nullable=False),
        sa.Column("completion_token_num", sa.BigInteger(), nullable=False),
        sa.Column("cached_tokens", sa.BigInteger(), nullable=False),
        sa.Column("total_prompt_tokens", sa.BigInteger(), nullable=False),
        sa.Column("first_weight_version_pk", sa.BigInteger(), nullable=True),
        sa.Column("last_weight_version_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.ForeignKeyConstraint(
            ["last_weight_version_pk"], ["weight_versions.id"], name=op.f("fk_samples_last_weight_version_pk")
        ),
        sa.ForeignKeyConstraint(["prompt_pk"], ["prompts.id"], name=op.f("fk_samples_prompt_pk")),
        sa.ForeignKeyConstraint(
            ["rollout_pk"], ["rollouts.id"], name=op.f("fk_samples_rollout_pk"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("rollout_pk", "position", name=op.f("pk_samples")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_samples_last_weight_version_pk"), "samples", ["last_weight_version_pk"], unique=False)
    op.create_index(op.f("ix_samples_prompt_pk"), "samples", ["prompt_pk"], unique=False)
    op.create_table(
        "sample_documents",
        sa.Column(
            "rollout_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("metadata", sa.Text(), nullable=True),
        sa.Column("extra", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["rollout_pk", "position"],
            ["samples.rollout_pk", "samples.position"],
            name=op.f("fk_sample_documents_rollout_pk_position"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("rollout_pk", "position", name=op.f("pk_sample_documents")),
    )
    op.create_table(
        "sample_rewards",
        sa.Column(
            "rollout_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("depth", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["rollout_pk", "position"],
            ["samples.rollout_pk", "samples.position"],
            name=op.f("fk_sample_rewards_rollout_pk_position"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("rollout_pk", "position", "depth", "key", name=op.f("pk_sample_rewards")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_sample_rewards_key"), "sample_rewards", ["key"], unique=False)
    op.create_table(
        "sample_texts",
        sa.Column(
            "rollout_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("label", sa.Text(), nullable=True),
        sa.Column("response", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["rollout_pk", "position"],
            ["samples.rollout_pk", "samples.position"],
            name=op.f("fk_sample_texts_rollout_pk_position"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("rollout_pk", "position", name=op.f("pk_sample_texts")),
    )
    op.create_table(
        "sample_weight_versions",
        sa.Column(
            "rollout_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("run_position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("weight_version_pk", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("n_turns", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["rollout_pk", "position"],
            ["samples.rollout_pk", "samples.position"],
            name=op.f("fk_sample_weight_versions_rollout_pk_position"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["weight_version_pk"], ["weight_versions.id"], name=op.f("fk_sample_weight_versions_weight_version_pk")
        ),
        sa.PrimaryKeyConstraint("rollout_pk", "position", "run_position", name=op.f("pk_sample_weight_versions")),
        sqlite_with_rowid=False,
    )
    op.create_index(
        op.f("ix_sample_weight_versions_weight_version_pk"),
        "sample_weight_versions",
        ["weight_version_pk"],
        unique=False,
    )


def downgrade() -> None:
    """Go back to an empty database."""
    op.drop_index(op.f("ix_sample_weight_versions_weight_version_pk"), table_name="sample_weight_versions")
    op.drop_table("sample_weight_versions")
    op.drop_table("sample_texts")
    op.drop_index(op.f("ix_sample_rewards_key"), table_name="sample_rewards")
    op.drop_table("sample_rewards")
    op.drop_table("sample_documents")
    op.drop_index(op.f("ix_samples_prompt_pk"), table_name="samples")
    op.drop_index(op.f("ix_samples_last_weight_version_pk"), table_name="samples")
    op.drop_table("samples")
    op.drop_table("sample_groups")
    op.drop_index(op.f("ix_sample_arrays_blob_pk"), table_name="sample_arrays")
    op.drop_table("sample_arrays")
    op.drop_table("rollout_states")
    op.drop_index(op.f("ix_eval_datasets_name"), table_name="eval_datasets")
    op.drop_table("eval_datasets")
    op.drop_index(op.f("ix_blob_references_blob_pk"), table_name="blob_references")
    op.drop_table("blob_references")
    op.drop_index(op.f("ix_rollouts_weight_version_pk"), table_name="rollouts")
    op.drop_index(op.f("ix_rollouts_session_pk"), table_name="rollouts")
    op.drop_table("rollouts")
    op.drop_table("weight_versions")
    op.drop_table("sessions")
    op.drop_table("blob_parts")
    op.drop_table("runs")
    op.drop_table("prompts")
    op.drop_index(op.f("ix_blobs_file_name"), table_name="blobs")
    op.drop_table("blobs")
