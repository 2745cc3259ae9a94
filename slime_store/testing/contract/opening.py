"""How the contract opens stores: each time anew, so that nothing it reads comes from memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slime_store import Run, SampleStore

RUN = "contract"


@contextmanager
def opened(url: str, **options: Any) -> Iterator[SampleStore]:
    """Open the store and close it afterwards."""
    from slime_store import SampleStore

    with closing(SampleStore.open(url, **options)) as store:
        yield store


@contextmanager
def run_of(url: str, name: str = RUN, **options: Any) -> Iterator[Run]:
    """Open one run of the store, which is made if it is not there, and close the store afterwards."""
    with opened(url, **options) as store:
        yield store.run(name)


def loaded_train(url: str, rollout_id: int, name: str = RUN, **options: Any) -> Any:
    """Load a training rollout as another process would: through a store that was just opened."""
    with opened(url, read_only=True) as store:
        return store.run(name, create=False).load_train(rollout_id, **options)


def loaded_eval(url: str, rollout_id: int, name: str = RUN, **options: Any) -> Any:
    """Load an eval as another process would."""
    with opened(url, read_only=True) as store:
        return store.run(name, create=False).load_eval(rollout_id, **options)
