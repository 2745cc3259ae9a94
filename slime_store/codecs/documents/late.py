"""Parts of a document that are made when its text is written: of what does not come to stand in it, nothing is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


@dataclass(slots=True, frozen=True)
class Payload:
    """A large payload, which becomes the name under which it was put away."""

    put: Callable[[np.ndarray[Any, Any]], str]
    array: np.ndarray[Any, Any]

    def write(self) -> str:
        """Put it away and return its name."""
        return self.put(self.array)


@dataclass(slots=True)
class StandIn:
    """What a placeholder says; its text may get a number as long as it is not written."""

    type_name: str
    text: str
    encode: Callable[[str], Any]

    def write(self) -> dict[str, Any]:
        """Return the document."""
        return {"type": self.encode(self.type_name), "text": self.encode(self.text)}


def write(part: Any) -> Any:
    """Return what the JSON encoder is to write for a part that it does not know."""
    if isinstance(part, (Payload, StandIn)):
        return part.write()
    raise TypeError(f"a document cannot hold a {type(part).__name__}")
