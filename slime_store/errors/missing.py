"""What was asked for is not there."""

from __future__ import annotations

from slime_store.errors.base import StoreError


class StoreNotFoundError(StoreError, LookupError):
    """There is no store at this place, and the caller did not ask to create one."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url

    def __str__(self) -> str:
        return f"there is no store at {self.url}; open it without read_only=True to create it"


class RunNotFoundError(StoreError, LookupError):
    """The store holds no run of this name, or only another one than was opened."""

    def __init__(self, run: str, known: tuple[str, ...] = ()) -> None:
        super().__init__(run, known)
        self.run, self.known = run, known

    def __str__(self) -> str:
        if self.run in self.known:
            return f"run {self.run!r} was deleted, and the one of this name now is another; open it anew"
        known = f"it holds {', '.join(map(repr, self.known[:5]))}" if self.known else "it holds no run yet"
        return f"the store has no run {self.run!r}; {known}"


class RolloutNotFoundError(StoreError, LookupError):
    """The run holds no complete rollout with this id (or not this attempt of it)."""

    def __init__(
        self, run: str, kind: str, rollout_id: int, attempt: int | None = None, nearest: tuple[int, ...] = ()
    ) -> None:
        super().__init__(run, kind, rollout_id, attempt, nearest)
        self.run, self.kind, self.rollout_id = run, kind, rollout_id
        self.attempt, self.nearest = attempt, nearest

    def __str__(self) -> str:
        which = f"{self.kind} rollout {self.rollout_id}"
        if self.attempt is not None:
            which = f"attempt {self.attempt} of {which}"
        near = f"; nearest recorded: {', '.join(map(str, self.nearest))}" if self.nearest else ""
        return f"run {self.run!r} has no {which}{near}; see `run.rollouts(kind={self.kind!r})`"


class SampleNotFoundError(StoreError, LookupError):
    """The rollout holds no sample at this position."""

    def __init__(self, run: str, kind: str, rollout_id: int, position: int, n_samples: int) -> None:
        super().__init__(run, kind, rollout_id, position, n_samples)
        self.run, self.kind, self.rollout_id = run, kind, rollout_id
        self.position, self.n_samples = position, n_samples

    def __str__(self) -> str:
        held = f"they are 0 to {self.n_samples - 1}" if self.n_samples else "it has none"
        return f"{self.kind} rollout {self.rollout_id} of run {self.run!r} has no sample {self.position}; {held}"


class ArraysPrunedError(StoreError, LookupError):
    """The arrays of a rollout were deleted to save space; its scalars and texts are still there."""

    def __init__(
        self, run: str, kind: str, rollout_id: int, attempt: int, pruned_at: str | None = None, by: str | None = None
    ) -> None:
        super().__init__(run, kind, rollout_id, attempt, pruned_at, by)
        self.run, self.kind, self.rollout_id, self.attempt = run, kind, rollout_id, attempt
        self.pruned_at, self.by = pruned_at, by

    def __str__(self) -> str:
        return (
            f"the arrays of attempt {self.attempt} of {self.kind} rollout {self.rollout_id} of run {self.run!r} were "
            f"pruned at {self.pruned_at} by {self.by}; "
            'run.iter_samples(fields=["reward", "response", ...]) reads what is kept'
        )


class BlobMissingError(StoreError, LookupError):
    """A stored array or image that a sample refers to is gone."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"blob {self.name} is missing; see `store.verify()` for what is affected"
