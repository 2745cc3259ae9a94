"""What a store knows about a run, printed: plain SQL for the questions, the API for the samples."""

from __future__ import annotations

import math
import shlex
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from slime_store import Run
from tiny.copies import Copies
from tiny.task import VOCABULARY

REWARD_BY_WEIGHT_VERSION = """\
SELECT MIN(weight_version_ordinal), MAX(weight_version_ordinal),
       COUNT(*), AVG(truncated), AVG(reward)
FROM v_samples
WHERE run = :run AND kind = 'train'
GROUP BY (weight_version_ordinal - 1) / :versions_per_bar
ORDER BY 1"""

ACCURACY_BY_DIFFICULTY = """\
SELECT json_extract(metadata, '$.difficulty') AS digits,
       3 * rollout_id / :n_rollouts AS third,
       AVG(json_extract(metadata, '$.correct'))
FROM v_samples
JOIN sample_documents USING (rollout_pk, position)
WHERE run = :run AND kind = 'train'
GROUP BY digits, third"""

_BARS = 16  # at most; each stands for the same number of weight versions
_WIDTH = 36


def print_report(path: Path, bytes_before: int, run: Run, copies: Copies) -> tuple[float, float]:
    """Print everything; return the mean reward with the first and with the last weights."""
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
        rewards = _print_reward(database, run.name, len(copies.train))
        _print_difficulty(database, run.name, len(copies.train))
    _print_eval(run, max(copies.evals))
    _print_sample(run, max(copies.train))
    _print_size(path, bytes_before, copies)
    return rewards


def print_next(path: Path, run: str, last_eval: int) -> None:
    """Print commands that ask more."""
    command = Path(sys.executable).with_name("slime-store")
    called = command.relative_to(Path.cwd()) if command.is_relative_to(Path.cwd()) else "slime-store"
    print_title("Ask more of it")
    print(f"  export SLIME_STORE_URL={shlex.quote(str(path))}")
    for words in (f"run show {run}", f"rewards {run} --kind train", f"eval compare {run} 0 {last_eval}"):
        print(f"  {called} {words}")


def store_bytes(path: Path) -> int:
    """Return the size of a store: its database, and what lies beside it under the same name."""
    files = [file for entry in path.parent.glob(f"{path.name}*") for file in (entry, *entry.rglob("*"))]
    return sum(file.stat().st_size for file in files if file.is_file())


def _print_size(path: Path, bytes_before: int, copies: Copies) -> None:
    stored = store_bytes(path) - bytes_before
    print_title("The store")
    print(f"  {path.resolve()}{'' if not bytes_before else ', which held other runs before'}")
    print(f"  {stored / 1e6:6.2f} MB   this run: {sum(map(len, copies.groups)):,} samples, everything in them")
    print(f"  {copies.dump_bytes() / 1e6:6.2f} MB   the same samples as one torch.save per rollout")
    print("  With a dozen tokens a sample this is mostly rows and indexes; benchmarks/ has real lengths.")


def _print_reward(database: sqlite3.Connection, run: str, n_rollouts: int) -> tuple[float, float]:
    """Print reward by weight version and return the first and the last."""
    print_title("Reward by weight version: Python's sqlite3 on the file")
    rows = _ask(database, REWARD_BY_WEIGHT_VERSION, run=run, versions_per_bar=math.ceil((n_rollouts + 1) / _BARS))
    print("  versions    samples  truncated  reward")
    for first, last, n_samples, truncated, reward in rows:
        print(f"  {first:>3} - {last:>3}  {n_samples:>8,}  {truncated:>9.0%}   {reward:.3f}  {bar(reward)}")
    return rows[0][-1], rows[-1][-1]


def _print_difficulty(database: sqlite3.Connection, run: str, n_rollouts: int) -> None:
    print_title("Accuracy by number of digits, in each third of the run: SQL over metadata")
    rows = _ask(database, ACCURACY_BY_DIFFICULTY, run=run, n_rollouts=n_rollouts)
    accuracy = {(digits, third): value for digits, third, value in rows}
    print("  digits   first  second    last")
    for digits in sorted({digits for digits, _ in accuracy}):
        print(f"  {digits:>6}" + "".join(f"  {accuracy.get((digits, third), 0):>6.0%}" for third in range(3)))


def _print_eval(run: Run, rollout_id: int) -> None:
    print_title(f"The last eval: run.load_eval({rollout_id})")
    print("  dataset    prompts  truncated  accuracy  reward")
    for name, dataset in run.load_eval(rollout_id).data.items():
        rewards, n = dataset["rewards"], len(dataset["rewards"])
        accuracy = sum(sample.metadata["correct"] for sample in dataset["samples"]) / n
        truncated, reward = sum(dataset["truncated"]) / n, sum(rewards) / n
        print(f"  {name:<9}  {n:>7}  {truncated:>9.0%}  {accuracy:>8.0%}   {reward:.3f}  {bar(reward)}")


def _print_sample(run: Run, rollout_id: int) -> None:
    groups = run.load_train(rollout_id).samples
    position, sample = max(enumerate(group[0] for group in groups), key=lambda item: len(item[1].tokens))
    print_title(f"One sample in full: run.load_train({rollout_id}).samples[{position}][0]")
    for name, value in (
        ("index", f"{sample.index}, in group {sample.group_index}"),
        ("prompt", repr(sample.prompt)),
        ("response", repr(sample.response)),
        ("label", repr(sample.label)),
        ("reward", repr(sample.reward)),
        ("status", sample.status.value),
        ("weights", f"version {', '.join(sample.weight_versions)}"),
        ("metadata", repr(sample.metadata)),
        ("tokens", f"{sample.tokens}, of them {sample.response_length} generated:"),
    ):
        print(f"  {name:<10}{value}")
    generated = sample.tokens[-sample.response_length :]
    for name, cells in (
        ("", [repr(VOCABULARY[token]) for token in generated]),
        ("token", [str(token) for token in generated]),
        ("log-prob", [f"{log_prob:.4f}" for log_prob in sample.rollout_log_probs or []]),
        ("loss mask", [str(kept) for kept in sample.loss_mask or []]),
    ):
        print(f"  {name:<10}" + "".join(f"{cell:>8}" for cell in cells))


def _ask(database: sqlite3.Connection, query: str, **parameters: Any) -> list[Any]:
    print("\n".join(f"    {line}" for line in query.splitlines()), end="\n\n")
    return database.execute(query, parameters).fetchall()


def bar(share: float) -> str:
    """Return a bar of this length, 1.0 being the longest."""
    eighths = round(8 * _WIDTH * share)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def print_title(text: str) -> None:
    """Print a heading."""
    print(f"\n{text}\n{'─' * len(text)}")
