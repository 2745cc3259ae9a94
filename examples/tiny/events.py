"""What a training process says about itself, as it happens, to whoever watches it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal[
    "process begun",  # rollout_id: the checkpoint that it goes on from, -1 for none
    "rollout begun",
    "group begun",  # the engine starts to decode it
    "group generated",  # and is done, before anybody else knows of it
    "group finished",  # the rollout function has it: from the engine, or from the store's journal
    "rollout finished",  # output: what the trainer is handed, whether generated or served
    "rollout trained",
    "checkpoint saved",
    "eval finished",  # output
    "process ended",
]


@dataclass(frozen=True)
class Event:
    """One thing that happened.

    Attributes:
        kind: what.
        rollout_id: to which rollout or step; None where a group is meant.
        group_index: to which group.
        tokens: generated tokens of each of the group's samples.
        output: what the rollout function returned.
    """

    kind: Kind
    rollout_id: int | None = None
    group_index: int | None = None
    tokens: tuple[int, ...] = ()
    output: Any = None


def unheard(event: Event) -> None:
    """Nobody watches."""
