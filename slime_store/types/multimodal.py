"""The kinds of media that a prompt can hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class MultimodalType:
    """One kind of media.

    Attributes:
        name: its name in message content, e.g. ``"image"``.
        placeholder: the text that stands for it in a prompt, e.g. ``"<image>"``.
    """

    name: str
    placeholder: str


class MultimodalTypes:
    """The kinds of media that slime knows."""

    IMAGE: ClassVar = MultimodalType("image", "<image>")
    VIDEO: ClassVar = MultimodalType("video", "<video>")
    AUDIO: ClassVar = MultimodalType("audio", "<audio>")

    @classmethod
    def all(cls) -> list[MultimodalType]:
        """Return image, video and audio, in this order."""
        return [cls.IMAGE, cls.VIDEO, cls.AUDIO]

    @classmethod
    def get(cls, name: str) -> MultimodalType | None:
        """Return the kind called ``name``, or None."""
        return next((kind for kind in cls.all() if kind.name == name), None)
