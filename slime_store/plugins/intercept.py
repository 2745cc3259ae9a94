"""The one place through which slime's and miles's rollout functions generate a group.

Every loop of theirs (default, streaming, fully asynchronous) awaits a coroutine function of one name to generate and
reward one group. It is looked up in the loop's module at each call, so it can be wrapped there, whatever the loop
is; the user's own filters, reward functions and hooks stay untouched.
"""

from __future__ import annotations

import functools
import inspect
import sys
from contextvars import ContextVar
from typing import Any

from slime_store.plugins.tracker import GroupTracker

_ORIGINAL = "__slime_store_original__"
_inside: ContextVar[bool] = ContextVar("slime_store_inside_a_group", default=False)
_active: GroupTracker | None = None


def activate(tracker: GroupTracker | None) -> None:
    """Say which tracker is told of groups from now on: a process has one rollout manager."""
    global _active
    _active = tracker


def intercept(name: str) -> bool:
    """Wrap the group function in every loaded module that has it, its own or imported; again for modules loaded since.

    Args:
        name: of the group function.

    Returns:
        False when no loaded module has such a function: groups cannot be journalled.
    """
    wrappers: dict[int, Any] = {}
    found = False
    for module in list(sys.modules.values()):
        original = getattr(module, "__dict__", {}).get(name)
        if original is None or not inspect.iscoroutinefunction(inspect.unwrap(original)):
            continue
        found = True
        if not hasattr(original, _ORIGINAL):
            wrapped = wrappers.setdefault(id(original), _wrap(original))
            setattr(module, name, wrapped)
    return found


def _wrap(original: Any) -> Any:
    signature = inspect.signature(original)

    @functools.wraps(original)
    async def generate_group(*args: Any, **kwargs: Any) -> Any:
        tracker = _active
        if tracker is None or _inside.get():
            return await original(*args, **kwargs)
        bound = signature.bind(*args, **kwargs).arguments
        group = bound.get("group")
        if group is None or bound.get("evaluation"):
            return await original(*args, **kwargs)
        stored = tracker.finished_before(group)
        if stored is not None:
            _tell_of_samples(bound, group)
            return stored
        token = _inside.set(True)  # one group function may call another
        try:
            result = await original(*args, **kwargs)
        finally:
            _inside.reset(token)
        tracker.finished(group, result)
        return result

    setattr(generate_group, _ORIGINAL, original)
    return generate_group


def _tell_of_samples(bound: dict[str, Any], group: list[Any]) -> None:
    """Say that a served group's samples are done, to a loop that counts samples in flight."""
    callback = bound.get("sample_done_callback")
    if callback is not None:
        for _ in group:
            callback()
