"""Taking one store's rollouts into a run of another: what the plug-in spooled while its store was out of reach."""

from __future__ import annotations

import hashlib
from pathlib import Path

from slime_store.errors import (
    AlreadyImportedError,
    ArraysPrunedError,
    BlobCorruptError,
    BlobMissingError,
    UnsupportedValueError,
)
from slime_store.interchange.dumps import Kind
from slime_store.interchange.reports import ImportedFile
from slime_store.store import Run, SampleStore
from slime_store.store.imports import (
    JoinedSession,
    find_import,
    find_recording,
    join_sessions,
    record_import,
    stored_rollout,
)
from slime_store.types import RolloutInfo, Sample


def import_store(run: Run, path: Path, *, strict: bool = False) -> list[ImportedFile]:
    """Record every rollout and attempt of a store file, with the data source's states, each once.

    Of a store with several runs, the run of the same name is taken; if there is none, all of them. Each rollout goes to
    the session of the process that recorded it, with all that was recorded of it, and each sample's weight versions to
    the session that generated it. Weight versions come along whether a rollout has them or not. A train rollout that a
    later session has made anew comes without its state. One whose arrays were pruned, or which is damaged, fails and
    does not stop the rest: recorded without what it has lost, it would pass for a whole one.

    Raises:
        ReadOnlyStoreError: the store was opened with ``read_only=True``.
        SchemaError: the file is no store.
        DatabaseError: the database failed; the rollouts before this one are recorded.
    """
    done = []
    with SampleStore.open(path, read_only=True) as source:
        names = [info.name for info in source.runs()]
        for name in [run.name] if run.name in names else names:
            there = source.run(name, create=False)
            found = there.rollouts(
                attempts=True
            )  # before their sessions: another process may go on writing to the file
            sessions = join_sessions(run, there)
            for info in found:
                done.append(_import_one(run, there, info, sessions, path, strict))
    return done


def _import_one(
    run: Run, there: Run, info: RolloutInfo, sessions: dict[int, JoinedSession], path: Path, strict: bool
) -> ImportedFile:
    kind: Kind = "train" if info.kind == "train" else "eval"
    which = f"attempt {info.attempt} of {kind} rollout {info.rollout_id} of run {info.run!r}"
    what = f"{info.run}|{kind}|{info.rollout_id}|{info.attempt}|{info.started_at}|{info.n_tokens}"
    digest = hashlib.sha256(what.encode()).digest()  # the time of recording, to the microsecond, tells it from others
    try:
        known = find_import(run, digest, kind, info.rollout_id) or find_recording(run, there, info, sessions)
        if known is not None:
            raise AlreadyImportedError(run.name, kind, info.rollout_id, known)
        load = there.load_train if kind == "train" else there.load_eval
        output = load(info.rollout_id, attempt=info.attempt, sample_type=Sample)
        source, state = stored_rollout(run, there, info, sessions, digest, path.name)
        recorded = record_import(run, info.rollout_id, output, source, state=state, strict=strict)
    except AlreadyImportedError as error:
        return ImportedFile(str(path), "skipped", kind, info.rollout_id, error.attempt, reason=str(error))
    except ArraysPrunedError:
        lost = f"the arrays of {which} were pruned"
        reason = f"{lost}; what is left of it comes along only with `slime-store db copy`"
        return ImportedFile(str(path), "failed", kind, info.rollout_id, reason=reason)
    except (BlobCorruptError, BlobMissingError, UnsupportedValueError) as error:
        return ImportedFile(str(path), "failed", kind, info.rollout_id, reason=f"{which}: {error}")
    return ImportedFile(
        str(path),
        "recorded",
        kind,
        info.rollout_id,
        recorded.attempt,
        recorded.n_samples,
        nesting=source.nesting,
        placeholders=recorded.placeholders,
    )
