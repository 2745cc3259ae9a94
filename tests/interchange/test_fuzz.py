"""Damaged and forged dumps of every kind: a typed error or a result, nothing else (case I1)."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from slime_store.errors import InvalidDumpError
from slime_store.interchange import import_path, read_dump
from slime_store.testing import make_train_output
from slime_store.testing.contract.opening import run_of
from tests.interchange.archives import dump_of, pickle_in, records_in, saved, sizes_by_instruction, write_archive

_FUZZ = settings(
    max_examples=max(150, settings().max_examples),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@functools.cache
def honest(protocol: int) -> tuple[bytes, bytes, dict[str, bytes]]:
    """Return a small dump with something of every kind: the file, its pickle, its other records."""
    output = make_train_output(1, 2, n_tokens=4, n_prompt_tokens=2)
    first, second = output.samples[0]
    first.multimodal_inputs = {"images": [Image.new("P", (2, 2))]}
    first.multimodal_train_inputs = {"a": torch.ones(2, 2).T, "b": torch.ones(1, dtype=torch.uint16)}
    second.rollout_routed_experts = np.arange(4, dtype=np.int32).reshape(1, 2, 2)
    second.metadata |= {"f": np.float32(1), "p": Path("/a"), "s": {1, 2}, "o": np.array([1, "a"], object)}
    with tempfile.TemporaryDirectory() as folder:
        file = saved(Path(folder) / "7.pt", dump_of(output.samples), protocol)
        return file.read_bytes(), pickle_in(file), records_in(file)


@st.composite
def mutated(draw: st.DrawFn, data: bytes) -> bytes:
    """Return bytes with a few places changed, removed, repeated or filled in."""
    content = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(content) - 1))
        what = draw(st.sampled_from(["change", "remove", "insert", "repeat", "swap"]))
        if what == "change":
            content[at] = draw(st.integers(0, 255))
        elif what == "remove":
            del content[at : at + draw(st.integers(1, 8))]
        elif what == "insert":
            content[at:at] = draw(st.binary(min_size=1, max_size=8))
        else:
            end = min(len(content), at + draw(st.integers(1, 40)))
            to = draw(st.integers(0, len(content) - 1))
            part = bytes(content[at:end])
            if what == "swap":
                del content[at:end]
            content[to:to] = part
    return bytes(content)


@st.composite
def reordered(draw: st.DrawFn, data: bytes) -> bytes:
    """Return a pickle with some of its instructions, whole ones, moved, doubled or left out."""
    starts = [position for _, position in sizes_by_instruction(data)]
    parts = [data[start:end] for start, end in zip(starts, [*starts[1:], len(data)], strict=True)]
    for _ in range(draw(st.integers(1, 4))):
        at, to = draw(st.integers(1, len(parts) - 2)), draw(st.integers(1, len(parts) - 2))
        part = parts[at]
        if draw(st.booleans()):
            del parts[at]
        if draw(st.booleans()):
            parts.insert(to, part)
    return b"".join(parts)


def read(file: Path) -> None:
    try:
        read_dump(file)
    except InvalidDumpError as error:
        assert str(error)


@_FUZZ
@given(data=st.data(), protocol=st.sampled_from([2, 4]))
def test_i1_a_mutated_pickle_is_read_or_refused(tmp_path: Path, data: Any, protocol: int) -> None:
    _, original, records = honest(protocol)
    changed = data.draw(mutated(original) | reordered(original))
    read(write_archive(tmp_path / "7.pt", changed, records))


@_FUZZ
@given(data=st.data())
def test_i1_a_mutated_file_is_read_or_refused(tmp_path: Path, data: Any) -> None:
    file = tmp_path / "7.pt"
    file.write_bytes(data.draw(mutated(honest(2)[0])))
    read(file)


@settings(_FUZZ, max_examples=60)
@given(data=st.data())
def test_i1_what_a_mutated_pickle_gives_is_recorded_or_refused(sqlite_url: str, tmp_path: Path, data: Any) -> None:
    _, original, records = honest(2)
    file = write_archive(tmp_path / "7.pt", data.draw(reordered(original)), records)
    with run_of(sqlite_url) as run:
        (done,) = import_path(run, file).files
        assert done.action in ("recorded", "skipped") or done.reason
