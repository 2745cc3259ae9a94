"""Stores, names and questions made by somebody who means harm: nothing outside is read or written, no SQL is run."""

from __future__ import annotations

import logging
import os
import pickle
import stat
import traceback
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from slime_store import Sample, SampleFilter, SampleStore
from slime_store.dataframes import samples_df
from slime_store.errors import BatchError, BlobCorruptError, StoreError
from slime_store.interchange import export_samples
from slime_store.testing.contract.opening import opened
from tests.faults.given import RUN, output_of
from tests.services.tables import counts, execute, rows

# -- names of side files, as rows of a store that came from elsewhere


@pytest.mark.parametrize(
    "name", ["../../secret", "/etc/hostname", "ab/../../../secret", "ab/" + "0" * 31 + "\n.blob", ""]
)
def test_a_row_that_names_a_file_elsewhere_reads_and_deletes_nothing_there(sqlite_url: str, name: str) -> None:
    path = Path(str(make_url(sqlite_url).database))
    secret = path.parent / "secret"
    secret.write_bytes(b"not yours")
    with SampleStore.open(sqlite_url) as store:
        store.run(RUN).record_train(0, output_of(0))
        store.run(RUN).record_train(1, output_of(1))
    execute(sqlite_url, f"UPDATE blobs SET file_name = '{name}' WHERE file_name IS NOT NULL")
    with SampleStore.open(sqlite_url) as store:
        run = store.run(RUN)
        with pytest.raises(StoreError) as caught:
            run.load_train(0)
        assert isinstance(caught.value, BlobCorruptError) or name == ""
        assert not store.verify(fix=True, grace_seconds=0).ok
        for act in (lambda: run.delete_rollout(0), lambda: store.backup(path.parent / "backup.db"), store.vacuum):
            try:
                act()
            except StoreError:
                continue
    assert secret.read_bytes() == b"not yours"
    assert not [each for each in path.parent.rglob("*") if each.name == "hostname"]


def test_a_link_among_the_side_files_is_not_followed_to_delete(sqlite_url: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"keep")
    with SampleStore.open(sqlite_url) as store:
        run = store.run(RUN)
        run.record_train(0, output_of(0))
        [file] = Path(f"{make_url(sqlite_url).database}-blobs").glob("*/*.blob")
        file.unlink()
        file.symlink_to(outside)
        with pytest.raises(StoreError):
            run.load_train(0)
        run.delete_rollout(0)
        assert not file.is_symlink()
    assert outside.read_bytes() == b"keep"


# -- documents that somebody wrote into the database


@pytest.mark.parametrize(
    "body",
    [
        '{"$set":{"$range":[0,9999999999,1]}}',
        '{"$deque":[{"$range":[0,9999999999,1]},null]}',
        '{"$counter":{"$range":[0,9999999999,1]}}',
        '{"$dict":[{"$range":[0,9999999999,1]}]}',
        '{"$exception":["ValueError",{"$range":[0,9999999999,1]}]}',
        '{"$fraction":["1e99999999"]}',
        '{"$fraction":[{"$decimal":"1E+99999999"},1]}',
    ],
)
def test_a_document_that_counts_to_more_than_it_holds_is_damage(store_url: str, body: str) -> None:
    sample = Sample()
    vars(sample)["odd"] = (1,)
    with SampleStore.open(store_url) as store:
        run = store.run(RUN)
        run.record_train(0, [[sample]])
        execute(store_url, f"""UPDATE sample_documents SET extra = '{{"odd":{body}}}'""")
        with pytest.raises(BlobCorruptError, match=r"is due|not of two whole numbers|no tuple"):
            run.load_train(0, sample_type=Sample)
        assert "document_damaged" in str(store.verify())


_COUNTED = {
    "range": '{"$range":[0,9999999999,1]}',
    "longer range": '{"$range":[0,99999999999999999999,1]}',
    "integer": '{"$int":"' + "f" * 5000 + '"}',
    "array without elements": '{"$ndarray":{"dtype":"int64","shape":[9999999999,0],"data":""}}',
    "sparse tensor": '{"$sparse":{"layout":"sparse_coo","shape":{"$tuple":[99999,99999]},"coalesced":false,"indices":'
    '{"$tensor":{"dtype":"int64","shape":[2,0],"data":""}},"values":{"$tensor":{"dtype":"int64","shape":[0],"data":""}}'
    "}}",
    "nested list": "[" * 400 + "]" * 400,
}


@pytest.mark.parametrize("body", _COUNTED.values(), ids=_COUNTED)
def test_what_counts_to_more_than_it_holds_is_exported_without_being_written_out(
    sqlite_url: str, body: str, tmp_path: Path
) -> None:
    sample = Sample()
    vars(sample)["odd"] = (1,)
    with SampleStore.open(sqlite_url) as store:
        run = store.run(RUN)
        run.record_train(0, [[sample]])
        execute(sqlite_url, f"""UPDATE sample_documents SET extra = '{{"odd":{body}}}'""")
        for format in ("jsonl", "csv"):
            export_samples(run, tmp_path / "out", format=format)
            assert 0 < (tmp_path / "out").stat().st_size < 20_000
        assert samples_df(run, columns=["index", "metadata"]).shape == (1, 2)


