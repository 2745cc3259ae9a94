"""Reading files of ``torch.save`` without running any of the code that a pickle can hold.

What a file may contain is a list: plain values, the standard library's types, numpy, torch, PIL images, and slime's
and miles's data. The pickle is looked through (``opcodes``), read as a graph in which nothing is called (``graph``),
and made into values by rules of ours (``rebuild`` and the modules beside it); ``archive`` maps the file, so that
tensors cost no memory of their own.
"""

from __future__ import annotations

import os
from typing import Any

from slime_store.errors import InvalidDumpError, UntrustedPickleError
from slime_store.interchange.restricted import arrays, frameworks, images, standard, tensors
from slime_store.interchange.restricted.archive import TorchArchive
from slime_store.interchange.restricted.graph import RefusedName, read_graph
from slime_store.interchange.restricted.opcodes import BadPickle
from slime_store.interchange.restricted.rebuild import Rebuilder
from slime_store.interchange.restricted.rules import Rule
from slime_store.interchange.saying import cut, told

__all__ = ["TorchArchive", "load_pt", "read_archive"]

_RULES: dict[str, Rule] = {**standard.RULES, **arrays.RULES, **frameworks.RULES}


def load_pt(path: str | os.PathLike[str], *, trust: bool = False) -> Any:
    """Return what ``torch.save`` wrote into a file.

    Tensors are on the cpu and without grad, and are views of the mapped file; arrays may be read-only. Samples of slime
    and miles are ours. An image is a plain ``PIL.Image.Image``.

    Args:
        path: a file of ``torch.save``, in the zip format that torch writes since 1.6.
        trust: let torch unpickle it, which runs whatever code the file holds. Only for files of your own that need it.

    Raises:
        UntrustedPickleError: it refers to something that is not on the list; nothing of it was run.
        InvalidDumpError: it is not such a file, or it is damaged.
    """
    return read_archive(TorchArchive(path), trust=trust)


def read_archive(archive: TorchArchive, *, trust: bool = False) -> Any:
    """Return what a mapped file holds; arguments and errors as for ``load_pt``."""
    if trust:
        return _trusted(archive.path)
    try:
        data, let_go = archive.pickle()
        graph, has_long = read_graph(data, lambda name: _rule(name) is not None, let_go)
        return Rebuilder(_rule, tensors.storage_reader(archive), archive.size_bytes, has_long).rebuild(graph)
    except RefusedName as refused:
        raise UntrustedPickleError(archive.path, cut(refused.name)) from None
    except BadPickle as bad:
        raise InvalidDumpError(archive.path, str(bad)) from None


def _rule(name: str) -> Rule | None:
    if name in _RULES:
        return _RULES[name]
    root = name.partition(".")[0]
    if root == "torch":
        return tensors.rule_for(name)
    return images.rule_for(name) if root in ("PIL", "slime_store") else None


def _trusted(path: str) -> Any:
    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=False, mmap=True)
    except Exception as error:  # it runs code of the file's choosing
        raise InvalidDumpError(path, f"torch cannot load it ({told(error)})") from error
