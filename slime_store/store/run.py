"""One training run: recording its rollouts and loading them back."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Literal, overload

from slime_store.database import reconnecting
from slime_store.errors import InvalidOutputError
from slime_store.mapping.columns import version_label
from slime_store.mapping.encode import RolloutEncoder, as_eval, as_train
from slime_store.mapping.encoded import EncodedRollout
from slime_store.repositories.runs import RunRepository
from slime_store.repositories.weight_versions import WeightVersionRepository
from slime_store.store.collection import paused
from slime_store.store.infos import encode_inline, rollout_number, weight_version_info
from slime_store.store.recording import write_rollout
from slime_store.store.recovery import Recovery
from slime_store.store.requests import OnConflict, RecordRequest
from slime_store.store.retention import RunRetention
from slime_store.store.sessions import utc_now
from slime_store.types import ParamInfo, RolloutInfo, WeightVersionInfo


class Run(RunRetention):
    """One run of a store; made by ``SampleStore.run``. Thread-safe, picklable, usable after fork.

    Attributes:
        name: the run's name, unique in the store.
    """

    @property
    def recovery(self) -> Recovery:
        """What recording loops do so that ``resume`` works: journal, checkpoints, adoption."""
        return Recovery(self.name, self._pk, self._handle)

    @reconnecting
    def sibling(self, name: str) -> Run:
        """Return another run of the same store.

        Raises:
            RunNotFoundError: there is none of this name.
        """
        with self._handle.reading() as connection:
            return Run(name, RunRepository(connection).get(name).id, self._handle)

    # -- recording -----------------------------------------------------------------------------------

    @overload
    def record_train(
        self,
        rollout_id: int,
        output: Any,
        *,
        state: Any = ...,
        on_conflict: OnConflict = ...,
        strict: bool = ...,
        background: Literal[False] = ...,
    ) -> RolloutInfo: ...

    @overload
    def record_train(
        self,
        rollout_id: int,
        output: Any,
        *,
        state: Any = ...,
        on_conflict: OnConflict = ...,
        strict: bool = ...,
        background: Literal[True],
    ) -> Future[RolloutInfo]: ...

    def record_train(
        self,
        rollout_id: int,
        output: Any,
        *,
        state: Any = None,
        on_conflict: OnConflict = "new_attempt",
        strict: bool = True,
        background: bool = False,
    ) -> RolloutInfo | Future[RolloutInfo]:
        """Store what one call of the rollout function returned.

        When this returns (or, in the background, when the future is done) the rollout survives SIGKILL and power loss,
        whole; before, it is wholly absent.

        Args:
            rollout_id: the number slime hands to ``generate_rollout``; 64 bits.
            output: a ``RolloutFnTrainOutput`` of slime or ours, or the bare nested list of samples.
            state: the data source's state at the end of this rollout; any document.
            on_conflict: when the rollout is recorded already: "new_attempt" keeps both and reads the newer by
                default, "replace" deletes all earlier attempts in the same transaction, "error" refuses.
            strict: refuse values that cannot be kept exactly; False stores marked placeholders and lists their paths
                in ``RolloutInfo.placeholders``.
            background: return a future at once. The samples are encoded before this returns, so they may be changed
                right after. Blocks while four rollouts wait to be written.

        Raises:
            UnsupportedValueError: a value cannot be kept exactly; it names the path. Nothing was written.
            RolloutExistsError: with ``on_conflict="error"``.
            CommitUnknownError: the connection to the server broke as the rollout was committed, and could not be made
                again for some seconds, or another writer was waited for too long then: it is not known whether the
                rollout was kept. Look for it before recording it again.
            StoreFullError, StoreBusyError, DatabaseError: nothing of this rollout was kept. After all of these the
                store stays usable.
            BackgroundRecordError: an earlier record in the background failed; this one was not begun.
        """
        samples, metrics = as_train(output)
        request = self._request(rollout_id, on_conflict)
        with paused():
            encoded = RolloutEncoder(strict=strict, copy=background).train(samples, metrics, state)
        return self._record(request, encoded, background)

    @overload
    def record_eval(
        self,
        rollout_id: int,
        output: Any,
        *,
        weight_version: str | None = ...,
        state: Any = ...,
        on_conflict: OnConflict = ...,
        strict: bool = ...,
        background: Literal[False] = ...,
    ) -> RolloutInfo: ...

    @overload
    def record_eval(
        self,
        rollout_id: int,
        output: Any,
        *,
        weight_version: str | None = ...,
        state: Any = ...,
        on_conflict: OnConflict = ...,
        strict: bool = ...,
        background: Literal[True],
    ) -> Future[RolloutInfo]: ...

    def record_eval(
        self,
        rollout_id: int,
        output: Any,
        *,
        weight_version: str | None = None,
        state: Any = None,
        on_conflict: OnConflict = "new_attempt",
        strict: bool = True,
        background: bool = False,
    ) -> RolloutInfo | Future[RolloutInfo]:
        """Store what one eval returned.

        Args:
            rollout_id: the number slime hands to the eval function.
            output: a ``RolloutFnEvalOutput`` of slime or ours, or the bare dict from dataset name to its dict.
            weight_version: the version that was measured, where the samples do not say it.
            state: as for ``record_train``, like the other arguments and errors.
            on_conflict: see ``record_train``.
            strict: see ``record_train``.
            background: see ``record_train``.
        """
        data, metrics = as_eval(output)
        if not isinstance(data, dict):
            raise InvalidOutputError("data", f"expected a dict of eval datasets, found {type(data).__name__}")
        request = self._request(rollout_id, on_conflict, weight_version)
        with paused():
            encoded = RolloutEncoder(strict=strict, copy=background).evaluation(data, metrics, state)
        return self._record(request, encoded, background)

    @reconnecting
    def record_weight_version(
        self,
        label: str,
        *,
        params: Sequence[ParamInfo] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> WeightVersionInfo:
        """Note a weight version of this process's session, with its parameters and notes.

        Versions are also noted by themselves when a recorded sample names one. Saying the same label again adds to
        what is known of it.

        Args:
            label: as the engine reports it, e.g. "7".
            params: the parameters of the update; ``ParamInfo`` of slime, miles or ours.
            metadata: anything worth knowing of this version.
        """
        self._handle.check_writable("record a weight version")
        params_text = None if params is None else encode_inline(list(map(_own_param, params)), "params")
        notes = None if metadata is None else encode_inline(metadata, "metadata")
        session_pk = self._handle.session(self.name, self._pk)
        with self._handle.writing("record a weight version") as connection:
            RunRepository(connection).lock(self._pk)
            versions = WeightVersionRepository(connection)
            name = version_label(label)  # as the labels of samples are stored
            pk = versions.ensure(self._pk, session_pk, [name], utc_now())[name]
            versions.describe(pk, params=params_text, notes=notes)
            row = versions.get(pk)
        return weight_version_info(row)

    def flush(self) -> None:
        """Wait until everything recorded in the background so far is stored.

        Raises:
            BackgroundRecordError: one of them failed and was not reported yet.
        """
        self._handle.check_may_wait()
        self._handle.background.flush()

    # -- inside --------------------------------------------------------------------------------------

    def _request(self, rollout_id: int, on_conflict: OnConflict, weight_version: str | None = None) -> RecordRequest:
        """Check what can be checked before the work of encoding begins; time counts from here."""
        self._handle.check_writable("record a rollout")
        self._handle.background.raise_failure()
        if on_conflict not in ("new_attempt", "replace", "error"):
            raise ValueError(f'on_conflict is "new_attempt", "replace" or "error", not {on_conflict!r}')
        label = None if weight_version is None else version_label(weight_version)
        return RecordRequest(self.name, self._pk, rollout_number(rollout_id), on_conflict, utc_now(), label)

    def _record(
        self, request: RecordRequest, rollout: EncodedRollout, background: bool
    ) -> RolloutInfo | Future[RolloutInfo]:
        if not background:
            return write_rollout(self._handle, request, rollout)
        what = f"{rollout.kind} rollout {request.rollout_id} of run {self.name!r}"
        return self._handle.background.submit(what, lambda: write_rollout(self._handle, request, rollout))


def _own_param(param: Any) -> ParamInfo:
    try:
        return ParamInfo(param.name, param.dtype, param.shape, param.attrs, param.size, param.src_rank)
    except AttributeError:
        raise InvalidOutputError("params", f"expected ParamInfo, got {type(param).__name__}") from None
