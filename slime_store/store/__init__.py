"""The public door: stores and runs."""

from slime_store.store.copying import copy_store
from slime_store.store.run import Run
from slime_store.store.sample_store import SampleStore

__all__ = ["Run", "SampleStore", "copy_store"]
