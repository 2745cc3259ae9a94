"""How much hashing a pickle asks for, counted before any of it is done.

Python's unpickler makes dicts and sets, and so hashes and compares their keys. A tuple is hashed element by element,
however often it holds the same one: ``t = (t, t)``, eighty times over, takes a kilobyte of a file and more steps than
anybody waits for. So the instructions are followed here with numbers in place of values: what hashing each would take,
with what is shared counted wherever it is met.

Lists of numbers, which are most of a dump, are passed over by a regular expression.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Sequence

from slime_store.interchange.restricted.opcodes import INDEX, LENGTHS, BadPickle

_MAX_STEPS = 100
"""Elements of keys that may be hashed for a byte of the pickle."""
_ALWAYS = 1_000_000

_VALUES = {  # instructions that push a value which is hashed in one step, or cannot be: bytes of operand
    **dict.fromkeys((pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE), 0),
    **dict.fromkeys((pickle.EMPTY_DICT, pickle.EMPTY_LIST, pickle.EMPTY_SET, pickle.EMPTY_TUPLE), 0),
    **{pickle.BININT1: 1, pickle.BININT2: 2, pickle.BININT: 4, pickle.BINFLOAT: 8},
}
_NUMBERS = re.compile(rb"\((?:K.|M..|J.{4}|G.{8}|[N\x88\x89]){0,60000}e", re.DOTALL)
_NAME = re.compile(rb"[^\n]*\n[^\n]*\n")


def check_hashing(data: memoryview) -> None:
    """Refuse a pickle whose keys take more hashing than a file of its size can mean to ask for.

    Args:
        data: a pickle whose instructions and lengths were checked.

    Raises:
        BadPickle: it does, or has instructions that lack what they act on.
    """
    try:
        _Steps(data).count()
    except (IndexError, KeyError):
        raise BadPickle("its pickle is damaged (an instruction lacks what it acts on)") from None


class _Steps:
    """The stack and the memo of an unpickler that makes nothing."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._left = self._limit = _ALWAYS + _MAX_STEPS * len(data)
        self._stack: list[int] = []
        self._below: list[list[int]] = []  # stacks beneath the marks
        self._memo: dict[int, int] = {}
        self._actions: dict[int, Callable[[], object]] = {
            opcode[0]: action
            for opcode, action in {
                pickle.MARK: self._mark,
                pickle.POP: lambda: self._take(1) if self._stack else self._since_mark(),
                pickle.POP_MARK: self._since_mark,
                pickle.APPEND: lambda: self._take(1),
                pickle.APPENDS: self._since_mark,
                pickle.SETITEM: lambda: self._hash(self._take(2)[:1]),
                pickle.SETITEMS: lambda: self._hash(self._since_mark()[::2]),
                pickle.ADDITEMS: lambda: self._hash(self._since_mark()),
                pickle.FROZENSET: lambda: self._join(self._hash(self._since_mark())),
                pickle.TUPLE: lambda: self._join(self._since_mark()),
                pickle.TUPLE1: lambda: self._join(self._take(1)),
                pickle.TUPLE2: lambda: self._join(self._take(2)),
                pickle.TUPLE3: lambda: self._join(self._take(3)),
                pickle.BUILD: lambda: self._take(1),
                **dict.fromkeys((pickle.REDUCE, pickle.NEWOBJ, pickle.STACK_GLOBAL), lambda: self._call(2)),
                pickle.BINPERSID: lambda: self._call(1),
                pickle.MEMOIZE: lambda: self._put(len(self._memo)),
            }.items()
        }

    def count(self) -> None:
        """Follow the instructions to the end."""
        data, values, position = self._data, {opcode[0]: size for opcode, size in _VALUES.items()}, 0
        while (opcode := data[position]) != pickle.STOP[0]:
            if opcode == pickle.MARK[0] and (numbers := _NUMBERS.match(data, position)) is not None:
                position = numbers.end()
                continue
            position += 1
            if opcode in values:
                self._stack.append(1)
                position += values[opcode]
            elif opcode in LENGTHS:
                length = LENGTHS[opcode].unpack_from(data, position)[0]
                self._stack.append(1 + length // 8)
                position += LENGTHS[opcode].size + length
            elif opcode in self._actions:
                self._actions[opcode]()
            else:
                position = self._with_operand(opcode, position)

    def _with_operand(self, opcode: int, position: int) -> int:
        data = self._data
        if opcode == pickle.GLOBAL[0]:
            self._stack.append(1)
            name = _NAME.match(data, position)
            return len(data) if name is None else name.end()
        if opcode in (pickle.BINPUT[0], pickle.LONG_BINPUT[0], pickle.BINGET[0], pickle.LONG_BINGET[0]):
            is_short = opcode in (pickle.BINPUT[0], pickle.BINGET[0])
            number = data[position] if is_short else INDEX.unpack_from(data, position)[0]
            if opcode in (pickle.BINPUT[0], pickle.LONG_BINPUT[0]):
                self._put(number)
            else:
                self._stack.append(self._memo[number])
            return position + (1 if is_short else INDEX.size)
        return position + (1 if opcode == pickle.PROTO[0] else 8)  # FRAME

    def _mark(self) -> None:
        self._below.append(self._stack)
        self._stack = []

    def _since_mark(self) -> list[int]:
        items, self._stack = self._stack, self._below.pop()
        return items

    def _take(self, n: int) -> list[int]:
        items = self._stack[-n:]
        if len(items) < n:
            raise IndexError(n)
        del self._stack[-n:]
        return items

    def _join(self, items: Sequence[int]) -> None:
        self._stack.append(min(1 + sum(items), self._limit + 1))

    def _hash(self, items: Sequence[int]) -> Sequence[int]:
        self._left -= sum(items)
        if self._left < 0:
            raise BadPickle("its pickle hashes more values than a file of its size can mean to hold")
        return items

    def _call(self, n: int) -> None:
        self._take(n)
        self._stack.append(1)

    def _put(self, number: int) -> None:
        self._memo[number] = self._stack[-1]
