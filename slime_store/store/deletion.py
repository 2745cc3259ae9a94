"""Deleting a whole run."""

from __future__ import annotations

from slime_store.database import reconnecting
from slime_store.repositories.locks import lock_shared_content
from slime_store.repositories.retention import RetentionRepository
from slime_store.repositories.rollouts import RolloutRepository
from slime_store.repositories.runs import RunRepository
from slime_store.store.handle import StoreHandle
from slime_store.store.side_files import remove_files


def delete_run(handle: StoreHandle, name: str) -> int:
    """Delete a run; see ``SampleStore.delete_run``."""
    handle.check_writable("delete a run")
    run_pk = _find(handle, name)
    deleted: set[int] = set()
    while _delete_first(handle, run_pk, deleted):
        pass
    handle.sessions.end_run(run_pk)
    return len(deleted)


@reconnecting
def _find(handle: StoreHandle, name: str) -> int:
    with handle.reading() as connection:
        return RunRepository(connection).get(name).id


@reconnecting
def _delete_first(handle: StoreHandle, run_pk: int, deleted: set[int]) -> bool:
    """Delete the run's oldest recording, or the run itself where it has none; tell whether it had one.

    A try after one that was committed deletes the next, and ``deleted`` holds both.
    """
    with handle.writing("delete a run") as connection:
        lock_shared_content(connection, exclusive=True)
        repository = RetentionRepository(connection, run_pk)
        pk = repository.first_of_run()
        if pk is None:
            RunRepository(connection).delete(run_pk)
            return False
        freed = repository.delete(pk, RolloutRepository(connection, run_pk), handle.blobs(connection))
        deleted.add(pk)
    if freed is not None:
        remove_files(handle, freed.files)
    return True
