"""A pickle read without making anything: what it would call becomes a ``Node``.

Python's unpickler gets a ``find_class`` that looks nothing up. Each allowed name is a ``Door``, a type that makes a
``Node`` when it is called, instantiated or given to NEWOBJ, and the node takes state and items without acting on them.
So while the pickle is read there are only numbers, text, bytes, lists, tuples, dicts, sets and nodes, and no code runs
but this module's. What the nodes stand for is made afterwards, by ``rebuild``, from the list of allowed names.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from slime_store.interchange.restricted.hashing import check_hashing
from slime_store.interchange.restricted.opcodes import BadPickle, check
from slime_store.interchange.saying import told

PERSISTENT = "persistent storage"
"""Name of the nodes that stand for a record of the archive."""

_PORTION = 1 << 24  # bytes after which those read so far are let go of
_UNSET: Any = object()


class RefusedName(Exception):
    """The pickle refers to something that is not allowed; never leaves this package."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Node:
    """A call that a pickle asks for, with what it would do to the result; nothing of it is done.

    Attributes:
        name: of what would be called.
        args: the arguments.
        state: what BUILD would set, or ``Node.UNSET``.
        items: what would be appended or added.
        pairs: what would be set by key.
    """

    __slots__ = ("args", "items", "name", "pairs", "state")
    UNSET = _UNSET

    def __init__(self, name: str, args: tuple[Any, ...]) -> None:
        self.name, self.args = name, args
        self.state: Any = _UNSET
        self.items: list[Any] = []
        self.pairs: list[tuple[Any, Any]] = []

    def __setstate__(self, state: Any) -> None:
        if self.state is not _UNSET:
            raise BadPickle(f"its pickle sets the state of a {self.name} twice")
        self.state = state

    def append(self, item: Any) -> None:
        """Note an item (instruction APPEND)."""
        self.items.append(item)

    def extend(self, items: Iterable[Any]) -> None:
        """Note items (instruction APPENDS)."""
        self.items.extend(items)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.pairs.append((key, value))


class Door(type):
    """The type of the types that stand for names; they can only be called, and not be changed."""

    path: str

    def __setattr__(cls, name: str, value: Any) -> NoReturn:
        raise BadPickle(f"its pickle sets an attribute of {cls.path}")

    def __setstate__(cls, state: Any) -> NoReturn:
        raise BadPickle(f"its pickle sets the state of {cls.path} itself")


def read_graph(data: memoryview, is_allowed: Callable[[str], bool], let_go: Callable[[int], None]) -> tuple[Any, bool]:
    """Return what a pickle holds, with nodes in place of calls and doors in place of names, and if ints may be long.

    Args:
        data: a pickle of protocol 2 or later, complete.
        is_allowed: whether a name, ``"module.qualname"``, may occur.
        let_go: called with how many bytes from the beginning are not needed any more.

    Raises:
        RefusedName: a name that is not allowed occurs.
        BadPickle: it is damaged, or has instructions that no dump needs.
    """
    has_long = check(data)
    check_hashing(data)
    reader: Any = io.BufferedReader(_View(data, let_go), 1 << 18)
    try:
        return _Reader(reader, is_allowed).load(), has_long
    except (RefusedName, BadPickle):
        raise
    except MemoryError:
        raise BadPickle("its pickle asks for more memory than there is") from None
    except Exception as error:  # a damaged pickle fails in ways without number, none of which has run anything
        raise BadPickle(f"its pickle is damaged ({told(error)})") from None


class _Reader(pickle.Unpickler):
    def __init__(self, file: Any, is_allowed: Callable[[str], bool]) -> None:
        super().__init__(file)
        self._is_allowed = is_allowed
        self._doors: dict[str, Door] = {}

    def find_class(self, module: str, name: str) -> Any:
        """Return the door of a name; nothing is imported and nothing looked up."""
        path = _present_name(module, name)
        if path == "builtins.getattr":  # how protocol 2 spells the name of a nested class
            return self._door(path, self._nested)
        return self._allowed(path)

    def persistent_load(self, pid: Any) -> Any:
        """Return a node for a record; ``rebuild`` checks what it asks for."""
        if type(pid) is not tuple:
            raise BadPickle("its pickle has a persistent id that is not a storage's")
        return Node(PERSISTENT, pid)

    def _allowed(self, path: str) -> Door:
        if not self._is_allowed(path):
            raise RefusedName(path)
        return self._door(path, lambda *args: Node(path, args))

    def _door(self, path: str, call: Callable[..., Any]) -> Door:
        if path not in self._doors:
            made = {"__slots__": (), "__new__": lambda _cls, *args: call(*args), "path": path}
            self._doors[path] = Door(path.rpartition(".")[2], (), made)
        return self._doors[path]

    def _nested(self, *args: Any) -> Any:
        owner, name = args if len(args) == 2 else (None, None)
        if not isinstance(owner, Door) or type(name) is not str:
            raise RefusedName("builtins.getattr")
        return self._allowed(f"{owner.path}.{name}")


class _View(io.RawIOBase):
    """A file over bytes that are not copied."""

    def __init__(self, view: memoryview, let_go: Callable[[int], None]) -> None:
        self._view, self._position = view, 0
        self._let_go = let_go

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = self._view[self._position : self._position + len(buffer)]
        buffer[: len(part)] = part
        if self._position // _PORTION != (self._position + len(part)) // _PORTION:
            self._let_go(self._position + len(part))
        self._position += len(part)
        return len(part)


def _present_name(module: str, name: str) -> str:
    """Return the full name of today: pickles of protocol 2 have some names of Python 2."""
    import _compat_pickle

    if (module, name) in _compat_pickle.NAME_MAPPING:
        module, name = _compat_pickle.NAME_MAPPING[module, name]
    else:
        module = _compat_pickle.IMPORT_MAPPING.get(module, module)
    return f"{module}.{name}"
