"""What the user's YAML file says, checked before anything is opened."""

from __future__ import annotations

import difflib
import os
import socket
from dataclasses import dataclass, field, fields
from typing import Any

from slime_store.codecs.documents import is_clean
from slime_store.config import StoreConfig
from slime_store.errors import InvalidUrlError, RunNotFoundError, SettingsError, StoreError, StoreNotFoundError
from slime_store.mapping.text import MAX_INDEXED
from slime_store.store import SampleStore

PREFIX = "slime_store_"
_MODES = ("record", "resume", "replay")
PATHS = ("rollout_function_path", "eval_function_path", "data_source_path")


@dataclass(frozen=True)
class PluginSettings:
    """The settings of one run, each the YAML key ``slime_store_<name>``.

    The address, the run, the mode and the paths may also come from the environment, as ``SLIME_STORE_<NAME>``.

    Attributes:
        url: where the store is. An SQLite path must be absolute: the rollout manager may land on any node.
        run: name of the run.
        mode: "record", "resume" (record, and go on after a crash), or "replay" (serve what is recorded, no engine).
        rollout_function_path: the rollout function that is wrapped.
        eval_function_path: the eval function that is wrapped; default: the framework's own choice.
        data_source_path: the data source that is wrapped.
        on_error: "warn": store errors are logged, counted and spooled; "raise": they stop training.
        strict: refuse values that cannot be kept exactly, instead of storing placeholders.
        journal: write each finished group at once, so that a crash inside a rollout loses none.
        carry_over: whether the rollout function keeps groups in flight across rollouts; default: found out by itself.
        max_adopted: hand out at most this many recorded rollouts after a checkpoint; default: all.
        lineage_ignore: arguments that may change between sessions without refusing recorded rollouts.
        spool_dir: where rollouts go that the store cannot take; default: one of mode 0700 under the system's own.
        replay_run: replay this run's rollouts into ``run``, which notes them as adopted.
        replay_groups: replay only this many groups of each rollout, half from its head and half from its tail.
    """

    url: str = field(repr=False)  # it may hold a password
    run: str
    mode: str = "record"
    rollout_function_path: str | None = None
    eval_function_path: str | None = None
    data_source_path: str | None = None
    on_error: str = "warn"
    strict: bool = False
    journal: bool = True
    carry_over: bool | None = None
    max_adopted: int | None = None
    lineage_ignore: tuple[str, ...] = ()
    spool_dir: str | None = None
    replay_run: str | None = None
    replay_groups: int | None = None

    @classmethod
    def from_args(cls, args: Any) -> PluginSettings:
        """Read the settings from the framework's arguments, where ``--custom-config-path`` puts them.

        Raises:
            SettingsError: a key is unknown, missing, or has a value that makes no sense.
        """
        given = {
            name.removeprefix(PREFIX): value
            for name, value in (vars(args).items() if args is not None else ())
            if name.startswith(PREFIX)
        }
        known = [each.name for each in fields(cls)]
        for name in given.keys() - set(known):
            close = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {PREFIX}{close[0]}?" if close else f"; known are {', '.join(known)}"
            raise SettingsError(PREFIX + name, f"there is no such setting{hint}")
        for name in known:
            text = os.environ.get(f"{PREFIX}{name}".upper())
            if text and given.get(name) is None and (name in ("url", "run", "mode") or name.endswith("_path")):
                given[name] = text
        values = {name: value for name, value in given.items() if value is not None}
        for name in ("url", "run"):
            if values.get(name) in (None, ""):
                raise SettingsError(PREFIX + name, "it is missing; put it into the file of --custom-config-path")
        ignored = values.get("lineage_ignore")
        if isinstance(ignored, (list, str)):
            values["lineage_ignore"] = (ignored,) if isinstance(ignored, str) else tuple(ignored)
        settings = cls(**values)
        settings._check()
        return settings

    def check_place(self) -> None:
        """Refuse what no rollout could be recorded to, before training starts.

        Raises:
            SettingsError: an SQLite store's directory is missing, or a new run's name is too long.
        """
        path = StoreConfig.parse(self.url).path
        if path is not None and not path.parent.is_dir():
            why = f"the directory {path.parent} does not exist on {socket.gethostname()}"
            raise SettingsError(PREFIX + "url", f"{why}; make it, or mount it on every node of the rollout manager")
        if len(self.run) > MAX_INDEXED and self.mode != "replay" and not self._is_run():
            why = f"the name of a new run has at most {MAX_INDEXED} characters, not {len(self.run):,}"
            raise SettingsError(PREFIX + "run", why)

    def _is_run(self) -> bool:
        """Return whether the run is there already, or may be, since the store cannot be looked at."""
        try:
            with SampleStore.open(self.url, read_only=True) as store:
                store.run(self.run, create=False)
        except (StoreNotFoundError, RunNotFoundError):
            return False
        except StoreError:
            return True
        return True

    def _check(self) -> None:
        _one_of("mode", self.mode, _MODES)
        _one_of("on_error", self.on_error, ("warn", "raise"))
        for name in ("strict", "journal", "carry_over"):
            if getattr(self, name) not in (None, True, False):
                raise SettingsError(PREFIX + name, f"expected true or false, got {getattr(self, name)!r}")
        for name, least in (("max_adopted", 0), ("replay_groups", 1)):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
                raise SettingsError(PREFIX + name, f"expected a whole number from {least}, got {value!r}")
        for name in ("url", "run", *PATHS, "spool_dir", "replay_run"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise SettingsError(PREFIX + name, f"expected text, got {value!r}; put it into quotes")
        for name in ("run", "replay_run"):
            if not is_clean(getattr(self, name) or ""):
                raise SettingsError(PREFIX + name, "a run's name is text without NUL and lone surrogates")
        if not isinstance(self.lineage_ignore, tuple) or not all(isinstance(each, str) for each in self.lineage_ignore):
            raise SettingsError(
                PREFIX + "lineage_ignore", f"expected a list of arguments' names, got {self.lineage_ignore!r}"
            )
        try:
            config = StoreConfig.parse(self.url)
        except InvalidUrlError as error:
            raise SettingsError(PREFIX + "url", str(error)) from None
        path = self.url.removeprefix("sqlite:///") if self.url.startswith("sqlite:") else self.url
        if "://" not in path and not os.path.isabs(path):
            why = "the rollout manager may land on any node, in any directory"
            raise SettingsError(PREFIX + "url", f"{self.url!r} is a relative SQLite path, and {why}; give a whole one")
        if config.is_memory:
            raise SettingsError(PREFIX + "url", "an in-memory store does not outlive a crash")


def _one_of(name: str, value: Any, words: tuple[str, ...]) -> None:
    if value not in words:
        raise SettingsError(PREFIX + name, f"expected {', '.join(words)}, got {value!r}")
