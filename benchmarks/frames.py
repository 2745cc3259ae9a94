"""``python -m benchmarks.frames [--rollouts 200] [--samples 512]``: how fast questions are answered, and by which path.

Makes a store of that many rollouts, unless ``--store`` names one that it made before, and prints seconds, the best of
several turns. A small prompt and response a sample: no frame of scalars may read them, however long they are.
"""

from __future__ import annotations

import argparse
import gc
import random
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from sqlalchemy import create_engine, select
from sqlalchemy.dialects import sqlite

from slime_store import Run, Sample, SampleStore
from slime_store import SampleFilter as F
from slime_store import dataframes as frames
from slime_store.models import SampleRow

GROUP = 8
_COLUMNS = (
    *("rollout_pk", "position", "group_position", "dataset_position", "sample_index", "group_index", "execution_id"),
    *("status", "reward", "reward_type", "remove_sample", "last_weight_version_pk"),
    *("response_length", "effective_response_length", "n_tokens"),
)


def fill(store: SampleStore, n_rollouts: int, n_samples: int) -> None:
    """Record train rollouts of groups of eight, each by a new weight version, and an eval after every tenth."""
    run = store.run("bench")
    for rollout_id in range(n_rollouts):
        run.record_train(rollout_id, rollout(rollout_id, n_samples))
        if rollout_id % 10 == 0:
            data = {"samples": [sample for group in rollout(-1, 64) for sample in group]}
            run.record_eval(rollout_id, {"math": data}, weight_version=str(rollout_id))


