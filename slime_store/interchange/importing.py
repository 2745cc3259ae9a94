"""Taking dumps and spool files into a run: files and folders, each content once, one bad file not stopping the rest."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from slime_store.config import refuse_address
from slime_store.database import is_database
from slime_store.errors import (
    AlreadyImportedError,
    DatabaseError,
    InvalidDumpError,
    ReadOnlyStoreError,
    SchemaError,
    StoreClosedError,
    StoreError,
)
from slime_store.interchange.dump_names import Kind, Neighbours, name_of
from slime_store.interchange.dumps import Dump, read_dump
from slime_store.interchange.reports import ImportedFile, ImportReport
from slime_store.interchange.restricted import TorchArchive
from slime_store.interchange.saying import cut, told
from slime_store.interchange.stores import import_store
from slime_store.store import Run
from slime_store.store.imports import ImportSource, find_import, record_import
from slime_store.types import RolloutInfo

_log = logging.getLogger("slime_store")

_OF_THE_FILE = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What values that nobody has thought of raise somewhere; not what a signal handler does, as after an alarm."""

DUMP_FOLDER = "rollout_data"
"""Where slime's ``--dump-details`` puts the rollouts, beside folders of other things."""


class FoundFile(NamedTuple):
    """A file that is to be imported.

    Attributes:
        path: the file.
        kind: what it is of; None: what it says itself.
        only: leave it out if it is not of this kind.
        neighbours: what is beside it.
    """

    path: Path
    kind: Kind | None = None
    only: Kind | None = None
    neighbours: Neighbours | None = None


def import_path(
    run: Run,
    path: str | os.PathLike[str],
    *,
    kind: Kind | None = None,
    from_run: str | None = None,
    trust: bool = False,
    strict: bool = False,
    progress: Callable[[int, int, ImportedFile], None] | None = None,
) -> ImportReport:
    """Record the rollouts of a dump, or of a folder of dumps.

    Each file is one transaction. A rollout that the run has already from elsewhere gets a further attempt; a file whose
    content was imported before, under whatever name, is skipped, so that importing a folder again takes in only what is
    new. Memory stays at about the size of a file and of the Python lists in it.

    Args:
        run: where to record.
        path: a dump, a spool file or another store, or a folder of dumps, or of ``--dump-details`` (its
            ``rollout_data``). The files of a folder are taken in the order of their rollout ids, a training rollout
            before the eval of the same id.
        kind: of a file, what it is of, when its name does not say so; of a folder, take only these.
        from_run: of another store, the run to take; default: the one that is called like ``run``, else the only one.
        trust: let torch unpickle the files, which runs whatever code they hold.
        strict: fail on a file with a value that cannot be kept exactly, or with a ``status`` that slime does not know.
            Otherwise a placeholder is stored and listed in the report.
        progress: called after each file with how many are done, how many there are, and what became of the file.

    Raises:
        InvalidDumpError: the path does not exist, or a folder holds no dumps, or none of that kind.
        ReadOnlyStoreError: the store was opened read-only.
        DatabaseError: the database failed; the files before this one are recorded. All other errors are in the report.
    """
    files = find_dumps(path, kind)
    done: list[ImportedFile] = []
    for number, file in enumerate(files, 1):
        done += import_any(run, file, from_run=from_run, trust=trust, strict=strict)
        if progress is not None and done:
            progress(number, len(files), done[-1])
    refuse_without(files, done)
    return ImportReport(tuple(done))


def import_any(
    run: Run, file: FoundFile, *, from_run: str | None = None, trust: bool = False, strict: bool = False
) -> list[ImportedFile]:
    """Record what one file holds, a dump or the rollouts of a store; arguments and errors as for ``import_path``."""
    if not is_database(file.path):
        return [done] if (done := _import_dump(run, file, trust, strict)) is not None else []
    try:
        return import_store(run, file.path, from_run=from_run, strict=strict)
    except SchemaError as error:  # an SQLite file, but no store that can be read here
        return [ImportedFile(os.fspath(file.path), "failed", file.kind or "train", reason=str(error))]
    except InvalidDumpError as error:
        return [ImportedFile(os.fspath(file.path), "failed", file.kind or "train", reason=error.reason)]


