"""A training process of its own: started, listened to, killed."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

from tiny.args import Args
from tiny.events import Event

_context = multiprocessing.get_context("forkserver")  # what takes seconds to import is loaded once for all processes
_context.set_forkserver_preload(
    ["torch", "torch._dynamo", "slime_store.plugins.slime", "slime_store.schema", "alembic.command", "alembic.context"]
)


class TrainingProcess:
    """Trains from the last checkpoint on, in another process, and says what it does.

    Args:
        args: the settings.
        log: file that its log is added to.
        step_by_step: let it go on after each event only when the next one is asked for, so that it can be stopped
            exactly there.
    """

    def __init__(self, args: Args, log: Path, *, step_by_step: bool = False) -> None:
        self.connection, theirs = _context.Pipe()
        self._step_by_step = step_by_step
        self._waits = False
        self._process = _context.Process(target=_train, args=(args, theirs, str(log), step_by_step), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process.pid is not None
        return self._process.pid

    def next_event(self) -> Event | None:
        """Wait for its next event; None when it is dead and all that it said was heard."""
        try:
            if self._waits:
                self._waits = False
                self.connection.send(None)
            event: Event = self.connection.recv()
        except (EOFError, OSError):  # also a message that a kill cut short
            return None
        self._waits = self._step_by_step
        return event

    def events(self) -> Iterator[Event]:
        """Return its events until it is dead."""
        while (event := self.next_event()) is not None:
            yield event

    def hold(self) -> None:
        """Let it stand still, so that what it has done can be looked at."""
        os.kill(self.pid, signal.SIGSTOP)

    def let_go(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End it as the out-of-memory killer would: by SIGKILL, with no chance to say or save anything more."""
        os.kill(self.pid, signal.SIGKILL)
        self._process.join()

    def wait(self) -> int | None:
        """Wait for its end and return its exit code: negative is the number of the signal that killed it."""
        self._process.join()
        return self._process.exitcode


def _train(args: Args, connection: Connection, log: str, step_by_step: bool) -> None:
    import torch

    from tiny.train import train

    def tell(event: Event) -> None:
        connection.send(event)
        if step_by_step:
            connection.recv()

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this process
    logging.basicConfig(filename=log, level=logging.INFO, format="%(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)
    torch.set_num_threads(1)  # the matrices are too small to share, and one thread adds up in one order
    args.tell = tell
    train(args)
