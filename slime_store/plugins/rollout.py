"""One call of the rollout function: adopt, replay, or generate and record."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from slime_store.mapping.encode import as_eval, as_train
from slime_store.plugins.data_source import RecordingDataSource
from slime_store.plugins.frameworks import Framework, load_object
from slime_store.plugins.guard import say, warn
from slime_store.plugins.intercept import activate, intercept
from slime_store.plugins.replay import replayed_eval, replayed_train
from slime_store.plugins.session import PluginSession, session_of, timer, with_counters
from slime_store.plugins.state import capture
from slime_store.store.prepared import PreparedRollout, prepare_eval, prepare_train
from slime_store.types import RolloutFnEvalOutput, RolloutFnTrainOutput, RolloutInfo

_GROUPS = ("state['buffer']", "state['in_flight']")
"""Samples in a state, in which placeholders are as bearable as in those of a rollout."""

Generate = Callable[[], Any]
"""Calls the wrapped rollout function."""


def plain_rollout(framework: Framework, args: Any, rollout_id: int, data_source: Any, evaluation: bool) -> Any:
    """A rollout by a function that is called with (args, rollout_id, data_source, evaluation)."""
    session = session_of(args, framework)
    path = session.settings.rollout_function_path or framework.rollout_function_path
    if evaluation:
        can = not any(word in path for word in framework.trains_only)
        path = session.settings.eval_function_path or (path if can else framework.rollout_function_path)
    wrapped: Any = None if session.settings.mode == "replay" else load_object(path)

    def generate() -> Any:
        return wrapped(args, rollout_id, data_source, evaluation=evaluation)

    if evaluation:
        return eval_rollout(session, rollout_id, generate)
    return train_rollout(session, wrapped, rollout_id, data_source, generate)


def train_rollout(
    session: PluginSession,
    wrapped: Any,
    rollout_id: int,
    source: Any,
    generate: Generate,
    weight_version: Any = None,
) -> Any:
    """Return a train rollout in the framework's class, with the store's counters among its metrics."""
    if session.settings.mode == "replay":
        return replayed_train(session, rollout_id)
    session.is_used = True
    if not session.goes_on():
        session.guard.run("begin a session", lambda: _begin_late(session, rollout_id, source))
    adopted = session.adoptable.pop(rollout_id, None)
    if adopted is not None:
        output = session.guard.run(f"adopt rollout {rollout_id}", lambda: _adopt(session, adopted, source))
        if output is not None:
            metrics = with_counters(output.metrics, session.metrics(0.0, adopted=1))
            return session.framework.train_output(output.samples, metrics)
    if adopted is not None or session.adoptable:  # what is recorded came after something else than what comes now
        session.adoptable.clear()
        session.tracker.forget_journalled()
    session.has_generated = True
    session.guard.run("note a weight version", lambda: session.note_weight_version(weight_version, rollout_id))
    session.guard.run("follow the groups", lambda: _start_tracking(session, wrapped, rollout_id))
    session.recorder.stored.discard(rollout_id)
    output = generate()
    samples, given = as_train(output)
    started = timer()
    session.guard.run(f"record rollout {rollout_id}", lambda: _record(session, rollout_id, samples, given, source))
    session.guard.check()
    metrics = session.metrics(timer() - started, served_groups=session.tracker.n_served)
    return session.framework.train_output(samples, with_counters(given, metrics))


def eval_rollout(session: PluginSession, rollout_id: int, generate: Generate, weight_version: Any = None) -> Any:
    """Return an eval in the framework's class; it is recorded, or in replay mode served."""
    if session.settings.mode == "replay":
        return replayed_eval(session, rollout_id)
    output = generate()
    data, given = as_eval(output)
    started = timer()
    if data is not None:
        session.guard.run(
            f"record eval {rollout_id}",
            lambda: session.recorder.put(
                prepare_eval(
                    rollout_id,
                    RolloutFnEvalOutput(data, given),
                    weight_version=None if weight_version is None else str(weight_version),
                    strict=session.settings.strict,
                )
            ),
        )
    last = getattr(session.args, "num_rollout", None)
    if isinstance(last, int) and rollout_id >= last - 1:
        session.recorder.flush()  # nothing may come after it that would give the recording time
    session.guard.check()
    return session.framework.eval_output(data, with_counters(given, session.metrics(timer() - started)))


def _begin_late(session: PluginSession, rollout_id: int, source: Any) -> None:
    """Begin where no checkpoint was loaded, without a global dataset say, or where that failed."""
    start = getattr(session.args, "start_rollout_id", None)
    checkpoint = (rollout_id if start is None else start) - 1
    if isinstance(source, RecordingDataSource):
        source.resume_from(checkpoint)
        return
    session.begin(source, None)
    if session.settings.mode == "resume":
        warn("to resume, --data-source-path must be slime_store's; this run is only recorded")


def _adopt(session: PluginSession, info: RolloutInfo, source: Any) -> RolloutFnTrainOutput:
    kind, number, attempt = session.framework.sample_type, info.rollout_id, info.attempt
    recovery = session.run.recovery
    output = session.run.load_train(number, attempt=attempt, sample_type=kind)
    if isinstance(source, RecordingDataSource):
        source.put_back(recovery.load_state(number, attempt=attempt, sample_type=kind))
    session.guard.run(f"note the adoption of rollout {number}", lambda: session.note_adoption(info))
    session.recorder.stored.add(number)
    say("rollout %d is served from the store: %d samples were not generated again", number, info.n_samples)
    if info.placeholders:
        warn("in rollout %d placeholders stand for what could not be stored: %s", number, ", ".join(info.placeholders))
    return output


def _start_tracking(session: PluginSession, wrapped: Any, rollout_id: int) -> None:
    name = session.framework.group_function
    if session.settings.carry_over is None and not session.tracker.carry_over:
        session.tracker.carry_over = _keeps_groups_in_flight(wrapped, session.framework)
    if not intercept(name) and session.settings.journal:
        warn("%r does not use %s, so groups are recorded with their rollout, not before it ends", wrapped, name)
    activate(session.tracker)
    session.tracker.begin(rollout_id, session.guard.run("open the journal", session.journal))


def _record(session: PluginSession, rollout_id: int, samples: Any, metrics: Any, source: Any) -> None:
    session.tracker.end(samples)
    # without the state it can still be replayed, though not adopted
    state = session.guard.run(f"take the data source's state after rollout {rollout_id}", lambda: _state_of(source))
    session.flush_journal()  # what is queued of this rollout would come after it is cleared
    clearing = session.tracker.clearing()

    def prepare(state: Any) -> PreparedRollout:
        output = RolloutFnTrainOutput(samples, metrics)
        return prepare_train(rollout_id, output, state=state, strict=session.settings.strict, clear_journal=clearing)

    prepared = prepare(state)
    lossy = [path for path in prepared.placeholders if path.startswith("state[") and not path.startswith(_GROUPS)]
    if lossy:
        prepared, state = prepare(None), None
    if state is None:
        session.say_not_resumable(f"it holds {', '.join(lossy)}, which cannot be stored" if lossy else "it shows none")
    session.recorder.put(prepared)


def _state_of(source: Any) -> dict[str, Any] | None:
    return source.state() if isinstance(source, RecordingDataSource) else capture(source)


def _keeps_groups_in_flight(wrapped: Any, framework: Framework) -> bool:
    module = sys.modules.get(getattr(wrapped, "__module__", ""))
    return any(hasattr(module, name) for name in framework.carriers)
