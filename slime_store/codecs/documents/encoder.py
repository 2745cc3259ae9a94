"""Python values to exact JSON documents. docs/design.md says what the tags mean."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from slime_store.codecs.documents import arrays, classes, keys, late, media, samples, stdlib
from slime_store.codecs.documents.plain import LONG_LIST, LONG_TEXT, MAX_CONTAINERS, MAX_DEPTH, is_clean, plain_json
from slime_store.codecs.lists import list_to_array
from slime_store.errors import StoreError, UnsupportedValueError

if TYPE_CHECKING:
    from collections.abc import Iterable

INLINE_BYTES = 1024
"""Payloads up to this size stay in the document as base64; larger ones become blobs."""

_ATOMS = frozenset({str, int, float, bool, type(None)})
_SHOWN_KEY = 100  # characters of a key in a path
_dumps = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":"), default=late.write
).encode


class BlobSink(Protocol):
    """Takes large payloads out of documents."""

    def put(self, array: np.ndarray[Any, Any]) -> str:
        """Keep the array's bytes (C order) and return the name that gives them back."""


class DocumentEncoder:
    """Encodes values into documents, sending large payloads to a sink.

    Args:
        sink: takes payloads of more than 1 KiB.
        strict: raise for what cannot be kept exactly; otherwise store a placeholder and list its path.

    Without a sink every payload stays in the document.
    """

    def __init__(self, sink: BlobSink | None, *, strict: bool = True) -> None:
        self.placeholders: list[str] = []
        self._sink = sink
        self._strict = strict
        self._path: list[str] = []
        self._open: set[int] = set()
        self._walked: dict[int, Any] = {}  # kept alive: the number of one that is gone would be another's
        self._n_again = 0
        self._depth = MAX_DEPTH

    def document(self, value: Any, where: str = "value") -> str:
        """Return the document of one value; ``where`` names it in errors.

        Raises:
            UnsupportedValueError: strict only: the value, or one inside it, cannot be kept exactly, nests deeper than
                100 levels or than Python's stack allows, or contains itself.
        """
        text = plain_json(value)
        return text if text is not None else self._slowly(where, lambda: self.encode(value, ""))

    def attributes(self, values: dict[str, Any], where: str) -> str:
        """Return the document of an object's attributes; errors name ``where, attribute[...]``."""
        text = plain_json(values)
        if text is not None:
            return text
        return self._slowly(
            where, lambda: self._mapping(values.items(), [self.encode(v, f", {k}") for k, v in values.items()])
        )

    # -- for the handlers of single types ------------------------------------------------------

    def encode(self, value: Any, step: str) -> Any:
        """Return what stands for ``value`` in JSON; ``step`` is how its parent reaches it, for errors."""
        self._path.append(step)
        try:
            return self._encode(value)
        finally:
            self._path.pop()

    def items(self, values: Iterable[Any]) -> list[Any]:
        """Encode the elements of a sequence."""
        return [self.encode(value, f"[{i}]") for i, value in enumerate(values)]

    def members(self, values: Iterable[Any]) -> list[Any]:
        """Encode the members of a set."""
        return self._keys([(value, "{...}") for value in values])

    def mapping(self, values: dict[Any, Any], *, wholly: bool = False, step: str = "") -> Any:
        """Encode a dict: as a JSON object when its keys allow, else as a list of pairs.

        With ``wholly``, a placeholder in one of the values is one for that value. ``step`` is how the value at hand has
        the dict, for errors.
        """
        encode = self._wholly if wholly else self.encode
        self._path.append(step)
        try:
            return self._mapping(values.items(), [encode(v, _step(k)) for k, v in values.items()])
        finally:
            self._path.pop()

    def whole(self, value: Any, parts: Callable[[], Any]) -> Any:
        """Encode a value that is nothing without all of its parts: a placeholder for one is one for the value."""
        before = len(self.placeholders)
        body = parts()
        if len(self.placeholders) == before or keys.is_placeholder(body):
            return body
        del self.placeholders[before:]
        return self.unsupported(value, "a part of it cannot be stored exactly")

    def payload(self, array: np.ndarray[Any, Any]) -> dict[str, Any]:
        """Keep an array's bytes, C order: inline when small, else as a blob."""
        if self._sink is None or array.nbytes <= INLINE_BYTES:
            return {"data": base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")}
        return {"blob": late.Payload(self._sink.put, array)}

    def unsupported(self, value: Any, reason: str, shown: str | None = None) -> Any:
        """Refuse a value: an error, or a placeholder in lenient mode, that says ``shown``, by default the repr."""
        path = "".join(self._path if len(self._path) < 20 else [*self._path[:20], "..."])
        if self._strict:
            raise UnsupportedValueError(path, reason)
        self.placeholders.append(path)
        return self.placeholder(classes.type_name(type(value)), _safe_repr(value) if shown is None else shown)

    def placeholder(self, type_name: str, text: str) -> Any:
        """Encode what stands for a value that is not kept."""
        return {"$placeholder": late.StandIn(type_name, text, self.text)}

    def text(self, value: str) -> Any:
        """Encode a string."""
        if not is_clean(value):
            return {"$str": self.payload(np.frombuffer(value.encode("utf-8", "surrogatepass"), np.uint8))}
        if len(value) >= LONG_TEXT:
            return {"$text": self.payload(np.frombuffer(value.encode(), np.uint8))}
        return value

    # -- the walk --------------------------------------------------------------------------------

    def _slowly(self, where: str, walk: Callable[[], Any]) -> str:
        before = len(self.placeholders)
        self._depth = MAX_DEPTH
        while True:
            self._path[:] = [where]
            self._open.clear()
            self._walked.clear()
            self._n_again = 0
            try:
                return _dumps(walk())
            except RecursionError:  # the caller's frames count too
                del self.placeholders[before:]
                if self._strict or not self._depth:
                    raise UnsupportedValueError(where, "it nests deeper than Python's stack allows here") from None
                self._depth //= 2
            finally:
                self._path.clear()
                self._walked.clear()

    def _encode(self, value: Any) -> Any:
        kind = type(value)
        if value is None or kind is bool:
            return value
        if kind is str:
            return self.text(value)
        if kind is int:
            return value if -(2**63) < value < 2**63 else {"$int": hex(value)}
        if kind is float:
            return stdlib.encode_float(value)
        if kind is list and len(value) >= LONG_LIST:
            packed = list_to_array(value)
            if packed is not None:
                return arrays.encode_list(*packed, self)
        if id(value) in self._open:
            return self.unsupported(value, "it contains itself")
        if len(self._open) >= self._depth:
            return self.unsupported(value, f"it nests deeper than {self._depth} levels")
        if id(value) in self._walked:
            self._n_again += 1
            if self._n_again > MAX_CONTAINERS:  # 25 lists, each of which holds the one before twice, are 2**25
                reason = "its parts share parts, which would be written out a million times"
                return self.unsupported(value, reason, f"<{type(value).__name__}>")  # so would its repr be
        self._walked[id(value)] = value
        self._open.add(id(value))
        before = len(self.placeholders)
        try:
            return self._container(value, kind)
        except (StoreError, RecursionError, MemoryError):
            raise
        except Exception as error:  # of the value's own code, or of parts that no such value should have
            del self.placeholders[before:]
            return self.unsupported(value, f"it cannot be read ({type(error).__name__}: {_safe_text(error)})")
        finally:
            self._open.discard(id(value))

    def _container(self, value: Any, kind: type[Any]) -> Any:
        if kind is list:
            return self.items(value)
        if kind is dict:
            return self.mapping(value)
        handler = stdlib.ENCODERS.get(kind)
        for room in (arrays, media, samples, classes):
            handler = handler or room.find_encoder(value)
        if handler is None:
            return self.unsupported(value, f"{classes.type_name(kind)} is not a type that can be stored exactly")
        return handler(value, self)

    def _mapping(self, items: Iterable[tuple[Any, Any]], encoded: list[Any]) -> Any:
        names = [key for key, _ in items]
        if all(type(name) is str and name[:1] != "$" and is_clean(name) for name in names):
            return dict(zip(names, encoded, strict=True))
        if len(set(names)) < len(names):
            raise ValueError("two of its keys have become equal")
        bodies = self._keys([(name, _step(name, "key ")) for name in names])
        return {"$dict": list(map(list, zip(bodies, encoded, strict=True)))}

    def _keys(self, steps: list[tuple[Any, str]]) -> list[Any]:
        encode = self.encode if _ATOMS.issuperset(type(value) for value, _ in steps) else self._key
        bodies = [encode(value, step) for value, step in steps]
        return keys.keep_apart(bodies) if self.placeholders else bodies

    def _key(self, value: Any, step: str) -> Any:
        """Encode what must be found again by its hash."""
        if keys.comes_back_hashable(value):
            return self._wholly(value, step)
        self._path.append(step)
        try:
            return self.unsupported(value, "it comes back as what is no key")
        finally:
            self._path.pop()

    def _wholly(self, value: Any, step: str) -> Any:
        self._path.append(step)
        try:
            return self.whole(value, lambda: self._encode(value))
        finally:
            self._path.pop()


def _safe_repr(value: Any) -> str:
    try:
        return repr(value)[:500]
    except Exception:  # an arbitrary object's own code, an integer of thousands of digits
        return f"<{type(value).__name__}>"


def _safe_text(error: Exception) -> str:
    try:
        return str(error)[:200]
    except Exception:
        return "..."


def _step(key: Any, prefix: str = "") -> str:
    shown = _safe_repr(key)
    return f"[{prefix}{shown if len(shown) <= _SHOWN_KEY else shown[:_SHOWN_KEY] + '...'}]"
