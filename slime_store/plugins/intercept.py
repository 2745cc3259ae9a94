"""The one place through which slime's and miles's rollout functions generate a group.

Every loop of theirs (default, streaming, fully asynchronous) awaits a coroutine function of one name to generate and
reward one group. It is looked up in the loop's module at each call, so it can be wrapped there, whatever the loop
is; the user's own filters, reward functions and hooks stay untouched.
"""

from __future__ import annotations

import functools
import inspect
import sys
from typing import Any

from slime_store.plugins.tracker import GroupTracker

_ORIGINAL = "__slime_store_original__"


_active: GroupTracker | None = None


def activate(tracker: GroupTracker | None) -> None:
    """Say which tracker is told of groups from now on: a process has one rollout manager."""
    global _active
    _active = tracker


def intercept(rollout_function: Any, name: str) -> bool:
    """Wrap the group function in the module of a rollout function, and in every module that took it from there.

    Args:
        rollout_function: the function or class that is wrapped by the plug-in.
        name: of the group function.

    Returns:
        False when the rollout function's module uses no such function: its groups cannot be journalled.
    """
    module = sys.modules.get(getattr(rollout_function, "__module__", ""))
    original = getattr(module, name, None)
    if original is None or not inspect.iscoroutinefunction(inspect.unwrap(original)):
        return False
    if hasattr(original, _ORIGINAL):
        return True
    wrapped = _wrap(original)
    for user in list(sys.modules.values()):
        if getattr(user, "__dict__", {}).get(name) is original:
            setattr(user, name, wrapped)
    return True


def _wrap(original: Any) -> Any:
    signature = inspect.signature(original)

    @functools.wraps(original)
    async def generate_group(*args: Any, **kwargs: Any) -> Any:
        tracker = _active
        bound = signature.bind(*args, **kwargs).arguments
        group = bound.get("group")
        if tracker is None or group is None or bound.get("evaluation"):
            return await original(*args, **kwargs)
        stored = tracker.finished_before(group)
        if stored is not None:
            return stored
        result = await original(*args, **kwargs)
        tracker.finished(result)
        return result

    setattr(generate_group, _ORIGINAL, original)
    return generate_group