def rollout(rollout_id: int, n_samples: int) -> list[list[Sample]]:
    """Return groups of samples with every scalar set."""
    source = random.Random(rollout_id)
    share = 0.3 + 0.4 * max(rollout_id, 0) / 1000
    return [
        [_sample(source, rollout_id, group, group * GROUP + i, share) for i in range(GROUP)]
        for group in range(n_samples // GROUP)
    ]


def _sample(source: random.Random, rollout_id: int, group: int, index: int, share: float) -> Sample:
    sample: Any = Sample(index=index, group_index=group, prompt=f"problem {group + rollout_id % 50 * 1000}")
    sample.response, sample.response_length = "so the sum is 42 " * 4, source.randrange(100, 4000)
    sample.reward = float(source.random() < share)
    sample.weight_versions = [str(max(rollout_id, 0))]
    sample.metadata = {"source": ("math", "code", "logic")[group % 3], "difficulty": source.randrange(5)}
    sample.status = Sample.Status.TRUNCATED if source.random() < 0.02 else Sample.Status.COMPLETED
    return sample  # type: ignore[no-any-return]


Turn = Callable[[], Any]


def best(turn: Turn, n_turns: int) -> float:
    """Return the processor seconds of the fastest of several turns: other work slows them less than the clock."""
    seconds = []
    for _ in range(n_turns):
        gc.collect()
        gc.disable()  # as the store does while it reads
        start = time.process_time()
        turn()
        seconds.append(time.process_time() - start)
        gc.enable()
    return min(seconds)


def questions(run: Run, n_rollouts: int) -> dict[str, Turn]:
    """Return what is asked, by what it is called in the report."""
    last = n_rollouts - 1
    return {
        "weight_versions_df": lambda: frames.weight_versions_df(run),
        'weight_versions_df, attribute="each"': lambda: frames.weight_versions_df(run, attribute="each"),
        'weight_versions_df, status="truncated"': lambda: frames.weight_versions_df(run, F(status="truncated")),
        "samples_df, first 100": lambda: frames.samples_df(run, limit=100),
        "samples_df, 100 of the last rollout": lambda: frames.samples_df(run, F(rollout_ids=last), limit=100),
        "samples_df, 100 truncated": lambda: frames.samples_df(run, F(status="truncated"), limit=100),
        "samples_df, 100 truncated after 1,000": lambda: frames.samples_df(
            run, F(status="truncated"), limit=100, offset=1000
        ),
        "samples_df, 100 of a weight version": lambda: frames.samples_df(run, F(weight_version=str(last)), limit=100),
        "samples_df, 100 by metadata": lambda: frames.samples_df(run, F(metadata={"source": "math"}), limit=100),
        "samples_df, 100 by text": lambda: frames.samples_df(run, F(text="problem 17"), limit=100),
        "samples_df, a filter that nothing meets": lambda: frames.samples_df(run, F(reward_min=2), limit=100),
        "prompts_df of one prompt": lambda: frames.prompts_df(run, F(prompt="problem 3")),
        "eval_summary_df": lambda: frames.eval_summary_df(run),
        "eval_compare_df": lambda: frames.eval_compare_df(run, 0, 10),
        "rollouts_df": lambda: frames.rollouts_df(run),
        "samples_df, one rollout": lambda: frames.samples_df(run, F(rollout_ids=last)),
    }


def whole(run: Run) -> dict[str, Turn]:
    """Return what reads every sample."""
    return {
        "samples_df, all": lambda: frames.samples_df(run),
        "groups_df": lambda: frames.groups_df(run),
        "weight_versions_df by metadata": lambda: frames.weight_versions_df(run, F(metadata={"source": "math"})),
    }


def paths(path: str) -> dict[str, Turn]:
    """Return ways to read fifteen columns of every sample, by the driver that does it."""
    columns = [column for column in SampleRow.__table__.columns if column.name in _COLUMNS]
    query = select(*columns).order_by(SampleRow.rollout_pk, SampleRow.position)
    text = str(query.compile(dialect=sqlite.dialect()))
    driver = sqlite3.connect(path)
    engine = create_engine(f"sqlite:///{path}")

    def cursor() -> Any:
        with engine.connect() as connection:
            return list(zip(*connection.execute(query).cursor.fetchall(), strict=True))  # type: ignore[union-attr]

    def rows() -> Any:
        with engine.connect() as connection:
            return list(zip(*connection.execute(query).all(), strict=True))

    found: dict[str, Turn] = {
        "sqlite3's cursor, to columns": lambda: list(zip(*driver.execute(text).fetchall(), strict=True)),
        "SQLAlchemy's statement, the driver's cursor, to columns": cursor,
        "SQLAlchemy's rows, to columns": rows,
        "pandas.read_sql": lambda: pd.read_sql(text, driver),
    }
    try:
        import adbc_driver_sqlite.dbapi as adbc
    except ImportError:
        return found

    def arrow() -> Any:
        with adbc.connect(path) as connection, connection.cursor() as cursor:
            cursor.execute(text)
            return cursor.fetch_arrow_table().to_pandas()

    return found | {"adbc_driver_sqlite, Arrow to pandas": arrow}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=200)
    parser.add_argument("--samples", type=int, default=512, help="of each rollout (default 512)")
    parser.add_argument("--store", help="a store that was made before, or the path for a new one that is kept")
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as directory:
        path = options.store or str(Path(directory) / "store.db")
        if not Path(path).exists():
            with SampleStore.open(path) as store:
                fill(store, options.rollouts, options.samples)
        with SampleStore.open(path) as store:
            run = store.run("bench", create=False)
            n_rollouts = len(run.rollouts("train"))
            n_samples = store.stats().n_samples
            print(f"{n_rollouts:,} train rollouts, {n_samples:,} samples; processor seconds, best of {options.repeat}")
            for name, turn in questions(run, n_rollouts).items():
                print(f"{best(turn, options.repeat):8.3f}  {name}")
            for name, turn in whole(run).items():
                print(f"{best(turn, 2):8.3f}  {name}")
        for name, turn in paths(path).items():
            print(f"{best(turn, 3):8.3f}  fifteen columns of every sample: {name}")


if __name__ == "__main__":
    main()
