"""From 0005 to 0006 and back: no row is touched, and what was recorded before has no digest, which ``verify`` says."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config

from slime_store.config import StoreConfig
from slime_store.database import create_store_engine, schema_change
from slime_store.schema import ensure_schema
from slime_store.schema.location import migrations_directory
from slime_store.testing import assert_same
from slime_store.testing.contract.opening import opened
from tests.migrations import old_content
from tests.migrations.old_stores import put
from tests.services.sent import statements
from tests.services.tables import counts, tables, value

SMALL = ("runs", "sessions", "weight_versions", "checkpoints", "pins")  # and adoptions, of which that store has none


def downgrade(url: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(migrations_directory()).replace("%", "%%"))
    engine = create_store_engine(StoreConfig.parse(url))
    with schema_change(engine) as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0005")
    engine.dispose()


def test_the_upgrade_reads_and_writes_no_row_of_the_old_store(store_url: str, tmp_path: Path) -> None:
    put("0005", store_url, tmp_path)
    config = StoreConfig.parse(store_url)
    engine = create_store_engine(config)
    with statements() as sent:
        ensure_schema(engine, config)
    engine.dispose()
    counting = ("SELECT count(*) FROM", "PRAGMA")  # what every upgrade looks at
    changing = [each for each in sent if "slime_store_version" not in each and not each.startswith(counting)]
    assert not [each for each in changing if each.startswith(("INSERT", "UPDATE", "DELETE"))]
    assert sum("row_digest" in each for each in changing) == len(SMALL) + 1
    for table in SMALL:
        assert (
            value(store_url, f"SELECT count(*) FROM {table} WHERE row_digest IS NOT NULL")
            == 0
            < counts(store_url)[table]
        )


def test_what_was_recorded_before_has_no_digest_and_what_is_recorded_now_has_one(
    store_url: str, tmp_path: Path
) -> None:
    put("0005", store_url, tmp_path)
    with opened(store_url) as store:
        report = store.verify()
        n_old = report.counts["rollouts"]
        assert report.ok and report.counts["rollouts_without_digest"] == n_old == 5
        assert report.counts["rows_without_digest"] == sum(counts(store_url)[table] for table in SMALL)
        run = store.run(old_content.RUN)
        run.record_train(7, old_content.train(7))
        run.record_weight_version("2", metadata={"note": "better"})  # of this session; the old one's stays as it is
        run.pin(0, note="again")
    with opened(store_url, read_only=True) as store:
        after = store.verify()
    assert after.ok and after.counts["rollouts_without_digest"] == n_old
    assert after.counts["rows_without_digest"] == report.counts["rows_without_digest"] - 1  # the pin was set anew


def test_going_back_takes_the_digests_away_and_nothing_else(store_url: str) -> None:
    with opened(store_url) as store:
        old_content.fill(store)
        assert "rollouts_without_digest" not in store.verify().counts
    before = counts(store_url)
    downgrade(store_url)
    assert "rollout_digests" not in tables(store_url)
    assert counts(store_url) == {name: n for name, n in before.items() if name != "rollout_digests"}
    with opened(store_url) as store:
        assert_same(store.run(old_content.RUN, create=False).load_train(0), old_content.train(0))
        report = store.verify()
    assert report.ok and report.counts["rollouts_without_digest"] == report.counts["rollouts"]
