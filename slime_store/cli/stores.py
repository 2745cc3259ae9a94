"""Opening the store that the command line names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slime_store.cli.failures import Failure

if TYPE_CHECKING:
    from slime_store import Run, SampleStore


@dataclass(frozen=True, repr=False)
class StoreOpener:
    """What ``--store`` says; nothing is opened before a command needs it."""

    url: str | None

    @contextmanager
    def reading(self) -> Iterator[SampleStore]:
        """Open the store read-only: it is never created, upgraded or written to."""
        from slime_store import SampleStore
        from slime_store.store.diagnosis import naming_damage

        with SampleStore.open(self.named(), read_only=True) as store, naming_damage(store._handle):
            yield store

    @contextmanager
    def reading_run(self, name: str) -> Iterator[Run]:
        """Open one run of the store read-only."""
        with self.reading() as store:
            yield store.run(name, create=False)

    @contextmanager
    def writing_run(self, name: str) -> Iterator[Run]:
        """Open a run for writing; the store and the run are made if they are not there."""
        from slime_store import SampleStore
        from slime_store.store.diagnosis import naming_damage

        with SampleStore.open(self.named()) as store, naming_damage(store._handle):
            yield store.run(name)

    @contextmanager
    def writing(self) -> Iterator[SampleStore]:
        """Open a store that is there for writing."""
        from slime_store import SampleStore
        from slime_store.config import StoreConfig
        from slime_store.errors import StoreNotFoundError
        from slime_store.store.diagnosis import naming_damage

        config = StoreConfig.parse(self.named())
        if config.path is not None and not config.path.exists():
            raise StoreNotFoundError(config.display_url)
        with SampleStore.open(self.named()) as store, naming_damage(store._handle):
            yield store

    def named(self) -> str:
        """Return the URL that was given; a ``Failure`` without one."""
        if not self.url:
            raise Failure("which store? give --store PATH_OR_URL, or set SLIME_STORE_URL", 2)
        return self.url
