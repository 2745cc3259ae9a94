"""The image that a multi-frame image comes back as. Imports PIL: imported only when one is met."""

from __future__ import annotations

from typing import Any

from PIL import Image


class FramedImage(Image.Image):
    """Several images in one object, as a GIF or TIFF file gives them, but all in memory.

    It shows one frame at a time and has what PIL's own multi-frame images have: ``n_frames``,
    ``is_animated``, ``seek`` and ``tell``. Changes to a frame's pixels stay when another is shown. ``copy()``
    gives the shown frame alone, as in PIL; ``copy.deepcopy`` and ``pickle`` keep all.
    """

    is_animated = True

    def __init__(self, frames: list[Image.Image], frame: int, format: str | None) -> None:
        """Take ``frames`` (at least one, plain images) and show the one at ``frame``."""
        super().__init__()
        self.format = format
        self._frames = frames
        self._frame = frame
        self._show()

    @property
    def n_frames(self) -> int:
        """How many frames there are."""
        return len(self._frames)

    def tell(self) -> int:
        """Return the number of the shown frame."""
        return self._frame

    def seek(self, frame: int) -> None:
        """Show another frame; EOFError where there is none, as in PIL."""
        if not 0 <= frame < len(self._frames):
            raise EOFError(f"no frame {frame} in an image of {len(self._frames)}")
        if frame != self._frame:
            self._keep()
            self._frame = frame
            self._show()

    def __reduce__(self) -> tuple[Any, ...]:
        self._keep()
        return FramedImage, (self._frames, self._frame, self.format)

    def _show(self) -> None:
        _move(self._frames[self._frame], self)

    def _keep(self) -> None:
        _move(self, self._frames[self._frame])


def _move(source: Image.Image, target: Image.Image) -> None:
    source.load()
    target.im = source.im
    target._mode, target._size = source.mode, source.size
    target.palette, target.info, target._exif = source.palette, source.info, source._exif
