"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from slime_store.blobs import is_held
from slime_store.database import is_database
from slime_store.errors import ExportError, StoreError

TEMPLATE = "{rollout_id}"


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing that takes its name only when everything in it is on disk; folders are made.

    What is no file, as a pipe or a device, is written to as it is. A database is never replaced: it may be the store
    that is being read.

    Raises:
        ExportError: it cannot be written; a file that was there before is as it was.
    """
    try:
        draft = path.with_name(f".{os.getpid()}-{secrets.token_hex(8)}.new")  # not longer than any name may be
        if path.exists() and not path.is_file() and not path.is_dir():
            with path.open("wb") as stream:
                yield stream
            return
        if is_held(path) or is_database(path) or any(is_database(main) for main in _beside(path)):
            raise ExportError(
                os.fspath(path), "it is part of a database, which no export replaces; choose another name"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with draft.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, path)
        finally:
            draft.unlink(missing_ok=True)
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except StoreError:  # of what is written, not of the file
        raise
    except OSError as error:
        raise ExportError(os.fspath(path), str(error.strerror or error)) from error
    except ValueError as error:  # a name that cannot be one
        raise ExportError(os.fspath(path), str(error)) from error


def _beside(path: Path) -> Iterator[Path]:
    """Yield the database that a file belongs to by its name."""
    for suffix in ("-wal", "-shm", "-journal"):
        if path.name.endswith(suffix) and len(path.name) > len(suffix):
            yield path.with_name(path.name.removesuffix(suffix))


def path_of(target: str | os.PathLike[str], kind: str, rollout_id: int, suffix: str) -> Path:
    """Return the file that a template, or a folder, means for one rollout.

    Args:
        target: a name in which ``{rollout_id}`` stands for the id, with ``eval_`` before it for an eval, as in slime,
            but ``_eval_`` after a letter, so that it is known for one; or a folder, for ``{rollout_id}<suffix>`` in it.
        kind: "train" or "eval".
        rollout_id: which rollout.
        suffix: of the files in a folder, such as ".pt".
    """
    text = os.fspath(target)
    if is_folder(text):
        text = os.path.join(text, f"{TEMPLATE}{suffix}")
    if kind == "eval":
        text = re.sub(r"(?<=[a-zA-Z])(?=\{rollout_id\})", "_", text).replace(TEMPLATE, f"eval_{TEMPLATE}")
    return Path(text.replace(TEMPLATE, str(rollout_id)))


def is_folder(target: str | os.PathLike[str]) -> bool:
    """Return whether a target is a folder, by its name or because it is one."""
    text = os.fspath(target)
    return text.endswith(os.sep) or (bool(text) and Path(text).is_dir())
