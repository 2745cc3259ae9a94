"""Groups on their way: journalled when they are finished, served back when they are generated again."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from slime_store.mapping.snapshot import snapshot
from slime_store.plugins.guard import Guard, warn
from slime_store.plugins.stable import stable_text
from slime_store.plugins.state import group_index_of, leaves
from slime_store.repositories.imports import SessionOrigin
from slime_store.store.journal import Journal
from slime_store.store.requests import JournalClearing

_FINAL = frozenset({"completed", "truncated", "failed"})


@dataclass
class _Flight:
    """A group that was handed out: a copy of it as it was then, and weak references to what the loop works on."""

    prompt: list[Any]
    held: list[Callable[[], Any]] = field(default_factory=list)

    def hold(self, group: Any) -> None:
        self.held += [_reference(sample) for sample in leaves(group)]

    @property
    def is_dropped(self) -> bool:
        """True when the loop has let go of every sample: no task, queue or list will ever return the group."""
        return all(reference() is None for reference in self.held)


class GroupTracker:
    """Knows which groups are under way. Safe from several threads: a loop's worker may outlive the call.

    Args:
        guard: counts and logs failures; none of them reaches the loop.
        carry_over: the loop keeps groups in flight across rollouts; None: assume not, until it is seen to do so.
    """

    def __init__(self, guard: Guard, *, carry_over: bool | None) -> None:
        self.n_served = 0
        self.carry_over = bool(carry_over)
        self._may_notice = carry_over is None
        self._guard = guard
        self._journal: Journal | None = None
        self._rollout_id = -1
        self._between = False
        self._finished: dict[int, Any] = {}
        self._kept: frozenset[int] = frozenset()
        self._done: set[int] = set()
        self._served: set[int] = set()
        self._sessions: dict[int, SessionOrigin] = {}
        self._returned: frozenset[int] = frozenset()
        self._in_flight: dict[int, _Flight] = {}
        self._lock = threading.RLock()

    # -- told by the rollout function ------------------------------------------------------------------

    def take_over(self, groups: list[Any], sessions: Mapping[int, SessionOrigin] | None = None) -> None:
        """Take the journalled groups of earlier processes that are to be served instead of being generated.

        ``sessions`` says which ones those are, by group index.
        """
        for group in groups:
            index = group_index_of(group)
            if index is not None:
                self._finished[index] = group
        self._kept = frozenset(self._finished)
        self._sessions = dict(sessions or {})

    def forget_journalled(self) -> None:
        """Serve none of those groups: the run does not follow the rollouts that they followed."""
        with self._lock:
            self._finished.clear()
            self._kept = frozenset()

    def begin(self, rollout_id: int, journal: Journal | None) -> None:
        """A rollout begins: groups that finish from now on belong to it."""
        with self._lock:
            if self._between and not self.carry_over:
                self._finished.clear()
                self._in_flight.clear()
            self._between = False
            self._rollout_id, self._journal, self.n_served = rollout_id, journal, 0

    def end(self, samples: Any) -> None:
        """A rollout was returned: its groups are no longer under way; nor are others, unless they carry over."""
        with self._lock:
            self._between = True
            self._returned = frozenset(index for index in map(group_index_of, samples) if index is not None)
            self._settle(samples)

    def clearing(self) -> JournalClearing:
        """Return what the rollout that just ended has of the journal, and which journalled groups it makes needless."""
        with self._lock:
            served = self._returned & self._served
            self._served -= served
            sessions = {index: self._sessions[index] for index in served if index in self._sessions}
            if not self.carry_over:
                return JournalClearing(served=served, whole=True, sessions=sessions)
            done, self._done = frozenset(self._done), set()
            self._kept -= done
            return JournalClearing(served=served, groups=done, keep=self._kept, sessions=sessions)

    # -- told by the data source -----------------------------------------------------------------------

    def handed_out(self, groups: list[Any]) -> None:
        """The data source hands out groups."""
        with self._lock:
            self._notice_work()
            if self.carry_over:
                for group in groups:
                    index = group_index_of(group)
                    if index is not None:
                        flight = self._in_flight[index] = _Flight(snapshot(group))
                        flight.hold(group)

    def given_back(self, groups: list[Any]) -> None:
        """Groups return to the data source's buffer, whose state holds them from now on."""
        with self._lock:
            self._settle(groups)

    def in_flight(self) -> list[Any]:
        """Return the groups that the loop still works on or keeps, as they were handed out."""
        with self._lock:
            if not self.carry_over:
                return []
            dropped = [index for index, flight in self._in_flight.items() if flight.is_dropped]
            for index in dropped:
                del self._in_flight[index]
            self._done.update(dropped)
            return [self._in_flight[index].prompt for index in sorted(self._in_flight)]

    # -- told by the group function --------------------------------------------------------------------

    def finished_before(self, group: Any) -> Any:
        """Return the finished group of an earlier process for a group that is about to be generated, or None."""
        return self._guard.run("look for a finished group", lambda: self._serve(group))

    def finished(self, group: Any, result: Any) -> None:
        """A group is generated and rewarded: put it into the journal, unless some of it is unfinished."""
        self._guard.run("journal a group", lambda: self._put(group, result))

    def _serve(self, group: Any) -> Any:
        index = group_index_of(group)
        if index is None or index not in self._finished:
            return None
        with self._lock:
            stored = self._finished.pop(index, None)
            if stored is None or len(stored) != len(group) or not _answers(stored, group):
                return None
            self.n_served += 1
            self._served.add(index)
            if index in self._in_flight:
                self._in_flight[index].hold(stored)
            return stored

    def _put(self, group: Any, result: Any) -> None:
        index = group_index_of(group)
        if index is None or not isinstance(result, list):
            return
        with self._lock:
            self._notice_work()
            if index in self._in_flight:
                self._in_flight[index].hold(result)
            if self._journal is not None and is_finished(result):
                self._done.discard(index)
                self._journal.put(self._rollout_id, result)

    def _settle(self, groups: Any) -> None:
        """These groups are where the recorded state or a rollout has them, and are no longer under way."""
        for index in map(group_index_of, groups):
            if index is not None:
                self._in_flight.pop(index, None)
                self._finished.pop(index, None)
                if self.carry_over:
                    self._done.add(index)

    def _notice_work(self) -> None:
        """Work between two rollouts is the mark of a loop that keeps groups in flight."""
        if self._between and not self.carry_over and self._may_notice:
            self.carry_over = True
            warn("groups are under way between two rollouts; set slime_store_carry_over: true to lose none in a crash")


def _answers(stored: Any, group: Any) -> bool:
    """Whether a finished group is one of this group's prompt, told by the label: generation may rewrite the prompt.

    A sample that generation made anew may lack the label.
    """
    labels = {sample.index: stable_text(sample.label) for sample in leaves(group)}
    return all(
        sample.index in labels and (sample.label is None or stable_text(sample.label) == labels[sample.index])
        for sample in leaves(stored)
    )


def is_finished(group: list[Any]) -> bool:
    """True when every sample of the group has ended and has its reward."""
    samples = leaves(group)
    return bool(samples) and all(
        getattr(sample.status, "value", None) in _FINAL and sample.reward is not None for sample in samples
    )


def _reference(sample: Any) -> Callable[[], Any]:
    """A weak reference, or for objects that cannot have one, a strong one."""
    try:
        return weakref.ref(sample)
    except TypeError:
        return lambda: sample
