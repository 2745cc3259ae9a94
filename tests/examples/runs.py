"""Training runs of the example that a test stops at an exact moment, by SIGKILL."""

from __future__ import annotations

import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from slime_store import SampleStore
from slime_store.types import ResumePoint
from tiny.args import Args
from tiny.checkpoints import digest, last_checkpoint, load_checkpoint
from tiny.copies import Copies
from tiny.events import Event
from tiny.experiment import with_store
from tiny.process import TrainingProcess
from tiny.tally import Tally

SMALL = Args(
    num_rollout=8, rollout_batch_size=6, n_samples_per_prompt=4, eval_interval=4, n_eval_prompts=4, dataset_size=20,
    hidden_size=32, num_layers=1, save_interval=3,
)  # fmt: skip
"""Checkpoints after 2, 5 and 7; the third epoch begins in rollout 6."""

PATIENCE_SECONDS = 60.0
Moment = Callable[[Event, Tally], bool]


class Training:
    """One training run in a directory, over as many processes as it takes."""

    def __init__(self, directory: Path, args: Args = SMALL, *, store: bool = True) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.url = directory / "demo.db"
        self.tally, self.copies = Tally(), Copies()
        self._log = directory / "log"
        plain = Args(**{**vars(args), "save": str(directory / "checkpoints")})
        self.args = with_store(plain, str(self.url), "demo", directory) if store else plain

    def kill_at(self, moment: Moment, before: Callable[[], None] = lambda: None) -> None:
        """Train until a moment, at which the process waits; do something meanwhile, and kill it."""
        process = TrainingProcess(self.args, self._log, step_by_step=True)
        for event in process.events():
            self._note(event)
            if moment(event, self.tally):
                break
        else:
            raise AssertionError(f"the moment never came\n{self._log.read_text()}")
        before()
        process.kill()
        assert process.wait() == -signal.SIGKILL
        assert process.next_event() is None  # it waited: it has said nothing more

    def finish(self) -> None:
        """Train to the end."""
        process = TrainingProcess(self.args, self._log)
        for event in process.events():
            self._note(event)
        assert process.wait() == 0, self._log.read_text()

    def wait_for_journal(self, n_groups: int) -> None:
        """Wait until so many finished groups of the rollout under way are on disk."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(self.resume_point().journalled_groups) < n_groups:
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.005)

    def wait_for_rollout(self, rollout_id: int) -> None:
        """Wait until a rollout is on disk."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.resume_point().next_rollout_id <= rollout_id:
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.005)

    def resume_point(self) -> ResumePoint:
        """What the store says a restart would do."""
        with closing(SampleStore.open(self.url, read_only=True)) as store:
            return store.run("demo", create=False).resume()

    @property
    def digest(self) -> str:
        """Of the whole training state at the last checkpoint."""
        return digest(load_checkpoint(self.args, last_checkpoint(self.args)))

    def _note(self, event: Event) -> None:
        self.tally.note(event)
        self.copies.note(event)


def writing_is_held_up(url: Path) -> sqlite3.Connection:
    """Return a connection that holds the write lock, so that whoever writes next is stopped in its transaction."""
    connection = sqlite3.connect(url, isolation_level=None, timeout=PATIENCE_SECONDS)
    connection.execute("BEGIN IMMEDIATE")
    return connection


def at(kind: str, rollout_id: int) -> Moment:
    """Of an event that names a rollout."""
    return lambda event, tally: event.kind == kind and event.rollout_id == rollout_id


def in_rollout(rollout_id: int, n_finished: int, kind: str = "group finished") -> Moment:
    """When so many groups of a rollout are finished and this happens to a group."""
    return lambda event, tally: (event.kind, tally.rollout_id, tally.n_finished) == (kind, rollout_id, n_finished)
