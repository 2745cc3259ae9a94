"""What was given cannot be stored, or makes no sense."""

from __future__ import annotations

from slime_store.errors.base import StoreError


class UnsupportedValueError(StoreError, ValueError):
    """A value cannot be kept exactly, so nothing was written."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return (
            f"{self.path or 'value'}: {self.reason}; nothing was written. Remove or convert it, or record with "
            "strict=False to store a marked placeholder in its place"
        )


class InvalidOutputError(UnsupportedValueError, TypeError):
    """What was given is no rollout, eval or rollout id; recording it leniently would not help."""

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class InvalidRunNameError(StoreError, ValueError):
    """A run cannot have this name."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name, self.reason = name, reason

    def __str__(self) -> str:
        shown = repr(self.name if len(self.name) <= 100 else self.name[:100] + "...")
        return f"{shown} is no name for a run: {self.reason}; choose another one"


class RolloutExistsError(StoreError):
    """The rollout is already recorded, and the caller chose ``on_conflict="error"``."""

    def __init__(self, run: str, kind: str, rollout_id: int) -> None:
        super().__init__(run, kind, rollout_id)
        self.run, self.kind, self.rollout_id = run, kind, rollout_id

    def __str__(self) -> str:
        return (
            f"run {self.run!r} already has {self.kind} rollout {self.rollout_id}; "
            'record with on_conflict="new_attempt" or "replace"'
        )


class BatchError(StoreError, ValueError):
    """A rollout's samples make no batch for training."""

    def __init__(self, rollout: str, sample: int, reason: str) -> None:
        super().__init__(rollout, sample, reason)
        self.rollout, self.sample, self.reason = rollout, sample, reason

    def __str__(self) -> str:
        return f"{self.rollout}, sample {self.sample}: {self.reason}; `load_train` gives the samples as they are"


class SettingsError(StoreError, ValueError):
    """A setting of the plug-in is missing, unknown or makes no sense."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(key, reason)
        self.key, self.reason = key, reason

    def __str__(self) -> str:
        return f"{self.key}: {self.reason}"
