"""The weight versions of a rollout: whose labels they are, and their keys."""

from __future__ import annotations

import sqlalchemy as sa

from slime_store.mapping.encoded import EncodedRollout
from slime_store.repositories.imports import ImportRepository, SessionOrigin
from slime_store.repositories.resume import ResumeRepository
from slime_store.repositories.weight_versions import WeightVersionRepository
from slime_store.store.infos import decode_inline
from slime_store.store.requests import RecordRequest
from slime_store.store.resume import differences
from slime_store.store.sessions import utc_now


class RolloutVersions:
    """Keys of the weight versions of one rollout, new ones added.

    Attributes:
        of_samples: for each sample, keys by label in the session that generated it.
        of_rollout: key of the version that the rollout was recorded with, or None.
        added_sessions: sessions of earlier processes, whose labels it has, that the run did not know yet.
    """

    def __init__(
        self, connection: sa.Connection, request: RecordRequest, session_pk: int, rollout: EncodedRollout
    ) -> None:
        self.added_sessions: list[int] = []
        sessions = [session_pk] * len(rollout.samples)
        for position, generated_in in request.generated_in.items():
            sessions[position] = generated_in
        earlier = self._earlier_sessions(connection, request, session_pk)
        for group, index in rollout.groups if earlier else ():
            if index in earlier:
                positions = slice(group.first_position, group.first_position + group.n_samples)
                sessions[positions] = [earlier[index]] * group.n_samples
        labels: dict[int, list[str]] = {session_pk: []}
        for session, sample in zip(sessions, rollout.samples, strict=True):
            labels.setdefault(session, []).extend(label for label, _ in sample.versions)
        if request.weight_version is not None:
            labels[session_pk].append(request.weight_version)
        repository = WeightVersionRepository(connection)
        keys = {
            session: repository.ensure(request.run_pk, session, named, utc_now()) if named else {}
            for session, named in labels.items()
        }
        self.of_samples = [keys[session] for session in sessions]
        self.of_rollout = None if request.weight_version is None else keys[session_pk][request.weight_version]

    def _earlier_sessions(self, connection: sa.Connection, request: RecordRequest, session_pk: int) -> dict[int, int]:
        """Return the session that generated each group that was served from the journal, by group index.

        The rollout says it, as far as it was told when it took them over, else the journal does: groups of another
        lineage are not served, and of equal ones the last is. A store that does not know it, as the spool, gets one
        like the original, so that the labels of two processes are never taken for one.
        """
        clearing = request.clear_journal
        if clearing is None or not clearing.served:
            return {}
        found: dict[int, int] = {}
        imports = ImportRepository(connection, request.run_pk)
        keys: dict[SessionOrigin, int] = {}
        for index in sorted(clearing.served & clearing.sessions.keys()):
            origin = clearing.sessions[index]
            if origin not in keys:
                known = imports.find_session(origin)
                if known is None:
                    known = imports.add_session(origin)
                    self.added_sessions.append(known)
                keys[origin] = known
            found[index] = keys[origin]
        others = clearing.served - found.keys()
        rows = ResumeRepository(connection, request.run_pk).journal() if others else []
        rows = [row for row in rows if row.group_index in others and row.session_pk < session_pk]
        lineage = imports.lineage(session_pk) if rows else None
        ours = None if lineage is None else decode_inline(lineage)
        return found | {row.group_index: row.session_pk for row in rows if not differences(row.lineage, ours)}
