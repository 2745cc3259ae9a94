"""Files that come in and go out: dumps, exports, backups, copies."""

from __future__ import annotations

from slime_store.errors.base import StoreError


class InvalidDumpError(StoreError, ValueError):
    """A file is not a rollout dump that can be read: another format, damaged, or without what a dump holds."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class UntrustedPickleError(InvalidDumpError):
    """A file asks for a class or function that is not on the list of harmless ones; none of its code was run.

    Attributes:
        name: what it asks for, ``"module.name"``.
    """

    def __init__(self, path: str, name: str) -> None:
        super().__init__(path, name)
        self.name = name
        self.reason = (
            f"it refers to {name}, which is not on the list of harmless types, and was not opened; if you trust "
            "whoever made the file, read it with trust=True (`slime-store import --trust`), which lets it run any code"
        )


class ExportError(StoreError):
    """A file cannot be written; one that was there before is as it was."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return f"cannot export to {self.path}: {self.reason}"


class AlreadyImportedError(StoreError):
    """The run already holds the content of this file, or the very recording that a store has."""

    def __init__(self, run: str, kind: str, rollout_id: int, attempt: int) -> None:
        super().__init__(run, kind, rollout_id, attempt)
        self.run, self.kind, self.rollout_id, self.attempt = run, kind, rollout_id, attempt

    def __str__(self) -> str:
        return (
            f"it is there already, as attempt {self.attempt} of {self.kind} rollout {self.rollout_id} of "
            f"run {self.run!r}"
        )


class BackupError(StoreError):
    """A backup cannot be made; nothing was left behind."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return f"cannot back up to {self.path}: {self.reason}"


class CopyError(StoreError):
    """A store cannot be copied to this place, or the copy is not like the original."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(url, reason)
        self.url, self.reason = url, reason

    def __str__(self) -> str:
        return f"cannot copy to {self.url}: {self.reason}"
