"""The moment of the crash: in the middle of a rollout, well behind a checkpoint, by what the store itself holds."""

from __future__ import annotations

from dataclasses import dataclass

from slime_store import SampleStore
from slime_store.types import ResumePoint
from tiny.args import Args
from tiny.events import Event
from tiny.tally import Tally


@dataclass(frozen=True)
class CrashSite:
    """What a kill left behind, read from the store when the process was dead.

    Attributes:
        pid: of the process that was killed.
        point: checkpoint, complete rollouts after it, and finished groups of the one under way.
    """

    pid: int
    point: ResumePoint

    @property
    def is_inside_a_rollout(self) -> bool:
        """Whether finished groups of an unfinished rollout are in the journal."""
        return bool(self.point.journalled_groups)


class Executioner:
    """Watches a training process and the store, and says when to kill.

    Args:
        args: the settings of the process.
        store: the store, opened for reading.
        run: name of the run.
    """

    def __init__(self, args: Args, store: SampleStore, run: str) -> None:
        self._args, self._store, self._run = args, store, run

    def is_near(self, event: Event, tally: Tally) -> bool:
        """Whether it may be time, by what training says: then hold the process, and ask ``says_now``."""
        interval = self._args.save_interval
        return (
            event.kind == "group finished"
            and tally.rollout_id >= 2 * self._args.num_rollout // 5
            and tally.rollout_id % interval >= self._enough
            and 3 * self._args.rollout_batch_size // 8 <= tally.n_finished < self._args.rollout_batch_size
        )

    def says_now(self, tally: Tally) -> bool:
        """Whether rollouts enough are complete behind the last checkpoint, and some of the groups are in the journal.

        The process stands still: what the store holds now is what a kill leaves behind.
        """
        batch, point = self._args.rollout_batch_size, self._look()
        return (
            point.checkpoint_rollout_id >= 0
            and len(point.complete) >= self._enough
            and point.next_rollout_id == tally.rollout_id
            and batch // 4 <= len(point.journalled_groups) < batch
        )

    @property
    def _enough(self) -> int:
        return 3 * self._args.save_interval // 5

    def inspect(self, pid: int) -> CrashSite:
        """Return what is left behind."""
        return CrashSite(pid, self._look())

    def _look(self) -> ResumePoint:
        return self._store.run(self._run, create=False).resume()
