"""The connections that a store keeps open."""

from __future__ import annotations

from sqlalchemy.pool import ConnectionPoolEntry, Pool

_KEPT = 5
"""Connections that stay open while nobody uses them."""


class KeptConnections(Pool):
    """Keeps a few connections for the next transactions; any number may be in use.

    In place of SQLAlchemy's `QueuePool`, whose queue is entered by a function of Python (`threading.Condition`): Ctrl-C
    in it leaves its lock taken, and the other threads wait for ever. A list's ``append`` and ``pop`` are one step each.
    There is no upper limit: a thread that waits for a connection, instead of for the database, has no timeout of ours.
    """

    _idle: list[ConnectionPoolEntry]

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self._idle = []
        self._is_disposed = False

    def _do_get(self) -> ConnectionPoolEntry:
        try:
            return self._idle.pop()
        except IndexError:
            pass
        return self._create_connection()  # not in the `except`: its errors would tell of the empty list too

    def _do_return_conn(self, record: ConnectionPoolEntry) -> None:
        if len(self._idle) < _KEPT:
            self._idle.append(record)
        else:
            record.close()
        if self._is_disposed:  # be it just now
            self.dispose()

    def recreate(self) -> KeptConnections:
        """Return a new pool like this one, with no connections."""
        return self.__class__(
            self._creator,
            pre_ping=self._pre_ping,
            recycle=self._recycle,
            echo=self.echo,
            logging_name=self._orig_logging_name,
            reset_on_return=self._reset_on_return,
            _dispatch=self.dispatch,
            dialect=self._dialect,
        )

    def dispose(self) -> None:
        """Close the connections that nobody uses, and from now on each one whose use ends."""
        self._is_disposed = True
        while self._idle:
            try:
                record = self._idle.pop()
            except IndexError:
                return
            record.close()

    def status(self) -> str:
        """Tell how many connections are kept."""
        return f"{len(self._idle)} connections kept"
