"""The task: reverse a number. ``4172>`` is to be answered with ``2714.``.

Nothing is taught: no answer is ever shown to the policy. It learns from the reward alone, which a few
lines of code can verify, what ``>`` asks for, where to stop and which digit to look at.
"""

from __future__ import annotations

import random

from slime_store import Sample
from tiny.args import Args

DIGITS = "0123456789"
STOP = "."  # ends an answer; not part of its text
VOCABULARY = DIGITS + ">" + STOP
STOP_ID = VOCABULARY.index(STOP)

EASY = 3  # digits of the easy eval dataset; the hard one has as many as training ever asks for


def encode(text: str) -> list[int]:
    """Return the token ids of ``text``, one per character."""
    return [VOCABULARY.index(character) for character in text]


def decode(tokens: list[int]) -> str:
    """Return the text of ``tokens``."""
    return "".join(VOCABULARY[token] for token in tokens)


def make_problem(number: str) -> Sample:
    """Return the pending sample that asks for ``number`` reversed."""
    difficulty = len(number)
    return Sample(
        prompt=f"{number}>",
        label=number[::-1],
        metadata={"task": f"reverse_{difficulty}", "difficulty": difficulty},
    )


def make_eval_datasets(args: Args) -> dict[str, list[Sample]]:
    """Return the easy and the hard eval prompts by the name of their dataset, the same for the same seed."""
    return {f"reverse_{length}": [make_problem(n) for n in numbers] for length, numbers in _held_out(args).items()}


def make_train_dataset(args: Args) -> list[Sample]:
    """Return the training prompts, all lengths mixed and none of them an eval prompt."""
    held_out = {number for numbers in _held_out(args).values() for number in numbers}
    rng = random.Random(f"train/{args.seed}")
    numbers: list[str] = []
    while len(numbers) < args.dataset_size:
        number = _number(rng, rng.randint(1, args.max_difficulty))
        if number not in held_out:
            numbers.append(number)
    return [make_problem(number) for number in numbers]


def reward_answer(sample: Sample) -> None:
    """Set the reward of a finished sample: the share of places, the stop included, that are right.

    Partial credit is what makes learning from scratch take seconds: the policy stumbles over single
    digits long before it stumbles over a whole answer. ``metadata["correct"]`` says whether all is right.
    """
    assert sample.label is not None
    answer = sample.response + (STOP if sample.status is Sample.Status.COMPLETED else "")
    wanted = sample.label + STOP
    right = sum(given == expected for given, expected in zip(answer, wanted, strict=False))
    sample.reward = right / max(len(answer), len(wanted))
    sample.metadata["correct"] = answer == wanted


def _held_out(args: Args) -> dict[int, list[str]]:
    rng = random.Random(f"eval/{args.seed}")
    return {length: _distinct_numbers(rng, length, args.n_eval_prompts) for length in (EASY, args.max_difficulty)}


def _number(rng: random.Random, length: int) -> str:
    return "".join(rng.choice(DIGITS) for _ in range(length))


def _distinct_numbers(rng: random.Random, length: int, count: int) -> list[str]:
    numbers: dict[str, None] = {}  # a dict: distinct, in order
    while len(numbers) < count:
        numbers[_number(rng, length)] = None
    return list(numbers)
