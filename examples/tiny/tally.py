"""What the processes of one training run generated, and what was not generated twice, counted from their events."""

from __future__ import annotations

from dataclasses import dataclass, field

from tiny.events import Event

Groups = dict[int, tuple[int, ...]]  # group index: generated tokens of each sample


@dataclass(frozen=True)
class Amount:
    """Some groups, counted."""

    groups: int
    samples: int
    tokens: int

    @classmethod
    def of(cls, groups: Groups) -> Amount:
        """Count groups."""
        return cls(len(groups), sum(map(len, groups.values())), sum(map(sum, groups.values())))


@dataclass
class ProcessTally:
    """What one process did.

    Attributes:
        checkpoint: the rollout that it went on from, -1 for none.
        begun: groups that its engine began to decode, also those that the kill cut short.
        generated: groups that its engine finished.
        finished: by rollout, the groups that the rollout function had in the end, from wherever.
        adopted: rollouts that the store served whole.
        counted: what the store's own counter of served groups came to.
    """

    checkpoint: int
    begun: set[int] = field(default_factory=set)
    generated: Groups = field(default_factory=dict)
    finished: dict[int, Groups] = field(default_factory=dict)
    adopted: set[int] = field(default_factory=set)
    counted: int = 0

    @property
    def adopted_groups(self) -> Groups:
        """The groups of the adopted rollouts."""
        return {index: tokens for number in self.adopted for index, tokens in self.finished[number].items()}

    @property
    def served_groups(self) -> Groups:
        """Groups of other rollouts that were finished without being generated: they came from the journal."""
        return {
            index: tokens
            for number, groups in self.finished.items()
            if number not in self.adopted
            for index, tokens in groups.items()
            if index not in self.generated
        }


@dataclass(frozen=True)
class Restart:
    """What a restart found done, and did again.

    Attributes:
        lost_without_store: what was finished after the checkpoint when the process before it died.
        adopted: of that, groups of complete rollouts that the store served.
        served: of that, groups of the interrupted rollout that the journal served.
        again: groups that were generated although a process before had generated them, or had begun to.
        unwritten: how many of these were finished, and on their way to the disk when the kill came.
    """

    lost_without_store: Amount
    adopted: Amount
    served: Amount
    again: Amount
    unwritten: int


class Tally:
    """Follows the processes of one run, one after the other."""

    def __init__(self) -> None:
        self.processes: list[ProcessTally] = []
        self.rollout_id = -1

    def note(self, event: Event) -> None:
        """Count one event."""
        if event.kind == "process begun":
            assert event.rollout_id is not None
            self.processes.append(ProcessTally(event.rollout_id))
            return
        process = self.processes[-1]
        if event.kind == "rollout begun":
            assert event.rollout_id is not None
            self.rollout_id = event.rollout_id
            process.finished[event.rollout_id] = {}
        elif event.group_index is not None:
            if event.kind == "group begun":
                process.begun.add(event.group_index)
            elif event.kind == "group generated":
                process.generated[event.group_index] = event.tokens
            elif event.kind == "group finished":
                process.finished[self.rollout_id][event.group_index] = event.tokens
        elif event.kind == "rollout finished":
            self._note_rollout(process, event)

    @property
    def n_finished(self) -> int:
        """Groups of the rollout under way that are finished."""
        return len(self.processes[-1].finished.get(self.rollout_id, ()))

    def restarts(self) -> list[Restart]:
        """Return what each restart found and did."""
        return [self._restart(number) for number in range(1, len(self.processes))]

    def _note_rollout(self, process: ProcessTally, event: Event) -> None:
        assert event.rollout_id is not None
        metrics = event.output.metrics or {}
        process.counted += int(metrics.get("store/served_groups", 0))
        if metrics.get("store/adopted"):
            process.adopted.add(event.rollout_id)
            process.finished[event.rollout_id] = {
                group[0].group_index: tuple(sample.response_length for sample in group)
                for group in event.output.samples
            }

    def _restart(self, number: int) -> Restart:
        before, process = self.processes[number - 1], self.processes[number]
        lost: Groups = {}
        for rollout_id, groups in before.finished.items():
            if rollout_id > process.checkpoint:
                lost |= groups
        begun, ended = set[int](), set[int]()
        for earlier in self.processes[:number]:
            begun |= earlier.begun
            ended |= earlier.generated.keys()
        return Restart(
            lost_without_store=Amount.of(lost | _generated_only(before, lost)),
            adopted=Amount.of(process.adopted_groups),
            served=Amount.of(process.served_groups),
            again=Amount.of({index: tokens for index, tokens in process.generated.items() if index in begun}),
            unwritten=len(process.generated.keys() & ended),
        )


def _generated_only(process: ProcessTally, lost: Groups) -> Groups:
    """Groups that the engine had finished and the rollout function had not taken yet."""
    taken = {index for groups in process.finished.values() for index in groups}
    return {index: tokens for index, tokens in process.generated.items() if index not in taken}
