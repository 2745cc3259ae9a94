"""Positions, nesting, groups, datasets, weight versions: what must agree between narrow rows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import groupby, islice
from typing import Any

from sqlalchemy import Row, RowMapping

from slime_store.mapping.decode import layouts_of
from slime_store.mapping.fields import MAX_TURNS
from slime_store.mapping.nesting import checked_shape
from slime_store.store.infos import decode_inline, decode_placeholders
from slime_store.store.verification.stored import RolloutCheck

_MOST_NAMED = 1000
"""Missing samples that are named: how many are due is a number like any other, and may be damaged."""


def check_scalars(check: RolloutCheck) -> None:
    """Check a rollout's row against its samples, groups, datasets and weight versions."""
    row = check.row
    assert row is not None
    with check.findings.noting("its own documents", check.place):
        decode_inline(row.metrics)
        decode_placeholders(row.placeholders)
        check.layouts = layouts_of(row.layouts)
    check.samples = check.read("the samples' scalars", lambda rows: rows.samples(check.pk))
    if check.samples is None:
        return
    check.positions = [sample["position"] for sample in check.samples]
    check.findings.counts["tokens"] += sum(sample["n_tokens"] for sample in check.samples)
    _check_positions(check, row, check.samples)
    if row.kind == "eval":
        _check_datasets(check, check.samples)
    else:
        _check_groups(check, row, check.samples)


def _check_positions(check: RolloutCheck, row: Row[Any], samples: Sequence[RowMapping]) -> None:
    positions = [sample["position"] for sample in samples]
    if len(positions) != row.n_samples:
        there = set(positions)
        missing = list(islice((n for n in range(row.n_samples) if n not in there), _MOST_NAMED))
        check.add("counts_disagree", f"{len(positions)} samples of {row.n_samples} are there", missing)
    elif positions != list(range(len(positions))):
        check.add("counts_disagree", f"samples are not numbered from 0 to {len(positions) - 1}")
    if (n_tokens := sum(sample["n_tokens"] for sample in samples)) != row.n_tokens:
        check.add("counts_disagree", f"the samples have {n_tokens} tokens, the rollout {row.n_tokens}")
    if odd := [sample["position"] for sample in samples if not 0 <= sample["layout"] < len(check.layouts)]:
        check.add("rows_disagree", "samples name a set of attributes that is not there", odd)
    lacking = [s["position"] for s in samples if s["prompt_pk"] is None and "prompt" in check.names(s)]
    if lacking:
        check.add("prompt_missing", "samples have lost their prompt", lacking)
    if hit := [s["position"] for s in samples if s["prompt_pk"] in check.damaged_prompts]:
        check.add("prompt_damaged", "the samples' prompt is damaged", hit)


def _check_groups(check: RolloutCheck, row: Row[Any], samples: Sequence[RowMapping]) -> None:
    groups = check.read("the groups", lambda rows: rows.groups(check.pk))
    if groups is None:
        return
    if len(groups) != row.n_groups:
        check.add("counts_disagree", f"{len(groups)} groups of {row.n_groups} are there")
    if (n := sum(group.n_trajectories for group in groups)) != row.n_trajectories:
        check.add("counts_disagree", f"the groups have {n} trajectories, the rollout {row.n_trajectories}")
    _check_spans(check, "group", groups, row.n_samples, samples, "group_position")
    with check.findings.noting("the nesting", check.place):
        checked_shape(row.nesting, row.n_samples)


def _check_datasets(check: RolloutCheck, samples: Sequence[RowMapping]) -> None:
    row = check.row
    assert row is not None
    datasets = check.read("the datasets", lambda rows: rows.datasets(check.pk))
    if datasets is None:
        return
    _check_spans(check, "dataset", datasets, row.n_samples, samples, "dataset_position")
    with check.findings.noting("the names of the datasets", check.place):
        if (n := len(decode_inline(row.nesting))) != len(datasets):
            check.add("counts_disagree", f"{len(datasets)} datasets of {n} are there")
    for dataset in datasets:
        with check.findings.noting(f"the nesting of dataset {dataset.name!r}", check.place):
            if dataset.nesting is not None:
                checked_shape(dataset.nesting, dataset.n_samples)


def _check_spans(
    check: RolloutCheck,
    what: str,
    spans: Sequence[Row[Any]],
    n_samples: int,
    samples: Sequence[RowMapping],
    column: str,
) -> None:
    """Check that groups or datasets follow one another without a gap, and that the samples agree."""
    first = 0
    for number, span in enumerate(spans):
        if span.position != number or span.first_position != first:
            check.add("counts_disagree", f"{what} {span.position} does not follow the one before it")
            return
        first += span.n_samples
    if first != n_samples:
        check.add("counts_disagree", f"the {what}s have {first} samples, the rollout {n_samples}")
        return
    starts = [span.first_position for span in spans]
    inside = [s for s in samples if 0 <= s["position"] < first]
    wrong = [s["position"] for s in inside if s[column] != spans[bisect_right(starts, s["position"]) - 1].position]
    if wrong:
        check.add("rows_disagree", f"samples lie in another {what} than the {what}s say", wrong)


def check_versions(check: RolloutCheck) -> None:
    """Check the links to weight versions; after the documents, which hold what has more turns than a number says."""
    row, samples = check.row, check.samples
    if row is None or samples is None:
        return
    links = check.read("the samples' weight versions", lambda rows: rows.versions(check.pk))
    if links is None:
        return
    by_position = {position: list(rows) for position, rows in groupby(links, key=lambda link: link.position)}
    wrong = []
    for sample in samples:
        mine = by_position.get(sample["position"], [])
        ends = (mine[0].weight_version_pk, mine[-1].weight_version_pk) if mine else (None, None)
        named = (sample["first_weight_version_pk"], sample["last_weight_version_pk"])
        if named != ends or not _is_sound(check, mine, row):
            wrong.append(sample["position"])
    if wrong:
        check.add("versions_disagree", "the links to weight versions do not fit the samples", wrong)


def _is_sound(check: RolloutCheck, links: Sequence[Row[Any]], row: Row[Any]) -> bool:
    is_written_out = links and "weight_versions" in check.extras.get(links[0].position, ())
    if sum(link.n_turns for link in links) > MAX_TURNS and not is_written_out and check.is_whole:
        return False
    return all(
        link.run_position == number and link.n_turns > 0 and link.run_pk == row.run_pk
        for number, link in enumerate(links)
    )
