"""One sample as text for people."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import click

from slime_store.cli.charts import strip
from slime_store.cli.terminal import one_line, wrapped
from slime_store.cli.text import DEFAULT_WIDTH, counted, document, facts, inline, section
from slime_store.interchange.values import plain
from slime_store.types import LocatedSample

_STRIP_LINES = 8
_LEAST, _LITTLE = 0.1, 0.5  # probabilities below which a token is red, or yellow


def sample_json(located: LocatedSample) -> str:
    """Return a sample with its place as a JSON object: the columns of ``export jsonl``, in lines."""
    from slime_store.interchange.columns import PLACE, SAMPLE
    from slime_store.interchange.rows import RowMaker, as_json_line

    columns = [*PLACE, *(column for column in SAMPLE if column.when != "when named")]
    line = as_json_line([column.name for column in columns], RowMaker(columns).row(located))
    return json.dumps(json.loads(line), indent=1, ensure_ascii=False)


def sample_lines(
    located: LocatedSample, width: int | None, *, tokens: bool = False, pruned: bool = False
) -> Iterator[str]:
    """Yield the lines that show a sample.

    Args:
        located: the sample.
        width: columns of the terminal; None: lines are as long as they are.
        tokens: show the token ids as well.
        pruned: its arrays were pruned.
    """
    place, sample = located.place, located.sample
    ids = _numbers(sample.tokens)
    n_response = sample.response_length if isinstance(sample.response_length, int) else 0
    n_prompt = max(0, len(ids) - n_response)
    where = f" of {one_line(place.dataset)}" if place.dataset is not None else ""
    head = f"{place.kind} rollout {place.rollout_id}, sample {place.position}{where}"
    yield click.style(f"{head}, run {one_line(place.run)}", bold=True)
    status = getattr(sample.status, "value", sample.status)
    known: list[tuple[str, Any]] = [
        ("attempt", f"{place.attempt}, session {place.session}"),
        ("status", f"{status}, not for training" if sample.remove_sample is True else status),
        ("reward", inline(sample.reward)),
        ("label", None if sample.label is None else inline(sample.label)),
        ("group", plain(sample.group_index)),
        ("index", plain(sample.index)),
        ("execution", plain(sample.rollout_id)),
        ("versions", ", ".join(map(inline, sample.weight_versions or ())) or None),
        ("tokens", f"{'pruned' if pruned else f'{len(ids)}: prompt {n_prompt}'}, response {inline(n_response)}"),
        ("loss mask", _mask(sample.loss_mask)),
    ]
    yield from facts(known)
    yield from _document("metadata", sample.metadata, width)
    yield from _document("other attributes", _others(sample), width)
    yield from _prompt(sample.prompt, width)
    tokens = tokens and not pruned
    if tokens and ids:
        yield from section("prompt tokens", width)
        yield from wrapped(" ".join(map(str, ids[:n_prompt])), width)
    yield from section("response", width)
    yield from wrapped(_content(sample.response), width)
    if tokens and n_response:
        yield from section("response tokens", width)
        yield from wrapped(" ".join(map(str, ids[n_prompt:])), width)
    yield from _log_probs(sample, width)


def _document(title: str, value: Any, width: int | None) -> Iterator[str]:
    if isinstance(value, dict):
        if value:
            yield click.style(title, dim=True)
            yield from document(value, width)
    elif value is not None:
        yield f"{click.style(title, dim=True)}  {inline(value)}"


def _prompt(prompt: Any, width: int | None) -> Iterator[str]:
    if not isinstance(prompt, list):
        yield from section("prompt", width)
        yield from wrapped(prompt if isinstance(prompt, str) else inline(prompt), width)
        return
    for message in prompt:
        if not isinstance(message, dict):
            yield from section("message", width)
            yield from wrapped(inline(message), width)
            continue
        yield from section(inline(message.get("role", "message")), width)
        yield from wrapped(_content(message.get("content")), width)
        for name, value in message.items():
            if name not in ("role", "content") and value is not None:
                yield from wrapped(f"{name}: {inline(value)}", width)


def _content(content: Any) -> str:
    """A message's content: text, or parts of which some are images."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        return inline(content)
    parts = []
    for part in content:
        is_text = isinstance(part, dict) and isinstance(part.get("text"), str)
        parts.append(part["text"] if is_text else part if isinstance(part, str) else f"[{inline(part)}]")
    return "\n".join(parts)


def _log_probs(sample: Any, width: int | None) -> Iterator[str]:
    values = _numbers(sample.rollout_log_probs)
    if not values:
        return
    mask = _numbers(sample.loss_mask)
    finite = [value for value in values if math.isfinite(value)]
    mean = f"mean {sum(finite) / len(finite):.3f}, lowest {min(finite):.3f}" if finite else "none is finite"
    room = max(10, width or DEFAULT_WIDTH)
    per_cell = -(-len(values) // (room * _STRIP_LINES))
    each = f", {per_cell} tokens in each block" if per_cell > 1 else ""
    yield from section(f"log-probs of {counted(len(values), 'tokens')}: {mean}{each}", width)
    cells = [_cell(values, mask, start, per_cell) for start in range(0, len(values), per_cell)]
    for start in range(0, len(cells), room):
        yield _coloured(cells[start : start + room])


def _cell(values: Sequence[float], mask: Sequence[float], start: int, n: int) -> tuple[float, bool]:
    """The probability of the least likely token, and whether any token counts in the loss."""
    part = [value for value in values[start : start + n] if value == value]
    counts = len(mask) != len(values) or any(mask[start : start + n])
    return math.exp(min(0.0, *part, 0.0)) if part else 0.0, counts


def _coloured(cells: Sequence[tuple[float, bool]]) -> str:
    pieces: list[str] = []
    start = 0
    styles = [_style(*cell) for cell in cells]
    for i in range(1, len(cells) + 1):
        if i == len(cells) or styles[i] != styles[start]:
            blocks = strip([probability for probability, _ in cells[start:i]])
            colour = styles[start]
            pieces.append(click.style(blocks, dim=True) if colour == "dim" else click.style(blocks, fg=colour))
            start = i
    return "".join(pieces)


def _style(probability: float, counts: bool) -> str:
    if not counts:
        return "dim"
    return "red" if probability < _LEAST else "yellow" if probability < _LITTLE else "green"


def _mask(mask: Any) -> str | None:
    numbers = _numbers(mask)
    return (
        f"{sum(map(bool, numbers))} of {counted(len(numbers), 'response tokens')} counted" if mask is not None else None
    )


def _numbers(values: Any) -> list[Any]:
    """A list, array or tensor of numbers as a list; what is none of these as nothing."""
    shown = plain(values)
    if not isinstance(shown, list):
        return []
    words = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
    numbers = [words.get(item, 0) if isinstance(item, str) else item for item in shown]
    return numbers if all(isinstance(item, (int, float)) for item in numbers) else []


def _others(sample: Any) -> dict[str, Any]:
    from slime_store.interchange.columns import DECLARED

    return {name: value for name, value in vars(sample).items() if name not in DECLARED}
