"""What a rollout's samples come to, by weight version: the rows of ``rollout_weight_versions``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

from slime_store.mapping.encoded import SAMPLE_COLUMNS, EncodedSample

ATTRIBUTIONS = ("last", "first", "each")
"""Which version a sample that several ones generated counts for: its last, its first, or each of them, once."""

MAX_SUMMED = 1e100
"""Largest magnitude of a reward that is summed: squares of larger ones overflow, which PostgreSQL makes an error."""

MIN_SUMMED = 1e-100
"""Rewards nearer to zero are added as zeros: squares of smaller ones underflow, which PostgreSQL makes an error too."""

_REWARD = SAMPLE_COLUMNS.index("reward")
_REWARD_TYPE = SAMPLE_COLUMNS.index("reward_type")
_STATUS = SAMPLE_COLUMNS.index("status")
_RESPONSE_LENGTH = SAMPLE_COLUMNS.index("response_length")


@dataclass(frozen=True)
class Summary:
    """Sums over some samples of one rollout; fields as the columns of ``rollout_weight_versions``.

    Attributes:
        reward_sum: None: a reward is infinite or beyond 1e100.
        reward_m2: sum of the squared distances from the mean of these samples; None as for ``reward_sum``.
    """

    n_samples: int
    n_rewards: int
    n_none: int
    n_nan: int
    reward_sum: float | None
    reward_m2: float | None
    reward_min: float | None
    reward_max: float | None
    n_truncated: int
    n_response_lengths: int
    response_length_sum: float


SUMMARY_COLUMNS = tuple(field.name for field in fields(Summary))


def summaries(
    samples: Sequence[EncodedSample], keys: Sequence[Mapping[str, int]]
) -> list[tuple[str, int, int | None, Summary]]:
    """Return (attribution, number, key of the weight version or None, summary) of each row, numbered by order of use.

    Costs about a microsecond a sample; where each sample has one version, the three attributions are one computation.

    Args:
        samples: the samples.
        keys: for each, keys of weight versions by label: equal labels of two sessions are two versions.
    """
    by_versions: dict[tuple[int, ...], list[EncodedSample]] = {}
    for sample, known_keys in zip(samples, keys, strict=True):
        by_versions.setdefault(tuple([known_keys[label] for label, _ in sample.versions]), []).append(sample)
    known: dict[tuple[tuple[int, ...], ...], Summary] = {}
    rows = []
    for attribution in ATTRIBUTIONS:
        by_key: dict[int | None, list[tuple[int, ...]]] = {}
        for versions in by_versions:
            for key in _attributed(versions, attribution):
                by_key.setdefault(key, []).append(versions)
        for position, (key, parts) in enumerate(by_key.items()):
            which = tuple(parts)
            if which not in known:
                known[which] = summarise([sample for part in parts for sample in by_versions[part]])
            rows.append((attribution, position, key, known[which]))
    return rows


def summarise(samples: Sequence[EncodedSample]) -> Summary:
    """Return the sums of some samples. They are rounded once, so that their order does not matter."""
    columns = [sample.columns for sample in samples]
    rewards: list[float] = [row[_REWARD] for row in columns if row[_REWARD] is not None]
    types = [row[_REWARD_TYPE] for row in columns]
    lengths = [row[_RESPONSE_LENGTH] for row in columns if row[_RESPONSE_LENGTH] is not None]
    low, high = min(rewards, default=None), max(rewards, default=None)
    total, m2 = _moments(rewards) if _is_summed(low, high) else (None, None)
    return Summary(
        n_samples=len(columns),
        n_rewards=len(rewards),
        n_none=types.count("none"),
        n_nan=types.count("nan"),
        reward_sum=total,
        reward_m2=m2,
        reward_min=low,
        reward_max=high,
        n_truncated=[row[_STATUS] for row in columns].count("truncated"),
        n_response_lengths=len(lengths),
        response_length_sum=float(sum(lengths)),
    )


def _attributed(versions: tuple[int, ...], attribution: str) -> Iterable[int | None]:
    if not versions:
        return (None,)
    if attribution == "each":
        return dict.fromkeys(versions)
    return (versions[-1 if attribution == "last" else 0],)


def _is_summed(low: float | None, high: float | None) -> bool:
    return low is None or high is None or (low >= -MAX_SUMMED and high <= MAX_SUMMED)


def _moments(numbers: Sequence[float]) -> tuple[float, float]:
    """Return the sum, and the sum of the squared distances from the mean."""
    if not numbers:
        return 0.0, 0.0
    numbers = [number if abs(number) >= MIN_SUMMED else 0.0 for number in numbers]
    total = math.fsum(numbers)
    mean = total / len(numbers)
    return total, math.fsum([(number - mean) ** 2 for number in numbers])
