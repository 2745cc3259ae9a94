"""From a graph of nodes to values, by rules alone."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Collection, Mapping
from json.encoder import encode_basestring_ascii
from typing import Any

from slime_store.interchange.restricted.graph import PERSISTENT, Door, Node
from slime_store.interchange.restricted.opcodes import BadPickle
from slime_store.interchange.restricted.rules import Rule, refuse
from slime_store.interchange.saying import told

_PLAIN = frozenset({type(None), bool, int, float, str, bytes, bytearray})
_BUSY: Any = object()
_TEXTS = frozenset({str, bytes, bytearray})
_MAX_GROWTH = 100
"""Values that a byte of the file may stand for, all told, each eight bytes of a text's document, a long integer, an
array or an image counting as one: sharing, copies of what is shared, and tensors that repeat their elements, can make
of a kilobyte more than any store holds."""
_MAX_COPIED = 100
"""Bytes of memory that a byte of the file may be copied into: a set takes 32 for a number that takes two there."""
_ONE_BYTE_MODES = frozenset({"1", "L", "P"})
"""Modes of PIL's images that take a byte of memory for a pixel; the others take up to four."""


class Rebuilder:
    """Makes the values of one graph.

    Args:
        rules: by full name.
        storage: makes a record of the archive from the persistent id's parts.
        n_bytes: size of the file.
        has_long: whether it may hold integers that are long enough to be counted.
    """

    def __init__(
        self, rules: Callable[[str], Rule | None], storage: Callable[..., Any], n_bytes: int, has_long: bool
    ) -> None:
        self._rules = rules
        self._weight = _weight_with_integers if has_long else _weight
        self._storage = Rule(storage)
        # by id: the original, held so that its id stays its own, what it became, and how many values that holds
        self._done: dict[int, tuple[Any, Any, int]] = {}
        self._count = 0
        self._copied = 0
        self._copied_limit = 16_000_000 + _MAX_COPIED * n_bytes
        self._limit = 1_000_000 + _MAX_GROWTH * n_bytes

    def rebuild(self, graph: Any) -> Any:
        """Return the value; lists and dicts are changed in place, so that what was shared stays shared.

        Raises:
            BadPickle: a part is not what its rule takes, refers to itself, or nests too deeply.
        """
        try:
            return self._value(graph)
        except RecursionError:
            raise BadPickle("its pickle nests too deeply") from None

    def _value(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        known = self._done.get(id(value))
        if known is not None:
            if known[1] is _BUSY:
                refuse(f"a {getattr(value, 'name', kind.__name__)} that contains itself")
            self._add(known[2])
            return known[1]
        if isinstance(value, Door):
            return self._constant(value.path)
        if isinstance(value, Node):
            return self._remember(value, _BUSY, lambda: self._weighed(value), self._count)
        if kind not in (list, dict, tuple, set, frozenset):
            raise BadPickle(f"its pickle makes a {kind.__name__}")
        before = self._count
        self._add(len(value) + self._weight(value))
        if kind is dict:
            self._add(self._weight(value.values()))
            return self._remember(value, value, lambda: self._dict(value), before)
        if _PLAIN.issuperset(map(type, value)):
            return value
        if kind is list:
            return self._remember(value, value, lambda: self._list(value), before)
        return self._remember(value, _BUSY, lambda: kind(map(self._value, value)), before)

    def _remember(self, value: Any, meanwhile: Any, make: Callable[[], Any], before: int) -> Any:
        self._done[id(value)] = (value, meanwhile, 0)
        made = make()
        count = _size(made) // 8 if type(value) is Node and _is_flat(made) else self._count - before
        self._done[id(value)] = (value, made, count)
        return made

    def _add(self, count: int) -> None:
        self._count += count
        if self._count > self._limit:
            refuse("more values than a file of its size can mean to hold")

    def _copy(self, n_bytes: int) -> None:
        self._copied += n_bytes
        if self._copied > self._copied_limit:
            refuse("more values than a file of its size can mean to hold")

    def _list(self, value: list[Any]) -> list[Any]:
        for i, item in enumerate(value):
            value[i] = self._value(item)
        return value

    def _dict(self, value: dict[Any, Any]) -> dict[Any, Any]:
        if _PLAIN.issuperset(map(type, value)):
            for key, item in value.items():
                if type(item) not in _PLAIN:
                    value[key] = self._value(item)
            return value
        pairs = [(self._key(key), self._value(item)) for key, item in value.items()]
        value.clear()
        value.update(pairs)
        return value

    def _key(self, key: Any) -> Any:
        made = self._value(key)
        try:
            hash(made)
        except TypeError:
            refuse(f"a {type(made).__name__} as key")
        return made

    def _constant(self, path: str) -> Any:
        rule = self._rules(path)
        if rule is None or rule.constant is None:
            refuse(f"{path} where a value belongs")
        return rule.constant

    def _weighed(self, node: Node) -> Any:
        made = self._made(node)
        if node.name != PERSISTENT:  # that is the file's own map
            self._add(_size(made) // 8)
            self._copy(sys.getsizeof(made) + _pixel_bytes(made))
        return made

    def _made(self, node: Node) -> Any:
        rule = self._storage if node.name == PERSISTENT else self._rules(node.name)
        if rule is None or rule.make is None:
            refuse(f"a call of {node.name}")
        parts: Mapping[str, Any] = {
            "items": node.items or Node.UNSET,
            "pairs": node.pairs or Node.UNSET,
            "state": node.state,
        }
        given_weight = self._weight(node.args)
        self._add(given_weight)
        self._copy(8 * given_weight)
        try:
            made = rule.make(*[self._value(each) for each in node.args])
            node.args = ()  # may be large: the text in which protocol 2 writes bytes
            for part, raw in parts.items():
                if raw is Node.UNSET:
                    continue
                take = getattr(rule, part)
                if take is None:
                    refuse(f"{part} for a {node.name}")
                if type(raw) in _PLAIN:
                    self._add(self._weight((raw,)))
                made = take(made, self._pairs(raw) if part == "pairs" else self._value(raw))
        except BadPickle:
            raise
        except RecursionError:
            raise
        except Exception as error:  # what the checks of a rule left to the type itself
            refuse(f"a {node.name} that cannot be made ({told(error)})")
        if rule.needs_state and node.state is Node.UNSET:
            refuse(f"a {node.name} without its state")
        return made

    def _pairs(self, raw: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        for part in zip(*raw, strict=True):
            self._add(len(part) + self._weight(part))
        return [(self._key(key), self._value(item)) for key, item in raw]


def _weight(items: Collection[Any]) -> int:
    """Return what the texts among some items count."""
    if _TEXTS.isdisjoint(map(type, items)):
        return 0
    known = {id(each): each for each in items if type(each) in _TEXTS}  # one may be met a million times
    if len(known) == len(items):
        return sum(map(_text_bytes, known.values())) // 8
    sizes = {key: _text_bytes(each) for key, each in known.items()}
    return sum(sizes.get(id(each), 0) for each in items) // 8


def _text_bytes(text: str | bytes | bytearray) -> int:
    """Return how many bytes a text may have in a document, where a character may take up to twelve."""
    return len(encode_basestring_ascii(text)) if type(text) is str else len(text)


def _weight_with_integers(items: Collection[Any]) -> int:
    """Return what the texts and the integers among some items count."""
    return _weight(items) + sum(each.bit_length() for each in items if type(each) is int) // 64


def _size(made: Any) -> int:
    """Return how many bytes a value that was made by a rule stands for."""
    if hasattr(type(made), "nbytes"):  # of numpy or torch
        with contextlib.suppress(RuntimeError, NotImplementedError):  # sparse tensors have none
            return int(made.nbytes)
    return _pixel_bytes(made) or sys.getsizeof(made)


def _is_flat(made: Any) -> bool:
    """Tell whether a value is nothing but bytes, so that what it was made of does not count where it is met again."""
    if type(made) in (bytes, bytearray) or hasattr(type(made), "getbands"):
        return True
    return hasattr(type(made), "nbytes") and not getattr(made.dtype, "hasobject", False)


def _pixel_bytes(made: Any) -> int:
    if not hasattr(type(made), "getbands"):  # no image of PIL's
        return 0
    return int(made.width * made.height) * (1 if made.mode in _ONE_BYTE_MODES else 4)
