"""Counts over the whole store."""

from __future__ import annotations

from sqlalchemy import Connection, func, select, text

from slime_store.models import BlobRow, PromptRow, RolloutRow, RunRow


def count_everything(connection: Connection) -> dict[str, int]:
    """Return the numbers of ``StoreStats`` that the tables know; costs three narrow scans and no blob."""
    n_rollouts, n_samples, n_tokens = connection.execute(
        select(func.count(), func.sum(RolloutRow.n_samples), func.sum(RolloutRow.n_tokens)).where(
            RolloutRow.status == "complete"
        )
    ).one()
    n_blobs, blob_bytes = connection.execute(select(func.count(), func.sum(BlobRow.n_bytes)).select_from(BlobRow)).one()
    return {
        "n_runs": connection.execute(select(func.count()).select_from(RunRow)).scalar_one(),
        "n_rollouts": n_rollouts,
        "n_samples": int(n_samples or 0),
        "n_tokens": int(n_tokens or 0),
        "n_prompts": connection.execute(select(func.count()).select_from(PromptRow)).scalar_one(),
        "n_blobs": n_blobs,
        "blob_bytes": int(blob_bytes or 0),
    }


def database_bytes(connection: Connection) -> int:
    """Return the size of the database: SQLite's pages, or PostgreSQL's tables of this schema with their indexes."""
    if connection.dialect.name == "sqlite":
        pages = connection.execute(text("PRAGMA page_count")).scalar_one()
        return int(pages * connection.execute(text("PRAGMA page_size")).scalar_one())
    query = "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c WHERE c.relkind = 'r' AND "
    return int(connection.execute(text(query + "c.relnamespace = current_schema()::regnamespace")).scalar_one())
