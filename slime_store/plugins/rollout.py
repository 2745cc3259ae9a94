"""One call of the rollout function: adopt, replay, or generate and record."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from slime_store.mapping.encode import as_eval, as_train
from slime_store.plugins.data_source import RecordingDataSource
from slime_store.plugins.guard import log, say
from slime_store.plugins.intercept import activate, intercept
from slime_store.plugins.replay import replayed_eval, replayed_train
from slime_store.plugins.session import PluginSession, timer
from slime_store.plugins.state import capture
from slime_store.types import RolloutFnTrainOutput, RolloutInfo

Generate = Callable[[], Any]
"""Calls the wrapped rollout function."""


def train_rollout(session: PluginSession, wrapped: Any, rollout_id: int, source: Any, generate: Generate) -> Any:
    """Return a train rollout in the framework's class, with the store's counters among its metrics."""
    if session.settings.mode == "replay":
        return replayed_train(session, rollout_id)
    if not session.begun:
        session.guard.run("begin a session", lambda: _begin_late(session, rollout_id, source))
    adopted = session.adoptable.pop(rollout_id, None)
    if adopted is not None:
        output = session.guard.run(f"adopt rollout {rollout_id}", lambda: _adopt(session, adopted, source))
        if output is not None:
            metrics = session.metrics(0.0, adopted=1)
            return session.framework.train_output(output.samples, {**(output.metrics or {}), **metrics})
        session.adoptable.clear()  # those after it would leave a gap
    _start_tracking(session, wrapped, rollout_id)
    output = generate()
    samples, given = as_train(output)
    started = timer()
    session.guard.run(f"record rollout {rollout_id}", lambda: _record(session, rollout_id, samples, given, source))
    session.tracker.end(samples)
    session.recorder.check()
    metrics = session.metrics(timer() - started, served_groups=session.tracker.n_served)
    return session.framework.train_output(samples, {**(given or {}), **metrics})


def eval_rollout(session: PluginSession, rollout_id: int, generate: Generate, weight_version: Any = None) -> Any:
    """Return an eval in the framework's class; it is recorded, or in replay mode served."""
    if session.settings.mode == "replay":
        return replayed_eval(session, rollout_id)
    output = generate()
    data, given = as_eval(output)
    started = timer()

    def record() -> None:
        prepared = session.run.recovery.prepare_eval(
            rollout_id,
            session.framework.eval_output(data, given),
            weight_version=None if weight_version is None else str(weight_version),
            strict=session.settings.strict,
        )
        session.recorder.put(prepared)

    if data is not None:
        session.guard.run(f"record eval {rollout_id}", record)
    metrics = session.metrics(timer() - started)
    return session.framework.eval_output(data, {**(given or {}), **metrics})


def _begin_late(session: PluginSession, rollout_id: int, source: Any) -> None:
    """Begin where no checkpoint was loaded: without a global dataset, or with a data source that is not ours."""
    start = getattr(session.args, "start_rollout_id", None)
    checkpoint = (rollout_id if start is None else start) - 1
    if isinstance(source, RecordingDataSource):
        source.resume_from(checkpoint)
        return
    session.begin(source, None)
    if session.settings.mode == "resume":
        log.warning("slime_store: to resume, the data source must be slime_store's; this run is only recorded")


def _adopt(session: PluginSession, info: RolloutInfo, source: Any) -> RolloutFnTrainOutput:
    kind = session.framework.sample_type
    output = session.run.load_train(info.rollout_id, attempt=info.attempt, sample_type=kind)
    if isinstance(source, RecordingDataSource):
        source.move_to_end_of(info)
    session.run.recovery.adopt(info)
    say("rollout %d is served from the store: %d samples were not generated again", info.rollout_id, info.n_samples)
    return output


def _start_tracking(session: PluginSession, wrapped: Any, rollout_id: int) -> None:
    if session.tracking is None:
        if session.settings.carry_over is None:
            session.tracker.carry_over = _keeps_groups_in_flight(wrapped)
        session.tracking = intercept(wrapped, session.framework.group_function)
        if not session.tracking:
            log.warning(
                "slime_store: %r does not use %s, so groups are recorded with their rollout, not before it ends",
                wrapped,
                session.framework.group_function,
            )
    activate(session.tracker)
    journal = session.guard.run("open the journal", session.journal)
    session.tracker.begin(rollout_id, journal)


def _record(session: PluginSession, rollout_id: int, samples: Any, metrics: Any, source: Any) -> None:
    returned = RolloutFnTrainOutput(samples, metrics)
    if isinstance(source, RecordingDataSource):
        session.tracker.given_back(samples)
        state = source.state()
    else:
        state = capture(source)
    journal = session.journal()
    if journal is not None:
        journal.flush()  # what is queued belongs to this rollout, and would come after it is cleared
    prepared = session.run.recovery.prepare_train(
        rollout_id,
        returned,
        state=state,
        strict=session.settings.strict,
        clear_journal="groups" if session.tracker.carry_over else "rollout",
    )
    session.recorder.put(prepared)


def _keeps_groups_in_flight(wrapped: Any) -> bool:
    """True for slime's and miles's fully asynchronous loops, which have a worker that outlives the call."""
    module = sys.modules.get(getattr(wrapped, "__module__", ""))
    return any(hasattr(module, name) for name in ("AsyncRolloutWorker", "FullyAsyncRolloutFn"))
