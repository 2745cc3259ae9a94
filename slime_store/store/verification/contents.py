"""Shared content: blobs and prompts, each stored once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from sqlalchemy import Row

from slime_store.blobs import PART_BYTES
from slime_store.codecs.documents import DocumentDecoder
from slime_store.errors import BlobCorruptError, BlobMissingError, StoreError
from slime_store.mapping.blob_memo import DIGEST_BYTES
from slime_store.mapping.encode import stored_prompt_digest
from slime_store.models import BlobRow, PromptRow
from slime_store.repositories.verification import Rows, VerificationRepository
from slime_store.store.handle import StoreHandle
from slime_store.store.verification.cache import CachedBlobs
from slime_store.store.verification.findings import Findings, is_damage, reason_of


def check_blobs(handle: StoreHandle, findings: Findings) -> None:
    """Check every blob: its parts or side file, and for shared content that it is what its digest says."""
    for row in _pages(handle, findings, "blobs", lambda repository, after: repository.blobs(after)):
        findings.counts["blobs"] += 1
        with findings.noting(f"blob {row.id}"):
            findings.counts["blob_bytes"] += row.n_bytes
            _check_blob(handle, findings, row)


def _check_blob(handle: StoreHandle, findings: Findings, row: Row[Any]) -> None:
    try:
        with handle.reading() as connection:
            if row.file_name is None:
                _check_parts(row, *VerificationRepository(connection).parts(row.id))
            elif handle.directory is None or not handle.directory.has(row.file_name):
                raise BlobMissingError(f"side file {row.file_name}")
            elif (size := handle.directory.size(row.file_name)) != row.n_bytes:
                raise BlobCorruptError(f"side file {row.file_name} has {size} bytes, not {row.n_bytes}")
            if row.digest is None:
                return  # an array pack: decoded with its rollout
            content = handle.blobs(connection).contents([row.digest]).get(row.digest)
            if content is None:
                raise BlobMissingError(f"content {row.digest}")
            if hashlib.blake2b(content, digest_size=DIGEST_BYTES).hexdigest() != row.digest:
                raise BlobCorruptError("its content is not what its digest says")
    except StoreError as error:
        if not is_damage(error):
            raise
        with handle.reading() as connection:  # it may have been deleted meanwhile, the file after the row
            repository = VerificationRepository(connection)
            is_same = repository.blob_is_there(row.id, row.file_name)
        if is_same:
            code = "blob_missing" if isinstance(error, BlobMissingError) else "blob_damaged"
            findings.add(code, f"blob {row.id}: {reason_of(error)}")


def find_shared_files(handle: StoreHandle, findings: Findings) -> set[int]:
    """Find side files that several blobs name, so that all but one have another's bytes; return the blobs' keys."""
    doubled: dict[str, list[int]] = {}
    with findings.noting("the names of side files"), handle.reading() as connection:
        doubled = handle.blobs(connection).doubled_files()
    for name, pks in doubled.items():
        findings.add("file_shared", f"blobs {', '.join(map(str, pks))} have one side file, {name}; it is one's")
    return {pk for pks in doubled.values() for pk in pks}


def _check_parts(row: Row[Any], n_parts: int, last: int, n_bytes: int) -> None:
    expected = max(-(-row.n_bytes // PART_BYTES), 1)
    if n_parts == 0:
        raise BlobMissingError("all of its parts")
    if n_parts != last + 1 or n_bytes != row.n_bytes:
        raise BlobCorruptError(f"{n_parts} parts of {n_bytes} bytes, where {expected} of {row.n_bytes} are due")


def check_prompts(handle: StoreHandle, findings: Findings) -> set[int]:
    """Check every prompt's digest and document; return the keys of those that are damaged."""
    damaged: set[int] = set()
    decoder = DocumentDecoder(CachedBlobs(handle))
    for row in _pages(handle, findings, "prompts", lambda repository, after: repository.prompts(after)):
        try:
            if (row.text is None) is (row.document is None):
                raise BlobCorruptError("it has both a text and a document, or neither")
            if not isinstance(row.digest, (bytes, memoryview)):  # SQLite keeps whatever it is given
                raise BlobCorruptError(f"its digest is {type(row.digest).__name__}")
            if stored_prompt_digest(row.text, row.document) != bytes(row.digest):
                raise BlobCorruptError("its content is not what its digest says")
            if row.prompt_id != bytes(row.digest).hex()[:16]:
                raise BlobCorruptError("its id is not the beginning of its digest")
            if row.document is not None:
                decoder.document(row.document)
        except StoreError as error:
            if not is_damage(error):
                raise
            with handle.reading() as connection:
                is_there = VerificationRepository(connection).prompt_is_there(row.id)
            if is_there:
                findings.add("prompt_damaged", f"prompt {row.id}: {reason_of(error)}")
                damaged.add(row.id)
    return damaged


def find_unused(handle: StoreHandle, findings: Findings) -> None:
    """Find prompts and blobs that nothing refers to; nothing while damage may only make it look so."""
    if findings.is_in_doubt:
        return
    targets: tuple[tuple[Any, str, list[int]], ...] = (
        (PromptRow, "prompt", findings.unused_prompts),
        (BlobRow, "blob", findings.unused_blobs),
    )
    for model, name, unused in targets:
        after = 0
        while True:
            with handle.reading() as connection:
                page = VerificationRepository(connection).unused(model, after)
            if not page or not findings.rises(f"the {name}s", after, page):
                break
            after = page[-1]
            for pk in page:
                if model is BlobRow and pk in findings.needed:
                    continue
                unused.append(pk)
                findings.add(f"{name}_unused", f"nothing refers to {name} {pk}", fixable=True)


def _pages(
    handle: StoreHandle, findings: Findings, what: str, read: Callable[[VerificationRepository, int], Rows]
) -> Any:
    """Yield rows by key, page by page, outside a transaction, up to a page that cannot be read."""
    after = 0
    while True:
        rows: Rows = ()
        with findings.noting(what), handle.reading() as connection:
            rows = read(VerificationRepository(connection), after)
        if not rows or not findings.rises(what, after, [row.id for row in rows]):
            return
        after = rows[-1].id
        yield from rows
