"""Digests: what rows say is what was recorded, down to the bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slime_store.codecs.canonical import DIGEST_BYTES
from slime_store.models.coverage import ARRAYS_VERSION, IN_ITSELF, OF_ROLLOUT, ROW_DIGEST
from slime_store.repositories.digests import array_digest, row_digest
from slime_store.repositories.stored_digests import Retaken
from slime_store.repositories.verification import VerificationRepository
from slime_store.store.handle import StoreHandle
from slime_store.store.verification.findings import Findings, Place
from slime_store.store.verification.stored import RolloutCheck

_WORDS = {
    "rollouts": "the rollout's own row",
    "rollout_states": "the data source's state",
    "rollout_metrics": "the numbers of the metrics",
    "rollout_weight_versions": "the sums by weight version",
    "imports": "where it was imported from",
    "sample_groups": "groups",
    "eval_datasets": "datasets",
    "sample_arrays": "the layout or the content of arrays",
}
_UNKNOWN = b""
_OWNERS = {"sample_groups": "group_position", "eval_datasets": "dataset_position"}


def check_digests(check: RolloutCheck) -> None:
    """Take the digests of a rollout's rows again and compare; one recorded before 0006 has none, which is counted."""
    recorded = check.read("its digests", lambda rows: rows.digests.of_rollout(check.pk))
    if recorded is None:
        return
    if not recorded:
        check.findings.counts["rollouts_without_digest"] += 1
        return
    for table in _WORDS:
        _check_rows(check, table, _split(recorded.get(table)))
    _check_samples(check, _split(recorded.get("samples")))
    if odd := sorted(set(map(str, recorded)) - set(OF_ROLLOUT)):
        check.add("digest_differs", f"it has digests of {', '.join(odd)}")


def _split(digests: bytes | None) -> list[bytes]:
    digests = digests or b""
    return [digests[at : at + DIGEST_BYTES] for at in range(0, len(digests), DIGEST_BYTES)]


def _check_rows(check: RolloutCheck, table: str, recorded: Sequence[bytes]) -> None:
    found = check.read(f"the digests of {table}", lambda rows: rows.digests.of_rows(check.pk, table))
    if found is not None and table == "sample_arrays" and {digest[0] for digest in recorded} == {ARRAYS_VERSION}:
        found = [_with_checksum(check, each) for each in found]
    if found is None or [each.digest for each in found] == recorded:
        return
    wrong = [each for each in found if each.digest not in (*recorded, _UNKNOWN)]
    if wrong:
        keys = ", ".join(" ".join(map(str, each.key)) for each in wrong if each.key)
        what = f"{_WORDS[table]} {keys}".strip()
        check.add("digest_differs", f"not as recorded: {what}", _samples_of(check, table, wrong))
    elif len(found) != len(recorded):
        check.add("digest_differs", f"{_WORDS[table]}: {len(found)} rows are there, {len(recorded)} were recorded")


def _with_checksum(check: RolloutCheck, array: Retaken) -> Retaken:
    """Return the digest of an array's row and its bytes; of bytes that could not be read another look has told."""
    checksum = check.checksums.get(array.key)
    digest = _UNKNOWN if checksum is None else array_digest(list(array.row.values()), checksum)
    return array._replace(digest=digest)


def _samples_of(check: RolloutCheck, table: str, rows: Sequence[Retaken]) -> list[int]:
    """Return the samples that rows of groups, datasets or arrays are about."""
    if table == "sample_arrays":
        spans = [check.between(each.row["first_position"], each.row["last_position"] + 1) for each in rows]
        return sorted({position for span in spans for position in span})
    column = _OWNERS.get(table)
    if column is None:
        return []
    positions = {each.key[0] for each in rows}
    return [sample["position"] for sample in check.samples or () if sample[column] in positions]


def _check_samples(check: RolloutCheck, recorded: Sequence[bytes]) -> None:
    """Compare all samples in one go; where they cannot be read, one by one, without those that cannot."""
    found: dict[int, bytes] = {}
    unreadable: set[int] = set()
    attempt = RolloutCheck(check.handle, check.decoder, check.pk, check.place, set())

    def all_samples(rows: VerificationRepository) -> bool:
        found.update(rows.digests.of_samples(check.pk, None))
        return True

    if not attempt.read("the digests of samples", all_samples):
        for position in sorted(set(range(len(recorded))) - found.keys()):

            def one_sample(rows: VerificationRepository, position: int = position) -> bool:
                found.update(rows.digests.of_samples(check.pk, position))
                return True

            if not attempt.read("the digest of a sample", one_sample, (position,)):
                unreadable.add(position)
        if check.is_whole:  # nobody else has reported it
            check.findings.problems += attempt.findings.problems
    expected = dict(enumerate(recorded))
    positions = sorted((expected.keys() | found.keys()) - unreadable)
    if wrong := [position for position in positions if found.get(position) != expected.get(position)]:
        check.add("digest_differs", "samples are not as recorded", wrong)


def check_small_rows(handle: StoreHandle, findings: Findings) -> None:
    """Compare the rows of runs, sessions and the like with their digests; those written before 0006 are counted."""
    names: dict[Any, str] = {}
    run_of_session: dict[Any, Any] = {}
    for table in IN_ITSELF:
        with findings.noting(f"the rows of {table}"), handle.reading() as connection:
            for key, row in VerificationRepository(connection).digests.small(table):
                if table == "runs":
                    names[row["id"]] = row["name"]
                elif table == "sessions":
                    run_of_session[row["id"]] = row["run_pk"]
                if row[ROW_DIGEST] is None:
                    findings.counts["rows_without_digest"] += 1
                elif row[ROW_DIGEST] != row_digest(table, row):
                    run_pk = (
                        row["id"] if table == "runs" else row.get("run_pk", run_of_session.get(row.get("session_pk")))
                    )
                    place = Place(names.get(run_pk), row.get("kind"), row.get("rollout_id"))
                    what = f"not as recorded: row {' '.join(map(str, key))} of {table}"
                    findings.add("digest_differs", what, place)
