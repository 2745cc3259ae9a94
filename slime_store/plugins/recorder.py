"""Recording in the background, in order, with the spool behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from slime_store.plugins.guard import Guard, warn
from slime_store.plugins.spool import Spool
from slime_store.store import Run
from slime_store.store.operations import Operations
from slime_store.store.worker import Worker
from slime_store.types import RolloutInfo

MAX_PENDING = 3
"""Things that may wait or be under way; one more, and the training loop waits for the store."""


class Storable(Protocol):
    """Something that can be stored in a run, of the store or of the spool: a prepared rollout, a note."""

    def store(self, run: Run) -> Any:
        """Store it."""


@dataclass(frozen=True)
class WeightVersionNote:
    """The engine's weight version when a rollout began."""

    label: str
    rollout_id: int

    def __str__(self) -> str:
        return f"weight version {self.label}"

    def store(self, run: Run) -> None:
        """Note it in the run."""
        run.record_weight_version(self.label, metadata={"rollout_id": self.rollout_id})


class Recorder:
    """Stores things in a thread of its own. What the store refuses goes to the spool.

    Args:
        run: opens the run; called in the recording thread.
        guard: counts and logs failures.
        spool: where refused things go.
        operations: what the recording thread may have to wait for.

    Attributes:
        n_bytes: of the rollout that was stored last.
        stored: the train rollouts of this session that are in the store, be it that it adopted them.
    """

    def __init__(self, run: Callable[[], Run], guard: Guard, spool: Spool, operations: Operations) -> None:
        self.n_bytes = 0
        self.stored: set[int] = set()
        self._run = run
        self._guard = guard
        self._spool = spool
        self._operations = operations
        self._worker = Worker("slime_store-recorder", self._work, room=MAX_PENDING)

    def put(self, item: Storable) -> None:
        """Queue something; waits while too many are queued. If no thread can be started, the next call tries again."""
        self._worker.put(item)

    def flush(self) -> None:
        """Wait until everything queued is stored, spooled or lost with a log line.

        A signal handler does not wait where that would wait for what it has interrupted.
        """
        if self._operations.is_here():
            warn("a signal handler does not wait for what is being recorded: it has interrupted what that waits for")
            return
        self._worker.flush()

    def _work(self, items: list[Storable]) -> bool:
        for item in items:
            self._store(item)
        return True

    def _store(self, item: Storable) -> None:
        try:
            info = item.store(self._run())
        except Exception as error:
            self._guard.failed(f"record {item}", error)
        else:
            if isinstance(info, RolloutInfo):
                self.n_bytes = info.n_bytes
                if info.kind == "train":
                    self.stored.add(info.rollout_id)
            return
        try:
            self._spool.keep(item)
        except Exception as error:
            self._guard.failed(f"spool {item}, which is lost", error)
