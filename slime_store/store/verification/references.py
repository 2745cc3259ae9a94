"""References to blobs: they keep a content from being deleted while a rollout needs it."""

from __future__ import annotations

from slime_store.repositories.blobs import digests_in
from slime_store.store.verification.stored import RolloutCheck


def check_references(check: RolloutCheck) -> None:
    """Check that a rollout refers to the blobs that it needs, and to no other."""
    references = check.read("its references to blobs", lambda rows: rows.references(check.pk))
    referred = {row.blob_pk for row in references or ()}
    if shared := (referred | check.pack_blobs) & check.shared_files:
        check.add("file_shared", f"the side files of blobs {_listed(shared)} are those of others as well")
    if references is None or not check.is_whole:
        return
    digests = set(check.digests)
    prompts = check.read("its prompts", lambda rows: digests_in(rows.prompt_documents(check.pk)))
    if prompts is None:
        return
    digests |= prompts
    stored = check.read("the blobs it needs", lambda rows: rows.blob_keys(sorted(digests)))
    if stored is None:
        return
    needed = check.pack_blobs | set(stored.values())
    if missing := needed - referred:
        check.findings.needed |= missing
        check.add("reference_missing", f"nothing keeps the blobs {_listed(missing)}, which it needs")
    if unneeded := referred - needed:
        check.add("reference_unneeded", f"it keeps the blobs {_listed(unneeded)}, which it does not need")
    check.bytes += sum(row.n_bytes or 0 for row in references if row.digest is not None)


def _listed(pks: set[int]) -> str:
    shown = ", ".join(map(str, sorted(pks)[:5]))
    return f"{shown} and {len(pks) - 5} more" if len(pks) > 5 else shown
