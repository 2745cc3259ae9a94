"""A rollout function whose worker keeps groups in flight across rollouts, in a thread with a loop of its own."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from argparse import Namespace
from typing import Any

from slime_store.types import Sample
from tests.plugins.fake_framework.engine import engine
from tests.plugins.fake_framework.ledger import indexes, leaves, note_produced
from tests.plugins.fake_framework.loop import first_index, generate_and_rm_group, passes_filter


class Worker:
    """Fills a queue with finished groups; groups that were aborted go back to the data source."""

    def __init__(self, args: Namespace, source: Any) -> None:
        self.finished: queue.Queue[list[Any]] = queue.Queue()
        self.active: dict[asyncio.Task[Any], list[Any]] = {}
        self._args = args
        self._source = source
        self._thread = threading.Thread(target=lambda: asyncio.run(self._work()), daemon=True)
        self._thread.start()

    async def _work(self) -> None:
        while True:
            while len(self.active) < self._args.concurrency and self.finished.qsize() < self._args.concurrency:
                for group in self._source.get_samples(1):
                    task = asyncio.create_task(generate_and_rm_group(self._args, group, {}))
                    self.active[task] = indexes([group])
            await asyncio.sleep(0.001)
            if engine.aborted:  # as engines do while they take new weights
                await asyncio.gather(*self.active)
                engine.aborted = False
            for task in [task for task in self.active if task.done()]:
                group = task.result()
                if any(leaf.status is Sample.Status.ABORTED for leaf in leaves(group)):
                    self._source.add_samples([group])
                elif passes_filter(self._args, group):
                    self.finished.put(group)
                del self.active[task]


_worker: Worker | None = None


def generate_rollout(args: Namespace, rollout_id: int, data_source: Any, evaluation: bool = False) -> Any:
    global _worker
    if evaluation:
        raise ValueError("this rollout function cannot evaluate")
    if _worker is None:
        _worker = Worker(args, data_source)
    groups: list[Any] = []
    while len(groups) < args.rollout_batch_size:
        with contextlib.suppress(queue.Empty):
            groups.append(_worker.finished.get(timeout=0.05))
    groups.sort(key=first_index)
    note_produced(args, rollout_id, groups, [])
    if args.interrupt:
        engine.aborted = True
        while engine.aborted:
            time.sleep(0.001)
    return groups


def still_under_way() -> list[Any]:
    """Group indexes of what the worker works on or keeps, when nothing more is handed out."""
    if _worker is None:
        return []
    _worker._args.concurrency = 0
    time.sleep(0.02)
    return [index for group in list(_worker.active.values()) for index in group] + [
        index for group in list(_worker.finished.queue) for index in indexes([group])
    ]
