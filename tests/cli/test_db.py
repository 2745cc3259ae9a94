"""``slime-store db ...``: what is printed, and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slime_store.testing import assert_same
from slime_store.testing.contract.opening import loaded_train
from tests.cli.conftest import Command
from tests.services.filling import make_filled, rich_train
from tests.services.tables import execute, rows

EMPTY = {"sqlite": "x''", "postgresql+psycopg": "''::bytea"}


@pytest.fixture
def filled(store_url: str) -> str:
    make_filled(store_url)
    return store_url


def test_status(command: Command, filled: str) -> None:
    table = command("db", "status")
    assert table.exit_code == 0 and "p@ss" not in table.stdout
    assert dict(line.split(maxsplit=1) for line in table.stdout.splitlines() if " " in line)["state"] == "current"
    (row,) = json.loads(command("db", "status", "--format", "json").stdout)
    assert (row["state"], row["n_runs"], row["n_rollouts"]) == ("current", 2, 5)
    execute(filled, "UPDATE slime_store_version SET version_num = '9999'")
    done = command("db", "status", "--format", "csv")
    assert done.exit_code == 5 and ",newer," in done.stdout
    assert command("db", "upgrade").exit_code == 5


def test_a_missing_store(command: Command, store_url: str, tmp_path: Path) -> None:
    done = command("db", "status")
    assert done.exit_code == 3 and "missing" in done.stdout
    for verb in (["verify"], ["verify", "--fix"], ["upgrade"], ["backup", str(tmp_path / "b.db")]):
        if "--fix" not in verb or store_url.startswith("sqlite"):
            done = command("db", *verb)
            assert done.exit_code == 3 and done.stderr.startswith("error: ")
    assert list(tmp_path.iterdir()) == []


def test_verify(command: Command, filled: str) -> None:
    done = command("db", "verify")
    assert done.exit_code == 0 and done.stderr.startswith("sound: ") and "6 rollouts" in done.stderr
    assert done.stdout == "" and command("db", "verify", "--format", "json").stdout == "[]\n"
    execute(
        filled,
        "INSERT INTO blobs (id, codec, dtype, n_raw_bytes, n_bytes) VALUES (900, 'raw.1', 'uint8', 1, 0)",
        f"INSERT INTO blob_parts (blob_pk, part, data) VALUES (900, 0, {EMPTY[filled.partition(':')[0]]})",
    )
    assert command("db", "verify").exit_code == 6
    done = command("db", "verify", "--fix", "--format", "json")
    assert done.exit_code == 0
    assert [(row["code"], row["fixed"]) for row in json.loads(done.stdout) if row["fixable"]] == [("blob_unused", True)]
    ((pk,),) = rows(filled, "SELECT id FROM rollouts WHERE rollout_id = 1")
    execute(filled, f"DELETE FROM sample_arrays WHERE field = 'tokens' AND rollout_pk = {pk}")
    done = command("db", "verify", "--fix", "--format", "json")
    assert done.exit_code == 6 and done.stderr.startswith("damaged: ")
    row = json.loads(done.stdout)[0]
    assert (row["code"], row["run"], row["rollout_id"], row["samples"]) == ("array_missing", "contract", 1, "0-7")


def test_verify_says_how_many_rollouts_carry_no_digest_and_which_samples_are_not_as_recorded(
    command: Command, filled: str
) -> None:
    assert "digest" not in command("db", "verify").stderr
    ((pk,),) = rows(filled, "SELECT id FROM rollouts WHERE rollout_id = 1")
    execute(
        filled,
        f"UPDATE sample_texts SET response = upper(response) WHERE rollout_pk = {pk} AND position IN (1, 2, 5)",
        f"DELETE FROM rollout_digests WHERE rollout_pk <> {pk}",
    )
    done = command("db", "verify", "--format", "json")
    assert done.exit_code == 6 and "note: 5 rollouts were recorded before schema 0006" in done.stderr
    (row,) = json.loads(done.stdout)
    assert (row["code"], row["rollout_id"], row["samples"], row["fixable"]) == ("digest_differs", 1, "1-2 5", False)


def test_backup_and_copy(command: Command, filled: str, tmp_path: Path) -> None:
    backup, copy = tmp_path / "backup.db", tmp_path / "copy.db"
    (row,) = json.loads(command("db", "backup", str(backup), "--format", "json").stdout)
    assert row["path"] == str(backup)
    again = command("db", "backup", str(backup))
    assert again.exit_code == 4 and "exists already" in again.stderr
    (row,) = json.loads(command("db", "copy", str(copy), "--format", "json", store=str(backup)).stdout)
    assert (row["n_copied"], row["n_verified"]) == (6, 6)
    assert_same(loaded_train(f"sqlite:///{copy}", 1), rich_train(2))
    assert command("db", "upgrade", "--format", "json", store=str(copy)).exit_code == 0


def test_prune(command: Command, filled: str) -> None:
    done = command("db", "prune", "--keep-arrays-last", "1", "--vacuum", "--dry-run", "--format", "json")
    assert done.exit_code == 0 and "given back" not in done.stderr
    assert {row["run"]: row["n_pruned"] for row in json.loads(done.stdout)} == {"contract": 1, "empty": 0}
    done = command("db", "prune", "--keep-arrays-last", "1", "--vacuum", "--format", "json")
    assert done.exit_code == 0 and "given back" in done.stderr
    pruned = {row["run"]: (row["n_pruned"], row["n_deleted"]) for row in json.loads(done.stdout)}
    assert pruned == {"contract": (1, 0), "empty": (0, 0)}  # the superseded attempt; resuming needs the others
    done = command("db", "prune", "--run", "contract", "--keep-arrays-last", "0", "--keep-rollouts-last", "0")
    assert done.exit_code == 0
    kept = json.loads(command("rollout", "list", "contract", "--format", "json").stdout)
    assert [(row["kind"], row["rollout_id"], row["attempt"]) for row in kept] == [("train", 0, 2), ("train", 1, 1)]
    assert command("db", "verify").exit_code == 0
    assert command("db", "prune", "--run", "nobody's").exit_code == 3
