"""The data source that is put around the user's own."""

from __future__ import annotations

import threading
from collections import deque
from itertools import islice
from typing import Any

from slime_store.plugins.frameworks import Framework, load_setting
from slime_store.plugins.guard import say, warn
from slime_store.plugins.session import session_of
from slime_store.plugins.state import capture, restore


class RecordingDataSource:
    """Hands out what the wrapped data source does, and can be put back to where any recorded rollout ended.

    Everything that is not listed here is the wrapped data source's. In replay mode nothing is wrapped, and no prompt
    is handed out.

    Args:
        args: the framework's arguments.
        framework: which one.

    Raises:
        SettingsError: the settings are wrong.
        RunNotFoundError, StoreNotFoundError: in replay mode, the run to replay is not there.
    """

    def __init__(self, args: Any, framework: Framework) -> None:
        self._session = session_of(args, framework)
        self._lock = threading.RLock()
        self._again: deque[list[Any]] = deque()
        self._inner: Any = None
        if self._session.settings.mode == "replay":
            say("replaying run %r", self._session.replayed.name)
        else:
            for name in ("rollout_function_path", "eval_function_path"):
                path = getattr(self._session.settings, name)
                if path is not None:
                    load_setting(name, path)  # now, and not after the engines have started
            self._inner = load_setting("data_source_path", self._session.data_source_path)(args)

    def get_samples(self, num_samples: int) -> list[list[Any]]:
        """Return ``num_samples`` groups: those that were in flight at a crash first, then the wrapped source's."""
        if self._inner is None:
            return []
        with self._lock:
            again = list(islice(self._again, num_samples))
            fresh = self._inner.get_samples(num_samples - len(again)) if len(again) < num_samples else []
            for _ in again:  # not before: the wrapped source may fail
                self._again.popleft()
            groups = [*again, *fresh]
            self._session.guard.run("note prompts", lambda: self._session.tracker.handed_out(groups))
        return groups

    def add_samples(self, samples: list[list[Any]]) -> None:
        """Give groups back to the wrapped source's buffer."""
        if self._inner is None:
            return
        with self._lock:
            self._inner.add_samples(samples)
            self._session.guard.run("note returned groups", lambda: self._session.tracker.given_back(samples))

    def save(self, rollout_id: int) -> None:
        """Save the wrapped source's state as it does itself, and note the checkpoint, be its rollout stored or not.

        Where the data source was after a rollout that is lost or in the spool, the store does not know, so that
        resuming from there would begin the prompts anew. `Run.resume` goes from the checkpoint before, and pruning
        keeps what that needs. The framework may still load this one, and then keeps its own file's state.

        Raises:
            StoreError: only with ``slime_store_on_error: raise``: something before the checkpoint is not stored.
        """
        if self._inner is None:
            return
        with self._lock:
            self._inner.save(rollout_id)
        session = self._session
        if not session.is_used:
            session.is_used = True  # said once
            warn("nothing is recorded, since no rollout came through it; set --rollout-function-path to slime_store's")
        # at once: what an earlier session saved under this number is no more
        session.guard.run("note a checkpoint", lambda: session.note_checkpoint(rollout_id))
        session.recorder.flush()
        session.guard.check()
        if rollout_id in session.recorder.stored:
            session.guard.run("note a checkpoint", lambda: session.note_checkpoint(rollout_id))
        else:
            warn("the store does not know the data source of the checkpoint after rollout %s", rollout_id)

    def load(self, rollout_id: int | None = None) -> None:
        """Load the wrapped source's state as it does itself, then put it to where the checkpoint's rollout ended.

        The framework's own file may be ahead of that: a loop that generates one rollout early saves a later cursor.
        """
        if self._inner is None:
            return
        self._inner.load(rollout_id)
        self._session.guard.run(
            "find where to resume", lambda: self.resume_from(-1 if rollout_id is None else int(rollout_id))
        )

    def __bool__(self) -> bool:
        """True: a source without a length, or of an empty dataset, is a source."""
        return True

    def __getattr__(self, name: str) -> Any:
        inner = self.__dict__.get("_inner")
        if inner is None:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(inner, name)

    def state(self) -> dict[str, Any] | None:
        """Return the state at the end of a rollout, groups in flight included."""
        with self._lock:
            in_flight = [*self._session.tracker.in_flight(), *self._again]
            state = capture(self._inner)
            if state is not None and in_flight:
                state["in_flight"] = in_flight
            return state

    def put_back(self, state: dict[str, Any]) -> None:
        """Go to a recorded state."""
        with self._lock:
            restore(self._inner, state)
            self._again = deque(state.get("in_flight", ()))

    def resume_from(self, checkpoint: int) -> None:
        """Begin the session at a checkpoint: go to where its rollout ended, and find what may be adopted."""
        session = self._session
        resumes = session.begin(self._inner, checkpoint)
        if not resumes or checkpoint < 0:
            return
        state = session.run.recovery.load_state(checkpoint, sample_type=session.framework.sample_type)
        if state is None:
            warn(
                "no data source state is recorded for rollout %d; keeping the one of the checkpoint, which with "
                "asynchronous training is one batch ahead",
                checkpoint,
            )
        else:
            self.put_back(state)
            say("the data source is where rollout %d ended", checkpoint)
