"""The systems that are measured side by side; each writes durably and reads back into ``Sample`` objects."""

from benchmarks.systems.bare import BareSqlite
from benchmarks.systems.base import Place, System
from benchmarks.systems.dumps import JsonLines, Pickle, TorchDump
from benchmarks.systems.limit import Limit
from benchmarks.systems.parquet import Parquet
from benchmarks.systems.stores import BackgroundStore, PostgresStore, SqliteStore

SYSTEMS: dict[str, type[System]] = {
    system.name: system
    for system in (
        TorchDump,
        SqliteStore,
        BackgroundStore,
        PostgresStore,
        Pickle,
        JsonLines,
        Parquet,
        BareSqlite,
        Limit,
    )
}
"""By name, slime's own dump first: the others are compared with it."""

__all__ = ["SYSTEMS", "Place", "System"]
