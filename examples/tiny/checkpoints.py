"""Checkpoints on disk: written so that a kill leaves the old one or the new one, and compared bit for bit."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tiny.args import Args

_LATEST = "latest_checkpointed_iteration.txt"


def last_checkpoint(args: Args) -> int:
    """Return the step of the last checkpoint that is whole; -1 if there is none."""
    latest = Path(args.save) / _LATEST
    return int(latest.read_text()) if latest.exists() else -1


def save_checkpoint(args: Args, rollout_id: int, state: dict[str, Any]) -> None:
    """Write the training state of a step. It does not count before ``complete_checkpoint``."""
    path = checkpoint_path(args, rollout_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, path)


def complete_checkpoint(args: Args, rollout_id: int) -> None:
    """Make this step's checkpoint the one that the next process begins with: all of it is written."""
    draft = Path(args.save) / f"{_LATEST}.draft"
    draft.write_text(str(rollout_id))
    draft.replace(Path(args.save) / _LATEST)


def load_checkpoint(args: Args, rollout_id: int) -> Any:
    """Return the training state of a step."""
    return torch.load(checkpoint_path(args, rollout_id), weights_only=True)


def checkpoint_path(args: Args, rollout_id: int) -> Path:
    """Return where the training state of a step is."""
    return Path(args.save) / f"iter_{rollout_id:07d}.pt"


def digest(state: Any) -> str:
    """Return the SHA-256 of a training state: of every name, number, shape, dtype and every bit of its tensors."""
    sha = hashlib.sha256()
    _feed(sha, state)
    return sha.hexdigest()


def _feed(sha: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        sha.update(f"tensor {value.dtype} {tuple(value.shape)}".encode())
        sha.update(value.detach().contiguous().numpy().tobytes())
    elif isinstance(value, dict):
        sha.update(f"dict {len(value)}".encode())
        for key, item in value.items():
            sha.update(repr(key).encode())
            _feed(sha, item)
    elif isinstance(value, (list, tuple)):
        sha.update(f"list {len(value)}".encode())
        for item in value:
            _feed(sha, item)
    else:
        sha.update(repr(value).encode())
