"""Training runs in processes of their own, forked from one that has everything loaded: a run costs milliseconds."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from slime_store.plugins.frameworks import load_object
from tests.plugins.fake_framework.engine import CRASHED
from tests.plugins.fake_framework.ledger import Ledger
from tests.plugins.fake_framework.train import make_args, train

PATIENCE_SECONDS = 120.0
"""How long a test waits for a child that should have ended; only a hanging child takes so long."""

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    ["pytest", "tests.plugins.processes", "slime_store.schema", "alembic.command", "alembic.context", "torch"]
)


def run_to_the_end(directory: Path, **options: Any) -> Ledger:
    """Train to the end, in a new process; return what happened in the directory so far."""
    code = _start(directory, options)
    assert code == 0, f"exit code {code}\n{_said(directory)}"
    return Ledger(directory)


def run_until_crash(directory: Path, crash: dict[str, Any], **options: Any) -> bool:
    """Train until the process is made to crash; False when it came to its end before."""
    code = _start(directory, {**options, "crash": crash})
    assert code in (0, CRASHED), f"exit code {code}\n{_said(directory)}"
    return code == CRASHED


def run_until_killed(directory: Path, seconds: float, **options: Any) -> bool:
    """Train until SIGKILL after so many seconds of running; False when it came to its end before."""
    process = _process(directory, options)
    process.start()
    ready = directory / "running"
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not ready.exists() and process.is_alive() and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(seconds)
    if process.is_alive() and process.pid is not None:
        os.kill(process.pid, signal.SIGKILL)
    process.join(PATIENCE_SECONDS)
    ready.unlink(missing_ok=True)
    assert process.exitcode in (0, -signal.SIGKILL), f"exit code {process.exitcode}\n{_said(directory)}"
    return bool(process.exitcode)


def log_of(directory: Path) -> str:
    """What the processes of a directory logged."""
    return (directory / "log").read_text()


def _start(directory: Path, options: dict[str, Any]) -> int:
    process = _process(directory, options)
    process.start()
    process.join(PATIENCE_SECONDS)
    if process.is_alive():
        process.kill()
        process.join()
        raise AssertionError(f"the training run hangs\n{_said(directory)}")
    return int(process.exitcode or 0)


def _process(directory: Path, options: dict[str, Any]) -> Any:
    directory.mkdir(parents=True, exist_ok=True)
    return _context.Process(target=_run, args=(str(directory), options))


def _run(directory: str, options: dict[str, Any]) -> None:
    logging.basicConfig(filename=Path(directory) / "log", level=logging.INFO, format="%(message)s")
    logging.getLogger("alembic").setLevel(logging.ERROR)
    (Path(directory) / "running").touch()
    try:
        make_args_of = make_args
        if options.get("real"):
            make_args_of = load_object(f"tests.plugins.real_frameworks.{options['real']}.make_args")
        train(make_args_of(Path(directory), **options))
    except BaseException:
        Path(directory, "error").write_text(traceback.format_exc())
        sys.stderr.flush()
        os._exit(3)


def _said(directory: Path) -> str:
    return "\n".join(file.read_text() for name in ("log", "error") if (file := directory / name).exists())
