"""What the name of a dump says: a training rollout or an eval, and which one.

slime puts ``eval_`` before the number where the template of the name has ``{rollout_id}``, whatever stands before that:
``step{rollout_id}.pt`` makes ``step40.pt`` and ``stepeval_40.pt``. So a letter before ``eval_`` may be the template's,
or of a word like ``retrieval_40.pt``; which it is, the files beside it tell.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

Kind = Literal["train", "eval"]

_NUMBER = re.compile(r"\d+")
_MARK = "eval_"
_OF_SLIME = re.compile(r".*rollout", re.IGNORECASE | re.DOTALL)  # its own word: no other one ends in `rollouteval`


class DumpName(NamedTuple):
    """What a name says.

    Attributes:
        kind: "train" or "eval".
        number: of the rollout; None: it has none.
        template: by which it would be an eval, where it is not sure that it is none; else None.
    """

    kind: Kind
    number: int | None
    template: str | None = None


class Neighbours:
    """The names beside a dump: each folder is listed when it is first asked of, and once."""

    def __init__(self) -> None:
        self._around_numbers: dict[Path, set[tuple[str, str]]] = {}

    def has(self, path: Path, prefix: str, rest: str) -> bool:
        """Return whether a file of the same folder has this before a number, and that behind it."""
        folder = path.parent
        if folder not in self._around_numbers:
            self._around_numbers[folder] = set()
            with suppress(OSError):
                self._around_numbers[folder].update(_around_numbers(os.listdir(folder)))
        return (prefix, rest) in self._around_numbers[folder]


def _around_numbers(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    for name in names:
        for number in _NUMBER.finditer(name):
            for start in range(*number.span()):  # what stands before it may end with a digit
                yield name[:start], name[number.end() :]


def name_of(
    path: str | os.PathLike[str], rollout_id: int | None = None, neighbours: Neighbours | None = None
) -> DumpName:
    """Return what a file's name says; of a dump that says its ``rollout_id``, which of the numbers in it is meant.

    Without that it is the last one. Looks which files are beside it where letters stand before ``eval_``.
    """
    place, neighbours = Path(path), neighbours or Neighbours()
    numbers = list(_NUMBER.finditer(place.stem))
    if not numbers:
        return DumpName("train", None)
    meant = [each for each in numbers if int(each[0]) == rollout_id] or numbers
    marked = [each for each in meant if place.stem[: each.start()].endswith(_MARK)]
    if not marked:
        return DumpName("train", int(meant[-1][0]))
    if marked[-1] is meant[-1]:
        return DumpName(*_kind(place, marked[-1], neighbours))
    kind: Kind = "train" if rollout_id is None or not _has_training(place, marked[-1], neighbours) else "eval"
    return DumpName(kind, int(meant[-1][0]), _template(place, marked[-1]) if kind == "train" else None)


def _kind(path: Path, number: re.Match[str], neighbours: Neighbours) -> tuple[Kind, int, str | None]:
    prefix = path.stem[: number.start()].removesuffix(_MARK)
    if not prefix[-1:].isalpha() or _OF_SLIME.fullmatch(prefix) or _has_training(path, number, neighbours):
        return "eval", int(number[0]), None
    # the evals of a template that ends like this have a mark of their own
    is_word = neighbours.has(path, f"{prefix}{_MARK}{_MARK}", path.name[number.end() :])
    return "train", int(number[0]), None if is_word else _template(path, number)


def _has_training(path: Path, number: re.Match[str], neighbours: Neighbours) -> bool:
    return neighbours.has(path, path.stem[: number.start()].removesuffix(_MARK), path.name[number.end() :])


def _template(path: Path, number: re.Match[str]) -> str:
    return path.name[: number.start() - len(_MARK)] + "{rollout_id}" + path.name[number.end() :]
