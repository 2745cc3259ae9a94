"""What the crash cost, and whether all is as if it had not happened."""

from __future__ import annotations

from pathlib import Path

from slime_store import Run
from tiny.args import Args
from tiny.checkpoints import digest, last_checkpoint, load_checkpoint
from tiny.copies import Copies
from tiny.experiment import Outcome
from tiny.report import bar, print_title
from tiny.tally import Amount, Restart

_LEAST_RISE = 0.05  # of the mean reward, from the first bar to the last: well beyond chance


def print_crash(outcome: Outcome, log: Path) -> bool:
    """Print what the restart found and did again; return whether the kill came in the middle of a rollout."""
    restarts = outcome.tally.restarts()
    print_title("The crash: what the restart was spared, in what the engine generates")
    if not any(site.is_inside_a_rollout for site in outcome.crashes):
        print("  FAILED: the run ended before it could be killed in the middle of a rollout")
        return False
    for site, restart in zip(outcome.crashes, restarts, strict=True):
        first, last = site.point.checkpoint_rollout_id + 1, site.point.next_rollout_id - 1
        print("                                            groups   samples    tokens")
        _print_amount(f"finished since the checkpoint of step {first - 1}", restart.lost_without_store)
        _print_amount(f"rollouts {first} to {last}: from the store", restart.adopted)
        _print_amount(f"rollout {last + 1}: from its journal", restart.served)
        _print_amount(f"rollout {last + 1}: generated again", restart.again)
        _print_bars(restart)
    print("\n  The log of the restart:")
    for line in log.read_text().splitlines():
        if line.startswith("slime_store: ") and "resume run" not in line and "is served from" not in line:
            print(f"    {line.removeprefix('slime_store: ')}")
    return True


def print_verdict(outcome: Outcome, run: Run, rewards: tuple[float, float]) -> bool:
    """Print the checks; return whether all are passed."""
    print_title("The checks")
    loads_back = _print_load_back(run, outcome.copies)
    equal = _print_digests(outcome.args, outcome.control_args)
    rose = rewards[1] - rewards[0] >= _LEAST_RISE
    print(
        f"  the mean reward {'rose' if rose else 'FAILED to rise: it went'} from {rewards[0]:.3f} to {rewards[1]:.3f}"
    )
    return loads_back and equal and rose


def _print_amount(what: str, amount: Amount) -> None:
    print(f"  {what:<40}  {amount.groups:>6,}  {amount.samples:>8,}  {amount.tokens:>8,}")


def _print_bars(restart: Restart) -> None:
    lost, again = restart.lost_without_store.tokens, restart.again.tokens
    begun = restart.again.groups - restart.unwritten
    print(f"  (when the kill came, {restart.unwritten} of these were on their way to the disk, {begun} in the engine)")
    print("\n  tokens to generate again")
    print(f"    without a store {lost:>8,}  {bar(1.0)}")
    print(f"    with it         {again:>8,}  {bar(again / max(1, lost)) or '▏'}")


def _print_load_back(run: Run, copies: Copies) -> bool:
    try:
        copies.assert_loads_back(run)
    except AssertionError as error:
        print(f"  FAILED: {error}")
        return False
    print(f"  {len(copies.train)} train rollouts and {len(copies.evals)} evals load back equal to what was trained on")
    return True


def _print_digests(args: Args, control_args: Args) -> bool:
    step = last_checkpoint(args)
    ours, control = (digest(load_checkpoint(one, step)) for one in (args, control_args))
    equal = ours == control
    print(f"  weights, optimizer, schedule and random state after step {step}, SHA-256 of all their bits:")
    print(f"    killed and resumed, with the store      {ours[:32]}…")
    print(f"    never interrupted, without the store    {control[:32]}…")
    print(f"  they are {'equal, bit for bit' if equal else 'NOT EQUAL: FAILED'}")
    return equal
