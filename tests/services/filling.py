"""A store with a row in every table that recording fills."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from sqlalchemy import make_url

from slime_store import RolloutFnTrainOutput, SampleStore
from slime_store.store.imports import ImportSource, record_import
from slime_store.testing import make_eval_output, make_sample, make_train_output

RUN = "contract"


def rich_train(seed: int) -> RolloutFnTrainOutput:
    """Return a rollout with prompts, rewards by key, shared images, tensors, a side file and segments."""
    rng = np.random.default_rng(seed)
    output = make_train_output(3, 2, seed=seed)
    shared = Image.frombytes("RGB", (520, 520), np.random.default_rng(0).bytes(811_200))
    for group in output.samples:
        group[0].reward = {"task": 1.0, "deep": {"x": 0.5}}
        group[0].multimodal_inputs = {"images": [shared, Image.frombytes("L", (50, 50), rng.bytes(2500))]}
        group[0].tool_calls = 3
    output.samples[0][0].rollout_routed_experts = rng.integers(0, 256, (5000, 50, 4), dtype=np.uint8)
    output.samples[1][1].prompt = [{"role": "user", "content": [{"image": shared}, "asked by one only"]}]
    output.samples.append([[make_sample(90, rollout_id=1), make_sample(90, rollout_id=1)]])
    return output


def fill(store: SampleStore) -> None:
    """Record two attempts, a further rollout, an eval, a journalled group, an import, a checkpoint, an adoption."""
    run = store.run(RUN, config={"lr": 1e-6, "text": "naïve"})
    run.recovery.begin_session(checkpoint_rollout_id=-1, lineage={"model": "tiny"})
    run.record_train(0, rich_train(0), state={"buffer": [[make_sample(7)]], "noise": bytes(3000)})
    info = run.record_train(0, rich_train(1), state={"cursor": 1})
    run.record_train(1, rich_train(2), state={"cursor": 2})
    run.record_eval(0, make_eval_output(), weight_version="3", state={"cursor": 1})
    run.record_weight_version("3", metadata={"note": "good"})
    run.recovery.record_checkpoint(0)
    run.recovery.adopt(info)
    journal = run.recovery.journal()
    journal.put(2, [make_sample(90, group_index=30), make_sample(91, group_index=30)])
    journal.close()
    digest = hashlib.sha256(b"a file").digest()
    record_import(run, 5, make_train_output(seed=5), ImportSource(digest, "5.pt", "inferred", {"args": {"lr": 1.0}}))
    store.run("empty")


_template = tempfile.TemporaryDirectory()


def make_filled(url: str) -> None:
    """Fill a new store; on SQLite by copying one that was filled before."""
    if not url.startswith("sqlite"):
        with SampleStore.open(url) as store:
            fill(store)
        return
    template = Path(_template.name) / "store.db"
    if not template.exists():
        with SampleStore.open(template) as store:
            fill(store)
    target = Path(str(make_url(url).database))
    shutil.copy(template, target)
    shutil.copytree(f"{template}-blobs", f"{target}-blobs")


def side_files(url: str) -> list[Path]:
    """Return the side files of a store."""
    address = make_url(url)
    if address.get_backend_name() != "sqlite":
        return []
    return sorted(path for path in Path(f"{address.database}-blobs").glob("*/*") if path.is_file())
