"""What a system must do to be measured."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from slime_store import RolloutFnTrainOutput


@dataclass(frozen=True)
class Place:
    """Where systems keep their data.

    Attributes:
        directory: empty, on the disk that is measured.
        postgres: URL of an empty database, or None where there is no server.
    """

    directory: Path
    postgres: str | None = None


class System(ABC):
    """A way to keep rollouts."""

    name: ClassVar[str]
    holds_media: ClassVar[bool] = True
    """Whether tensors and images can be kept."""
    holds_huge: ClassVar[bool] = False
    """Whether it is measured with gigabytes too."""

    @classmethod
    def is_available(cls, place: Place) -> bool:
        """Whether what it needs is installed."""
        return True

    @abstractmethod
    def record(self, number: int, output: RolloutFnTrainOutput) -> float | None:
        """Store a rollout durably; return the seconds that a caller waited, None when that is until the end."""

    @abstractmethod
    def size(self, number: int) -> int:
        """Return the bytes that the rollout recorded last takes on disk."""

    @abstractmethod
    def load_train(self, number: int) -> list[Any]:
        """Return the rollout's samples."""

    @abstractmethod
    def load_batch(self, number: int) -> dict[str, list[Any]]:
        """Return the rollout as the tensors that training reads."""

    @abstractmethod
    def load_one(self, number: int, position: int, group_index: int) -> Any:
        """Return the first sample of a group, at this position, reading as little as the system can."""

    def walk(self, number: int) -> None:
        """Go through the samples with as few in memory as the system can."""
        self.load_train(number)

    @abstractmethod
    def forget(self, number: int) -> None:
        """Delete the rollout."""

    def close(self) -> None:  # noqa: B027 - most have nothing to let go of
        """Let go of files and connections."""


class FileSystem(System):
    """A system with one file for a rollout."""

    suffix: ClassVar[str]

    def __init__(self, place: Place) -> None:
        self._directory = place.directory

    def path(self, number: int) -> Path:
        """Return the rollout's file."""
        return self._directory / f"{number}{self.suffix}"

    def size(self, number: int) -> int:
        return self.path(number).stat().st_size

    def forget(self, number: int) -> None:
        self.path(number).unlink()


def sync(file: BinaryIO) -> None:
    """Make a file's content outlive a loss of power."""
    file.flush()
    os.fsync(file.fileno())


def sync_path(path: Path) -> None:
    """Do the same for a file that others wrote."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
