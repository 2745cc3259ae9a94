"""Files in and out: slime's and miles's dumps, read without running what is in them, and rows for other programs."""

from slime_store.interchange.dumps import Dump, read_dump
from slime_store.interchange.exporting import ExportedFile, export_pt, export_run
from slime_store.interchange.frames import export_frame
from slime_store.interchange.importing import import_path
from slime_store.interchange.reports import ImportedFile, ImportReport
from slime_store.interchange.restricted import load_pt
from slime_store.interchange.tables import ExportedTable, export_samples

__all__ = [
    "Dump",
    "ExportedFile",
    "ExportedTable",
    "ImportReport",
    "ImportedFile",
    "export_frame",
    "export_pt",
    "export_run",
    "export_samples",
    "import_path",
    "load_pt",
    "read_dump",
]
