"""Deleting a whole run."""

from __future__ import annotations

from slime_store.repositories.locks import lock_shared_content
from slime_store.repositories.retention import RetentionRepository
from slime_store.repositories.rollouts import RolloutRepository
from slime_store.repositories.runs import RunRepository
from slime_store.store.handle import StoreHandle
from slime_store.store.recording import remove_files


def delete_run(handle: StoreHandle, name: str) -> int:
    """Delete a run; see ``SampleStore.delete_run``."""
    handle.check_writable("delete a run")
    with handle.reading() as connection:
        run_pk = RunRepository(connection).get(name).id
    n_deleted = 0
    while True:
        with handle.writing("delete a run") as connection:
            lock_shared_content(connection, exclusive=True)
            repository = RetentionRepository(connection, run_pk)
            pk = repository.first_of_run()
            if pk is None:
                RunRepository(connection).delete(run_pk)
                break
            freed = repository.delete(pk, RolloutRepository(connection, run_pk), handle.blobs(connection))
            n_deleted += 1
        if freed is not None:
            remove_files(handle, freed.files)
    handle.sessions.end_run(run_pk)
    return n_deleted
