"""Documents of torch values and PIL images; neither library is imported before one of its values is met."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slime_store.codecs.documents.decoder import DocumentDecoder
    from slime_store.codecs.documents.encoder import DocumentEncoder


def find_encoder(value: Any) -> Callable[[Any, DocumentEncoder], Any] | None:
    """Return the handler for a torch value or an image, or None."""
    return None


DECODERS: dict[str, Callable[[Any, DocumentDecoder], Any]] = {}
