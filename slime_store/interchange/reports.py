"""What became of the files of an import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slime_store.interchange.dump_names import Kind


@dataclass(frozen=True)
class ImportedFile:
    """What became of one file.

    Attributes:
        path: the file.
        action: "recorded"; "skipped", since the run holds the same content already; or "failed".
        kind: "train" or "eval".
        rollout_id: which rollout; None where a file failed before it said so.
        attempt: the attempt that holds it now; None where it failed.
        n_samples: samples; 0 where nothing was recorded.
        reason: why it was skipped or failed, for people.
        nesting: "inferred", or "given" where the file itself had nested lists.
        placeholders: paths of values that could not be kept and were replaced by placeholders.
        notes: what is unusual about single samples, for people.
    """

    path: str
    action: Literal["recorded", "skipped", "failed"]
    kind: Kind
    rollout_id: int | None = None
    attempt: int | None = None
    n_samples: int = 0
    reason: str = ""
    nesting: Literal["inferred", "given", ""] = ""
    placeholders: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ImportReport:
    """What became of all files, in the order in which they were taken."""

    files: tuple[ImportedFile, ...]

    @property
    def recorded(self) -> tuple[ImportedFile, ...]:
        """The files that are in the run now and were not before."""
        return self._of("recorded")

    @property
    def skipped(self) -> tuple[ImportedFile, ...]:
        """The files whose content the run held already."""
        return self._of("skipped")

    @property
    def failed(self) -> tuple[ImportedFile, ...]:
        """The files of which nothing was recorded."""
        return self._of("failed")

    def _of(self, action: str) -> tuple[ImportedFile, ...]:
        return tuple(each for each in self.files if each.action == action)
