"""Keep what each rollout comes to by weight version, its metrics as numbers, and make the views.

Rollouts that are stored already get their rows from their samples and metrics documents.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import struct
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Go to 0004."""
    op.create_table(
        "rollout_weight_versions",
        sa.Column("rollout_pk", _KEY, autoincrement=False, nullable=False),
        sa.Column("attribution", sa.Text(), nullable=False),
        sa.Column("position", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("weight_version_pk", _KEY, nullable=True),
        sa.Column("n_samples", sa.BigInteger(), nullable=False),
        sa.Column("n_rewards", sa.BigInteger(), nullable=False),
        sa.Column("n_none", sa.BigInteger(), nullable=False),
        sa.Column("n_nan", sa.BigInteger(), nullable=False),
        sa.Column("reward_sum", sa.Double(), nullable=True),
        sa.Column("reward_m2", sa.Double(), nullable=True),
        sa.Column("reward_min", sa.Double(), nullable=True),
        sa.Column("reward_max", sa.Double(), nullable=True),
        sa.Column("n_truncated", sa.BigInteger(), nullable=False),
        sa.Column("n_response_lengths", sa.BigInteger(), nullable=False),
        sa.Column("response_length_sum", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["rollout_pk"], ["rollouts.id"], name=op.f("fk_rollout_weight_versions_rollout_pk"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["weight_version_pk"], ["weight_versions.id"], name=op.f("fk_rollout_weight_versions_weight_version_pk")
        ),
        sa.PrimaryKeyConstraint("rollout_pk", "attribution", "position", name=op.f("pk_rollout_weight_versions")),
        sqlite_with_rowid=False,
    )
    op.create_index(
        op.f("ix_rollout_weight_versions_weight_version_pk"),
        "rollout_weight_versions",
        ["weight_version_pk"],
        unique=False,
    )
    metrics = op.create_table(
        "rollout_metrics",
        sa.Column("rollout_pk", _KEY, autoincrement=False, nullable=False),
        sa.Column("depth", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["rollout_pk"], ["rollouts.id"], name=op.f("fk_rollout_metrics_rollout_pk"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("rollout_pk", "depth", "key", name=op.f("pk_rollout_metrics")),
        sqlite_with_rowid=False,
    )
    op.add_column("prompts", sa.Column("prompt_id", sa.Text(), nullable=True))
    op.execute(f"UPDATE prompts SET prompt_id = {_PROMPT_ID[op.get_bind().dialect.name]}")
    op.create_index(op.f("ix_prompts_prompt_id"), "prompts", ["prompt_id"], unique=False)
    for attribution, version in _VERSIONS.items():
        op.execute(_SUMMARIES.format(attribution=attribution, version=version))
    _fill_metrics(metrics)
    for name, query in _VIEWS.items():
        op.execute(f"CREATE VIEW {name} AS {query.strip()}")


def downgrade() -> None:
    """Go back to 0003."""
    for name in _VIEWS:
        op.execute(f"DROP VIEW {name}")
    op.drop_index(op.f("ix_prompts_prompt_id"), table_name="prompts")
    op.drop_column("prompts", "prompt_id")
    op.drop_table("rollout_metrics")
    op.drop_index(op.f("ix_rollout_weight_versions_weight_version_pk"), table_name="rollout_weight_versions")
    op.drop_table("rollout_weight_versions")


# -- rows for the rollouts that are there ----------------------------------------------------------

_PROMPT_ID = {"sqlite": "lower(substr(hex(digest), 1, 16))", "postgresql": "substr(encode(digest, 'hex'), 1, 16)"}

_VERSIONS = {
    "last": "SELECT rollout_pk, position, last_weight_version_pk AS version_pk FROM samples",
    "first": "SELECT rollout_pk, position, first_weight_version_pk AS version_pk FROM samples",
    "each": """SELECT DISTINCT s.rollout_pk, s.position, v.weight_version_pk AS version_pk FROM samples s
        LEFT JOIN sample_weight_versions v ON v.rollout_pk = s.rollout_pk AND v.position = s.position""",
}

# Rewards nearer to zero than 1e-100 are added as zeros, and sums with rewards beyond 1e100 are NULL: what underflows or
# overflows is an error on PostgreSQL.
_SUMMARIES = """
INSERT INTO rollout_weight_versions
    (rollout_pk, attribution, position, weight_version_pk, n_samples, n_rewards, n_none, n_nan, reward_sum, reward_m2,
     reward_min, reward_max, n_truncated, n_response_lengths, response_length_sum)
WITH versions AS ({version}), attributed AS (
    SELECT s.rollout_pk, v.version_pk, s.reward, s.reward_type, s.status, s.response_length,
           CASE WHEN ABS(s.reward) < 1e-100 THEN 0.0 WHEN ABS(s.reward) <= 1e100 THEN s.reward END AS summed
    FROM samples s
    JOIN rollouts r ON r.id = s.rollout_pk AND r.status = 'complete'
    JOIN versions v ON v.rollout_pk = s.rollout_pk AND v.position = s.position
), measured AS (
    SELECT attributed.*, SUM(summed) OVER part / NULLIF(COUNT(summed) OVER part, 0) AS mean FROM attributed
    WINDOW part AS (PARTITION BY rollout_pk, version_pk)
), summaries AS (
    SELECT rollout_pk, version_pk, COUNT(*) AS n_samples, COUNT(reward) AS n_rewards, COUNT(summed) AS n_summed,
           SUM(CASE WHEN reward_type = 'none' THEN 1 ELSE 0 END) AS n_none,
           SUM(CASE WHEN reward_type = 'nan' THEN 1 ELSE 0 END) AS n_nan,
           COALESCE(SUM(summed), 0.0) AS reward_sum,
           COALESCE(SUM((summed - mean) * (summed - mean)), 0.0) AS reward_m2,
           MIN(reward) AS reward_min, MAX(reward) AS reward_max,
           SUM(CASE WHEN status = 'truncated' THEN 1 ELSE 0 END) AS n_truncated,
           COUNT(response_length) AS n_response_lengths,
           COALESCE(SUM(CAST(response_length AS DOUBLE PRECISION)), 0.0) AS response_length_sum
    FROM measured GROUP BY rollout_pk, version_pk
)
SELECT rollout_pk, '{attribution}', ROW_NUMBER() OVER (PARTITION BY rollout_pk ORDER BY version_pk) - 1, version_pk,
       n_samples, n_rewards, n_none, n_nan, CASE WHEN n_summed = n_rewards THEN reward_sum END,
       CASE WHEN n_summed = n_rewards THEN reward_m2 END, reward_min, reward_max, n_truncated, n_response_lengths,
       response_length_sum
FROM summaries
"""

_FORMATS = {"float64": "<d", "float32": "<f", "float16": "<e", "bool": "<?"} | {
    f"{sign}int{8 * 2**i}": "<" + (code.upper() if sign else code)
    for i, code in enumerate("bhiq")
    for sign in ("", "u")
}


def _fill_metrics(table: Any) -> None:
    connection = op.get_bind()
    for pk, text in connection.execute(
        sa.text("SELECT id, metrics FROM rollouts WHERE status = 'complete' AND metrics <> 'null'")
    ).all():
        entries: dict[tuple[int, str], float | None] = {}
        for depth, key, number in _entries(json.loads(text), ()):
            entries.setdefault((depth, key), number)
        if entries:
            rows = [{"rollout_pk": pk, "depth": d, "key": k, "value": number} for (d, k), number in entries.items()]
            connection.execute(table.insert(), rows)


def _entries(document: Any, path: tuple[str, ...]) -> Iterator[tuple[int, str, float | None]]:
    """Yield (depth, key, number) of a metrics document; keys that are no clean text are left out."""
    pairs = document.get("$dict", document.items()) if isinstance(document, dict) else ()
    for key, value in list(pairs)[:256]:
        if not isinstance(key, str) or (key.startswith("$") and "$dict" not in document):
            continue
        number = _number(value)
        here = (*path, key)
        name = key if len(here) == 1 else json.dumps(here, ensure_ascii=False, separators=(",", ":"))
        if len(name) > 600:
            name = f"{name[:200]}... {hashlib.blake2b(name.encode(), digest_size=16).hexdigest()}"
        if number is not None:
            yield len(here), name, None if math.isnan(number) else number
        elif len(here) < 8:
            yield from _entries(value, here)


def _number(value: Any) -> float | None:
    if isinstance(value, (bool, int, float)):
        return float(value)
    ((tag, body),) = value.items() if isinstance(value, dict) and len(value) == 1 else (("", None),)
    try:
        if tag == "$float":
            return float(body) if body in ("nan", "inf", "-inf") else struct.unpack(">d", bytes.fromhex(body))[0]
        if tag == "$int":
            return float(int(body, 16))
        if tag in ("$np", "$tensor"):
            return float(struct.unpack(_FORMATS[body["dtype"]], base64.b64decode(body["data"]))[0])
    except (KeyError, TypeError, ValueError, OverflowError, struct.error):  # an array, a type without a format
        pass
    return None


# -- views: what they hold is said in slime_store/models/views -------------------------------------

_ROLLOUTS = "rollouts r JOIN runs u ON u.id = r.run_pk JOIN sessions e ON e.id = r.session_pk"
_SAMPLES = f"{_ROLLOUTS} JOIN samples s ON s.rollout_pk = r.id"
_LATER = """EXISTS (SELECT 1 FROM rollouts later WHERE later.run_pk = r.run_pk AND later.kind = r.kind
    AND later.rollout_id = r.rollout_id AND later.attempt > r.attempt AND later.status = 'complete')"""
_NEWEST = f"r.status = 'complete' AND NOT {_LATER}"
_WHICH = "u.name AS run, r.kind, r.rollout_id, r.attempt, e.ordinal AS session"
_ROLLOUT = """v.label AS weight_version, r.n_groups, r.n_samples, r.n_trajectories, r.n_tokens, r.n_bytes, r.started_at,
    r.finished_at, r.metrics, r.id AS rollout_pk"""
_TRUNCATED = "CASE WHEN s.status = 'truncated' THEN 1 ELSE 0 END"
_EVAL_TRUNCATED = f"CASE WHEN s.eval_truncated THEN 1 WHEN NOT s.eval_truncated THEN 0 ELSE {_TRUNCATED} END"
_OF_PROMPT = f"samples s JOIN rollouts r ON r.id = s.rollout_pk WHERE s.prompt_pk = p.id AND {_NEWEST}"
_BY_VERSION = "PARTITION BY r.session_pk, r.kind, COALESCE(w.weight_version_pk, r.weight_version_pk)"
_LAST = "COALESCE(s.last_weight_version_pk, r.weight_version_pk)"
_FIRST = "COALESCE(s.first_weight_version_pk, r.weight_version_pk)"


def _summed(number: str) -> str:
    return f"CASE WHEN ABS({number}) < 1e-100 THEN 0.0 WHEN ABS({number}) <= 1e100 THEN {number} END"


_VIEWS = {
    "v_rollout_attempts": f"""
SELECT {_WHICH}, CASE WHEN {_LATER} THEN 0 ELSE 1 END AS newest, {_ROLLOUT}
FROM {_ROLLOUTS} LEFT JOIN weight_versions v ON v.id = r.weight_version_pk
WHERE r.status = 'complete'
""",
    "v_rollouts": f"""
SELECT {_WHICH}, {_ROLLOUT}
FROM {_ROLLOUTS} LEFT JOIN weight_versions v ON v.id = r.weight_version_pk
WHERE {_NEWEST}
""",
    "v_metrics": f"""
SELECT {_WHICH}, m.key AS metric, m.depth, m.value, r.id AS rollout_pk
FROM {_ROLLOUTS} JOIN rollout_metrics m ON m.rollout_pk = r.id
WHERE {_NEWEST}
""",
    "v_samples": f"""
SELECT {_WHICH}, d.name AS dataset, s.position, s.group_position, s.sample_position, s.segment_position,
    s.group_index, s.sample_index AS "index", s.execution_id, s.status, s.reward, s.reward_type,
    v.label AS weight_version, v.ordinal AS weight_version_ordinal, f.label AS first_weight_version, s.n_tokens,
    s.response_length, s.effective_response_length, {_TRUNCATED} AS truncated,
    CASE WHEN s.remove_sample THEN 1 ELSE 0 END AS removed, p.prompt_id, s.non_generation_time,
    s.spec_accept_token_num, s.spec_draft_token_num, s.spec_verify_ct, s.completion_token_num, s.cached_tokens,
    s.total_prompt_tokens, r.id AS rollout_pk
FROM {_SAMPLES}
LEFT JOIN prompts p ON p.id = s.prompt_pk
LEFT JOIN weight_versions v ON v.id = {_LAST}
LEFT JOIN weight_versions f ON f.id = {_FIRST}
LEFT JOIN eval_datasets d ON d.rollout_pk = s.rollout_pk AND d.position = s.dataset_position
WHERE {_NEWEST}
""",
    "v_sample_texts": f"""
SELECT {_WHICH}, s.position, p.prompt_id, COALESCE(p.text, p.document) AS prompt,
    COALESCE(t.response, '') AS response, t.label, r.id AS rollout_pk
FROM {_SAMPLES}
LEFT JOIN prompts p ON p.id = s.prompt_pk
LEFT JOIN sample_texts t ON t.rollout_pk = s.rollout_pk AND t.position = s.position
WHERE {_NEWEST}
""",
    "v_sample_rewards": f"""
SELECT {_WHICH}, w.position, w.key, w.depth, w.value, r.id AS rollout_pk
FROM {_ROLLOUTS} JOIN sample_rewards w ON w.rollout_pk = r.id
WHERE {_NEWEST}
""",
    "v_sample_weight_versions": f"""
SELECT {_WHICH}, w.position, w.run_position, v.label AS weight_version, v.ordinal AS weight_version_ordinal, w.n_turns,
    r.id AS rollout_pk
FROM {_ROLLOUTS} JOIN sample_weight_versions w ON w.rollout_pk = r.id
JOIN weight_versions v ON v.id = w.weight_version_pk
WHERE {_NEWEST}
""",
    "v_prompts": f"""
SELECT p.prompt_id, COALESCE(p.text, p.document) AS prompt,
    CASE WHEN p.text IS NULL THEN 1 ELSE 0 END AS is_document,
    (SELECT COUNT(*) FROM {_OF_PROMPT}) AS n_samples,
    (SELECT COUNT(DISTINCT r.id) FROM {_OF_PROMPT}) AS n_rollouts, p.id AS prompt_pk
FROM prompts p
WHERE EXISTS (SELECT 1 FROM {_OF_PROMPT})
""",
    "v_eval": f"""
SELECT u.name AS run, r.rollout_id, r.attempt, e.ordinal AS session, d.name AS dataset,
    s.position - d.first_position AS dataset_position, s.group_index, s.sample_index AS "index", s.status,
    CASE WHEN s.eval_reward IS NOT NULL THEN s.eval_reward WHEN NOT EXISTS (
        SELECT 1 FROM samples o WHERE o.rollout_pk = s.rollout_pk AND o.eval_reward IS NOT NULL
        AND o.position >= d.first_position AND o.position < d.first_position + d.n_samples
    ) THEN s.reward END AS reward,
    {_EVAL_TRUNCATED} AS truncated, s.reward AS sample_reward, s.reward_type AS sample_reward_type,
    v.label AS weight_version, t.label AS eval_weight_version, s.n_tokens, s.response_length,
    s.effective_response_length, p.prompt_id, s.position, r.id AS rollout_pk
FROM {_SAMPLES}
JOIN eval_datasets d ON d.rollout_pk = s.rollout_pk AND d.position = s.dataset_position
LEFT JOIN prompts p ON p.id = s.prompt_pk
LEFT JOIN weight_versions v ON v.id = {_LAST}
LEFT JOIN weight_versions t ON t.id = r.weight_version_pk
WHERE r.kind = 'eval' AND {_NEWEST}
""",
    "v_eval_summary": f"""
SELECT u.name AS run, r.rollout_id, r.attempt, e.ordinal AS session, d.name AS dataset, v.label AS weight_version,
    d.n_samples, COALESCE(c.n_rewards, 0) AS n_rewards, COALESCE(c.n_prompts, 0) AS n_prompts, c.reward_mean,
    c.truncated_share, c.response_length_mean, r.id AS rollout_pk
FROM {_ROLLOUTS}
JOIN eval_datasets d ON d.rollout_pk = r.id
LEFT JOIN samples s ON s.rollout_pk = d.rollout_pk AND s.position = d.first_position AND d.n_samples > 0
LEFT JOIN weight_versions v ON v.id = {_LAST}
LEFT JOIN (
    SELECT q.rollout_pk, q.dataset_position,
        CAST(CASE WHEN SUM(q.n_given) > 0 THEN SUM(q.n_given) ELSE SUM(q.n_own) END AS BIGINT) AS n_rewards,
        COUNT(*) AS n_prompts,
        CASE WHEN SUM(q.n_given) > 0 THEN
            CASE WHEN SUM(q.n_given) = SUM(q.n_given_summed) THEN SUM(q.given / NULLIF(q.n_given, 0))
                / NULLIF(COUNT(q.given), 0) END
        WHEN SUM(q.n_own) = SUM(q.n_own_summed) THEN SUM(q.own / NULLIF(q.n_own, 0)) / NULLIF(COUNT(q.own), 0)
        END AS reward_mean,
        CAST(SUM(q.n_truncated) AS DOUBLE PRECISION) / SUM(q.n_samples) AS truncated_share,
        SUM(q.response_length_sum) / NULLIF(SUM(q.n_response_lengths), 0) AS response_length_mean
    FROM (
        SELECT s.rollout_pk, s.dataset_position, COUNT(*) AS n_samples, COUNT(s.eval_reward) AS n_given,
            COUNT({_summed("s.eval_reward")}) AS n_given_summed, SUM({_summed("s.eval_reward")}) AS given,
            COUNT(s.reward) AS n_own, COUNT({_summed("s.reward")}) AS n_own_summed, SUM({_summed("s.reward")}) AS own,
            SUM({_EVAL_TRUNCATED}) AS n_truncated, COUNT(s.response_length) AS n_response_lengths,
            SUM(CAST(s.response_length AS DOUBLE PRECISION)) AS response_length_sum
        FROM rollouts r JOIN samples s ON s.rollout_pk = r.id
        WHERE r.kind = 'eval' AND {_NEWEST}
        GROUP BY s.rollout_pk, s.dataset_position, COALESCE(s.prompt_pk, -1 - s.position)
    ) q
    GROUP BY q.rollout_pk, q.dataset_position
) c ON c.rollout_pk = r.id AND c.dataset_position = d.position
WHERE r.kind = 'eval' AND {_NEWEST}
""",
    "v_rewards_by_weight_version": f"""
SELECT u.name AS run, e.ordinal AS session, c.kind, v.label AS weight_version, v.ordinal, c.n_samples, c.n_rewards,
    c.n_none, c.n_nan,
    CASE WHEN c.reward_min >= -1e100 AND c.reward_max <= 1e100 THEN c.mean
        WHEN c.reward_min >= -1.7976931348623157e308 AND c.reward_max > 1.7976931348623157e308 THEN c.reward_max
        WHEN c.reward_min < -1.7976931348623157e308 AND c.reward_max <= 1.7976931348623157e308 THEN c.reward_min
    END AS reward_mean,
    CASE WHEN c.reward_min >= -1e100 AND c.reward_max <= 1e100 AND c.n_rewards > 1
        THEN SQRT(c.m2 / (c.n_rewards - 1)) END AS reward_std,
    c.reward_min, c.reward_max, c.truncated_share, c.response_length_mean, c.first_rollout_id, c.last_rollout_id
FROM (
    SELECT q.run_pk, q.session_pk, q.kind, q.weight_version_pk, CAST(SUM(q.n_samples) AS BIGINT) AS n_samples,
        CAST(SUM(q.n_rewards) AS BIGINT) AS n_rewards, CAST(SUM(q.n_none) AS BIGINT) AS n_none,
        CAST(SUM(q.n_nan) AS BIGINT) AS n_nan, MIN(q.mean) AS mean,
        SUM(q.reward_m2 + q.n_rewards * (q.part_mean - q.mean) * (q.part_mean - q.mean)) AS m2,
        MIN(q.reward_min) AS reward_min, MAX(q.reward_max) AS reward_max,
        SUM(CAST(q.n_truncated AS DOUBLE PRECISION)) / SUM(q.n_samples) AS truncated_share,
        SUM(q.response_length_sum) / NULLIF(SUM(q.n_response_lengths), 0) AS response_length_mean,
        MIN(q.rollout_id) AS first_rollout_id, MAX(q.rollout_id) AS last_rollout_id
    FROM (
        SELECT r.run_pk, r.session_pk, r.kind, r.rollout_id,
            COALESCE(w.weight_version_pk, r.weight_version_pk) AS weight_version_pk, w.n_samples, w.n_rewards, w.n_none,
            w.n_nan, w.reward_m2, w.reward_min, w.reward_max, w.n_truncated, w.n_response_lengths,
            w.response_length_sum, w.reward_sum / NULLIF(w.n_rewards, 0) AS part_mean,
            SUM(w.reward_sum) OVER ({_BY_VERSION})
                / NULLIF(SUM(w.n_rewards) OVER ({_BY_VERSION}), 0) AS mean
        FROM rollouts r JOIN rollout_weight_versions w ON w.rollout_pk = r.id AND w.attribution = 'last'
        WHERE {_NEWEST}
    ) q
    GROUP BY q.run_pk, q.session_pk, q.kind, q.weight_version_pk
) c
JOIN runs u ON u.id = c.run_pk
JOIN sessions e ON e.id = c.session_pk
LEFT JOIN weight_versions v ON v.id = c.weight_version_pk
""",
    "v_weight_versions": """
SELECT u.name AS run, e.ordinal AS session, v.label AS weight_version, v.ordinal, v.first_seen_at, v.notes,
    v.id AS weight_version_pk
FROM weight_versions v JOIN runs u ON u.id = v.run_pk JOIN sessions e ON e.id = v.session_pk
""",
    "v_sessions": """
SELECT u.name AS run, e.ordinal AS session, e.host, e.pid, e.started_at, e.checkpoint_rollout_id, c.n_rollouts,
    c.first_rollout_id, c.last_rollout_id, e.id AS session_pk
FROM sessions e JOIN runs u ON u.id = e.run_pk
LEFT JOIN (
    SELECT session_pk, COUNT(*) AS n_rollouts, MIN(rollout_id) AS first_rollout_id, MAX(rollout_id) AS last_rollout_id
    FROM rollouts WHERE status = 'complete' AND kind = 'train' GROUP BY session_pk
) c ON c.session_pk = e.id
""",
}
