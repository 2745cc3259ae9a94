"""Putting right what is safe to put right: nothing here touches what a rollout needs."""

from __future__ import annotations

import contextlib

from slime_store.database import chunked
from slime_store.errors import DatabaseError
from slime_store.repositories.locks import lock_shared_content
from slime_store.repositories.prompts import PromptRepository
from slime_store.store.handle import StoreHandle
from slime_store.store.side_files import remove_files
from slime_store.store.verification.files import drafts_left_over, temporary_files
from slime_store.store.verification.findings import Findings


def fix_what_is_safe(handle: StoreHandle, findings: Findings, grace_seconds: float) -> None:
    """Delete prompts, blobs and side files that nothing refers to, and what killed processes have left.

    Each is looked at again inside the transaction that deletes it: a record may have found use for it meanwhile.
    """
    for pks in chunked(findings.unused_prompts):
        with handle.writing("fix a store") as connection:
            lock_shared_content(connection, exclusive=True)
            PromptRepository(connection).delete_unused(pks)
    findings.mark_fixed("prompt_unused")
    for pks in chunked(findings.unused_blobs):
        with handle.writing("fix a store") as connection:
            lock_shared_content(connection, exclusive=True)
            files = handle.blobs(connection).delete_unused(pks)
        remove_files(handle, files)
    findings.mark_fixed("blob_unused")
    remove_unused_files(handle, findings.unused_files)
    findings.mark_fixed("file_unused")
    if handle.directory is not None and handle.directory.objection() is None:
        with contextlib.suppress(OSError):  # a directory that cannot be listed is another problem
            for path in temporary_files(handle, grace_seconds):
                with contextlib.suppress(OSError):
                    path.unlink()
    for left_over in drafts_left_over(handle, grace_seconds):
        left_over.remove()
    findings.mark_fixed("file_temporary")


def remove_unused_files(handle: StoreHandle, names: list[str]) -> None:
    """Remove side files that still no row names.

    Raises:
        DatabaseError: one cannot be removed, or may be another store's by now.
    """
    if handle.directory is None:
        return
    for chunk in chunked(names):
        with handle.writing("fix a store") as connection:  # nobody commits a row that names one meanwhile
            if (objection := handle.directory.objection()) is not None:
                raise DatabaseError(handle.config.display_url, objection)
            referred = handle.blobs(connection).referred_files(chunk)
            for name in chunk:
                if name not in referred:
                    try:
                        handle.directory.remove(name)
                    except OSError as error:
                        reason = f"side file {name} cannot be removed: {error.strerror or error}"
                        raise DatabaseError(handle.config.display_url, reason) from error
