"""A look through a pickle's instructions before any of them is followed.

Python's unpickler is fast, but takes some orders that nobody should give it: a memo index of four billion makes it
allocate 64 GB, an extension code pushes whatever this process registered, and data after the end goes unnoticed.
Writers of protocol 2 and later use a small part of the instructions; this lets only that part pass.

Long runs of instructions of fixed length, the numbers of token lists, are skipped by one regular expression: 24 MB with
five million instructions take 0.2 s.
"""

from __future__ import annotations

import pickle
import re
import struct
from typing import NoReturn

_PLAIN = b"".join(
    (
        *(pickle.MARK, pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE, pickle.POP, pickle.POP_MARK),
        *(pickle.EMPTY_DICT, pickle.EMPTY_LIST, pickle.EMPTY_SET, pickle.EMPTY_TUPLE),
        *(pickle.APPEND, pickle.APPENDS, pickle.SETITEM, pickle.SETITEMS, pickle.ADDITEMS, pickle.FROZENSET),
        *(pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3),
        *(pickle.REDUCE, pickle.BUILD, pickle.NEWOBJ, pickle.STACK_GLOBAL, pickle.BINPERSID, pickle.MEMOIZE),
    )
)
_WITH_OPERAND = {  # bytes of operand -> instructions
    1: (pickle.BININT1, pickle.BINGET, pickle.BINPUT, pickle.PROTO),
    2: (pickle.BININT2,),
    4: (pickle.BININT, pickle.LONG_BINGET),
    8: (pickle.BINFLOAT, pickle.FRAME),
}
_WITH_LENGTH = {  # instruction -> struct of the length before its data
    pickle.SHORT_BINUNICODE: "<B",
    pickle.BINUNICODE: "<I",
    pickle.BINUNICODE8: "<Q",
    pickle.SHORT_BINBYTES: "<B",
    pickle.BINBYTES: "<I",
    pickle.BINBYTES8: "<Q",
    pickle.BYTEARRAY8: "<Q",
    pickle.LONG1: "<B",
    pickle.LONG4: "<I",
}
LENGTHS = {opcode[0]: struct.Struct(form) for opcode, form in _WITH_LENGTH.items()}
INDEX = struct.Struct("<I")

_RUN_LIMIT = 60_000  # instructions a match may hold: the expression keeps a little memory for each
_RUN = re.compile(
    b"(?:"
    + b"|".join(
        b"[" + re.escape(b"".join(opcodes)) + b"]" + b"." * size for size, opcodes in reversed(_WITH_OPERAND.items())
    )
    + b"|["
    + re.escape(_PLAIN)
    + b"]){1,%d}" % _RUN_LIMIT,
    re.DOTALL,
)
_LINE = re.compile(rb"[^\n]{0,1000}\n")


class BadPickle(Exception):
    """The pickle is damaged, or not one that a writer of protocol 2 or later makes; never leaves this package."""


def check(data: memoryview) -> bool:
    """Refuse a pickle with any other instruction, with lengths and indexes beyond its own size, or without its end.

    Returns whether it may hold integers of more than 255 bytes.

    Raises:
        BadPickle: it says which, and where.
    """
    position, size, has_long = 0, len(data), False
    while position < size:
        if (run := _RUN.match(data, position)) is not None:
            position = run.end()
            continue
        opcode = data[position]
        position += 1
        if opcode in LENGTHS:
            length = LENGTHS[opcode]
            if position + length.size > size:
                break
            position += length.size + length.unpack_from(data, position)[0]
            has_long = has_long or opcode == pickle.LONG4[0]
        elif opcode == pickle.LONG_BINPUT[0]:
            if position + 4 > size or INDEX.unpack_from(data, position)[0] > size:
                _refuse(f"a memo index beyond its size at byte {position}")
            position += 4
        elif opcode == pickle.GLOBAL[0]:
            for _ in range(2):
                line = _LINE.match(data, position)
                if line is None:
                    _refuse(f"a name without end at byte {position}")
                position = line.end()
        elif opcode == pickle.STOP[0]:
            if position != size:
                _refuse(f"{size - position} bytes after its end")
            return has_long
        else:
            _refuse(f"the instruction {bytes([opcode])!r} at byte {position - 1}, which no dump needs")
    _refuse("no end: it is cut off")


def _refuse(what: str) -> NoReturn:
    raise BadPickle(f"its pickle has {what}")
