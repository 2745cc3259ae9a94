"""Errors of the store as one line on stderr, with what to do next, and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

import click

from slime_store.cli.terminal import one_line
from slime_store.errors import (
    ArraysPrunedError,
    DatabaseError,
    InvalidUrlError,
    RolloutNotFoundError,
    RunNotFoundError,
    SampleNotFoundError,
    SchemaError,
    StoreError,
    StoreNotFoundError,
)

EXIT_CODES = {
    0: "done",
    1: "some of the files failed; the others are done",
    2: "wrong usage",
    3: "what was asked for is not there",
    4: "a file or a value cannot be used",
    5: "the database cannot be used",
    6: "something in the store is damaged",
    141: "whoever read the output closed the pipe, as `| head` does: what SIGPIPE is to other programs",
}


class Failure(click.ClickException):
    """An error that ends the command."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click declares it for the class, and reads it of the instance

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it, in one line."""
        click.echo(f"error: {one_line(self.message)}", file=file, err=file is None)


@contextmanager
def until_the_pipe_closes() -> Iterator[None]:
    """End quietly, with SIGPIPE's exit code, when whoever reads stdout has seen enough."""
    try:
        yield
        sys.stdout.flush()  # here, where it can be told
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)  # for what is buffered: Python would complain when it ends
        with suppress(OSError, ValueError):
            os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        raise click.exceptions.Exit(141) from None


@contextmanager
def reported() -> Iterator[None]:
    """Turn errors of the store into ``Failure``."""
    try:
        with until_the_pipe_closes():
            yield
    except StoreNotFoundError as error:
        text = f"there is no store at {error.url}; check --store (or SLIME_STORE_URL), or create one by `import`"
        raise Failure(text, 3) from error
    except RunNotFoundError as error:
        raise Failure(f"{error}; see `slime-store run list`", 3) from error
    except RolloutNotFoundError as error:
        text = str(error).partition("; see ")[0]
        raise Failure(f"{text}; see `slime-store rollout list {error.run} --kind {error.kind}`", 3) from error
    except SampleNotFoundError as error:
        command = f"slime-store sample list {error.run} --kind {error.kind} --rollout-ids {error.rollout_id}"
        raise Failure(f"{error}; see `{command}`", 3) from error
    except ArraysPrunedError as error:
        what = str(error).partition("; ")[0]
        text = f"{what}; `export parquet|jsonl --fields reward,response,metadata` writes what is kept"
        raise Failure(text, 4) from error
    except (DatabaseError, SchemaError, InvalidUrlError) as error:
        raise Failure(str(error), 5) from error
    except StoreError as error:
        raise Failure(str(error), 4) from error
    except OSError as error:
        raise Failure(f"cannot write what was found: {error.strerror or error}", 4) from error
