"""What happened, one JSON line each, in a file that outlives the process: for the tests to count afterwards."""

from __future__ import annotations

import json
import os
from argparse import Namespace
from pathlib import Path
from typing import Any


def leaves(tree: Any) -> list[Any]:
    return [leaf for item in tree for leaf in leaves(item)] if isinstance(tree, list) else [tree]


def described(groups: list[Any]) -> list[Any]:
    """Return (group index, prompt, (index, tokens, reward, length of the mask) of each sample) of groups."""
    return [
        [
            leaves(group)[0].group_index,
            leaves(group)[0].prompt,
            [[s.index, s.tokens, s.reward, len(s.loss_mask or []), s.status.value] for s in leaves(group)],
        ]
        for group in groups
    ]


def note_produced(args: Namespace, rollout_id: int, kept: list[Any], dropped: list[Any]) -> None:
    """The rollout function is about to return."""
    line = {"produced": rollout_id, "kept": indexes(kept), "dropped": indexes(dropped)}
    _append(args, line)


def note_finished(args: Namespace, rollout_id: int, groups: list[Any]) -> None:
    """A rollout function is about to return some of these; it does not say which."""
    _append(args, {"finished": rollout_id, "groups": indexes(groups)})


def note_filtered(args: Namespace, group: list[Any]) -> None:
    _append(args, {"filtered": indexes([group])[0]})


def note_trained(args: Namespace, rollout_id: int, samples: Any, metrics: dict[str, Any] | None) -> None:
    """Training has the rollout."""
    _append(args, {"trained": rollout_id, "groups": described(samples), "metrics": metrics or {}})


def note_end(args: Namespace, **facts: Any) -> None:
    _append(args, {"end": facts})


def write_whole(file: Path, text: str) -> None:
    """Write a file so that a crash of another thread leaves the old one or the new one."""
    draft = file.with_suffix(".draft")
    draft.write_text(text)
    draft.replace(file)


def indexes(groups: list[Any]) -> list[Any]:
    return [leaves(group)[0].group_index for group in groups]


def _append(args: Namespace, line: dict[str, Any]) -> None:
    data = (json.dumps(line) + "\n").encode()
    file = os.open(Path(args.directory) / "ledger.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, data)
    os.close(file)


class Ledger:
    """The lines of a directory, read."""

    def __init__(self, directory: Path) -> None:
        lines = [json.loads(line) for line in (directory / "ledger.jsonl").read_text().splitlines()]
        self.trained = {line["trained"]: line["groups"] for line in lines if "trained" in line}
        self.metrics = [line["metrics"] for line in lines if "trained" in line]
        self.produced = {line["produced"]: line["dropped"] for line in lines if "produced" in line}
        self.finished = {line["finished"]: line["groups"] for line in lines if "finished" in line}
        self.filtered = {line["filtered"] for line in lines if "filtered" in line}
        self.ends = [line["end"] for line in lines if "end" in line]

    @property
    def history(self) -> list[Any]:
        """What training saw in the end: the last writing of each rollout."""
        return [self.trained[number] for number in sorted(self.trained)]

    @property
    def trained_indexes(self) -> list[int]:
        return [group[0] for groups in self.history for group in groups]

    @property
    def dropped_indexes(self) -> set[int]:
        """Groups that the loop itself threw away, when each rollout was made for the last time."""
        trained = set(self.trained_indexes)
        unused = {index for groups in self.finished.values() for index in groups if index not in trained}
        return unused | {index for groups in self.produced.values() for index in groups}

    @property
    def n_generated(self) -> int:
        """Tokens that the processes which ended by themselves generated."""
        return sum(end["n_generated"] for end in self.ends)
