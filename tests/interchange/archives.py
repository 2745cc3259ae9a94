"""Files as torch.save writes them, and as nobody should: a zip around any pickle."""

from __future__ import annotations

import io
import pickle
import pickletools
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from slime_store.types import iter_leaf_samples


def write_archive(path: Path, data: bytes, records: Mapping[str, bytes] = {}, prefix: str = "archive/") -> Path:
    """Write a file of torch's format with this pickle in it."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(f"{prefix}data.pkl", data)
        archive.writestr(f"{prefix}byteorder", b"little")
        for name, content in records.items():
            archive.writestr(f"{prefix}{name}", content)
        archive.writestr(f"{prefix}version", b"3\n")
    return path


def saved(path: Path, value: Any, protocol: int = 2) -> Path:
    """Write a value with torch.save."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(value, path, pickle_protocol=protocol)
    return path


def loaded_by_torch(path: Path) -> Any:
    """Return what torch itself makes of a file; skip the test where this Pillow does not read its own empty images."""
    try:
        return torch.load(path, weights_only=False)
    except ValueError as error:
        if "tile cannot extend" not in str(error):
            raise
        pytest.skip("this Pillow does not unpickle empty images")


def dump_of(samples: Any, rollout_id: int | None = 7, **extras: Any) -> dict[str, Any]:
    """Return what slime dumps of samples, nested or not."""
    content: dict[str, Any] = {} if rollout_id is None else {"rollout_id": rollout_id}
    return content | {"samples": [sample.to_dict() for sample in iter_leaf_samples(samples)]} | extras


def pickle_in(path: Path) -> bytes:
    """Return the pickle inside a file of torch.save."""
    with zipfile.ZipFile(path) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("data.pkl")]
        return archive.read(name)


def records_in(path: Path) -> dict[str, bytes]:
    """Return the records beside the pickle, by name."""
    with zipfile.ZipFile(path) as archive:
        names = {name: name.partition("/")[2] for name in archive.namelist()}
        return {short: archive.read(name) for name, short in names.items() if short.startswith("data/")}


def dumps(value: Any, protocol: int = 2) -> bytes:
    """Pickle a value."""
    return pickle.dumps(value, protocol)


def sizes_by_instruction(data: bytes) -> list[tuple[str, int]]:
    """Return (instruction, position) of a pickle."""
    return [(opcode.name, position or 0) for opcode, _, position in pickletools.genops(io.BytesIO(data))]
