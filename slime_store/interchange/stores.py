"""Taking one store's rollouts into a run of another: what the plug-in spooled while its store was out of reach."""

from __future__ import annotations

import hashlib
from pathlib import Path

from slime_store.errors import (
    AlreadyImportedError,
    ArraysPrunedError,
    BlobCorruptError,
    BlobMissingError,
    DamagedStoreError,
    InvalidDumpError,
    UnsupportedValueError,
)
from slime_store.interchange.dump_names import Kind
from slime_store.interchange.reports import ImportedFile
from slime_store.store import Run, SampleStore
from slime_store.store.imports import (
    StoredSample,
    find_import,
    find_recording,
    join_sessions,
    record_import,
    stored_adoptions,
    stored_rollout,
    take_over_adoptions,
)
from slime_store.types import RolloutInfo


def import_store(run: Run, path: Path, *, from_run: str | None = None, strict: bool = False) -> list[ImportedFile]:
    """Record every rollout and attempt of a store file, with the data source's states, each once.

    It is one run's: the one that is named, else the one of the same name, else the only one, since what two runs call
    rollout 0 must not become two attempts of one. Each rollout goes to the session of the process that recorded it,
    with all that was recorded of it, and each sample's weight versions to the session that generated it. Weight
    versions come along whether a rollout has them or not. A train rollout that a later session has made anew comes
    without its state. One whose arrays were pruned, or which is damaged, fails and does not stop the rest: recorded
    without what it has lost, it would pass for a whole one.

    Raises:
        InvalidDumpError: the store has no run of the name given, or none was given and it has several of other names.
        ReadOnlyStoreError: the store was opened with ``read_only=True``.
        SchemaError: the file is no store.
        DatabaseError: the database failed; the rollouts before this one are recorded.
    """
    done = []
    with SampleStore.open(path, read_only=True) as source:
        for name in _chosen(path, [info.name for info in source.runs()], run.name, from_run):
            there = source.run(name, create=False)
            # before their sessions: another process may go on writing to the file
            found = there.rollouts(attempts=True)
            try:
                adoptions = stored_adoptions(there)
            except DamagedStoreError:  # without them less is handed out again
                adoptions = []
            sessions = join_sessions(run, there)
            for info in found:
                done.append(_import_one(run, there, info, sessions, path, strict))
            take_over_adoptions(run, adoptions, sessions)
    return done


def _chosen(path: Path, names: list[str], target: str, from_run: str | None) -> list[str]:
    """Return the run to take of those of a store; none of a store that has none."""
    wanted = target if from_run is None and target in names else from_run
    if wanted is None and len(names) < 2:
        return names
    if wanted in names:
        return [wanted]
    held = f"{', '.join(map(repr, names[:5]))}{', ...' if len(names) > 5 else ''}" if names else "none"
    if wanted is not None:
        raise InvalidDumpError(str(path), f"the store has no run {wanted!r}; it holds {held}")
    say = "say which to take (from_run=..., --from-run)"
    raise InvalidDumpError(str(path), f"the store has {len(names)} runs, {held}, and none is called {target!r}; {say}")


def _import_one(
    run: Run, there: Run, info: RolloutInfo, sessions: dict[int, int], path: Path, strict: bool
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
        output = load(info.rollout_id, attempt=info.attempt, sample_type=StoredSample)
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
