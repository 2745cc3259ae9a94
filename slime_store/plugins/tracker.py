"""Groups on their way: journalled when they are finished, served back when they are generated again."""

from __future__ import annotations

import threading
from typing import Any

from slime_store.plugins.guard import Guard
from slime_store.plugins.state import clone, group_index_of, leaves
from slime_store.store.journal import Journal

_FINAL = frozenset({"completed", "truncated", "failed"})


class GroupTracker:
    """Knows which groups are under way in the rollout that is generated now.

    Args:
        guard: counts and logs failures.
        carry_over: keep account of groups that are in flight across rollouts.
    """

    def __init__(self, guard: Guard, *, carry_over: bool) -> None:
        self.n_served = 0
        self.carry_over = carry_over
        self._guard = guard
        self._journal: Journal | None = None
        self._rollout_id = -1
        self._finished: dict[int, Any] = {}
        self._in_flight: dict[int, list[Any]] = {}
        self._lock = threading.Lock()

    def serve_later(self, groups: list[Any]) -> None:
        """Take the journalled groups that are to be served instead of being generated."""
        for group in groups:
            index = group_index_of(group)
            if index is not None:
                self._finished[index] = group

    def begin(self, rollout_id: int, journal: Journal | None) -> None:
        """A rollout begins: groups that finish from now on belong to it."""
        self._rollout_id, self._journal, self.n_served = rollout_id, journal, 0

    def end(self, samples: Any) -> None:
        """A rollout was returned: its groups are no longer under way; nor are others, unless they carry over."""
        with self._lock:
            if not self.carry_over:
                self._finished.clear()
                self._in_flight.clear()
                return
            for index in map(group_index_of, samples):
                if index is not None:
                    self._in_flight.pop(index, None)
                    self._finished.pop(index, None)

    def handed_out(self, groups: list[Any]) -> None:
        """The data source hands out groups."""
        if self.carry_over:
            with self._lock:
                for group in groups:
                    index = group_index_of(group)
                    if index is not None:
                        self._in_flight[index] = clone(group)

    def given_back(self, groups: list[Any]) -> None:
        """Groups return to the data source's buffer, whose state holds them from now on."""
        if self.carry_over:
            with self._lock:
                for index in map(group_index_of, groups):
                    if index is not None:
                        self._in_flight.pop(index, None)

    def in_flight(self) -> list[Any]:
        """Return groups that were handed out and neither returned nor given back, as they were handed out."""
        with self._lock:
            return [self._in_flight[index] for index in sorted(self._in_flight)]

    def finished_before(self, group: Any) -> Any:
        """Return the finished group of an earlier process for a group that is about to be generated, or None."""
        index = group_index_of(group)
        if index is None or index not in self._finished:
            return None
        stored = self._finished[index]
        wanted = {sample.index for sample in leaves(group)}
        if len(stored) != len(group) or not {sample.index for sample in leaves(stored)} <= wanted:
            return None
        with self._lock:
            self.n_served += 1
            return self._finished.pop(index)

    def finished(self, group: Any) -> None:
        """A group is generated and rewarded: put it into the journal, unless some of it is unfinished."""
        if self._journal is None or not isinstance(group, list) or not is_finished(group):
            return
        journal, rollout_id = self._journal, self._rollout_id
        self._guard.run("journal a group", lambda: journal.put(rollout_id, group))


def is_finished(group: list[Any]) -> bool:
    """True when every sample of the group has ended and has its reward."""
    samples = leaves(group)
    return bool(samples) and all(
        getattr(sample.status, "value", None) in _FINAL and sample.reward is not None for sample in samples
    )
