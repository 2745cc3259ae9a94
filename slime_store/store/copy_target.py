"""The store that is copied into: changed only where nobody else has written to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, NoReturn

from sqlalchemy.exc import IntegrityError

from slime_store.config import StoreConfig
from slime_store.errors import CopyError, OutdatedSchemaError, StoreNotFoundError
from slime_store.repositories.copying import CopyRepository, is_same_recording
from slime_store.repositories.locks import lock_runs, lock_shared_content
from slime_store.store.handle import StoreHandle

Looking = Callable[[], AbstractContextManager[CopyRepository]]


def refuse_outdated(config: StoreConfig) -> None:
    """Refuse a store of an older schema, before it is opened for writing, which would upgrade it.

    Raises:
        CopyError: it is one.
        SchemaError: what is there is no store that this version can use.
    """
    looked_at = StoreHandle(replace(config, read_only=True))
    try:
        looked_at.engine  # noqa: B018 - opens the store
    except StoreNotFoundError:
        return
    except OutdatedSchemaError as error:
        reason = f"it has the older schema {error.detail}; upgrade it first (`slime-store db upgrade`)"
        raise CopyError(config.display_url, f"{reason}, or copy to an empty place") from None
    finally:
        looked_at.close()


class CopyTarget:
    """Reads and changes the target of a copy.

    Whatever the source has, or had since the copy began, may be in the target; so may rollouts that were there when
    it began and that the source may have deleted since an earlier copy. All else is somebody's: a process that records
    has a session of its own, and an import may add to one that the source has, too.

    Args:
        handle: the target.
        source: begins a look at the source.
    """

    def __init__(self, handle: StoreHandle, source: Looking) -> None:
        self.handle = handle
        self._source = source
        self._writers: set[tuple[Any, ...]] = set()
        self._rollouts: dict[int, tuple[Any, ...]] = {}

    @contextmanager
    def looking(self) -> Iterator[CopyRepository]:
        """A read transaction."""
        with self.handle.reading() as connection:
            yield CopyRepository(connection, self.handle.blobs(connection))

    @contextmanager
    def changing(self, *, exclusive: bool = False) -> Iterator[CopyRepository]:
        """A write transaction in which nobody else has written to the target, or can.

        Args:
            exclusive: prompts and blobs are deleted in it.

        Raises:
            CopyError: somebody has; nothing was changed.
        """
        with self.handle.writing("copy a store") as connection:
            lock_shared_content(connection, exclusive=exclusive)
            lock_runs(connection)
            here = CopyRepository(connection, self.handle.blobs(connection))
            self._refuse_writers(here)
            try:
                yield here
            except IntegrityError as error:
                reason = self.handle.config.without_secrets(str(error.orig).partition("\n")[0])
                self._refuse(
                    f"a row of the source does not fit beside what it holds ({reason}): somebody has written to it, "
                    "or the source is damaged (`slime-store db verify`)",
                    error,
                )

    def check(self) -> None:
        """Refuse a target that somebody else has written to, or that is another store's; called before any change.

        Whether the source had a run once, nothing says: it may as well be one that somebody made in the target, or the
        last copy of one that is newer than the backup from which the source was restored. So none is deleted unasked,
        and nor is a rollout that may have been imported into the target.
        """
        with self._source() as there:
            self.learn(there)
            last = there.last_key()
        with self.looking() as here:
            self._refuse_writers(here)
            found, imported = here.rollouts(), here.imported()
        others = {pk: row for pk, row in found.items() if not self._is_known(pk, row)}
        self._refuse_imported(row for pk, row in others.items() if pk in imported)
        never = [row for pk, row in others.items() if pk > last or pk in self._rollouts]
        if never:
            self._refuse(
                f"it holds {len(never)} rollouts, {never[0][3]} rollout {never[0][4]} among them, that the source "
                "never had, as after the source was restored from an older backup; copy to an empty place"
            )
        self._rollouts |= others

    def is_there(self, here: CopyRepository, pk: int, identity: tuple[Any, ...]) -> bool:
        """Return whether a rollout is there already, by another copy that runs at the same time.

        Raises:
            CopyError: what has its key is somebody else's.
        """
        found = here.identity(pk)
        if found is not None and not is_same_recording(found, identity):
            self._refuse_imported([found])
        return found is not None

    def refuse_others(self, found: dict[int, tuple[Any, ...]]) -> None:
        """Refuse to go on where one of these rollouts of the target, by key, is somebody else's.

        Raises:
            CopyError: one is.
        """
        if not all(self._is_known(pk, row) for pk, row in found.items()):
            self._learn_again()
            self._refuse_imported(row for pk, row in found.items() if not self._is_known(pk, row))

    def learn(self, there: CopyRepository) -> dict[int, tuple[Any, ...]]:
        """Note what the source has now, and return its rollouts' IDENTITY by key."""
        self._writers |= there.writers()
        rollouts = there.rollouts()
        self._rollouts |= rollouts
        return rollouts

    def _learn_again(self) -> None:
        with self._source() as there:
            self.learn(there)

    def _is_known(self, pk: int, row: tuple[Any, ...]) -> bool:
        return pk in self._rollouts and is_same_recording(self._rollouts[pk], row)

    def _refuse_writers(self, here: CopyRepository) -> None:
        found = here.writers()
        if not found <= self._writers:
            self._learn_again()  # it has gone on, and another copy was faster
        for kind, _, name, *_ in sorted(found - self._writers, key=lambda each: each[:2]):
            if kind == "session":
                self._refuse(f"it holds a session of process {name}, which the source has not; copy to an empty place")
            self._refuse(
                f"it holds run {name!r}, which the source has not; if it was deleted there, delete it in the target "
                "too (`slime-store run delete`), else copy to an empty place"
            )

    def _refuse_imported(self, others: Iterable[tuple[Any, ...]]) -> None:
        for _, _, _, kind, rollout_id, attempt, *_ in others:
            self._refuse(
                f"it holds attempt {attempt} of {kind} rollout {rollout_id} that the source has not, as after an "
                "import into it; if it was deleted there, delete it in the target too "
                "(`slime-store rollout delete`), else copy to an empty place"
            )

    def _refuse(self, reason: str, cause: Exception | None = None) -> NoReturn:
        raise CopyError(self.handle.config.display_url, reason) from cause