def find_dumps(
    path: str | os.PathLike[str], kind: Kind | None = None, neighbours: Neighbours | None = None
) -> list[FoundFile]:
    """Return the dumps at a path in the order in which they are imported; arguments as for ``import_path``.

    Several paths may share their ``neighbours``: a folder of N dumps is listed once for all of them.

    Raises:
        InvalidDumpError: nothing is there.
    """
    refuse_address(path)
    place, neighbours = Path(path), neighbours or Neighbours()
    if not place.is_dir():
        if not place.exists():
            raise InvalidDumpError(os.fspath(path), "there is no such file or folder")
        return [FoundFile(place, kind, neighbours=neighbours)]
    folder = place / DUMP_FOLDER if (place / DUMP_FOLDER).is_dir() else place
    found = sorted(folder.glob("*.pt"), key=lambda file: _order(file, neighbours))
    chosen = [FoundFile(file, None, kind, neighbours) for file in found if _may_be(file, kind, neighbours)]
    if not chosen:
        raise _without(folder, kind)
    return chosen


def refuse_without(files: Iterable[FoundFile], done: Iterable[ImportedFile]) -> None:
    """Refuse a folder of which one kind was asked for, and no file turned out to be of it.

    Raises:
        InvalidDumpError: as where their names say so.
    """
    held = {Path(each.path).parent for each in done}
    for file in files:
        if file.only is not None and file.path.parent not in held:
            raise _without(file.path.parent, file.only)


def _without(folder: Path, kind: Kind | None) -> InvalidDumpError:
    what = "dump" if kind is None else f"{kind} dump"
    return InvalidDumpError(os.fspath(folder), f"the folder holds no {what} (*.pt)")


def _may_be(file: Path, kind: Kind | None, neighbours: Neighbours) -> bool:
    name = name_of(file, neighbours=neighbours)
    return kind in (None, name.kind) or name.template is not None


def _import_dump(run: Run, file: FoundFile, trust: bool, strict: bool) -> ImportedFile | None:
    """Record one dump; None: it is not of the kind that was asked for.

    Raises:
        ReadOnlyStoreError, DatabaseError: as for ``import_path``; all other errors are in the result.
    """
    name = os.fspath(file.path)
    expected, number, _ = name_of(name, neighbours=file.neighbours)
    chosen = file.kind or expected
    try:
        archive = TorchArchive(name)
        digest = archive.digest()
        if number is not None and number < 2**63 and file.only in (None, chosen):  # the usual case: no need to read it
            known = find_import(run, digest, chosen, number)
            if known is not None:
                raise AlreadyImportedError(run.name, chosen, number, known)
        dump = read_dump(archive, kind=file.kind, trust=trust, strict=strict, neighbours=file.neighbours)
        if file.only not in (None, dump.kind):
            return None
        return _recorded(name, dump, _record(run, name, digest, dump, strict))
    except AlreadyImportedError as error:
        kind: Kind = "eval" if error.kind == "eval" else "train"
        return ImportedFile(name, "skipped", kind, error.rollout_id, error.attempt, reason=str(error))
    except (ReadOnlyStoreError, StoreClosedError, DatabaseError):
        raise
    except StoreError as error:
        reason = error.reason if isinstance(error, InvalidDumpError) else str(error)
        return ImportedFile(name, "failed", chosen, number, reason=cut(reason))
    except (RecursionError, MemoryError) as error:  # the next file may well be smaller
        what = "nests too deeply" if isinstance(error, RecursionError) else "needs more memory than there is"
        return ImportedFile(name, "failed", chosen, number, reason=f"what it holds {what}")
    except _OF_THE_FILE as error:
        _log.warning("%s could not be imported", name, exc_info=True)
        return ImportedFile(name, "failed", chosen, number, reason=f"what it holds cannot be recorded ({told(error)})")


def _record(run: Run, name: str, digest: bytes, dump: Dump, strict: bool) -> RolloutInfo:
    source = ImportSource(digest, Path(name).name, dump.nesting, dump.extras)
    return record_import(run, dump.rollout_id, dump.output, source, strict=strict)


def _recorded(name: str, dump: Dump, info: RolloutInfo) -> ImportedFile:
    return ImportedFile(
        path=name,
        action="recorded",
        kind=dump.kind,
        rollout_id=info.rollout_id,
        attempt=info.attempt,
        n_samples=info.n_samples,
        nesting=dump.nesting,
        placeholders=tuple(map(cut, info.placeholders)),
        notes=dump.notes,
    )


def _order(file: Path, neighbours: Neighbours) -> tuple[bool, int, bool, str]:
    kind, number, _ = name_of(file, neighbours=neighbours)
    return number is None, number or 0, kind == "eval", file.name