@pytest.mark.parametrize("name", ["tokens", "loss_mask", "teacher_log_probs"])
def test_a_batch_makes_no_tensor_of_a_range_or_a_length_alone(sqlite_url: str, name: str) -> None:
    with SampleStore.open(sqlite_url) as store:
        run = store.run(RUN)
        run.record_train(0, [[Sample(tokens=(1, 2), response_length=1, loss_mask=(1,), teacher_log_probs=(1.0,))]])
        for body in ('{"$range":[0,9999999999,1]}', '[{"$range":[0,9999999999,1]}]'):
            execute(sqlite_url, f"""UPDATE sample_documents SET extra = '{{"{name}":{body}}}'""")
            with pytest.raises(BatchError, match=f"{name} makes no tensor"):
                run.load_batch(0)
        execute(sqlite_url, """UPDATE sample_documents SET extra = '{"loss_mask":null}'""")
        execute(sqlite_url, "UPDATE samples SET response_length = 9999999999")
        with pytest.raises(BatchError, match="response_length is 9999999999"):
            run.load_batch(0)
        for length in ("[99999,99999]", '"1"', '{"$range":[0,9999999999,1]}'):
            execute(sqlite_url, f"""UPDATE sample_documents SET extra = '{{"response_length":{length}}}'""")
            with pytest.raises(BatchError, match="response_length is"):
                run.load_batch(0)


# -- SQL in whatever people name


NASTY = [
    "'; DROP TABLE samples; --",
    '"; DROP TABLE samples; --',
    "a' OR '1'='1",
    "%",
    "_",
    "\\",
    "$.a",
    "a.b[0]",
    "{x}",
    "%s",
    ":p",
    "?",
]


def test_sql_in_names_keys_and_filters_is_only_text(store_url: str) -> None:
    with opened(store_url) as store:
        for n, name in enumerate(NASTY):
            run = store.run(name, config={name: name})
            samples = [
                Sample(
                    prompt=name,
                    response=name,
                    label=name,
                    reward={name: 1.0},
                    metadata={name: name},
                    weight_versions=[name],
                ),
                Sample(prompt="other", response="other", reward={"other": 0.0}, metadata={"other": 1}),
            ]
            run.record_train(n, [samples])
            run.record_eval(n, {name: {"rewards": [1.0], "samples": samples[:1]}}, weight_version=name)
            run.pin(n, note=name)
        before = counts(store_url)
        for name in NASTY:
            run = store.run(name, create=False)
            wheres: list[dict[str, Any]] = [
                {"metadata": {name: name}},
                {"text": name},
                {"prompt": name},
                {"dataset": name},
                {"weight_version": name},
                {"reward_key": name, "reward_min": 0.5},
            ]
            for where in wheres:
                found = list(run.iter_samples(SampleFilter(**where)))
                assert found and {sample.response for sample in found} == {name}, where
        assert counts(store_url) == before
        assert sorted(info.name for info in store.runs()) == sorted(NASTY)
        assert store.verify().ok
        for name in NASTY:
            store.delete_run(name)
    assert rows(store_url, "SELECT count(*) FROM samples") == [(0,)]


# -- who may read a new store


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_new_files_have_the_modes_that_the_umask_leaves(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        with SampleStore.open(tmp_path / "runs.db") as store:
            store.run(RUN).record_train(0, output_of(0))
            store.backup(tmp_path / "backup.db")
            found = {path: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    finally:
        os.umask(before)
    assert len(found) > 8
    for path, mode in found.items():
        assert mode & mask == 0 and mode & 0o111 == (0o111 & ~mask if path.is_dir() else 0), (path, oct(mode))


# -- passwords


@pytest.mark.postgresql
def test_a_password_is_in_no_text_that_leaves_the_store(postgres_url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    password = make_url(postgres_url).password
    assert password is not None
    hidden = [str(password), "p%40ss", "p%2540ss"]
    shown: list[str] = []
    with SampleStore.open(postgres_url) as store:
        run = store.run(RUN)
        run.record_train(0, output_of(0))
        shown += [repr(store), repr(run), repr(run.rollouts()), repr(store.verify()), repr(store._handle.engine)]
        shown += [repr(pickle.loads(pickle.dumps(thing))) for thing in (store, run)]
        shown += [repr(store._handle.config), str(vars(store._handle)), str(vars(run))]
    wrong = make_url(postgres_url).set(database="missing"), make_url(postgres_url).set(username="nobody")
    for url in (*wrong, make_url(postgres_url).update_query_dict({"schema": "NO"})):
        try:
            SampleStore.open(url)
        except StoreError as error:
            shown += ["".join(traceback.format_exception(error)), repr(pickle.loads(pickle.dumps(error)))]
    shown.append(caplog.text)
    assert len(shown) > 14
    for text in shown:
        assert not any(secret in text for secret in hidden), text
