"""Signal handlers that finish the plug-in, or use it, while it notes what its session goes on from."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from slime_store import Run, SampleStore
from slime_store.errors import StoreBusyError
from slime_store.plugins import session as sessions
from slime_store.plugins.session import PluginSession, session_of
from slime_store.store.recovery import Recovery
from slime_store.types import RolloutInfo
from tests.plugins import given
from tests.plugins.fake_framework.plugin import FAKE, StoreSource, generate_rollout
from tests.plugins.given import group
from tests.services.signals import handled, not_hanging, once_before
from tests.services.threads import PATIENCE_SECONDS

Args = Callable[..., Namespace]

WAYS = {
    "opening": (SampleStore, "run"),
    "the start": (Recovery, "begin_session"),
    "an adoption": (Recovery, "adopt"),
}


@pytest.fixture
def options(args: Args, store_url: str) -> Namespace:
    """A run with two rollouts, to be resumed from its start."""
    options = args(slime_store_url=store_url, slime_store_rollout_function_path=given.PATH, slime_store_mode="resume")
    source = StoreSource(options)
    source.load(-1)
    for number in range(2):
        given.will_return(number, [group(number)])
        generate_rollout(options, number, source)
    sessions.forget_sessions()
    return options


@pytest.fixture(autouse=True)
def _in_time() -> Iterator[None]:
    with not_hanging(int(PATIENCE_SECONDS)):
        yield


def _resume(options: Namespace) -> None:
    source = StoreSource(options)
    source.load(-1)
    for number in range(2):
        generate_rollout(options, number, source)


def _put(options: Namespace, label: str) -> None:
    """Leave something to the recorder, which the handler would wait for."""
    session_of(options, FAKE).note_weight_version(label, 0)


def _read(options: Namespace, what: Callable[[Run], Any]) -> Any:
    sessions.forget_sessions()
    with SampleStore.open(options.slime_store_url, read_only=True) as store:
        return what(store.run("run", create=False))


@pytest.mark.parametrize("way", WAYS)
def test_one_that_finishes_the_plugin_waits_for_nothing_and_loses_nothing(
    way: str, options: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    once_before(monkeypatch, *WAYS[way], lambda: _put(options, "7"))
    with handled(sessions.forget_sessions):
        _resume(options)  # goes on, be it in a session of its own
    assert "7" in _read(options, lambda run: [each.label for each in run.weight_versions()])


@pytest.mark.parametrize("way", WAYS)
def test_one_that_waits_for_what_is_recorded_goes_on_without(
    way: str, options: Namespace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    once_before(monkeypatch, *WAYS[way], lambda: _put(options, "7"))
    with handled(lambda: session_of(options, FAKE).recorder.flush()):
        _resume(options)
    assert "does not wait for what is being recorded" in caplog.text
    assert "could not" not in caplog.text
    assert "7" in _read(options, lambda run: [each.label for each in run.weight_versions()])


def test_what_one_notes_meanwhile_is_noted_behind_it_and_once(
    options: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SampleStore.open(options.slime_store_url, read_only=True) as store:
        first, second = store.run("run").rollouts()
    noted: list[int] = []
    real = Recovery._adopt

    def adopt(self: Recovery, info: RolloutInfo, *rest: Any) -> None:
        noted.append(info.rollout_id)
        real(self, info, *rest)

    monkeypatch.setattr(Recovery, "_adopt", adopt)
    once_before(monkeypatch, Recovery, "adopt", lambda: None)
    StoreSource(options).load(-1)
    session = session_of(options, FAKE)

    def note() -> None:
        with pytest.raises(StoreBusyError, match="signal handler"):
            session.note_adoption(second)

    with handled(note):
        session.note_adoption(first)
    assert noted == [0, 1]


def test_where_one_begins_anew_nothing_is_recorded_before_that_is_noted(
    options: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[int | None] = []
    real = Recovery.begin_session

    def begin(self: Recovery, **start: Any) -> None:
        starts.append(start["checkpoint_rollout_id"])
        real(self, **start)

    monkeypatch.setattr(Recovery, "begin_session", begin)
    once_before(monkeypatch, Recovery, "begin_session", lambda: None)
    source = StoreSource(options)
    with handled(lambda: session_of(options, FAKE).begin(source._inner, 1)):
        source.load(-1)
    assert starts == [-1, 1]
    assert isinstance(session_of(options, FAKE), PluginSession)
