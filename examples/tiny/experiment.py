"""Two training runs side by side: one is killed and started again, the other is left alone."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from multiprocessing.connection import wait
from pathlib import Path

from slime_store import SampleStore
from tiny.args import Args
from tiny.copies import Copies
from tiny.crash import CrashSite, Executioner
from tiny.events import Event
from tiny.process import TrainingProcess
from tiny.progress import Progress
from tiny.tally import Tally

SETTINGS = """\
slime_store_url: {url}
slime_store_run: {run}
slime_store_mode: resume
"""


@dataclass
class Outcome:
    """What came of it.

    Attributes:
        args: the settings of the run that was killed.
        control_args: of the one that was left alone.
        tally: what the processes of the killed run generated.
        copies: what its trainer was handed.
        crashes: what each kill left behind.
    """

    args: Args
    control_args: Args
    tally: Tally = field(default_factory=Tally)
    copies: Copies = field(default_factory=Copies)
    crashes: list[CrashSite] = field(default_factory=list)


def with_store(args: Args, url: str, run: str, directory: Path) -> Args:
    """Return the settings with the store in them: two flags and a YAML file, as in slime."""
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / "store.yaml"
    config.write_text(SETTINGS.format(url=url, run=run))
    return replace(
        args,
        rollout_function_path="tiny.plugin.generate_rollout",
        data_source_path="tiny.plugin.StoreDataSource",
        custom_config_path=str(config),
        save=str(directory / "checkpoints"),
    )


class Experiment:
    """Runs both; see ``run``.

    Args:
        args: the settings of both.
        path: the store.
        run: name of the run in it.
        directory: where checkpoints and logs go.
    """

    def __init__(self, args: Args, path: Path, run: str, directory: Path) -> None:
        self._log = directory / "log"
        self._control_log = directory / "control.log"
        self._run = run
        self._path = path
        self.outcome = Outcome(
            with_store(args, str(path.resolve()), run, directory),
            replace(args, save=str(directory / "control")),
        )
        self._progress = Progress(args.num_rollout)
        self._scores: dict[str, float] = {}

    def run(self) -> Outcome:
        """Train both runs to the end, and kill one of them on the way.

        Raises:
            RuntimeError: a process ended that nobody killed.
        """
        outcome = self.outcome
        process = TrainingProcess(outcome.args, self._log)
        control = TrainingProcess(outcome.control_args, self._control_log)
        with SampleStore.open(self._path, read_only=True) as store:
            executioner = Executioner(outcome.args, store, self._run)
            running = {process.connection: process, control.connection: control}
            while running:
                for connection in wait(list(running)):
                    speaker = running[connection]  # type: ignore[index]
                    event = speaker.next_event()
                    if event is None:
                        del running[speaker.connection]
                        self._assert_ended_well(speaker)
                    elif speaker is process:
                        self._note(event)
                        if self._is_crashed or not executioner.is_near(event, outcome.tally):
                            continue
                        process.hold()
                        if not executioner.says_now(outcome.tally):
                            process.let_go()
                            continue
                        del running[process.connection]
                        process = self._crash(process, executioner)
                        running[process.connection] = process
        return outcome

    @property
    def _is_crashed(self) -> bool:
        return any(site.is_inside_a_rollout for site in self.outcome.crashes)

    def _crash(self, process: TrainingProcess, executioner: Executioner) -> TrainingProcess:
        process.kill()
        for event in process.events():  # what it said before it died
            self._note(event, quietly=True)
        site = executioner.inspect(process.pid)
        self.outcome.crashes.append(site)
        self._progress.interrupt()
        _print_site(site, self.outcome.args)
        return TrainingProcess(self.outcome.args, self._log)

    def _note(self, event: Event, *, quietly: bool = False) -> None:
        self.outcome.tally.note(event)
        self.outcome.copies.note(event)
        if event.output is None or event.rollout_id is None:
            return
        metrics = event.output.metrics or {}
        if event.kind == "eval finished":
            self._scores = {name: metrics[f"{name}/accuracy"] for name in event.output.data}
        elif not quietly:
            figures = {"reward": metrics["reward"], "accuracy": metrics["accuracy"], **self._scores}
            self._progress.show(event.rollout_id + 1, **figures)

    def _assert_ended_well(self, process: TrainingProcess) -> None:
        code = process.wait()
        if code != 0:
            raise RuntimeError(f"training process {process.pid} ended with code {code}; see above")


def _print_site(site: CrashSite, args: Args) -> None:
    point, rollout_id = site.point, site.point.next_rollout_id
    print(f"\n  SIGKILL to training process {site.pid}, while rollout {rollout_id} is generated. It leaves behind")
    print(f"    on disk       the checkpoint of step {point.checkpoint_rollout_id}")
    first, last = point.checkpoint_rollout_id + 1, rollout_id - 1
    print(f"    in the store  rollouts {first} to {last}, complete; and in the journal")
    print(f"                  {len(point.journalled_groups)} of the {args.rollout_batch_size} groups of {rollout_id}")
    print("  It is started again.\n")
