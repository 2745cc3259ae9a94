"""What slime and miles import and these tests do not need: the engine, the router, Ray, tokenizers."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_NAMES = ("ray", "sglang", "sglang_router", "transformers", "tokenizers", "huggingface_hub", "pybase64")


class _StandIn(types.ModuleType):
    """A module that has a class of every name."""

    __version__ = "0.9.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names: set[str]) -> None:
        self._names = names

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in self._names:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


class Tokenizer:
    """Turns any text into the three tokens that the fake engine's samples begin with."""

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        return [1, 2, 3]


def use_checkout(framework: str) -> None:
    """Make a framework importable from the checkout that its environment variable names."""
    sys.path.insert(0, str(Path(os.environ[f"{framework.upper()}_CHECKOUT"])))
    sys.meta_path.append(_Finder({name for name in _NAMES if importlib.util.find_spec(name) is None}))


async def no_workers(*_: Any) -> Any:
    """Answers for the router: there is no engine to be told anything."""
    return []
