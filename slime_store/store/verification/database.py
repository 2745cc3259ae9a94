"""The database itself: its pages, its tables, its references, and small documents that belong to no sample."""

from __future__ import annotations

from slime_store.models import PromptRow, RolloutRow, RunRow, SampleRow
from slime_store.repositories.value_types import dangling_references, wrong_values
from slime_store.repositories.verification import VerificationRepository
from slime_store.schema import HEAD, stored_revision
from slime_store.schema.comparison import differences
from slime_store.store.handle import StoreHandle
from slime_store.store.infos import decode_inline
from slime_store.store.verification.findings import Findings


def check_database(handle: StoreHandle, findings: Findings) -> None:
    """Check the schema, on SQLite every page, index and reference, and the documents of runs and sessions."""
    with findings.noting("the schema"):
        revision = stored_revision(handle.engine)
        if revision != HEAD:
            findings.add("schema_differs", f"schema revision {revision!r}, and not {HEAD!r}")
        with handle.reading() as connection:
            for difference in differences(connection):
                findings.add("schema_differs", difference)
    if handle.config.is_sqlite:
        with findings.noting("the file"), handle.reading() as connection:
            for line in VerificationRepository(connection).damaged_pages():
                findings.add("page_damaged", line)
        with findings.noting("references"), handle.reading() as connection:
            for sentence in dangling_references(connection):
                findings.add("reference_dangling", sentence)
        with findings.noting("the types of values"), handle.reading() as connection:
            for sentence in wrong_values(connection):
                findings.add("rows_disagree", sentence)
    for name, model in {"runs": RunRow, "rollouts": RolloutRow, "samples": SampleRow, "prompts": PromptRow}.items():
        with findings.noting(f"the number of {name}"), handle.reading() as connection:
            findings.counts[name] = VerificationRepository(connection).count(model)
    with findings.noting("documents of runs and sessions"), handle.reading() as connection:
        for table, key, text in VerificationRepository(connection).inline_documents():
            with findings.noting(f"a document of {table} {key}"):
                decode_inline(text)
