"""Going on after the server ended a transaction or a connection: work is done anew, a few times, with pauses."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from slime_store.errors import ConnectionFailedError, TransactionAbortedError

P = ParamSpec("P")
T = TypeVar("T")

RECONNECT_SECONDS = (0.1, 0.3, 1.0, 2.0, 4.0)
"""How long to wait before work is tried again, each time that the connection failed or the server ended it."""

_log = logging.getLogger("slime_store")


class _Thread(threading.local):
    is_trying = False


_thread = _Thread()


def reconnecting(work: Callable[P, T]) -> Callable[P, T]:
    """Do a piece of work again, whole and with the same arguments, each time that the connection to the server fails.

    Also when the server ends the transaction for another's sake, as one of a deadlock's.

    For reads in transactions of their own, and for writes that come to the same when an earlier try was committed, or
    that look for that first, with their run locked: the answer to a COMMIT may be lost with the connection. What such a
    write must know of earlier tries is in an argument of its own, a list or set that each try adds to. Work inside
    other work is not tried again by itself: the whole is. Not for generators, whose body runs later.

    Raises:
        ConnectionFailedError: the connection fails after about seven seconds still, and up to ten more for each try
            whose host does not answer.
        TransactionAbortedError: the server goes on to end the transaction.
    """

    @wraps(work)
    def trying(*args: P.args, **kwargs: P.kwargs) -> T:
        if _thread.is_trying:
            return work(*args, **kwargs)
        _thread.is_trying = True
        try:
            for seconds in RECONNECT_SECONDS:
                try:
                    return work(*args, **kwargs)
                except (ConnectionFailedError, TransactionAbortedError) as error:
                    _log.warning("%s; it is tried again in %g s", error, seconds)
                time.sleep(seconds)
            return work(*args, **kwargs)
        finally:
            _thread.is_trying = False

    return trying
