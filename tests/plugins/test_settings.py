"""What is wrong in the YAML file is said at once, with the key and the remedy, and never passes as a store error."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest

from slime_store import SampleStore
from slime_store.errors import RunNotFoundError, SettingsError, StoreNotFoundError
from slime_store.plugins.settings import PluginSettings
from slime_store.plugins.slime import StoreDataSource, generate_rollout
from slime_store.repositories.runs import RunRepository

GOOD = {"slime_store_url": "/somewhere/store.db", "slime_store_run": "run"}

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown key": ({"slime_store_rum": "r"}, "slime_store_rum: there is no such setting; did you mean .*_run?"),
    "a key like no other": ({"slime_store_xyzzy": 1}, "no such setting; known are url, run, mode"),
    "a missing run": ({"slime_store_run": None}, "slime_store_run: it is missing; put it into .*custom-config-path"),
    "an empty run": ({"slime_store_run": ""}, "slime_store_run: it is missing"),
    "a missing address": ({"slime_store_url": None}, "slime_store_url: it is missing"),
    "a relative path": ({"slime_store_url": "runs/store.db"}, "relative SQLite path.*any node"),
    "a relative path in a URL": ({"slime_store_url": "sqlite:///store.db"}, "relative SQLite path"),
    "a store in memory": ({"slime_store_url": "sqlite://"}, "slime_store_url"),
    "another database": ({"slime_store_url": "mysql://host/db"}, "slime_store_url"),
    "a wrong mode": ({"slime_store_mode": "resum"}, "slime_store_mode: expected record, resume, replay, got 'resum'"),
    "a wrong word for errors": ({"slime_store_on_error": "ignore"}, "expected warn, raise, got 'ignore'"),
    "a word for a flag": ({"slime_store_journal": "yes"}, "slime_store_journal: expected true or false, got 'yes'"),
    "a negative bound": ({"slime_store_max_adopted": -1}, "expected a whole number from 0, got -1"),
    "a number for a run": ({"slime_store_run": 42}, "slime_store_run: expected text, got 42; put it into quotes"),
    "a run that no store takes": ({"slime_store_run": "a\0b"}, "slime_store_run: a run's name is text without NUL"),
    "a number for a path": ({"slime_store_data_source_path": 5}, "slime_store_data_source_path: expected text, got 5"),
    "a number for a directory": ({"slime_store_spool_dir": 5}, "slime_store_spool_dir: expected text, got 5"),
    "a number for a run to replay": ({"slime_store_replay_run": 5}, "slime_store_replay_run: expected text, got 5"),
    "no names to ignore": ({"slime_store_lineage_ignore": 5}, "lineage_ignore: expected a list of arguments' names"),
    "other names to ignore": ({"slime_store_lineage_ignore": [5]}, "lineage_ignore: expected a list of arguments'"),
    "no groups to replay": ({"slime_store_replay_groups": 0}, "expected a whole number from 1, got 0"),
}


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("URL", "RUN", "MODE", "ROLLOUT_FUNCTION_PATH"):
        monkeypatch.delenv(f"SLIME_STORE_{name}", raising=False)


@pytest.mark.parametrize("what", WRONG)
def test_wrong_settings_are_refused_by_name(what: str) -> None:
    settings, message = WRONG[what]
    args = Namespace(**{**GOOD, **settings})
    with pytest.raises(SettingsError, match=message):
        StoreDataSource(args)
    with pytest.raises(SettingsError, match=message):
        generate_rollout(args, 0, None)


def test_a_new_run_with_a_name_that_no_store_takes_is_refused_before_anything_is_generated(
    args: Callable[..., Namespace], tmp_path: Any
) -> None:
    from tests.plugins.fake_framework.plugin import StoreSource

    for _ in range(2):  # no store; no such run in it
        with pytest.raises(SettingsError, match="slime_store_run: the name of a new run has at most 600 characters"):
            StoreSource(args(slime_store_run="a" * 601))
        SampleStore.open(tmp_path / "store.db").close()
    with SampleStore.open(tmp_path / "store.db") as store, store._handle.writing("make an old run") as connection:
        RunRepository(connection).ensure("a" * 601, "null", datetime.now(timezone.utc))
    StoreSource(args(slime_store_run="a" * 601))


def test_a_store_in_a_directory_that_is_not_there_is_refused_before_anything_is_generated(
    args: Callable[..., Namespace], tmp_path: Any
) -> None:
    from tests.plugins.fake_framework.plugin import StoreSource

    options = args(slime_store_url=str(tmp_path / "not mounted" / "store.db"))
    with pytest.raises(SettingsError, match=r"slime_store_url: the directory .*not mounted does not exist on .*make"):
        StoreSource(options)
    (tmp_path / "not mounted").mkdir()
    StoreSource(options).load(-1)
    assert (tmp_path / "not mounted" / "store.db").exists()


def test_a_directory_that_goes_away_under_way_stops_nothing(args: Callable[..., Namespace], tmp_path: Any) -> None:
    from tests.plugins import given
    from tests.plugins.fake_framework import plugin

    place = tmp_path / "place"
    place.mkdir()
    options = args(slime_store_url=str(place / "store.db"), slime_store_rollout_function_path=given.PATH)
    source = plugin.StoreSource(options)
    place.rmdir()
    given.will_return(0, [given.group(0)])
    assert plugin.generate_rollout(options, 0, source).metrics["store/errors"] > 0


@pytest.mark.parametrize("path", ["no.such.module", "slime_store.no_such_name", "nodots", "tests.plugins.given.", ".x"])
@pytest.mark.parametrize("key", ["data_source_path", "rollout_function_path", "eval_function_path"])
def test_a_path_to_nothing_is_refused_at_the_start_by_its_key(
    key: str, path: str, args: Callable[..., Namespace]
) -> None:
    from tests.plugins.fake_framework.plugin import StoreSource

    with pytest.raises(SettingsError, match=f"slime_store_{key}: .*{path!r}"):
        StoreSource(args(**{f"slime_store_{key}": path}))


def test_the_password_is_not_in_the_settings_repr() -> None:
    args = Namespace(**{**GOOD, "slime_store_url": "postgresql+psycopg://me:secret@host/db"})
    assert "secret" not in repr(PluginSettings.from_args(args))


@pytest.mark.parametrize("name", ["rollout_function_path", "eval_function_path", "data_source_path"])
@pytest.mark.parametrize("path", ["tests.plugins.given.not_there", "not_there.rollout", "rollout", ""])
def test_a_path_that_leads_nowhere_is_refused_before_anything_is_generated(
    name: str, path: str, args: Callable[..., Namespace]
) -> None:
    from tests.plugins.fake_framework.plugin import StoreSource

    with pytest.raises(SettingsError, match=f"slime_store_{name}: '{path}' cannot be loaded"):
        StoreSource(args(**{f"slime_store_{name}": path}))


def test_the_password_of_a_wrong_address_is_not_repeated() -> None:
    args = Namespace(**{**GOOD, "slime_store_url": "mysql://me:secret@host/db"})
    with pytest.raises(SettingsError) as error:
        PluginSettings.from_args(args)
    assert "secret" not in str(error.value)


def test_settings_come_from_the_environment_where_the_arguments_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIME_STORE_URL", "/from/environment.db")
    monkeypatch.setenv("SLIME_STORE_RUN", "from the environment")
    monkeypatch.setenv("SLIME_STORE_ROLLOUT_FUNCTION_PATH", "some.function")
    settings = PluginSettings.from_args(None)
    assert (settings.url, settings.run) == ("/from/environment.db", "from the environment")
    assert settings.rollout_function_path == "some.function"
    assert PluginSettings.from_args(Namespace(slime_store_run="given")).run == "given"


def test_replaying_a_run_that_is_not_there_is_refused_at_the_start_and_makes_nothing(
    args: Callable[..., Namespace], tmp_path: Any
) -> None:
    from tests.plugins.fake_framework.plugin import StoreSource

    with pytest.raises(StoreNotFoundError):
        StoreSource(args(slime_store_mode="replay"))
    assert not (tmp_path / "store.db").exists()
    StoreSource(args(slime_store_mode="record", slime_store_run="there")).load(-1)
    with pytest.raises(RunNotFoundError, match="not there"):
        StoreSource(args(slime_store_mode="replay", slime_store_run="not there"))
    with pytest.raises(RunNotFoundError, match="nor this"):
        StoreSource(args(slime_store_mode="replay", slime_store_run="there", slime_store_replay_run="nor this"))
